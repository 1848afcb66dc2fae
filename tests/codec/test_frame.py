"""Frames byte by byte, with the standard library's DEFLATE and with isal: each reads what the other wrote."""

from __future__ import annotations

import gzip
import hashlib
import json
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from isal import isal_zlib

from snapshot_plugin import Damaged, InvalidInput, InvalidSnapshot, SnapshotCorrupted, SnapshotTampered, WrongKey
from snapshot_plugin.codec import compress, frame
from snapshot_plugin.codec.compress import (
    Effort,
    accelerated,
    deflate,
    inflate,
    inflate_start,
    stored,
    stream_length,
    unstored,
)
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.frame import Header, encode_frame, open_frame, open_meta, read_header
from snapshot_plugin.codec.keys import Keyset
from tests.tries import tries

LIBRARIES = {"zlib": zlib, "isal": isal_zlib}
EFFORTS: tuple[Effort, ...] = get_args(Effort)
KEYS = SessionKeys(Keyset.new(), store_id="store", session_id="session")
BOTH_KINDS = pytest.mark.parametrize("keys", [None, KEYS], ids=["plain", "encrypted"])

PAYLOAD = b'{"meta":{"title":"t"}}\n{"section":["title"],"value":"t"}\n{"message":{"role":"user"}}\n'
HEADER = Header(
    v=2, id="01k", sid="session", lo=3, hi=4, root="ab" * 32, prev="cd" * 32, at=1, delete=2, insert=1,
    t="2026-11-16T00:51:47.000001Z", w="01w", trigger="exit", tags=("a", "b"),
)  # fmt: skip

payloads = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda part, times: part * times, st.binary(min_size=1, max_size=40), st.integers(1, 5000)),
)


@pytest.fixture(params=list(LIBRARIES))
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(compress, "_library", lambda: LIBRARIES[request.param])
    return str(request.param)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda name: monkeypatch.setattr(compress, "_library", lambda: LIBRARIES[name])


def same_place(header: Header) -> Header:
    """A header without what differs from one encoding to the next."""
    return header._replace(sum="", kid="", nonce="")


# DEFLATE ---------------------------------------------------------------------------------------------------


def test_fast_gzip_library_is_used_when_installed() -> None:
    assert accelerated()
    assert compress._library() is isal_zlib


