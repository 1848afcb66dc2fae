"""Frames that are well-formed and do not belong: moved, renamed, forged, from the future, or made to explode."""

from __future__ import annotations

import shutil
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from snapshot_plugin.codec import frame as codec
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.frame import MAX_FRAME, PREFIX, TRAILER, encode_frame, open_frame
from snapshot_plugin.codec.scan import scan
from snapshot_plugin.errors import (
    InvalidSnapshotVersion,
    SnapshotCorrupted,
    SnapshotTampered,
)
from snapshot_plugin.model.policy import RetentionPolicy
from snapshot_plugin.model.snapshot import CURRENT_VERSION
from snapshot_plugin.testing import make_snapshot
from tests.faults.support import (
    KEY,
    PLAIN_AND_ENCRYPTED,
    filled,
    forged,
    frames_of,
    names_in,
    segments_of,
    store_at,
    version,
)

pytestmark = pytest.mark.anyio
FIRST = "0000000001.snap.gz"


async def assert_falls_back(path: Path, key: str | None, seq: int, kind: str) -> None:
    """Snapshot *seq* is read, what was skipped is named, strict mode and check refuse, and saving goes on."""
    async with store_at(path, key) as store:
        found = await store.read("session")
        assert (found.ref.seq, found.snapshot) == (seq, version(seq))
        assert kind in {finding.kind for finding in found.skipped}
        with pytest.raises(SnapshotTampered if kind == "tampered" else SnapshotCorrupted):
            await store.read("session", strict=True)
        assert not (await store.check()).ok
    async with store_at(path, key) as store:
        saved = await store.save(version(9))
        assert saved.seq > seq
        await store.check(repair=True)
        assert (await store.check()).findings == ()
        assert await store.load("session", strict=True) == version(9)
        assert await store.load("session", at=seq) == version(seq)


# Moved within a session ---------------------------------------------------------------------------------------

Frames = list[bytes]


@pytest.mark.requirement("FORMAT-HEADER-LO-HI", "FORMAT-THREAT-EDIT", "FORMAT-READ-DAMAGE")
@PLAIN_AND_ENCRYPTED
@pytest.mark.parametrize(
    ("move", "seq"),
    [
        (lambda a, b, c, d: [a, b, d, c], 2),
        (lambda a, b, c, d: [a, b, d], 2),
        (lambda a, b, c, d: [a, b, c, d, a], 4),
        (lambda a, b, c, d: [a, b, c, d, b], 4),
        (lambda a, b, c, d: [a, b, c, d, d], 4),
        (lambda a, b, c, d: [a, b, b, c, d], 2),
        (lambda a, b, c, d: [a, b, c, a], 3),
    ],
    ids=["swapped", "dropped", "first again", "second again", "last again", "doubled", "last replaced by first"],
)
async def test_frames_in_another_order_are_noticed_and_nothing_old_is_taken_for_the_newest(
    tmp_path: Path, key: str | None, move: Callable[..., Frames], seq: int
) -> None:
    segment = await filled(tmp_path, key, count=4)
    _write(segment, move(*frames_of(segment)))
    await assert_falls_back(tmp_path, key, seq, "corrupted")


@PLAIN_AND_ENCRYPTED
@pytest.mark.parametrize(
    ("segment", "name"), [(0, "0000000009.snap.gz"), (1, "0000000002.snap.gz"), (1, "0000000009.snap.gz")]
)
async def test_a_segment_under_another_number_is_noticed_and_repair_throws_nothing_away(
    tmp_path: Path, key: str | None, segment: int, name: str
) -> None:
    await filled(tmp_path, key, count=4, segment_frames=2)
    _rename(segments_of(tmp_path)[segment], name)
    before = {_content(path) for path in segments_of(tmp_path)}
    async with store_at(tmp_path, key) as store:
        with pytest.raises(SnapshotCorrupted):
            await store.load("session", strict=True)
        assert not (await store.check()).ok
        await store.check(repair=True)
        assert (await store.check()).findings == ()
    after = b"".join(_content(path) for path in (tmp_path / "sessions").rglob("*.snap.gz"))
    assert all(frame in after for data in before for frame in _split(data))


@PLAIN_AND_ENCRYPTED
async def test_a_frame_copied_to_a_new_segment_is_not_taken_for_the_newest(tmp_path: Path, key: str | None) -> None:
    segment = await filled(tmp_path, key)
    _write(segment.with_name("0000000004.snap.gz"), frames_of(segment)[:1])
    await assert_falls_back(tmp_path, key, 3, "corrupted")


