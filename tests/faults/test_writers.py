"""Several writers and readers at once: a stale one is refused, everything acknowledged stays, exactly once."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import (
    Conflict,
    FilesystemStore,
    RetentionPolicy,
    SessionLocked,
    SnapshotNotFound,
    StoreUnavailable,
)
from snapshot_plugin.codec.pack import packed
from snapshot_plugin.model.policy import plan
from snapshot_plugin.store import segments
from snapshot_plugin.store.walk import find
from tests.faults.support import (
    PLAIN_AND_ENCRYPTED,
    filled,
    flip,
    frames_of,
    on_top_of,
    segments_of,
    store_at,
    version,
)

pytestmark = pytest.mark.anyio
KEEP_ONE = RetentionPolicy(keep_last=1)
Deed = Callable[[FilesystemStore], Awaitable[Any]]
FIND, PLAN, PACK = (f"snapshot_plugin.store.{name}" for name in ("writer.find", "core.plan", "rewrite.packed"))
"""Where another writer can come in between."""


# A writer that stalled ----------------------------------------------------------------------------------------


async def _saved(store: FilesystemStore) -> None:
    await store.save(version(4))


async def _saved_and_forgot(store: FilesystemStore) -> None:
    await store.save(version(4))
    await store.forget("session", KEEP_ONE)


async def _saved_and_compacted(store: FilesystemStore) -> None:
    await store.save(version(4))
    await store.compact("session")


async def _saved_forgot_and_saved(store: FilesystemStore) -> None:
    await _saved_and_forgot(store)
    await store.compact("session")
    await store.save(version(5))


async def _saved_something_and_took_it_back(store: FilesystemStore) -> None:
    await store.save(version(4))
    await store.save(version(3))


async def _deleted_and_recreated(store: FilesystemStore) -> None:
    """The new session has the same numbers and the same content as the old one."""
    await store.delete("session")
    for number in (1, 2, 3):
        await store.save(version(number))


async def _deleted_and_begun_anew(store: FilesystemStore) -> None:
    """The new session has smaller numbers than the old one."""
    await store.delete("session")
    await store.save(version(1))


@pytest.mark.requirement(
    "STORE-CONFLICT-STALE", "STORE-CONFLICT-REWRITTEN", "STORE-CONFLICT-NOTHING", "FORMAT-WRITE-HEAD"
)
@PLAIN_AND_ENCRYPTED
@pytest.mark.parametrize(
    "deed",
    [
        _saved,
        _saved_and_forgot,
        _saved_and_compacted,
        _saved_forgot_and_saved,
        _saved_something_and_took_it_back,
        _deleted_and_recreated,
        _deleted_and_begun_anew,
    ],
)
@pytest.mark.parametrize("had", ["saved", "loaded"])
async def test_stale_save_is_refused_and_the_other_writers_snapshot_is_kept(
    tmp_path: Path, key: str | None, deed: Deed, had: str
) -> None:
    async with store_at(tmp_path, key, segment_frames=2) as stalled, store_at(tmp_path, key) as other:
        stale = version(9)
        if had == "saved":
            for number in (1, 2, 3):
                await stalled.save(version(number))
        else:
            await filled(tmp_path, key)
            stale = on_top_of(await stalled.load("session"), 9)
        await deed(other)
        newest = await other.read("session")
        for _again in range(2):
            with pytest.raises(Conflict):
                await stalled.save(stale)
        assert await store_at(tmp_path, key).read("session", strict=True) == newest
        loaded = await stalled.load("session")
        with pytest.raises(Conflict):  # loading alone changes nothing: the saved value must build on the loaded one
            await stalled.save(stale)
        assert (await stalled.save(on_top_of(loaded, 9))).seq == newest.ref.seq + 1
        assert await other.load("session", at=newest.ref.seq) == newest.snapshot
        assert (await other.check()).ok


async def test_save_into_a_deleted_session_is_refused(tmp_path: Path) -> None:
    async with store_at(tmp_path) as stalled, store_at(tmp_path) as other:
        await stalled.save(version(1))
        token = (await other.delete("session")).token
        with pytest.raises(Conflict):
            await stalled.save(version(2))
        with pytest.raises(SnapshotNotFound):
            await other.load("session")
        await other.undelete(token)
        assert await other.load("session", strict=True) == version(1)
        assert (await stalled.save(version(2))).seq == 2


async def test_save_into_a_repaired_session_is_refused(tmp_path: Path) -> None:
    async with store_at(tmp_path) as stalled, store_at(tmp_path) as other:
        for number in (1, 2, 3):
            await stalled.save(version(number))
        [segment] = segments_of(tmp_path)
        flip(segment, segment.stat().st_size - 3)
        await other.check(repair=True)
        with pytest.raises(Conflict):
            await stalled.save(version(4))
        assert await other.load("session", at=2, strict=True) == version(2)
        salvaged = await other.load("session", strict=True)
        assert salvaged.messages == version(3).messages
        assert (await stalled.save(on_top_of(await stalled.load("session"), 4))).seq == 5


@pytest.mark.parametrize("deed", ["compact", "forget", "both"])
async def test_rewrite_that_keeps_the_head_does_not_block_a_writer(tmp_path: Path, deed: str) -> None:
    async with store_at(tmp_path, segment_frames=2) as writer, store_at(tmp_path) as other:
        for number in range(1, 7):
            await writer.save(version(number))
            if deed != "forget":
                await other.compact("session")
            if deed != "compact":
                await other.forget("session", RetentionPolicy(keep_last=3))
        assert [await other.load("session", at=seq) for seq in (4, 5, 6)] == [version(n) for n in (4, 5, 6)]
        assert (await other.check()).findings == ()


@pytest.mark.requirement("STORE-CONFLICT-BASE")
async def test_explicit_base_that_is_not_the_head_is_refused(tmp_path: Path) -> None:
    await filled(tmp_path)
    async with store_at(tmp_path) as store:
        for base in (0, 1, 2, 4):
            with pytest.raises(Conflict):
                await store.save(version(9), base=base)
        assert await store.load("session") == version(3)
        assert (await store.save(version(9), base=3)).seq == 4


async def test_concurrent_creation_of_a_session_is_refused_for_one_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = store_at(tmp_path), store_at(tmp_path)

    def find_and_wait(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(FIND, find)
        try:
            return find(*args, **options)
        finally:
            other.sync.save(version(1))

    monkeypatch.setattr(FIND, find_and_wait)
    with pytest.raises(Conflict):
        await one.save(version(9))
    assert await other.load("session", strict=True) == version(1)
    assert (await other.check()).findings == ()


# The lock -----------------------------------------------------------------------------------------------------


async def test_lock_timeout_is_reported_and_nothing_is_written(tmp_path: Path) -> None:
    segment = await filled(tmp_path)
    before = segment.read_bytes()
    fd = os.open(segment.parent / ".lock", os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        async with store_at(tmp_path, lock_timeout=0.05) as store:
            asked = time.monotonic()
            with pytest.raises(SessionLocked) as refused:
                await store.save(version(4))
            assert time.monotonic() - asked < 20
            assert refused.value.retryable
            assert segment.read_bytes() == before
            assert await store.load("session") == version(3)
            fcntl.flock(fd, fcntl.LOCK_UN)
            assert (await store.save(version(4))).seq == 4
    finally:
        os.close(fd)


def _is_locked(path: Path) -> bool:
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


@pytest.mark.requirement("FORMAT-WRITE-LOCK")
async def test_session_replaced_while_its_lock_was_taken_is_locked_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = (await filled(tmp_path, count=1)).parent
    take, write, held = fcntl.flock, os.write, list[bool]()

    def too_late(fd: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", take)
        directory.rename(tmp_path / "aside")
        shutil.copytree(tmp_path / "aside", directory)
        take(fd, how)

    def watched(fd: int, data: bytes) -> int:
        held.append(_is_locked(directory / ".lock"))
        return write(fd, data)

    store = store_at(tmp_path)
    assert await store.load("session") == version(1)
    monkeypatch.setattr(fcntl, "flock", too_late)
    monkeypatch.setattr(os, "write", watched)
    assert store.sync.save(version(2), base=1).seq == 2
    assert held[-1]
    assert await store_at(tmp_path).load("session", strict=True) == version(2)
    assert len(frames_of(tmp_path / "aside" / "0000000001.snap.gz")) == 1


# Readers and rewriters at once --------------------------------------------------------------------------------

READERS: dict[str, Deed] = {
    "load": lambda store: store.load("session", strict=True),
    "load at": lambda store: store.load("session", at=5, strict=True),
    "history": lambda store: store.history("session"),
    "list": lambda store: store.list(),
    "check": lambda store: store.check(),
    "save the same": lambda store: store.save(version(6)),
    "compact": lambda store: store.compact("session"),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("rewriter", ["compact", "forget"])
async def test_reader_sees_the_old_or_new_state_while_segments_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str, rewriter: str
) -> None:
    await filled(tmp_path, count=6, segment_frames=2)
    other, policy = store_at(tmp_path), RetentionPolicy(keep_last=2)
    _before_first_read(
        monkeypatch,
        lambda: other.sync.compact("session") if rewriter == "compact" else other.sync.forget("session", policy),
    )
    result = await READERS[reader](store_at(tmp_path))
    kept = range(6, 0, -1) if rewriter == "compact" else (6, 5)
    if reader == "load":
        assert result == version(6)
    elif reader == "load at":
        assert result == version(5)
    elif reader == "history":
        assert [(meta.seq, meta.state) for meta in result] == [(seq, "ok") for seq in kept]
    elif reader == "list":
        assert [(meta.seq, meta.state) for meta in result] == [(6, "ok")]
    elif reader == "check":
        assert result.findings == ()
    elif reader == "save the same":
        assert (result.seq, result.written) == (6, False)
    assert await other.load("session", strict=True) == version(6)
    assert (await other.check()).findings == ()


def _before_first_read(patch: pytest.MonkeyPatch, deed: Callable[[], object]) -> None:
    """Between the moment a reader lists the segments and that in which it opens the first one."""
    real_read, real_open = segments.read_segment, segments._last_frame_of
    to_do = [deed]

    def interrupted(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            patch.setattr(segments, "read_segment", real_read)
            patch.setattr(segments, "_last_frame_of", real_open)
            while to_do:
                to_do.pop()()
            return call(*args)

        return run

    patch.setattr(segments, "read_segment", interrupted(real_read))
    patch.setattr(segments, "_last_frame_of", interrupted(real_open))


@pytest.mark.parametrize("reader", READERS)
async def test_reading_a_session_deleted_meanwhile_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    await filled(tmp_path, count=6, segment_frames=2)
    other = store_at(tmp_path)
    _before_first_read(monkeypatch, lambda: other.sync.delete("session"))
    store = store_at(tmp_path)
    if reader in ("list", "check"):
        await READERS[reader](store)
        assert await store.list() == []
    elif reader == "save the same":
        assert (await READERS[reader](store)).seq == 1
    elif reader == "compact":
        await READERS[reader](store)
    else:
        with pytest.raises(SnapshotNotFound):
            await READERS[reader](store)


async def test_forget_holds_the_lock_from_decision_to_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(tmp_path, count=6, segment_frames=2)
    one, other = store_at(tmp_path), store_at(tmp_path, lock_timeout=0.01)

    def plan_and_wait(*args: Any) -> Any:
        monkeypatch.setattr(PLAN, plan)
        decided = plan(*args)
        for deed in (lambda: other.sync.forget("session", KEEP_ONE), lambda: other.sync.delete("session")):
            with pytest.raises(SessionLocked):
                deed()
        return decided

    monkeypatch.setattr(PLAN, plan_and_wait)
    await one.forget("session", RetentionPolicy(keep_last=2))
    await other.forget("session", KEEP_ONE)
    assert [meta.seq for meta in await one.history("session")] == [6]
    assert await one.load("session", strict=True) == version(6)
    assert (await one.check()).findings == ()


@pytest.mark.parametrize("killed", [False, True], ids=["whole", "killed before it removed the old files"])
async def test_compaction_does_not_restore_snapshots_forgotten_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, killed: bool
) -> None:
    await filled(tmp_path, count=6, segment_frames=2)
    other = store_at(tmp_path)

    def interrupted(*args: Any, **options: Any) -> list[bytes]:
        monkeypatch.setattr(PACK, packed)
        if killed:
            with monkeypatch.context() as patch:
                patch.setattr(Path, "unlink", _refuse)
                with pytest.raises(StoreUnavailable):
                    other.sync.forget("session", KEEP_ONE)
        else:
            other.sync.forget("session", KEEP_ONE)
        return packed(*args, **options)

    monkeypatch.setattr(PACK, interrupted)
    await store_at(tmp_path).compact("session")
    assert [meta.seq for meta in await other.history("session")] == [6]
    assert await other.load("session", strict=True) == version(6)
    assert (await other.check()).ok


def _refuse(*_args: Any, **_options: Any) -> None:
    raise OSError("killed here")


async def test_segment_that_grows_during_compaction_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with store_at(tmp_path) as writer:
        for number in (1, 2, 3):
            await writer.save(version(number))

        def interrupted(*args: Any, **options: Any) -> list[bytes]:
            monkeypatch.setattr(PACK, packed)
            writer.sync.save(version(4))
            return packed(*args, **options)

        monkeypatch.setattr(PACK, interrupted)
        await store_at(tmp_path).compact("session")
        assert (await writer.save(version(5))).seq == 5
    async with store_at(tmp_path) as store:
        for seq in range(1, 6):
            assert await store.load("session", at=seq) == version(seq)
        assert (await store.check()).findings == ()
