"""The budgets of the specification, in processor time, which does not depend on who else uses the machine.

`integration/bench/memory.py` measures the same on the clock.
"""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from snapshot_plugin.memory import ErrorRecord, Limits
from snapshot_plugin.memory.archive import Archive
from snapshot_plugin.memory.flush import flush
from snapshot_plugin.memory.names import name_of
from snapshot_plugin.memory.overview import context_of
from snapshot_plugin.memory.register import ProjectRegister
from snapshot_plugin.memory.seen import Seen
from tests.memory.opening import MIB, filled, text


def now() -> datetime:
    return datetime.now(UTC)


def archive_of(project: Path) -> Archive:
    register = ProjectRegister(project.parent / "register")
    return Archive(project, limits=Limits(project_bytes=12 * MIB), state=register, clock=now)


@pytest.fixture
def full(project: Path) -> Path:
    """A project with ten megabytes of memory."""
    return filled(project)


def milliseconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return (time.process_time() - started) * 1000


def best(times: int, work: Callable[[], object]) -> float:
    return min(milliseconds(work) for _ in range(times))


def see(seen: Seen, archive: Archive) -> None:
    for n in range(100):
        error = ErrorRecord(fingerprint=f"seen {n}", first_seen=now(), last_seen=now())
        seen.add_error(error, archive.limits, now())


@pytest.mark.requirement(
    "GASOLINE-PERF-OPEN",
    "GASOLINE-PERF-CONTEXT",
    "GASOLINE-PERF-SAVE",
    "GASOLINE-PERF-LOAD",
    "GASOLINE-PERF-FLUSH",
    "GASOLINE-PERF-SHUTDOWN",
)
def test_every_budget_is_kept_with_ten_megabytes_stored(full: Path) -> None:
    archive, seen = archive_of(full), Seen()
    assert milliseconds(archive.begin) < 100
    assert archive.shelf.total > 9.9 * MIB
    assert best(2, lambda: context_of(archive, seen)) < 200
    large = text(random.Random(1), MIB - 100)
    assert best(2, lambda: archive.save(name_of("large", "one"), large)) < 50
    assert best(2, lambda: archive.load(name_of("large", "one"))) < 20
    see(seen, archive)
    assert milliseconds(lambda: flush(archive, seen)) < 100
    see(seen, archive)
    assert milliseconds(lambda: flush(archive, seen)) + milliseconds(archive.end) < 500


@pytest.mark.requirement("GASOLINE-PERF-MEMORY")
def test_an_open_memory_holds_less_than_a_megabyte(full: Path) -> None:
    archive = archive_of(full)
    archive.begin()
    context_of(archive, Seen())
    archive.end()
    tracemalloc.start()
    try:
        archive = archive_of(full)
        archive.begin()
        context_of(archive, Seen())
        archive.load(name_of("large", "one"))
        held, _ = tracemalloc.get_traced_memory()
        archive.end()
    finally:
        tracemalloc.stop()
    assert held < MIB


@pytest.mark.requirement("GASOLINE-FLUSH-DIRTY")
def test_an_idle_memory_writes_nothing(project: Path) -> None:
    archive, seen = archive_of(project), Seen()
    archive.begin()
    flush(archive, seen)
    files = {file: file.stat().st_mtime_ns for file in project.parent.rglob("*") if file.is_file()}
    flush(archive, seen)
    assert {file: file.stat().st_mtime_ns for file in project.parent.rglob("*") if file.is_file()} == files
    archive.end()
