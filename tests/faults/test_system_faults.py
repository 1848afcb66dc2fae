"""The system refuses: read-only, full, I/O errors, short writes. What was acknowledged stays; saving catches up."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import Conflict, FilesystemStore, RetentionPolicy, StoreUnavailable
from tests.faults.support import (
    KEY,
    PLAIN_AND_ENCRYPTED,
    filled,
    names_in,
    on_top_of,
    segments_of,
    store_at,
    version,
)
from tests.faults.test_bad_input import OPERATIONS
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it

pytestmark = pytest.mark.anyio


# Read-only, and full ------------------------------------------------------------------------------------------


@contextmanager
def mounted(place: Path, options: str) -> Iterator[Path]:
    """A file system of its own at *place*. Needs root on Linux, in a place where mounting is allowed."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root on Linux")
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting is not permitted here: {done.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def remount(place: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", place], check=True)


async def assert_saved(path: Path, key: str | None, count: int, newest: int) -> None:
    """Another process finds all of what was acknowledged, and no damage."""
    async with store_at(path, key) as store:
        assert await store.load("session", strict=True) == version(newest)
        for seq in range(1, count + 1):
            assert await store.load("session", at=seq) == version(seq)
        assert (await store.check()).ok


@pytest.mark.requirement("STORE-FAULT-READ-ONLY", "STORE-ERRORS", "STORE-READ-ONLY")
@PLAIN_AND_ENCRYPTED
async def test_read_only_store_can_be_read_and_refuses_writes(tmp_path: Path, key: str | None) -> None:
    with mounted(tmp_path / "disk", "size=4m") as disk:
        path = disk / "store"
        await filled(path, key)
        remount(disk, "ro")
        async with store_at(path, key) as store:
            await assert_saved(path, key, 3, 3)
            for name in ("save", "compact", "delete", "forget"):
                with pytest.raises(StoreUnavailable):
                    await OPERATIONS[name](store, "session")
            assert [meta.seq for meta in await store.history("session")] == [3, 2, 1]
        with pytest.raises(StoreUnavailable):
            await store_at(disk / "new").save(version(1))
        remount(disk, "rw")
        async with store_at(path, key) as store:
            assert (await store.save(version(4))).seq == 4
        await assert_saved(path, key, 4, 4)


@pytest.mark.requirement("STORE-FAULT-FULL-BYTES", "STORE-ERRORS")
@PLAIN_AND_ENCRYPTED
@pytest.mark.parametrize("segment_frames", [256, 3], ids=["within a segment", "at a new segment"])
async def test_full_disk_refuses_saves_and_the_next_one_catches_up(
    tmp_path: Path, key: str | None, segment_frames: int
) -> None:
    with mounted(tmp_path / "disk", "size=96k") as disk:
        path = disk / "store"
        async with store_at(path, key, segment_frames=segment_frames) as store:
            for number in range(1, 4):
                await store.save(version(number))
            _fill(disk / "ballast")
            refused = await _saves_until_refused(store, 4)
            for _again in range(3):
                with pytest.raises(StoreUnavailable):
                    await store.save(version(refused + 30))
            await assert_saved(path, key, refused - 1, refused - 1)
            (disk / "ballast").unlink()
            assert (await store.save(version(refused + 30))).seq == refused
            assert (await store.save(version(refused + 31))).seq == refused + 1
        await assert_saved(path, key, refused - 1, refused + 31)
        async with store_at(path, key) as store:
            assert await store.load("session", at=refused) == version(refused + 30)
            assert (await store.check()).findings == ()


async def _saves_until_refused(store: FilesystemStore, first: int) -> int:
    """What is left in the last block of a file can still be filled; then nothing more fits."""
    for number in range(first, first + 30):
        try:
            await store.save(version(number))
        except StoreUnavailable as refused:
            if isinstance(refused.__cause__, OSError) and refused.__cause__.errno == errno.ENOSPC:
                return number
            raise
    pytest.fail("the disk never became full")


def _fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


@pytest.mark.requirement("STORE-FAULT-FULL-BYTES")
async def test_rewrite_on_a_full_disk_leaves_the_session_unchanged(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=96k") as disk:
        path = disk / "store"
        await filled(path, count=20)
        before = names_in(path / "sessions" / "session")
        _fill(disk / "ballast")
        async with store_at(path) as store:
            for name in ("compact", "forget"):
                with pytest.raises(StoreUnavailable):
                    await OPERATIONS[name](store, "session")
        assert names_in(path / "sessions" / "session") == before
        await assert_saved(path, None, 20, 20)
        (disk / "ballast").unlink()
        async with store_at(path) as store:
            await store.forget("session", RetentionPolicy(keep_last=1))
            assert await store.load("session", strict=True) == version(20)
            assert (await store.check()).findings == ()


@pytest.mark.requirement("STORE-FAULT-FULL-INODES")
@PLAIN_AND_ENCRYPTED
async def test_lack_of_inodes_refuses_new_files_and_the_next_save_catches_up(
    tmp_path: Path, key: str | None
) -> None:
    with mounted(tmp_path / "disk", "size=4m,nr_inodes=64") as disk:
        path = disk / "store"
        async with store_at(path, key, segment_frames=2) as store:
            await store.save(version(1))
            ballast = _use_up_inodes(disk / "ballast")
            await store.save(version(2))
            with pytest.raises(StoreUnavailable):
                await store.save(version(3))
            with pytest.raises(StoreUnavailable):
                await store.save(version(1, "another"))
            await assert_saved(path, key, 2, 2)
            for file in ballast:
                file.unlink()
            assert (await store.save(version(5))).seq == 3
            assert (await store.save(version(1, "another"))).seq == 1
        await assert_saved(path, key, 2, 5)


def _use_up_inodes(directory: Path) -> list[Path]:
    directory.mkdir()
    for number in range(100):
        try:
            (directory / str(number)).touch()
        except OSError:
            break
    return sorted(directory.iterdir())


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "encrypted"])
async def test_half_created_store_is_completed_once_there_is_room(tmp_path: Path, key: str | None) -> None:
    for inodes in range(2, 14):
        with mounted(tmp_path / f"disk {inodes}", f"size=4m,nr_inodes={inodes}") as disk:
            try:
                await store_at(disk / "store", key).save(version(1))
            except StoreUnavailable:
                remount(disk, "nr_inodes=64")
                assert (await store_at(disk / "store", key).save(version(1))).seq == 1
            else:
                return
            await assert_saved(disk / "store", key, 1, 1)
    pytest.fail("the disk never had room")


# I/O errors ---------------------------------------------------------------------------------------------------


class FailingSync:
    """The *n*-th of all syncs fails with EIO; what was synced, and through which open file, is remembered."""

    def __init__(self, patch: pytest.MonkeyPatch, n: int) -> None:
        self.n, self.count = n, 0
        self.failed = ""
        self.after_failure: list[str] = []
        self._failed_fd = -1
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, self._wrapped(name, getattr(os, name)))
        real_close = os.close
        patch.setattr(os, "close", lambda fd: self._closed(fd, real_close))

    def _wrapped(self, name: str, real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(fd: int) -> None:
            self.count += 1
            assert fd != self._failed_fd, "a descriptor whose sync failed is synced again"
            what = f"{name} {_name_of(fd)}"
            if self.count == self.n:
                self._failed_fd, self.failed = fd, what
                raise OSError(errno.EIO, "Input/output error")
            if self.failed:
                self.after_failure.append(what)
            real(fd)

        return sync

    def _closed(self, fd: int, real: Callable[[int], None]) -> None:
        if fd == self._failed_fd:
            self._failed_fd = -1
        real(fd)


def _name_of(fd: int) -> str:
    return str(Path(f"/proc/self/fd/{fd}").readlink())


@pytest.mark.requirement("STORE-FAULT-FSYNC", "STORE-DURABLE-WHOLE")
@pytest.mark.skipif(sys.platform != "linux", reason="reads the names of open files from /proc")
@PLAIN_AND_ENCRYPTED
async def test_any_failed_sync_keeps_acknowledged_snapshots_and_the_next_save_succeeds(
    tmp_path: Path, key: str | None
) -> None:
    n = 0
    while True:
        n += 1
        path = tmp_path / str(n)
        with pytest.MonkeyPatch.context() as patch:
            sync = FailingSync(patch, n)
            acknowledged = await _save_each_until_it_is(path, key)
        if not sync.failed:
            assert n > 10
            return
        assert acknowledged == list(range(1, 8))
        await assert_saved(path, key, 7, 7)
        if sync.failed.startswith("fdatasync"):
            # The file's pages may be clean and wrong: a later sync of it would prove nothing.
            assert sync.failed not in sync.after_failure


async def _save_each_until_it_is(path: Path, key: str | None) -> list[int]:
    """Save seven snapshots, each again if the store refuses; tell which numbers they got."""
    store = store_at(path, key, segment_frames=4)
    seqs = []
    refusals = 0
    for number in range(1, 8):
        try:
            ref = await store.save(version(number))
        except StoreUnavailable:
            refusals += 1
            if number > 1:
                assert await store_at(path, key).load("session", strict=True) == version(number - 1)
            ref = await store.save(version(number))
        seqs.append(ref.seq)
    assert refusals <= 1
    await store.aclose()
    return seqs


def _refuse(*_args: Any) -> None:
    raise OSError(errno.EIO, "Input/output error")


@pytest.mark.requirement("FORMAT-WRITE-DOUBT", "FORMAT-SEGMENT-NAME")
@pytest.mark.parametrize("also_truncate", [False, True], ids=["taken back", "not taken back"])
async def test_after_a_failed_sync_nothing_is_appended_to_that_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, also_truncate: bool
) -> None:
    async with store_at(tmp_path) as store:
        await store.save(version(1))
        [segment] = segments_of(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", _refuse)
            if also_truncate:
                patch.setattr(os, "ftruncate", _refuse)
            with pytest.raises(StoreUnavailable):
                await store.save(version(2))
        content = segment.read_bytes()
        assert (await store.save(version(3))).seq == 2
        assert segment.read_bytes() == content
        assert [path.name for path in segments_of(tmp_path)] == [segment.name, "0000000002.snap.gz"]
        assert (await store.save(version(4))).seq == 3
    async with store_at(tmp_path) as store:
        assert await store.load("session", strict=True) == version(4)
        assert await store.load("session", at=2) == version(3)
        assert (await store.check()).ok


async def test_failed_save_that_reached_the_disk_is_replaced_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with store_at(tmp_path) as store:
        await store.save(version(1))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", _refuse)
            patch.setattr(os, "ftruncate", _refuse)
            with pytest.raises(StoreUnavailable):
                await store.save(version(2))
        assert await store_at(tmp_path).load("session") == version(2)
        # The caller went back to what it had: that is the newest now, although it saved the same before.
        assert (await store.save(version(1))).written
    assert await store_at(tmp_path).load("session") == version(1)


async def test_save_built_on_a_failed_save_that_reached_the_disk_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with store_at(tmp_path) as store, store_at(tmp_path) as other:
        await store.save(version(1))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", _refuse)
            patch.setattr(os, "ftruncate", _refuse)
            with pytest.raises(StoreUnavailable):
                await store.save(version(2))
        assert await other.load("session") == version(2)
        assert (await other.save(version(3))).seq == 3
        with pytest.raises(Conflict):
            await store.save(version(9))
    await assert_saved(tmp_path, None, 3, 3)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the names of open files from /proc")
async def test_directory_whose_entry_failed_to_sync_is_recreated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync
    fail = True

    def fsync(fd: int) -> None:
        name = _name_of(fd)
        if fail and name.endswith("/sessions"):
            raise OSError(errno.EIO, "Input/output error")
        synced.append(name)
        real(fd)

    async with store_at(tmp_path) as store:
        monkeypatch.setattr(os, "fsync", fsync)
        with pytest.raises(StoreUnavailable):
            await store.save(version(1))
        fail = False
        await store.save(version(1))
    # Otherwise the whole session could be gone after a power cut.
    assert str(tmp_path / "sessions") in synced


# Short writes -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("STORE-FAULT-SHORT-WRITE")
@PLAIN_AND_ENCRYPTED
async def test_short_writes_are_continued_until_complete(
    tmp_path: Path, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data[:7])))
    await filled(tmp_path, key, count=5, segment_frames=2)
    await assert_saved(tmp_path, key, 5, 5)


