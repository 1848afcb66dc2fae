"""Bytes that are not what was written: never wrong content, never a silent loss, and saving goes on."""

from __future__ import annotations

import gzip
import os
import random
from pathlib import Path

import anyio
import pytest

from snapshot_plugin import Damaged, FilesystemStore, SnapshotError, SnapshotNotFound, WrongKey
from snapshot_plugin.codec.frame import read_header
from snapshot_plugin.store.base import StoredSnapshot
from tests.faults.support import (
    PLAIN_AND_ENCRYPTED,
    every_flip,
    filled,
    flip,
    frames_of,
    names_in,
    outcome,
    segments_of,
    store_at,
    version,
)
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it
from tests.tries import some_of

pytestmark = pytest.mark.anyio
COUNT = 3


@pytest.fixture(autouse=True)
def _few_words(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of warnings would take most of the time."""
    caplog.set_level("ERROR", "snapshot_plugin.store")


@pytest.fixture
def segment(tmp_path: Path, key: str | None) -> Path:
    """The only segment of a session of three snapshots."""
    return anyio.run(filled, tmp_path, key)


def ends_of(segment: Path) -> list[int]:
    """Where each frame ends."""
    sizes = [len(frame) for frame in frames_of(segment)]
    return [sum(sizes[: n + 1]) for n in range(len(sizes))]


def assert_read(result: StoredSnapshot | SnapshotError, seq: int) -> StoredSnapshot:
    """Exactly the snapshot numbered *seq* was read."""
    assert isinstance(result, StoredSnapshot), result
    assert result.ref.seq == seq
    assert result.snapshot == version(seq)
    return result


# A file that was cut off --------------------------------------------------------------------------------------


@pytest.mark.requirement("FORMAT-READ-TRUNCATION", "FORMAT-READ-UNFINISHED")
@PLAIN_AND_ENCRYPTED
def test_truncated_file_loads_its_whole_frames_and_reports_an_unfinished_save(
    tmp_path: Path, key: str | None, segment: Path
) -> None:
    ends, store = ends_of(segment), store_at(tmp_path, key)
    for length in reversed(range(ends[-1])):
        os.truncate(segment, length)
        whole = sum(end <= length for end in ends)
        if whole:
            assert assert_read(outcome(store), whole).skipped == ()
        else:
            assert isinstance(outcome(store), SnapshotNotFound)
        kinds = [finding.kind for finding in store.sync.check(repair=False).findings]
        assert kinds == ([] if length in (0, *ends) else ["unfinished"])


@pytest.mark.requirement("FORMAT-WRITE-DOUBT")
@PLAIN_AND_ENCRYPTED
def test_save_after_a_truncation_follows_the_last_whole_frame(
    tmp_path: Path, key: str | None, segment: Path
) -> None:
    ends, data = ends_of(segment), segment.read_bytes()
    for length in sorted({*range(0, len(data), 29), *ends, *(end - 1 for end in ends)}):
        _only(segment, data[:length])
        whole = sum(end <= length for end in ends)
        ref = store_at(tmp_path, key).sync.save(version(9))
        assert ref.seq == whole + 1
        # Behind a whole frame it is appended; behind anything else a new segment begins.
        assert (len(segments_of(tmp_path)) == 1) == (length in ends or whole == 0)
        store = store_at(tmp_path, key)
        assert outcome(store).snapshot == version(9)  # type: ignore[union-attr]
        for seq in range(1, whole + 1):
            assert_read(store.sync.read("session", at=seq, strict=True), seq)
        assert store.sync.check(repair=False).ok


def _only(segment: Path, data: bytes) -> None:
    for path in segments_of(segment.parents[2]):
        path.unlink()
    segment.write_bytes(data)


# A bit that flipped -------------------------------------------------------------------------------------------


@pytest.mark.requirement(
    "FORMAT-READ-BIT",
    "FORMAT-HEADER-SUM",
    "FORMAT-READ-DAMAGE",
    "FORMAT-SEAL-AAD",
    "FORMAT-READ-FALLBACK",
    "FORMAT-SEAL-EXACT",
)
@PLAIN_AND_ENCRYPTED
def test_flipped_bit_loses_only_later_snapshots_and_is_never_silent(
    tmp_path: Path, key: str | None, segment: Path
) -> None:
    ends, store = ends_of(segment), store_at(tmp_path, key)
    for at in every_flip(segment, some_of(_telling_bits(segment))):
        before = sum(end <= at for end in ends)
        result = outcome(store)
        if isinstance(result, SnapshotError):
            # A changed key id looks like a key we do not have; nothing is read past it.
            assert isinstance(result, WrongKey) or (isinstance(result, Damaged) and before == 0)
        else:
            assert assert_read(result, before).skipped != ()


def _telling_bits(segment: Path) -> list[int]:
    """Every bit of the first header and of the last; one of each other byte, every eighth byte the same one.

    The header in the middle is like the last. A payload is read only as a whole, under one checksum or seal, so a
    reader cannot tell the bits of a byte in it apart. The soak run flips anything.
    """
    data, start, bits = segment.read_bytes(), 0, []
    frames = frames_of(segment)
    for number, frame in enumerate(frames):
        body = read_header(data, start)[1]
        whole = body if number in (0, len(frames) - 1) else start
        bits += [*range(8 * start, 8 * whole), *(8 * at + at % 8 for at in range(whole, start + len(frame)))]
        start += len(frame)
    return bits


@PLAIN_AND_ENCRYPTED
def test_flipped_bit_is_found_by_check_refused_by_strict_load_and_shown_by_list(
    tmp_path: Path, key: str | None, segment: Path
) -> None:
    ends, store = ends_of(segment), store_at(tmp_path, key)
    for at in every_flip(segment, some_of(range(0, 8 * ends[-1], 11))):
        assert not store.sync.check(repair=False).ok
        [meta] = store.sync.list()
        assert meta.state != "ok" or at < ends[-2]  # a key's id that was hit looks like another key
        with pytest.raises((Damaged, WrongKey)):
            store.sync.read("session", strict=True)


# Damage, and life after it ------------------------------------------------------------------------------------


@pytest.mark.requirement("STORE-REPAIR", "FORMAT-WRITE-DOUBT", "FORMAT-READ-RESYNC")
@PLAIN_AND_ENCRYPTED
def test_save_after_damage_uses_a_new_segment_and_repair_keeps_everything_readable(
    tmp_path: Path, key: str | None, segment: Path
) -> None:
    ends, data = ends_of(segment), segment.read_bytes()
    for at in some_of(range(0, len(data), 31)):
        _only(segment, data)
        damaged = flip(segment, at)
        _empty(segment.parent / "quarantine")
        before = sum(end <= at for end in ends)
        if isinstance(outcome(store_at(tmp_path, key)), WrongKey):
            _assert_refused_until_repaired(tmp_path, key, before)
            continue
        saved = _save_two_more(store_at(tmp_path, key))
        assert segment.read_bytes() == damaged
        _assert_all_there(store_at(tmp_path, key), before, saved)
        assert store_at(tmp_path, key).sync.check(repair=True).repaired != ()
        assert store_at(tmp_path, key).sync.check(repair=False).findings == ()
        assert [path.read_bytes() for path in (segment.parent / "quarantine").iterdir()] == [damaged]
        _assert_all_there(store_at(tmp_path, key), before, saved)


def _assert_refused_until_repaired(path: Path, key: str | None, before: int) -> None:
    """Behind a frame whose key we lack nothing is saved: it may be whole, and a newer keyset on its way."""
    with pytest.raises(WrongKey):
        store_at(path, key).sync.save(version(9))
    assert len(segments_of(path)) == 1
    store_at(path, key).sync.check(repair=True)
    assert store_at(path, key).sync.save(version(9)).seq == COUNT + 1
    assert store_at(path, key).sync.check(repair=False).findings == ()
    for seq in range(1, before + 1):
        assert_read(store_at(path, key).sync.read("session", at=seq, strict=True), seq)


def _empty(directory: Path) -> None:
    for path in directory.glob("*"):
        path.unlink()


def _save_two_more(store: FilesystemStore) -> list[int]:
    return [store.sync.save(version(number)).seq for number in (8, 9)]


def _assert_all_there(store: FilesystemStore, before: int, saved: list[int]) -> None:
    for seq in range(1, before + 1):
        assert_read(store.sync.read("session", at=seq, strict=True), seq)
    for seq, number in zip(saved, (8, 9), strict=True):
        assert store.sync.read("session", at=seq, strict=True).snapshot == version(number)
    newest = store.sync.read("session", strict=True)
    assert (newest.ref.seq, newest.snapshot) == (saved[-1], version(9))


@PLAIN_AND_ENCRYPTED
async def test_repair_of_a_session_with_a_lost_beginning_salvages_the_rest(tmp_path: Path, key: str | None) -> None:
    segment = await filled(tmp_path, key)
    flip(segment, 300)
    async with store_at(tmp_path, key) as store:
        with pytest.raises(Damaged):
            await store.load("session")
        assert not (await store.check(repair=True)).ok
        assert (await store.check()).ok
        first, *rest = (await store.load("session", strict=True)).messages
        # Only its checksum is wrong in the plain frame: its root proves the content.
        assert "1 message is missing here" in first.text if key else first.text == "message 1"
        assert [message.text for message in rest] == ["message 2", "message 3"]
        assert (await store.save(version(1))).seq == COUNT + 2
        assert await store.load("session", strict=True) == version(1)
        assert (await store.check()).findings == ()
    assert names_in(segment.parent / "quarantine") == [segment.name]


async def test_process_that_repairs_its_open_session_can_save_afterwards(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        for number in (1, 2, 3):
            await store.save(version(number))
        flip(segments_of(tmp_path)[0], ends_of(segments_of(tmp_path)[0])[0] + 300)
        await store.check(repair=True)  # salvages what follows the damage as a snapshot of its own
        assert (await store.save(version(4))).seq == COUNT + 2
        assert await store.load("session", strict=True) == version(4)
        assert await store.load("session", at=1) == version(1)
        assert (await store.check()).findings == ()


async def test_compaction_leaves_damage_in_place_and_compacts_the_rest(tmp_path: Path) -> None:
    await filled(tmp_path, count=4, segment_frames=2)
    first, second = segments_of(tmp_path)
    damaged = flip(first, 400)
    async with store_at(tmp_path) as store:
        await store.compact("session")
    assert first.read_bytes() == damaged
    assert [path.name for path in segments_of(tmp_path)] == [first.name, "0000000003-0000000004.1.snap.gz"]
    assert not second.exists()


# Something behind the last frame ------------------------------------------------------------------------------


@pytest.mark.requirement("STORE-FAULT-JUNK", "FORMAT-READ-ZEROS", "FORMAT-READ-DAMAGE")
@PLAIN_AND_ENCRYPTED
@pytest.mark.parametrize(
    ("junk", "kind"),
    [
        (b"\n", "corrupted"),
        (b"junk" * 100, "corrupted"),
        (random.Random(1).randbytes(5000), "corrupted"),
        (gzip.compress(b"another program was here", mtime=0), "corrupted"),
        (b"\0" * 4096, "unfinished"),
        (bytes.fromhex("1f8b0804"), "unfinished"),
    ],
    ids=["line end", "text", "noise", "foreign gzip", "zeros", "beginning of a frame"],
)
async def test_bytes_after_the_last_frame_cost_no_snapshot(
    tmp_path: Path, key: str | None, junk: bytes, kind: str
) -> None:
    segment = await filled(tmp_path, key)
    content = _append(segment, junk)
    async with store_at(tmp_path, key) as store:
        found = assert_read(await store.read("session"), COUNT)
        assert [finding.kind for finding in found.skipped] == ([kind] if kind == "corrupted" else [])
        assert [finding.kind for finding in (await store.check()).findings] == [kind]
        assert (await store.save(version(4))).seq == COUNT + 1
        assert [path.name for path in segments_of(tmp_path)] == ["0000000001.snap.gz", "0000000004.snap.gz"]
        assert segments_of(tmp_path)[0].read_bytes() == content
        for seq in range(1, 5):
            assert_read(await store.read("session", at=seq, strict=True), seq)
        await store.check(repair=True)
        assert (await store.check()).ok
        assert_read(await store.read("session", strict=True), 4)


def _append(path: Path, more: bytes) -> bytes:
    content = path.read_bytes() + more
    path.write_bytes(content)
    return content
