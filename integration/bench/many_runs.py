"""What `integration.bench.many` runs: the contenders, and one round of each."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.to_thread

from integration.bench.contenders import State, states
from integration.bench.measure import quantile
from integration.bench.sessions import turns
from snapshot_plugin import FilesystemStore

__all__ = ["Measured", "measure"]

Save = Callable[[str, State], Coroutine[Any, Any, None]]


class Measured(NamedTuple):
    """One contender at one number of sessions."""

    rate: float
    p99: float
    cpu: float


@asynccontextmanager
async def _ours(path: Path) -> Any:
    async with FilesystemStore(path) as store:

        async def save(_session_id: str, state: State) -> None:
            await store.save(state.snapshot)

        yield save


def _sqlite(*, files: bool) -> Any:
    @asynccontextmanager
    async def contender(path: Path) -> Any:
        made: dict[str, Any] = {}

        async def save(session_id: str, state: State) -> None:
            if session_id not in made:
                name = f"{session_id}.db" if files else "sessions.db"
                made[session_id] = import_module("agents").SQLiteSession(session_id, path / name)
            await made[session_id].add_items(state.items)

        yield save
        for session in made.values():
            session.close()

    return contender


@asynccontextmanager
async def _append(path: Path) -> Any:
    def write(session_id: str, items: list[Any]) -> None:
        fd = os.open(path / session_id, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, json.dumps(items).encode() + b"\n")
            os.fdatasync(fd)
        finally:
            os.close(fd)

    async def save(session_id: str, state: State) -> None:
        await anyio.to_thread.run_sync(write, session_id, state.items)

    yield save


_CONTENDERS: dict[str, Any] = {
    "ours": _ours,
    "SQLiteSession, one file": _sqlite(files=False),
    "SQLiteSession, a file each": _sqlite(files=True),
    "bare append": _append,
}


async def _run(save: Save, sessions: int, material: list[State]) -> Measured:
    took: list[float] = []
    names = [f"session-{number}" for number in range(sessions)]
    has = {name: [state.of(name) for state in material] for name in names}  # what a caller has in hand

    async def live(session_id: str) -> None:
        for state in has[session_id]:
            start = time.perf_counter()
            await save(session_id, state)
            took.append(time.perf_counter() - start)

    async with anyio.create_task_group() as tasks:  # first saves make files: not what is measured
        for name in names:
            tasks.start_soon(save, name, has[name][0])
    cpu, start = time.process_time(), time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(live, name)
    seconds = time.perf_counter() - start
    return Measured(len(took) / seconds, quantile(took, 0.99), (time.process_time() - cpu) / len(took))


async def measure(counts: list[int], saves: int, rounds: int, where: Path) -> list[tuple[int, str, Measured]]:
    """Every contender at each number of sessions: the medians of *rounds* rounds, below the directory *where*."""
    rows = []
    material = list(states(turns(saves + 1)))
    for count in counts:
        found: dict[str, list[Measured]] = {name: [] for name in _CONTENDERS}
        for _ in range(rounds):
            for name, contender in _CONTENDERS.items():
                with tempfile.TemporaryDirectory(dir=where) as place:
                    async with contender(Path(place)) as save:
                        found[name].append(await _run(save, count, material))
        rows += [
            (count, name, Measured(*map(statistics.median, zip(*runs, strict=True))))
            for name, runs in found.items()
        ]
    return rows