@pytest.mark.requirement("FORMAT-ROOT-CHAIN")
@PLAIN_AND_ENCRYPTED
async def test_a_lost_segment_is_noticed_and_forget_merges_nothing_across_the_gap(
    tmp_path: Path, key: str | None
) -> None:
    notes: dict[str, str] = {}
    async with store_at(tmp_path, key, segment_frames=2) as store:
        for number in "123456":
            notes[number] = f"learned in {number}"
            await store.save(make_snapshot(memory=notes))
    _remove(segments_of(tmp_path)[1])
    async with store_at(tmp_path, key) as store:
        assert not (await store.check()).ok
        before = names_in(tmp_path / "sessions" / "session")
        with pytest.raises(SnapshotCorrupted):
            await store.forget("session", RetentionPolicy(keep_last=1))
        assert names_in(tmp_path / "sessions" / "session") == before
        found = await store.read("session")
        assert (set(found.snapshot.memory), bool(found.skipped)) == ({"1", "2"}, True)


# Moved between sessions and stores ----------------------------------------------------------------------------


@pytest.mark.requirement("FORMAT-HEADER-SID", "STORE-FAULT-SWAPPED", "FORMAT-SEAL-MOVED", "FORMAT-THREAT-EDIT")
@PLAIN_AND_ENCRYPTED
async def test_a_frame_of_another_session_is_refused(tmp_path: Path, key: str | None) -> None:
    mine = await filled(tmp_path, key, count=2)
    theirs = await filled(tmp_path, key, count=3, session_id="other")
    _write(mine, [*frames_of(mine), frames_of(theirs)[2]])
    await assert_falls_back(tmp_path, key, 2, "tampered" if key else "corrupted")


@pytest.mark.requirement("FORMAT-HEADER-SID", "FORMAT-SEAL-MOVED", "FORMAT-THREAT-EDIT")
@PLAIN_AND_ENCRYPTED
async def test_a_session_directory_under_another_name_is_refused(tmp_path: Path, key: str | None) -> None:
    segment = await filled(tmp_path, key)
    shutil.copytree(segment.parent, segment.parent.with_name("copy"))
    async with store_at(tmp_path, key) as store:
        with pytest.raises(SnapshotTampered if key else SnapshotCorrupted):
            await store.load("copy")
        states = {meta.session_id: meta.state for meta in await store.list()}
        assert states == {"session": "ok", "copy": "damaged"}
        assert {finding.session_id for finding in (await store.check()).findings} == {"copy"}
        assert await store.load("session", strict=True) == version(3)


@pytest.mark.requirement("FORMAT-SEAL-PLAIN", "FORMAT-THREAT-PLAIN", "STORE-CORRUPT-TAMPERED")
@pytest.mark.parametrize("position", ["only", "newest"])
async def test_a_plain_frame_in_an_encrypted_store_is_tampering(tmp_path: Path, position: str) -> None:
    plain = frames_of(await filled(tmp_path / "plain", count=3))
    segment = await filled(tmp_path, KEY, count=2)
    _write(segment, plain[:1] if position == "only" else [*frames_of(segment), plain[2]])
    if position == "newest":
        await assert_falls_back(tmp_path, KEY, 2, "tampered")
    else:
        await _assert_nothing_opens(tmp_path, KEY)


@pytest.mark.parametrize("position", ["only", "newest"])
async def test_an_encrypted_frame_in_a_plain_store_is_tampering(tmp_path: Path, position: str) -> None:
    sealed = frames_of(await filled(tmp_path / "sealed", KEY, count=3))
    segment = await filled(tmp_path, count=2)
    _write(segment, sealed[:1] if position == "only" else [*frames_of(segment), sealed[2]])
    if position == "newest":
        await assert_falls_back(tmp_path, None, 2, "tampered")
    else:
        await _assert_nothing_opens(tmp_path, None)


async def test_a_frame_of_another_store_with_the_same_key_is_tampering(tmp_path: Path) -> None:
    theirs = frames_of(await filled(tmp_path / "other", KEY, count=3))
    segment = await filled(tmp_path, KEY, count=2)
    async with store_at(tmp_path / "other", KEY) as other, store_at(tmp_path, KEY) as store:
        stolen = forged(theirs[2], other.session_keys("session"), to=other.session_keys("session"))
        mine = store.session_keys("session")
        assert mine
        # Even with our key's id written on it.
        stolen = stolen.replace(
            open_frame(theirs[2], session_id="session", keys=other.session_keys("session"))[0].kid.encode(),
            mine.primary.encode(),
        )
    _write(segment, [*frames_of(segment), stolen])
    await assert_falls_back(tmp_path, KEY, 2, "tampered")