@pytest.mark.requirement("STORE-KEY-FAST")
@tries(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=payloads)
@pytest.mark.parametrize("writer", list(LIBRARIES))
@pytest.mark.parametrize("reader", list(LIBRARIES))
@pytest.mark.parametrize("effort", EFFORTS)
def test_gzip_libraries_read_each_others_output(
    data: bytes, writer: str, reader: str, effort: Effort, use: Callable[[str], None]
) -> None:
    use(writer)
    packed = deflate(data, effort)
    use(reader)

    assert inflate(packed, len(data)) == data
    assert zlib.decompress(packed, wbits=-15) == data
    assert stream_length(packed) == stream_length(packed + b"more") == len(packed)
    assert inflate_start(packed, 10) == data[:10]


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("size", [0, 1, 100, 70_000])
def test_inflating_stops_at_the_declared_size(size: int) -> None:
    data = bytes(range(256)) * 300
    packed = deflate(data[:size])

    assert inflate(packed, size) == data[:size]
    for wrong in {size + 1, size + 1000, max(0, size - 1), size // 2} - {size}:
        with pytest.raises(SnapshotCorrupted):
            inflate(packed, wrong)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("megabytes", [60, 600])
def test_a_stream_that_yields_far_more_than_it_declares_takes_little_memory(megabytes: int) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    forged = b"".join(packer.compress(bytes(1 << 20)) for _ in range(megabytes)) + packer.flush()
    tracemalloc.start()
    try:
        with pytest.raises(SnapshotCorrupted):
            inflate(forged, 1000)
        assert tracemalloc.get_traced_memory()[1] < 140 << 20  # libraries copy it once when it grows
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("library")
def test_truncated_corrupt_or_trailing_stream_is_refused() -> None:
    data = b"some text " * 50
    packed = deflate(data)
    wrong = [packed[:length] for length in range(len(packed))]
    wrong += [packed + b"\0" * length for length in range(1, 12)]
    wrong += [packed + packed, b"\xff" * 20, b"", bytes([packed[0] ^ 4]) + packed[1:]]

    for each in wrong:
        with pytest.raises(SnapshotCorrupted):
            inflate(each, len(data))


@pytest.mark.usefixtures("library")
def test_length_of_an_unfinished_stream_is_unknown() -> None:
    packed = deflate(b"0123456789" * 100_000)

    assert stream_length(packed[:-1]) is None
    assert stream_length(b"") is None
    with pytest.raises(SnapshotCorrupted):
        stream_length(b"\xff" * 20)


# Frames ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement(
    "FORMAT-FRAME-GZIP",
    "FORMAT-FRAME-CONSTANTS",
    "FORMAT-FRAME-EXTRA",
    "FORMAT-FRAME-LENGTH",
    "FORMAT-FRAME-CRC",
    "FORMAT-HEADER-JSON",
    "FORMAT-HEADER-SUM",
)
@pytest.mark.usefixtures("library")
def test_a_plain_frame_has_exactly_the_bytes_of_the_format_page() -> None:
    data = encode_frame(HEADER, PAYLOAD, None)

    assert data[:10].hex() == "1f8b08040000000000ff"
    xlen, mark, length, size = struct.unpack_from("<H2sHI", data, 10)
    assert (xlen, mark, size) == (length + 4, b"SN", len(data))
    text, body = data[20 : 16 + length], data[16 + length : -8]
    header = json.loads(text)
    assert text == json.dumps(header, sort_keys=True, separators=(",", ":")).encode("ascii")
    assert header == {
        "v": 2, "id": "01k", "sid": "session", "lo": 3, "hi": 4, "root": "ab" * 32, "prev": "cd" * 32,
        "at": 1, "del": 2, "ins": 1, "t": "2026-11-16T00:51:47.000001Z", "w": "01w", "trigger": "exit",
        "tags": ["a", "b"], "sum": header["sum"],
    }  # fmt: skip
    assert hashlib.sha256(data.replace(header["sum"].encode(), b"0" * 64)).hexdigest() == header["sum"]
    assert zlib.decompress(body, wbits=-15) == PAYLOAD
    assert data[-8:] == struct.pack("<II", zlib.crc32(PAYLOAD), len(PAYLOAD))
    assert gzip.decompress(data) == PAYLOAD


@pytest.mark.requirement("FORMAT-SEAL-STORED")
@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("size", [0, 65_000, 200_000])
def test_an_encrypted_frame_is_ciphertext_in_stored_blocks(size: int) -> None:
    payload = PAYLOAD + hashlib.shake_256(b"noise").digest(size)
    data = encode_frame(HEADER, payload, KEYS)

    header, body, length = read_header(data)
    assert (header.kid, header.sum, length) == (KEYS.primary, "", len(data))
    ciphertext = gzip.decompress(data)
    blocks, at = [], body
    while True:
        final, count, check = struct.unpack_from("<BHH", data, at)
        assert count ^ check == 0xFFFF
        blocks.append(count)
        at += 5 + count
        if final:
            break
    assert at == len(data) - 8
    assert blocks[:-1] == [65_535] * (len(blocks) - 1)
    inner = KEYS.open(header.kid, bytes.fromhex(header.nonce), ciphertext, data[:body])
    assert gzip.decompress(inner) == payload
    assert b"title" not in data


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 131_070, 200_000])
def test_stored_blocks_are_read_only_as_they_are_written(size: int) -> None:
    content = hashlib.shake_256(b"content").digest(size)
    blocks = stored(content)

    assert unstored(blocks, size) == content
    assert unstored(blocks + b"\0", size) is None
    assert unstored(blocks[:-1], size) is None
    assert unstored(blocks, size + 1) is None
    starts = range(0, len(blocks), 65_540)
    for at in [start + offset for start in starts for offset in range(5)]:
        changed = bytearray(blocks)
        changed[at] ^= 1
        assert unstored(bytes(changed), size) is None


@pytest.mark.requirement("STORE-KEY-FAST")
@pytest.mark.parametrize("writer", list(LIBRARIES))
@pytest.mark.parametrize("reader", list(LIBRARIES))
@pytest.mark.parametrize("effort", EFFORTS)
@BOTH_KINDS
def test_frames_of_one_gzip_library_open_with_the_other(
    writer: str, reader: str, effort: Effort, keys: SessionKeys | None, use: Callable[[str], None]
) -> None:
    payload = PAYLOAD + b'{"message":{}}\n' * 20_000
    use(writer)
    data = encode_frame(HEADER, payload, keys, effort=effort)
    use(reader)

    header, found = open_frame(data, session_id="session", keys=keys)

    assert (same_place(header), found) == (HEADER, payload)
    assert open_meta(data, session_id="session", keys=keys)[1] == {"title": "t"}
    assert open_frame(encode_frame(header, found, keys), session_id="session", keys=keys)[1] == payload


