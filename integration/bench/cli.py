"""What ``asnap`` costs over a large store: listing, searching once indexed, and starting up.

``python -m integration.bench.cli [--quick] [--place DIR]`` prints one Markdown table. A value in bold misses its
goal. The store, of 1000 sessions of 200 turns, is made once and kept in *DIR* (a directory below the system's
temporary one unless given); with ``--quick`` there are 40.

Each command runs as a process of its own, Python's start included. The measure is processor time, which on an idle
machine is what a user waits for and on a busy one does not change much; the clock's time stands beside it.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio

from integration.bench.sessions import Turn, turns
from snapshot_plugin.model import Message, SessionSnapshot
from snapshot_plugin.model.content import TextBlock, ToolCallBlock
from snapshot_plugin.model.snapshot import AgentInfo, Metrics, SessionConfig
from snapshot_plugin.store.filesystem import FilesystemStore

_TURNS = 200
_POOL = 400
_OUTPUT = 600
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_PROJECTS = ("shop", "billing", "parser", "website", "firmware")
_AGENTS = ("gemini", "codex", "claude-code")


@dataclass
class Row:
    """One question and its answer."""

    question: str
    seconds: float
    goal: float | None
    detail: str = ""

    def markdown(self) -> str:
        """The line of the table."""
        shown = f"{self.seconds:.3f} s"
        cell = f"**{shown}**" if self.goal is not None and self.seconds > self.goal else shown
        goal = "" if self.goal is None else f"< {self.goal:g} s"
        return f"| {self.question} | {goal} | {cell} | {self.detail} |"


# The store -------------------------------------------------------------------------------------------------


async def make_store(place: Path, *, sessions: int) -> None:
    """A store of *sessions*, each saved with all but its last turn, and with that one, as its newest frame.

    Saving every turn would take hours, and is of no account here: a list reads the newest frame of a session, a
    search its newest state.
    """
    if (place / "made").exists():
        return
    pool = [tuple(_messages(turn)) for turn in turns(_POOL)]
    print(f"making {sessions} sessions of {_TURNS} turns in {place} …", file=sys.stderr)
    async with FilesystemStore(place / "store", background=False) as store:
        for number in range(sessions):
            session = _session(number, pool)
            await store.save(session.evolve(messages=session.messages[:-2]))
            await store.save(session)
    (place / "made").write_text("")


def _messages(turn: Turn) -> Iterator[Message]:
    output = {"type": "content", "content": {"type": "text", "text": turn.output[:_OUTPUT]}}
    call = ToolCallBlock(
        tool_call_id=f"call-{turn.number}", title=turn.tool, status="completed",
        raw_input=turn.arguments, content=[output],
    )  # fmt: skip
    yield Message(role="user", content=turn.question)
    yield Message(role="assistant", content=(TextBlock(text=turn.plan), call, TextBlock(text=turn.answer)))


def _session(number: int, pool: Sequence[tuple[Message, ...]]) -> SessionSnapshot:
    rng = random.Random(number)
    began = _BEGIN + timedelta(hours=number * 5)
    said = [message for _ in range(_TURNS) for message in rng.choice(pool)]
    said[rng.randrange(0, len(said), 2)] = Message(role="user", content=f"the needle of session{number} is here")
    return SessionSnapshot(
        session_id=f"session-{number:05d}", title=f"Session {number}", messages=tuple(said),
        created_at=began, updated_at=began + timedelta(hours=2), provider_type="acp",
        agent=AgentInfo(name=rng.choice(_AGENTS)), config=SessionConfig(cwd=f"/home/me/{rng.choice(_PROJECTS)}"),
        metrics=Metrics(turns=_TURNS, total_tokens=rng.randrange(10_000, 900_000), cost=rng.random()),
    )  # fmt: skip


# The measurements ------------------------------------------------------------------------------------------


@dataclass
class Ran:
    """How long one command took, on the clock and on the processor."""

    wall: float
    cpu: float
    out: str


def asnap(place: Path, *words: str) -> Ran:
    """Run a command as a user would, on the store in *place*, with the index beside it."""
    line = [sys.executable, "-m", "snapshot_plugin", *words, "--store", str(place / "store")]
    environ = {**os.environ, "XDG_CACHE_HOME": str(place / "cache"), "XDG_STATE_HOME": str(place / "state")}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(line, env=environ, check=True, capture_output=True, text=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Ran(wall, cpu, done.stdout)


def measured(place: Path, question: str, *words: str, goal: float | None, repeat: int) -> Row:
    """The median of several runs."""
    runs = [asnap(place, *words) for _ in range(repeat)]
    cpu, wall = [run.cpu for run in runs], [run.wall for run in runs]
    lines = len(runs[0].out.splitlines())
    return Row(
        question, statistics.median(cpu), goal, f"best {min(cpu):.3f}, by the clock {min(wall):.3f}; {lines} lines"
    )


def rows(place: Path, *, sessions: int, repeat: int) -> Iterator[Row]:
    """Every line of the table."""
    yield measured(place, "start-up of `asnap paths`", "paths", goal=0.15, repeat=repeat)
    yield measured(place, f"`asnap list` of {sessions} sessions", "list", "--all", goal=0.3, repeat=repeat)
    first = asnap(place, "search", "--rebuild", "needle")
    size = _size(place / "cache")
    yield Row(
        "`asnap search`, nothing indexed yet", first.cpu, None, f"by the clock {first.wall:.1f}; index {size} MB"
    )
    one = f"session{sessions // 2}"
    for what, query in (("one message", one), ("a message of each session", "needle"), ("a common word", "the")):
        yield measured(place, f"`asnap search`, {what}", "search", query, goal=0.2, repeat=repeat)
    yield measured(place, "`asnap search`, within one session", "search", "the", "latest", goal=0.2, repeat=repeat)
    yield measured(place, "`asnap stats`", "stats", goal=None, repeat=repeat)


def _size(place: Path) -> int:
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file()) // 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="40 sessions, under 20 seconds")
    parser.add_argument("--place", type=Path, help="where the store is made, and found again")
    chosen = parser.parse_args()
    sessions, repeat = (40, 3) if chosen.quick else (1000, 7)
    place = chosen.place or Path(tempfile.gettempdir()) / f"asnap-bench-cli-{os.getuid()}-{sessions}"
    anyio.run(lambda: make_store(place, sessions=sessions))
    print("| question | goal | processor time | |\n|---|--:|--:|---|")
    for row in rows(place, sessions=sessions, repeat=repeat):
        print(row.markdown(), flush=True)


if __name__ == "__main__":
    main()
