"""Deleting, purging and bringing back, interrupted at any moment."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from snapshot_plugin import Conflict, FilesystemStore, SessionLocked, SnapshotNotFound, StoreUnavailable
from snapshot_plugin.codec.pack import packed
from snapshot_plugin.store import rewrite, segments
from tests.faults.support import store_at, version
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it

pytestmark = pytest.mark.anyio


class _Killed(BaseException):
    pass


async def test_killed_purge_leaves_nothing_to_restore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with store_at(tmp_path, segment_frames=1) as store:
        for number in (1, 2, 3):
            await store.save(version(number))
        token = (await store.delete("session")).token

        def half(path: Path, **_options: object) -> None:
            max(path.glob("*.snap.gz")).unlink()
            raise _Killed

        monkeypatch.setattr(shutil, "rmtree", half)
        with pytest.raises(_Killed):
            store.sync.purge(older_than=timedelta(0))
        monkeypatch.undo()

    async with store_at(tmp_path) as store:
        assert list(await store.trash()) == []
        with pytest.raises(SnapshotNotFound):
            await store.undelete(token)
        await store.purge(older_than=timedelta(0))
    assert list((tmp_path / "trash").iterdir()) == []


async def test_deleted_session_can_be_restored_after_its_id_was_reused(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.save(version(2))
        token = (await store.delete("session")).token
        place = store.session_dir("session")  # a live session begins, and never saves anything
        (place / "spool.log").write_bytes(b"what it said")
        with pytest.raises(SnapshotNotFound):
            await store.delete("session")

        assert await store.undelete(token) == "session"

        assert await store.load("session") == version(2)
        (left,) = await store.trash()
        assert left.session_id == "session"
        assert [path.read_bytes() for path in (tmp_path / "trash").rglob("spool.log")] == [b"what it said"]


async def test_live_session_cannot_be_deleted(tmp_path: Path) -> None:
    class Guarded(FilesystemStore):
        def guard(self, session_id: str) -> None:
            raise SessionLocked(f"session {session_id} is live", session_id=session_id)

    async with Guarded(tmp_path) as store:
        await store.save(version(1))
        with pytest.raises(SessionLocked):
            await store.delete("session")
        assert await store.load("session") == version(1)


async def test_compact_does_not_hide_a_save_made_after_two_failed_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, tidy = store_at(tmp_path), store_at(tmp_path)
    for number in (1, 2):
        await writer.save(version(number))
    with monkeypatch.context() as patched:  # the sync fails, and taking the frame back fails too

        def fail(*_args: object) -> None:
            raise OSError(5, "the disk is failing")

        patched.setattr(segments, "sync_data", fail)
        patched.setattr(os, "ftruncate", fail)
        with pytest.raises(StoreUnavailable):
            await writer.save(version(3))

    def meanwhile(*args: object) -> list[bytes]:
        monkeypatch.undo()
        writer.sync.save(version(4))  # acknowledged, with the number of the frame that failed
        return packed(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(rewrite, "packed", meanwhile)
    await tidy.compact("session")

    assert await store_at(tmp_path).load("session", strict=True) == version(4)
    with pytest.raises(Conflict):
        await FilesystemStore(tmp_path).save(version(1))