@BOTH_KINDS
def test_resealing_gives_the_same_plain_frame_and_a_new_nonce(keys: SessionKeys | None) -> None:
    one, other = (read_header(encode_frame(HEADER, PAYLOAD, keys))[0] for _ in range(2))

    assert (one == other) is (keys is None)
    assert keys is None or one.nonce != other.nonce


@pytest.mark.requirement("FORMAT-SEAL-EXACT", "FORMAT-READ-BIT", "FORMAT-SEAL-AAD")
@pytest.mark.usefixtures("library")
@BOTH_KINDS
def test_flipped_bits_cuts_and_extra_bytes_are_refused(keys: SessionKeys | None) -> None:
    data = encode_frame(HEADER, PAYLOAD, keys)
    changed = [data[:length] for length in range(len(data))] + [data + b"\0", data + data, b"\0" + data]
    for bit in range(8 * len(data)):
        place, flipped = bit // 8, data[bit // 8] ^ (1 << bit % 8)
        changed.append(data[:place] + bytes([flipped]) + data[place + 1 :])

    for wrong in changed:
        with pytest.raises((Damaged, WrongKey)):
            open_frame(wrong, session_id="session", keys=keys)
        with pytest.raises((Damaged, WrongKey)):
            open_meta(wrong, session_id="session", keys=keys)


@pytest.mark.requirement("FORMAT-HEADER-SID", "FORMAT-SEAL-PLAIN")
def test_frame_opens_only_for_its_session_and_kind_of_store() -> None:
    plain, sealed = (encode_frame(HEADER, PAYLOAD, keys) for keys in (None, KEYS))
    elsewhere = SessionKeys(Keyset.new(), store_id="store", session_id="session")

    with pytest.raises(SnapshotCorrupted):
        open_frame(plain, session_id="other", keys=None)
    with pytest.raises(SnapshotTampered):
        open_frame(plain, session_id="session", keys=KEYS)
    with pytest.raises(SnapshotTampered):
        open_frame(sealed, session_id="session", keys=None)
    with pytest.raises(WrongKey):
        open_frame(sealed, session_id="session", keys=elsewhere)


@BOTH_KINDS
def test_header_keys_of_a_later_release_are_kept(keys: SessionKeys | None) -> None:
    later = HEADER._replace(other={"later": {"x": [1]}, "delete": "not ours"}, full=True)

    header, payload = open_frame(encode_frame(later, PAYLOAD, keys), session_id="session", keys=keys)

    assert same_place(header) == later
    again, _ = open_frame(encode_frame(header, payload, keys), session_id="session", keys=keys)
    assert same_place(again) == later


@pytest.mark.parametrize("text", ["é 🦉", "\ud83d", '"sum":"' + "0" * 64, "\n", '\\"sum\\":\\"'])
@BOTH_KINDS
def test_header_may_hold_any_text(text: str, keys: SessionKeys | None) -> None:
    strange = HEADER._replace(trigger=text, tags=(text, ""), other={"a": text})

    header, _ = open_frame(encode_frame(strange, PAYLOAD, keys), session_id="session", keys=keys)

    assert same_place(header) == strange


def test_oversized_header_or_frame_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput):
        encode_frame(HEADER._replace(tags=("x" * 70_000,)), PAYLOAD, None)
    monkeypatch.setattr(frame, "MAX_FRAME", len(PAYLOAD) - 1)
    with pytest.raises(InvalidSnapshot):
        encode_frame(HEADER, PAYLOAD, None)


def test_a_frame_without_a_summary_is_damaged() -> None:
    for payload in (b"", b"\n", b"[]\n", b'{"section":["a"],"value":1}\n', b"{"):
        with pytest.raises(SnapshotCorrupted):
            open_meta(encode_frame(HEADER, payload, None), session_id="session", keys=None)


def test_summary_of_any_length_is_read() -> None:
    meta = {"title": "x" * 300_000}
    payload = json.dumps({"meta": meta}).encode() + b"\n" + b"more" * 1000

    assert open_meta(encode_frame(HEADER, payload, None), session_id="session", keys=None)[1] == meta