async def _assert_nothing_opens(path: Path, key: str | None) -> None:
    async with store_at(path, key) as store:
        for at in (None, 1):
            with pytest.raises(SnapshotTampered):
                await store.load("session", at=at)
        assert [meta.state for meta in await store.list()] == ["damaged"]
        assert [finding.kind for finding in (await store.check()).findings] == ["tampered"]


# From the future ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("STORE-CORRUPT-TOO-NEW", "FORMAT-HEADER-V")
@PLAIN_AND_ENCRYPTED
async def test_a_frame_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path, key: str | None) -> None:
    segment = await filled(tmp_path, key)
    async with store_at(tmp_path, key) as store:
        keys = store.session_keys("session")
        *older, newest = frames_of(segment)
        _write(segment, [*older, forged(newest, keys, to=keys, v=CURRENT_VERSION + 1)])
        content = _content(segment)
        with pytest.raises(InvalidSnapshotVersion):
            await store.load("session")
        with pytest.raises(InvalidSnapshotVersion):
            await store.load("session", at=3)
        assert await store.load("session", at=2) == version(2)
    async with store_at(tmp_path, key) as store:
        with pytest.raises(InvalidSnapshotVersion):
            await store.save(version(4))
        report = await store.check(repair=True)
        assert [finding.kind for finding in report.findings] == ["version_unsupported"]
        assert report.repaired == ()
    assert [_content(path) for path in segments_of(tmp_path)] == [content]


# Frames made by hand ------------------------------------------------------------------------------------------


