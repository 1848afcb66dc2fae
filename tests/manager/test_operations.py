from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin import SessionLocked, StoreUnavailable
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.keys import Keyset
from snapshot_plugin.operations.undo import LineFile, Operation, OperationLog, log_path, newest_to_undo
from snapshot_plugin.system.files import locked
from snapshot_plugin.testing import FixedClock
from tests.one_loop import anyio_backend, both_loops  # noqa: F401 — pytest uses it

pytestmark = pytest.mark.anyio

STEP = {"do": "delete", "session_id": "made"}


async def record(log: OperationLog, summary: str, undoes: str | None = None) -> Operation:
    return await log.record(kind="undo" if undoes else "import", summary=summary, steps=[STEP], undoes=undoes)


def file_of(log: OperationLog) -> Path:
    assert isinstance(log._lines, LineFile)
    return log._lines.path


def told(operations: Sequence[Operation]) -> dict[str, bool]:
    return {each.summary: each.undone for each in operations}


async def test_operations_are_read_newest_first(tmp_path: Path) -> None:
    clock = FixedClock()
    log = OperationLog(tmp_path / "state" / "log.jsonl", clock=clock)
    steps: list[dict[str, Any]] = [STEP, {"do": "label", "session_id": "ä\n", "title": None, "tags": ["x"]}]

    first = await log.record(kind="import", summary="one", steps=steps)
    second = await record(log, "two")

    assert await OperationLog(file_of(log)).read() == (second, first)
    assert (first.at, first.kind, [dict(step) for step in first.steps]) == (clock(), "import", steps)


async def test_empty_log_reads_as_empty(tmp_path: Path) -> None:
    assert await OperationLog(tmp_path / "none").read() == ()


async def test_log_is_private_to_the_user(tmp_path: Path) -> None:
    log = OperationLog(tmp_path / "state" / "log.jsonl")
    await record(log, "one")

    assert [stat.S_IMODE(path.stat().st_mode) for path in (file_of(log), file_of(log).parent)] == [0o600, 0o700]


@pytest.mark.parametrize("torn", [b'{"id": "x', b"\xff\xfe", b"[]\n", b"\n\n", b'{"id": 1}\n'])
async def test_torn_or_foreign_line_loses_only_itself(tmp_path: Path, torn: bytes) -> None:
    log = OperationLog(tmp_path / "log")
    first = await record(log, "one")
    file_of(log).write_bytes(file_of(log).read_bytes() + torn)

    assert await log.read() == (first,)

    second = await record(log, "two")
    assert await log.read() == (second, first)


async def test_oldest_half_is_dropped_when_the_log_grows_too_large(tmp_path: Path) -> None:
    log = OperationLog(tmp_path / "log", max_bytes=2000)
    for number in range(60):
        await record(log, str(number))

    kept = [int(each.summary) for each in await log.read()]
    assert kept == list(range(59, 59 - len(kept), -1))
    assert 4 < len(kept) < 20
    assert file_of(log).stat().st_size <= 2000


async def test_newest_operation_is_kept_however_large(tmp_path: Path) -> None:
    log = OperationLog(tmp_path / "log", max_bytes=100)

    await record(log, "x" * 5000)

    assert len(await log.read()) == 1


@both_loops
async def test_concurrent_records_lose_nothing(tmp_path: Path) -> None:
    async def one(number: int) -> None:
        await record(OperationLog(tmp_path / "log"), str(number))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for number in range(30):
                tasks.start_soon(one, number)

    assert {int(each.summary) for each in await OperationLog(tmp_path / "log").read()} == set(range(30))


async def test_writer_waits_for_the_log_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snapshot_plugin.operations.undo._LOCK_TIMEOUT", 0.05)
    log = OperationLog(tmp_path / "log")
    first = await record(log, "one")

    with locked(tmp_path / "log.lock", session_id="another", timeout=1), pytest.raises(SessionLocked):
        await record(log, "two")

    assert await log.read() == (first,)


async def test_operations_that_cannot_be_undone_can_be_removed(tmp_path: Path) -> None:
    log = OperationLog(tmp_path / "log")
    assert await log.forget(lambda _: True) == 0
    first, second = await record(log, "one"), await record(log, "two")

    assert await log.forget(lambda done: done.id == first.id) == 1

    assert await log.read() == (second,)
    assert b"one" not in file_of(log).read_bytes()


async def test_disk_error_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(StoreUnavailable):
        await record(OperationLog(tmp_path / "file" / "log"), "one")


async def test_log_of_an_encrypted_store_needs_its_key(tmp_path: Path) -> None:
    keys = SessionKeys(Keyset.new(), store_id="store", session_id="+operations")
    stranger = SessionKeys(Keyset.new(), store_id="store", session_id="+operations")
    done = await record(OperationLog(tmp_path / "log", keys=keys), "a telling name")

    assert await OperationLog(tmp_path / "log", keys=keys).read() == (done,)
    assert b"telling" not in (tmp_path / "log").read_bytes()
    assert await OperationLog(tmp_path / "log", keys=stranger).read() == ()
    assert await OperationLog(tmp_path / "log").read() == ()


async def test_undo_and_redo_are_listed(tmp_path: Path) -> None:
    log = OperationLog(tmp_path / "log")
    one = await record(log, "one")
    await record(log, "two")
    undo = await record(log, "undo", undoes=one.id)
    assert told(await log.read()) == {"undo": False, "two": False, "one": True}

    redo = await record(log, "redo", undoes=undo.id)
    assert told(await log.read()) == {"redo": False, "undo": True, "two": False, "one": False}

    await record(log, "again", undoes=redo.id)
    assert told(await log.read()) == {"again": False, "redo": True, "undo": False, "two": False, "one": True}


async def test_operations_that_undo_each_other_in_a_circle_do_no_harm(tmp_path: Path) -> None:
    log = OperationLog(tmp_path / "log")
    one = await record(log, "one")
    two = await record(log, "two", undoes=one.id)
    forged = file_of(log).read_bytes().replace(b'"one"', b'"one","undoes":"' + two.id.encode() + b'"')
    file_of(log).write_bytes(forged)
    await record(log, "three", undoes=two.id)

    with anyio.fail_after(60):
        assert len(await log.read()) == 3


async def test_undo_without_an_id_takes_the_newest_operation_in_effect(tmp_path: Path) -> None:
    log = OperationLog(tmp_path / "log")
    assert newest_to_undo(await log.read()) is None
    one, two = await record(log, "one"), await record(log, "two")

    newest = newest_to_undo(await log.read())
    assert newest is not None
    assert newest.id == two.id

    await record(log, "undo", undoes=two.id)
    newest = newest_to_undo(await log.read())
    assert newest is not None
    assert newest.id == one.id

    await record(log, "undo", undoes=one.id)
    assert newest_to_undo(await log.read()) is None


def test_store_id_never_leads_outside_the_state_directory(tmp_path: Path) -> None:
    paths = [log_path(tmp_path, name) for name in ("../../x", "/etc/x", "s3://bucket/é", "")]

    assert {path.parent for path in paths} == {tmp_path / "operations"}
    assert len(set(paths)) == 4
