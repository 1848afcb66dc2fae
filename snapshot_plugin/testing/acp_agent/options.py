"""The flags of the scripted agent: its capabilities and its faults."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["CAPABILITIES", "MISBEHAVIOURS", "Options", "parse"]

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
    "repeats-ids": "gives each session of a process the same id",
    "hidden-names": "gives its sessions ids that asnap uses for parts of other sessions",
    "long-names": "gives its sessions ids that are longer than a file name may be",
    "shows-cut-off": "keeps and replays the words of a turn that was cut off",
    "finishes-on-load": "session/load finishes a turn that was cut off, with new words",
    "foreign-turns": "session/load also replays turns of another session",
    "session-active": "refuses the first session/load of each process: the session is active elsewhere",
    "string-errors": "answers with errors that are strings",
    "shapeless-errors": "answers with errors that have no code and no text",
    "empty-errors": "answers with neither a result nor an error where it refuses",
    "titles-from-prompt": "takes the beginning of a prompt for the session's title",
    "leaves-tools-pending": "does not say that its tools are finished",
    "dies-when-restarted": "kills itself on initialize, except in its first process",
    "refuses-when-restarted": "refuses initialize, except in its first process",
    "outlives-stdin": "does not end when its stdin does",
}


class Options(NamedTuple):
    """The options of one agent."""

    state: Path | None
    login: Path | None
    refuse: Path | None
    hold: Path | None
    name: str
    can: frozenset[str]
    misbehaves: frozenset[str]


def parse(arguments: Sequence[str]) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="acp_agent", description="A scripted ACP agent for tests.")
    parser.add_argument("--state", type=Path, metavar="FILE", help="keep sessions in this file")
    parser.add_argument(
        "--login", type=Path, metavar="FILE", help="demand authenticate with the method this file names"
    )
    parser.add_argument(
        "--refuse", type=Path, metavar="FILE", help="refuse to make or load sessions while this file exists"
    )
    parser.add_argument("--hold", type=Path, metavar="FILE", help="do not answer initialize while this file exists")
    parser.add_argument("--name", default="scripted-agent", help="what it calls itself")
    for name in CAPABILITIES:
        parser.add_argument(f"--no-{name}", dest="cannot", action="append_const", const=name, default=[])
    listed = "; ".join(f"{name}: {meaning}" for name, meaning in MISBEHAVIOURS.items())
    parser.add_argument("--misbehave", action="append", choices=MISBEHAVIOURS, default=[], help=listed)
    given = parser.parse_args(arguments)
    cannot = {*given.cannot, *(["load"] if "fake-load" in given.misbehave else [])}
    return Options(
        given.state,
        given.login,
        given.refuse,
        given.hold,
        given.name,
        frozenset(CAPABILITIES) - cannot,
        frozenset(given.misbehave),
    )
