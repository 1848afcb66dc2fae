"""Frames somebody made by hand: of a newer version, contradicting themselves, or made to explode."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from snapshot_plugin import InvalidSnapshotVersion
from snapshot_plugin.codec import frame as codec
from snapshot_plugin.codec.compress import stored_size
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.frame import MAX_FRAME, PREFIX, TRAILER, encode_frame, open_frame
from snapshot_plugin.model import CURRENT_VERSION
from tests.faults.support import (
    KEY,
    PLAIN_AND_ENCRYPTED,
    assert_falls_back,
    filled,
    forged,
    frames_of,
    segments_of,
    store_at,
    version,
)
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it

pytestmark = pytest.mark.anyio


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
    empty = encode_frame(header._replace(**changes), b"", None)  # type: ignore[arg-type]
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
async def test_frame_inflating_beyond_its_declared_size_is_refused_in_little_memory(
    tmp_path: Path, size: int
) -> None:
    segment = await filled(tmp_path, count=2)
    first, second = frames_of(segment)
    _write(segment, [first, _handmade(second, _stream(2000), size)])
    with memory_within(40):
        await assert_falls_back(tmp_path, None, 1, "corrupted")


async def test_bomb_uses_little_memory_in_list_and_as_an_unfinished_save(tmp_path: Path) -> None:
    segment = await filled(tmp_path, count=2)
    first, second = frames_of(segment)
    bomb = _handmade(second, _stream(100), 100)
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
    start = codec._start(header.to_bytes(), stored_size(len(inner) + 16), 0)
    return codec._assemble(start, keys.seal(bytes.fromhex(header.nonce), inner, start))


@pytest.mark.parametrize(
    "header",
    [b"[]", b"{}", b"null", b'{"lo":1}', b"[" * 5000, b"\xff\xfe", b'{"hi":NaN}', b'"' + b"x" * 500 + b'"'],
    ids=["list", "empty", "null", "little", "deep", "not text", "nan", "text"],
)
async def test_invalid_header_is_damage(tmp_path: Path, header: bytes) -> None:
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
async def test_inconsistent_frame_is_damage(tmp_path: Path, key: str | None, changes: dict[str, object]) -> None:
    segment = await filled(tmp_path, key, count=2)
    first, second = frames_of(segment)
    keys = store_at(tmp_path, key).session_keys("session")
    _write(segment, [first, forged(second, keys, to=keys, **changes)])
    await assert_falls_back(tmp_path, key, 1, "corrupted")


async def test_checksum_that_is_not_text_is_damage(tmp_path: Path) -> None:
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


def _write(path: Path, frames: list[bytes]) -> None:
    path.write_bytes(b"".join(frames))


def _content(path: Path) -> bytes:
    return path.read_bytes()