def _stream(megabytes: int, ending: bytes = b"") -> bytes:
    """A DEFLATE stream of that many megabytes of spaces: a thousandth of it in size, made in no time."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    one = packer.compress(b" " * (1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return one * megabytes + packer.compress(ending) + packer.flush()


def _handmade(frame: bytes, body: bytes, size: int, **changes: object) -> bytes:
    """A plain frame whose checksum is right, with this DEFLATE stream, which claims to hold *size* bytes."""
    header, _ = open_frame(frame, session_id="session", keys=None)
    empty = encode_frame(replace(header, **changes), b"", None)  # type: ignore[arg-type]
    start = empty[: PREFIX + struct.unpack_from("<H", empty, 14)[0] - 4]
    length = len(start) + len(body) + TRAILER
    start = start[:16] + struct.pack("<I", length) + start[20:]
    at = start.index(b'"sum":"') + 7
    blank = start[:at] + b"0" * 64 + start[at + 64 :] + body + struct.pack("<II", 0, size & 0xFFFFFFFF)
    return blank[:at] + sha256(blank).hexdigest().encode() + blank[at + 64 :]


@contextmanager
def memory_within(megabytes: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < megabytes << 20
    finally:
        tracemalloc.stop()


@pytest.mark.requirement("FORMAT-READ-BOMB", "FORMAT-READ-LIMIT")
@pytest.mark.parametrize("size", [100, 1 << 20, MAX_FRAME + 1, (1 << 32) - 1])
async def test_a_frame_that_inflates_beyond_what_it_says_is_refused_in_little_memory(
    tmp_path: Path, size: int
) -> None:
    segment = await filled(tmp_path, count=2)
    first, second = frames_of(segment)
    _write(segment, [first, _handmade(second, _stream(2000), size)])
    with memory_within(40):
        await assert_falls_back(tmp_path, None, 1, "corrupted")


async def test_a_bomb_costs_little_memory_to_list_and_as_an_unfinished_save(tmp_path: Path) -> None:
    segment = await filled(tmp_path, count=2)
    first, second = frames_of(segment)
    bomb = _handmade(second, _stream(2000), 100)
    with memory_within(40):
        _write(segment, [first, bomb])
        async with store_at(tmp_path) as store:
            assert [meta.state for meta in await store.list()] == ["damaged"]
        _write(segment, [first, bomb[:-5000]])
        async with store_at(tmp_path) as store:
            assert await store.load("session", strict=True) == version(1)
            assert [meta.state for meta in await store.list()] == ["ok"]
            assert [finding.kind for finding in (await store.check()).findings] == ["unfinished"]


@pytest.mark.parametrize("size", [100, (1 << 32) - 1])
@pytest.mark.parametrize("sealed", [False, True], ids=["instead of ciphertext", "sealed with the right key"])
async def test_a_bomb_in_an_encrypted_store_is_refused_in_little_memory(
    tmp_path: Path, size: int, *, sealed: bool
) -> None:
    segment = await filled(tmp_path, KEY, count=2)
    first, second = frames_of(segment)
    if sealed:
        bomb = _sealed(second, store_at(tmp_path, KEY).session_keys("session"), _stream(2000), size)
    else:
        plain = frames_of(await filled(tmp_path / "plain", count=2))[1]
        bomb = _handmade(plain, _stream(2000), size).replace(b'"sum":', b'"kid":')
    _write(segment, [first, bomb])
    with memory_within(40):
        await assert_falls_back(tmp_path, KEY, 1, "corrupted")


def _sealed(frame: bytes, keys: SessionKeys | None, body: bytes, size: int) -> bytes:
    """An encrypted frame, made by one who has the key, with this DEFLATE stream inside."""
    assert keys
    header, _ = open_frame(frame, session_id="session", keys=keys)
    inner = codec._INNER + body + struct.pack("<II", 0, size)
    start = codec._start(header.to_bytes(), codec._stored_size(len(inner) + 16))
    return codec._assemble(start, keys.seal(bytes.fromhex(header.nonce), inner, start))


@pytest.mark.parametrize(
    "header",
    [b"[]", b"{}", b"null", b'{"lo":1}', b"[" * 5000, b"\xff\xfe", b'{"hi":NaN}', b'"' + b"x" * 500 + b'"'],
    ids=["list", "empty", "null", "little", "deep", "not text", "nan", "text"],
)
async def test_a_header_that_is_none_is_damage(tmp_path: Path, header: bytes) -> None:
    segment = await filled(tmp_path, count=2)
    frames = frames_of(segment)
    size = PREFIX + len(header) + TRAILER
    start = frames[0][:10] + struct.pack("<H2sHI", len(header) + 8, b"SN", len(header) + 4, size)
    _write(segment, [*frames, start + header + bytes(TRAILER)])
    await assert_falls_back(tmp_path, None, 2, "corrupted")


@pytest.mark.requirement("FORMAT-HEADER-PREV", "FORMAT-ROOT-CHAIN", "FORMAT-HEADER-FULL")
@PLAIN_AND_ENCRYPTED
@pytest.mark.parametrize(
    "changes",
    [{"at": 7}, {"delete": 5}, {"insert": 2}, {"prev": "0" * 64}, {"lo": 1}, {"full": True, "at": 1}],
    ids=["beyond the end", "too much deleted", "lines missing", "another past", "another place", "full and not"],
)
async def test_a_frame_that_contradicts_itself_is_damage(
    tmp_path: Path, key: str | None, changes: dict[str, object]
) -> None:
    segment = await filled(tmp_path, key, count=2)
    first, second = frames_of(segment)
    keys = store_at(tmp_path, key).session_keys("session")
    _write(segment, [first, forged(second, keys, to=keys, **changes)])
    await assert_falls_back(tmp_path, key, 1, "corrupted")


async def test_a_checksum_that_is_no_text_is_damage(tmp_path: Path) -> None:
    segment = await filled(tmp_path, count=2)
    first, second = frames_of(segment)
    at = second.index(b'"sum":"') + 7
    _write(segment, [first, second[:at] + b"\\ud800" + second[at + 6 :]])
    await assert_falls_back(tmp_path, None, 1, "corrupted")


@pytest.mark.requirement("STORE-CHECK")
async def test_check_compares_the_content_with_its_digest(tmp_path: Path) -> None:
    segment = await filled(tmp_path, count=2)
    first, second = frames_of(segment)
    _write(segment, [first, forged(second, root="0" * 64)])
    async with store_at(tmp_path) as store:
        assert [(finding.kind, finding.seq) for finding in (await store.check()).findings] == [("corrupted", 2)]


# Links --------------------------------------------------------------------------------------------------------


def _write(path: Path, frames: Frames) -> None:
    path.write_bytes(b"".join(frames))


def _split(data: bytes) -> Frames:
    return [data[piece.start : piece.end] for piece in scan(data)]


def _content(path: Path) -> bytes:
    return path.read_bytes()


def _rename(path: Path, name: str) -> None:
    path.rename(path.with_name(name))


def _remove(path: Path) -> None:
    path.unlink()
