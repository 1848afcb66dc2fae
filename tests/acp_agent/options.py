"""The flags of the scripted agent: its capabilities and its faults.

Test suites start the agent thousands of times, so it starts without `argparse` and `pathlib`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

__all__ = ["CAPABILITIES", "MISBEHAVIOURS", "Options", "exists", "parse"]

CAPABILITIES = ("load", "resume", "list", "fork", "close", "delete")
MISBEHAVIOURS = {
    "blank-load": "session/load succeeds and knows nothing",
    "partial-load": "session/load has lost the newest finished turn",
    "late-replay": "session/load answers first and replays then",
    "slow-replay": "as late-replay, with a pause before each turn",
    "changed-tool-ids": "replayed tool calls have other ids",
    "false-completed": "a tool call that never finished is replayed as completed",
    "echo-prompts": "repeats the user's prompt in the turn",
    "load-hangs": "never answers session/load",
    "crash-on-load": "kills itself on session/load",
    "crash-on-load-of-the-first": "kills itself on session/load of the first session it ever made",
    "garbage-stdout": "writes what is no message between its messages",
    "floods-stdout": "writes 20,000 lines that are no messages before it answers initialize",
    "long-line-no-newline": "begins turns with a message of 1 MB whose newline comes late",
    "dies-during-permission": "kills itself once it has asked for permission",
    "fake-load": "answers session/load with {} without offering it",
    "resume-replays": "session/resume replays the history, which it must not",
    "acknowledged-loss": "forgets, when it is started again, the last answer it gave",
    "counts-sessions": "names its sessions s-1, s-2, … anew in each process",
    "repeats-ids": "has one session, and answers session/new with its id each time",
    "hidden-names": "gives its sessions ids that asnap uses for parts of other sessions",
    "long-names": "gives its sessions ids that are longer than a file name may be",
    "control-names": "gives its sessions ids with colours and line ends",
    "shows-cut-off": "keeps and replays the words of a turn that was cut off",
    "finishes-on-load": "session/load finishes a turn that was cut off, with new words",
    "goes-on": "says more and uses a tool, without a prompt, when its mode is set",
    "foreign-turns": "session/load also replays turns of another session",
    "session-active": "refuses the first session/load of each process: the session is active elsewhere",
    "string-errors": "answers with errors that are strings",
    "shapeless-errors": "answers with errors that have no code and no text",
    "empty-errors": "answers with neither a result nor an error where it refuses",
    "titles-from-prompt": "takes the beginning of a prompt for the session's title",
    "leaves-tools-pending": "does not say that its tools are finished",
    "hides-outcomes": "as leaves-tools-pending, and shows what its tools gave only when it replays them",
    "dies-at-first": "kills itself on initialize in its first process",
    "dies-when-restarted": "kills itself on initialize, except in its first process",
    "refuses-when-restarted": "refuses initialize, except in its first process",
    "outlives-stdin": "does not end when its stdin does",
    "stops-reading": "closes its stdin after a prompt, except in later processes, and runs on",
    "null-results": "answers with null where it has nothing to say",
    "asks-on-load": "asks the client for a file on session/load",
    "version-2": "speaks only version 2 of the protocol, and answers with it",
    "refuses-version-1": "speaks only version 2 of the protocol, and refuses others",
    "both-versions": "speaks versions 1 and 2 of the protocol",
}


_VALUES = {
    "state": "a file: keep sessions in it",
    "login": "a file: demand authenticate with the method that it names",
    "refuse": "a file: refuse to make or load sessions while it exists",
    "hold": "a file: initialize, make and load nothing while it exists",
    "name": "what the agent calls itself",
}


class Options:
    """The options of one agent."""

    def __init__(self, values: dict[str, str], can: frozenset[str], misbehaves: frozenset[str]) -> None:
        self.state, self.login = values.get("state"), values.get("login")
        self.refuse, self.hold = values.get("refuse"), values.get("hold")
        self.name = values.get("name", "scripted-agent")
        self.can, self.misbehaves = can, misbehaves


def exists(path: str | None) -> bool:
    """Whether a file is named and exists."""
    return path is not None and os.path.exists(path)  # noqa: PTH110 — without `pathlib`


def parse(arguments: Sequence[str]) -> Options:
    """Read the command line; exits with a list of all flags if one is wrong."""
    values: dict[str, str] = {}
    cannot: set[str] = set()
    misbehaves: set[str] = set()
    words = iter(arguments)
    for word in words:
        name = word.removeprefix("--")
        if name in _VALUES:
            values[name] = next(words, "")
        elif name == "misbehave" and (fault := next(words, "")) in MISBEHAVIOURS:
            misbehaves.add(fault)
        elif name in {f"no-{each}" for each in CAPABILITIES}:
            cannot.add(name.removeprefix("no-"))
        else:
            _refuse(word)
    if "fake-load" in misbehaves:
        cannot.add("load")
    return Options(values, frozenset(CAPABILITIES) - cannot, frozenset(misbehaves))


def _refuse(word: str) -> NoReturn:
    flags = [f"--{name} VALUE: {meaning}" for name, meaning in _VALUES.items()]
    flags += [f"--no-{name}" for name in CAPABILITIES]
    flags += [f"--misbehave {name}: {meaning}" for name, meaning in MISBEHAVIOURS.items()]
    sys.stderr.write("\n".join([f"the scripted agent does not understand {word}; its flags are", *flags, ""]))
    sys.exit(2)