@pytest.mark.requirement("STORE-DURABLE-WHOLE", "ONERING-LAYER-ATOMIC")
@PLAIN_AND_ENCRYPTED
async def test_write_that_fails_half_way_leaves_no_snapshot(
    tmp_path: Path, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    async with store_at(tmp_path, key) as store:
        await store.save(version(1))
        for written in (0, 1, 19, 200, 500):
            left = [written]

            def half(fd: int, data: memoryview, left: list[int] = left) -> int:
                if not left[0]:
                    raise OSError(errno.EIO, "Input/output error")
                return _count(left, real(fd, data[: left[0]]))

            with monkeypatch.context() as patch:
                patch.setattr(os, "write", half)
                with pytest.raises(StoreUnavailable):
                    await store.save(version(2))
            await assert_saved(tmp_path, key, 1, 1)
        assert (await store.save(version(2))).seq == 2
    await assert_saved(tmp_path, key, 2, 2)


def _count(left: list[int], written: int) -> int:
    left[0] -= written
    return written


@pytest.mark.parametrize("deed", ["compact", "forget"])
async def test_failed_save_that_reached_the_disk_counts_once_another_writer_rewrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deed: str
) -> None:
    """Its writer would number its next save as the failed one, and the rewritten range has that number already."""
    async with store_at(tmp_path) as writer, store_at(tmp_path) as other:
        for number in (1, 2):
            await writer.save(version(number))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", _refuse)
            patch.setattr(os, "ftruncate", _refuse)
            with pytest.raises(StoreUnavailable):
                await writer.save(version(3))
        await OPERATIONS[deed](other, "session")

        with pytest.raises(Conflict):
            await writer.save(version(4))

        landed = await writer.load("session")
        assert landed == version(3)
        assert (await writer.save(on_top_of(landed, 4))).seq == 4
        assert await other.load("session", strict=True) == version(4)
        assert (await other.check()).findings == ()
