"""The budgets of the specification, in processor time, which does not depend on who else uses the machine.

`integration/bench/memory.py` measures the same on the clock.
"""

from __future__ import annotations

import gc
import random
import time
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from snapshot_plugin.memory import MemoryLimits, ProjectMemory
from snapshot_plugin.memory.changes import MemoryChange
from snapshot_plugin.memory.context import context_of
from snapshot_plugin.memory.engine import MemoryEngine
from snapshot_plugin.memory.files import name_of
from snapshot_plugin.model.times import rfc3339
from tests.memory.opening import MIB, filled, text

LIMITS = MemoryLimits(project_bytes=12 * MIB)


def now() -> datetime:
    return datetime.now(UTC)


def engine_of(project: Path) -> MemoryEngine:
    return MemoryEngine(project, limits=LIMITS, state=project.parent / "state", clock=now)


def change(op: str, namespace: str = "", key: str = "", data: object = None) -> MemoryChange:
    return MemoryChange(op, namespace, key, data, 1, rfc3339(now()))  # type: ignore[arg-type]


def context(engine: MemoryEngine) -> object:
    return context_of(engine.view(), project="p", now=now())


@pytest.fixture
def full(project: Path) -> Path:
    """A project with ten megabytes of memory."""
    return filled(project)


def milliseconds(work: Callable[[], object]) -> float:
    gc.collect()  # what other tests left is not on this bill
    started = time.process_time()
    work()
    return (time.process_time() - started) * 1000


def best(times: int, work: Callable[[], object]) -> float:
    return min(milliseconds(work) for _ in range(times))


def observe(engine: MemoryEngine) -> None:
    for n in range(100):
        engine.queue.append(change("save", "errors", "history", {"fingerprint": f"seen {n}"}))
        engine.queue.append(change("save", "api_schema", "schema", {"endpoint": f"GET /{n}"}))
        engine.queue.append(change("save", "performance", "endpoints", {"endpoint": f"GET /{n}", "ms": 3}))


@pytest.mark.requirement(
    "GASOLINE-PERF-OPEN",
    "GASOLINE-PERF-CONTEXT",
    "GASOLINE-PERF-SAVE",
    "GASOLINE-PERF-LOAD",
    "GASOLINE-PERF-FLUSH",
    "GASOLINE-PERF-SHUTDOWN",
)
def test_every_budget_is_kept_with_ten_megabytes_stored(full: Path) -> None:
    engine = engine_of(full)
    assert milliseconds(lambda: engine.write(change("begin"))) < 100
    assert engine.view().total > 9.9 * MIB
    assert best(2, lambda: context(engine)) < 200
    large = text(random.Random(1), MIB - 100)
    assert best(2, lambda: engine.write(change("save", "large", "one", large))) < 50
    assert best(2, lambda: engine.load(name_of("large", "one"))) < 20
    flushes = []
    for _ in range(3):
        observe(engine)
        flushes.append(milliseconds(engine.write))
    assert min(flushes) < 100
    observe(engine)
    assert milliseconds(lambda: engine.write(change("end"))) + milliseconds(engine.close) < 500


@pytest.mark.requirement("GASOLINE-PERF-MEMORY")
def test_open_memory_uses_less_than_a_megabyte(full: Path) -> None:
    engine = engine_of(full)
    engine.write(change("begin"))
    context(engine)
    engine.close()
    tracemalloc.start()
    try:
        engine = engine_of(full)
        engine.write(change("begin"))
        context(engine)
        engine.load(name_of("large", "one"))
        held, _ = tracemalloc.get_traced_memory()
        engine.close()
    finally:
        tracemalloc.stop()
    assert held < MIB


def test_statistics_leave_no_view_of_the_memory_behind(full: Path) -> None:
    async def held() -> int:
        async with ProjectMemory(full, limits=LIMITS, state=full.parent / "state") as memory:
            await memory.stats()  # from now on, the process holds what it keeps for all memories
            tracemalloc.start()
            try:
                await memory.stats()
                return tracemalloc.get_traced_memory()[0]
            finally:
                tracemalloc.stop()

    assert anyio.run(held) < MIB // 4


@pytest.mark.requirement("GASOLINE-FLUSH-DIRTY")
def test_an_idle_memory_writes_nothing(project: Path) -> None:
    engine = engine_of(project)
    engine.write(change("begin"))
    engine.write()
    files = {file: file.stat().st_mtime_ns for file in project.parent.rglob("*") if file.is_file()}
    engine.write()
    assert {file: file.stat().st_mtime_ns for file in project.parent.rglob("*") if file.is_file()} == files
    engine.close()
