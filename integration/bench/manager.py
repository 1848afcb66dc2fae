"""What the manager costs: idle CPU, lateness of the event loop while sessions save, entry with a large memory.

``python -m integration.bench.manager [--quick] [--place DIR]`` prints one Markdown table. A value in bold misses
its goal.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import anyio

from integration.bench.sessions import turns
from snapshot_plugin.manager.config import SnapshotConfig
from snapshot_plugin.manager.manager import SnapshotManager
from snapshot_plugin.manager.persistent import persistent_session
from snapshot_plugin.model import Message, SessionSnapshot
from snapshot_plugin.store.filesystem import FilesystemStore

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_TICK = 0.001
_ENTRY = 100 * 1024


@dataclass
class Row:
    """One question and its answer."""

    question: str
    value: float
    unit: str
    goal: float | None
    detail: str = ""

    def markdown(self) -> str:
        """The line of the table."""
        shown = f"{self.value:.2f} {self.unit}"
        if self.goal is None:
            return f"| {self.question} | | {shown} | {self.detail} |"
        cell = f"**{shown}**" if self.value > self.goal else shown
        return f"| {self.question} | < {self.goal:g} {self.unit} | {cell} | {self.detail} |"


class Session:
    """A live session that grows by whole turns. Gives the same snapshot until it does."""

    def __init__(self, session_id: str, messages: Sequence[Message] = ()) -> None:
        self.session_id = session_id
        self.state = SessionSnapshot(
            session_id=session_id, created_at=_NOW, updated_at=_NOW, messages=tuple(messages)
        )

    def grow(self, messages: Sequence[Message]) -> None:
        """Another turn."""
        self.state = self.state.append(*messages)

    def snapshot(self) -> SessionSnapshot:
        """What it is now."""
        return self.state


class Rebuilt(Session):
    """The careless kind: makes a new snapshot each time it is asked, with the time in it."""

    def snapshot(self) -> SessionSnapshot:
        """What it is now."""
        return self.state.evolve(updated_at=datetime.now(UTC))


class Agent:
    """Has a history, and a memory beside it."""

    def __init__(self) -> None:
        self.history: list[dict[str, str]] = []


async def idle_cpu(place: Path, kind: type[Session], *, sessions: int, seconds: float) -> Row:
    """CPU of one core that auto-snapshot of unchanged sessions takes, beyond an idle event loop."""
    config = SnapshotConfig(snapshot_interval=1.0)
    async with FilesystemStore(place) as store, SnapshotManager(store, config) as manager:
        for number in range(sessions):
            session = kind(f"idle-{number}", _message("hello"))
            await manager.start_auto_snapshot(session)
            await manager.snapshot(session)
        await anyio.sleep(4)
        before = time.process_time()
        await anyio.sleep(seconds)
        used = time.process_time() - before
    value = 100 * used / seconds
    how = "same snapshot each time" if kind is Session else "new, equal snapshot each time"
    return Row(f"CPU of {sessions} idle sessions at 1 s, {how}", value, "%", 5)


async def loop_delay(place: Path, *, sessions: int, rounds: int, together: int) -> Row:
    """How late a task runs that wants to run every millisecond, while all sessions save at once."""
    supply = _supply()
    config = SnapshotConfig(snapshot_interval=3600, event_debounce=3600, max_concurrent_saves=together)
    late: list[float] = []
    quiet: list[float] = []
    async with FilesystemStore(place) as store, SnapshotManager(store, config) as manager:
        live = [Session(f"busy-{number}", next(supply)) for number in range(sessions)]
        for session in live:
            await manager.start_auto_snapshot(session)
        gc.freeze()  # the collector's walk over all that was imported is not what is asked about
        await _measured(quiet, 0.5)
        saved = []
        for _ in range(rounds):
            for session in live:
                session.grow(next(supply))
            began = time.perf_counter()
            async with anyio.create_task_group() as saving:
                pulse = anyio.CancelScope()
                saving.start_soon(_pulse, late, pulse)
                async with anyio.create_task_group() as all_at_once:
                    for session in live:
                        all_at_once.start_soon(manager.snapshot, session)
                pulse.cancel()
            saved.append(time.perf_counter() - began)
    detail = (
        f"p50 {1000 * _at(late, 50):.2f} ms, worst {1000 * max(late):.1f} ms; without saves p99 "
        f"{1000 * _at(quiet, 99):.2f} ms; all {sessions} saved in {1000 * statistics.median(saved):.0f} ms"
    )
    question = f"event-loop delay p99, {sessions} sessions save 17 KB at once, {together} at a time"
    goal = 10 if together == SnapshotConfig().max_concurrent_saves else None
    return Row(question, 1000 * _at(late, 99), "ms", goal, detail)


async def entry_time(place: Path, *, megabytes: int) -> Row:
    """Time to enter a persistent session that has much in its memory, and to leave it."""
    entries = megabytes * 1024 * 1024 // _ENTRY
    text = "".join(message.text for _, messages in zip(range(40), _supply(), strict=False) for message in messages)
    async with persistent_session(Agent(), agent_id="rememberer", store=place) as session:
        for number in range(entries):
            start = (number * 7919) % (len(text) - _ENTRY) if len(text) > _ENTRY else 0
            await session.memory.set(f"entry-{number}", f"{number}{text[start : start + _ENTRY]:<{_ENTRY}}")
    del session, text
    gc.collect()
    began = time.perf_counter()
    async with persistent_session(Agent(), agent_id="rememberer", store=place) as session:
        entered = time.perf_counter() - began
        began = time.perf_counter()
        await session.memory.get("entry-0")
        first_use = time.perf_counter() - began
        began = time.perf_counter()
    left = time.perf_counter() - began
    size = _size(place) / 2**20
    detail = f"first use of the memory {first_use:.2f} s, leaving {left:.3f} s, {size:.0f} MB on disk"
    return Row(f"entry with {megabytes} MB of memory entries", entered, "s", 0.5, detail)


def _size(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*.gz"))


def _message(text: str) -> tuple[Message, ...]:
    return (Message(role="user", content=text),)


def _supply() -> Iterator[tuple[Message, ...]]:
    """Turns without end. Messages are made anew each time, as a session would."""
    for turn in itertools.cycle(turns(200)):
        answer = f"{turn.plan}\n{turn.output}\n{turn.answer}"
        yield (Message(role="user", content=turn.question), Message(role="assistant", content=answer))


async def _pulse(late: list[float], scope: anyio.CancelScope) -> None:
    with scope:
        while True:
            before = time.perf_counter()
            await anyio.sleep(_TICK)
            late.append(time.perf_counter() - before - _TICK)


async def _measured(late: list[float], seconds: float) -> None:
    await _pulse(late, anyio.CancelScope(deadline=anyio.current_time() + seconds))


def _at(values: Sequence[float], percent: int) -> float:
    return sorted(values)[(len(values) - 1) * percent // 100]


async def main(*, quick: bool, place: Path) -> None:
    seconds, rounds, megabytes = (3.0, 10, 20) if quick else (20.0, 60, 100)
    print("| question | goal | value | |")
    print("|---|--:|--:|---|")
    print((await idle_cpu(place / "a", Session, sessions=100, seconds=seconds)).markdown(), flush=True)
    print((await idle_cpu(place / "b", Rebuilt, sessions=100, seconds=seconds)).markdown(), flush=True)
    for together in (SnapshotConfig().max_concurrent_saves, 20):
        row = await loop_delay(place / f"c{together}", sessions=20, rounds=rounds, together=together)
        print(row.markdown(), flush=True)
    print((await entry_time(place / "d", megabytes=megabytes)).markdown(), flush=True)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--place", type=Path, default=Path.cwd())
    options.add_argument("--backend", default="asyncio")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(dir=given.place) as directory:
        anyio.run(lambda: main(quick=given.quick, place=Path(directory)), backend=given.backend)
