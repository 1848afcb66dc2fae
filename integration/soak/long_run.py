"""A long conversation through the proxy, with a kill of each process now and then: nothing lost, nothing grows.

After each turn it is measured how much memory and how many open files the proxy has, what the store takes on disk,
and how many files lie about that nobody needs any more.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from integration.soak.conversation import Conversation, Gone
from integration.soak.mutations import Mutation, leaking, never_emptied, nothing
from integration.soak.program import Case, Program, Tally
from snapshot_plugin.model.ids import dirname_of
from snapshot_plugin.store.filenames import SPOOL_FILES

__all__ = ["PROGRAM", "Sample", "cases", "judge"]

_SCRIPTS = (
    "say yes",
    "stream 60 1",
    "tool\nsay done",
    "ask\nsay thanks",
    "plan\nthink\nsay so",
    "stream 400\ntool",
)
_LIMITS = {"memory": 150, "handles": 40, "spool": 16 * 1024, "extra": 6}
_MORE_MB = 30
_PATIENCE = 30.0
"""Seconds within which a turn has become a snapshot, and the spool is empty again."""


@dataclass(frozen=True)
class Sample:
    """What a proxy takes, at the end of a turn."""

    turns: int
    memory: float
    """Megabytes."""
    handles: int
    store: int
    """Bytes of frames."""
    spool: int
    """Bytes of the spool, once the turn has become a snapshot."""
    extra: int
    """Temporary files, files set aside, leftovers."""
    said: int
    """Characters of the conversation."""


def _sample(talk: Conversation, patience: float) -> Sample:
    process, session = Path(f"/proc/{talk.client.pid}"), talk.store / "sessions" / dirname_of(talk.session_id)
    _settle(session, patience)
    resident = next(line for line in (process / "status").read_text().splitlines() if line.startswith("VmRSS"))
    files = {file.name: file.stat().st_size for file in session.iterdir() if file.is_file()}
    expected = {".lock", ".lease", ".lease.gate", *SPOOL_FILES}
    return Sample(
        turns=len(talk.turns),
        memory=int(resident.split()[1]) / 1024,
        handles=len(list((process / "fd").iterdir())),
        store=sum(size for name, size in files.items() if name.endswith(".snap.gz")),
        spool=sum(files.get(name, 0) for name in SPOOL_FILES),
        extra=len([name for name in files if name not in expected and not name.endswith(".snap.gz")]),
        said=sum(len(turn.prompt) + len(turn.seen()) for turn in talk.turns),
    )


def _settle(session: Path, patience: float) -> None:
    deadline, spool = time.monotonic() + patience, [session / name for name in SPOOL_FILES]
    while sum(file.stat().st_size for file in spool) > _LIMITS["spool"] and time.monotonic() < deadline:
        time.sleep(0.05)


def judge(samples: list[Sample], tally: Tally) -> None:
    """Hold the samples against the limits, and note the largest of each kind."""
    last = samples[-1]
    tally.other["bytes on disk per turn"] = round(last.store / max(1, last.turns))
    for name, limit in _LIMITS.items():
        most = max(getattr(sample, name) for sample in samples)
        tally.other[f"largest {name}"] = round(most)
        if most > limit:
            tally.fault(f"{name} reaches {most:g}, over {limit}")
    if last.store > 100_000 + 4_000 * last.turns + 2 * last.said:
        tally.fault(f"the store takes {last.store} bytes for {last.said} characters")
    early = [sample.memory for sample in samples[: max(1, len(samples) // 4)]]
    late = [sample.memory for sample in samples[-max(1, len(samples) // 4) :]]
    if min(late) - max(early) > _MORE_MB + 10 * last.said / 1e6:
        tally.fault(f"memory grows from {max(early):.0f} to {min(late):.0f} MB")


def _run(minutes: float, mutate: Mutation, turns: int) -> Tally:
    """Talk for so many *minutes*, and at least so many *turns*; about one turn in eight ends with a kill."""
    tally, chance, samples = Tally(), random.Random(20261116), list[Sample]()
    until = time.monotonic() + minutes * 60
    with tempfile.TemporaryDirectory(prefix="asnap-soak-") as folder:
        talk = Conversation(Path(folder), mutate=mutate)
        try:
            talk.start()
            talk.begin()
            while time.monotonic() < until or tally.rounds < turns:
                _turn(talk, chance, tally)
                samples.append(_sample(talk, _PATIENCE if mutate is nothing else 2.0))
                if mutate is not nothing and _is_found(samples, tally):
                    return tally
                if len(talk.turns) > _LONGEST:
                    _begin_anew(talk, tally)
            talk.end()
            talk.come_back(tally)
        finally:
            talk.end()
    judge(samples, tally)
    return tally


def _is_found(samples: list[Sample], tally: Tally) -> bool:
    judge(samples, tally)
    return tally.broken > 0


_LONGEST = 400
"""Turns of one session; then another is begun, in the same store."""


def _begin_anew(talk: Conversation, tally: Tally) -> None:
    talk.end()
    talk.come_back(tally)
    talk.turns = []
    talk.begin()
    tally.other["sessions"] += 1


def _turn(talk: Conversation, chance: random.Random, tally: Tally) -> None:
    """One turn. An agent that dies four times in a minute is not started again: the proxy says so and ends."""
    try:
        _talk(talk, chance, tally)
    except Gone:
        if not talk.gave_up:
            raise
        tally.other["given up"] += 1
        talk.end()
        talk.come_back(tally)


def _talk(talk: Conversation, chance: random.Random, tally: Tally) -> None:
    number = talk.say(chance.choice(_SCRIPTS))
    tally.rounds += 1
    if chance.random() > 0.12:
        talk.hear(number)
        return
    who = chance.choice(("both", "proxy", "agent"))
    talk.hear_some(chance.randrange(40))
    talk.kill(who)
    tally.other[f"kills of {who}"] += 1
    if who == "agent":
        talk.hear(number)
    else:
        talk.come_back(tally)


def _no_proc() -> str | None:
    return None if sys.platform == "linux" else "reads memory and open files from /proc"


def cases(minutes: float) -> Iterator[Case]:
    """The cases, of which the first takes so many minutes."""
    yield Case("proxy", partial(_run, minutes, nothing), 200, 15, needs=_no_proc)
    yield Case("proxy", partial(_run, 0, leaking), 60, 60, without="closing of files", needs=_no_proc)
    yield Case("proxy", partial(_run, 0, never_emptied), 60, 60, without="emptying the spool", needs=_no_proc)


PROGRAM = Program(
    "a long run",
    "Hours of turns with kills of each process: nothing is lost; memory, open files and disk stay bounded.",
    tuple(cases(60)),
)
