"""Segments cut into frames, unfinished saves and damage: every byte is one of them."""

from __future__ import annotations

import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.frame import MAGIC, Header, encode_frame
from snapshot_plugin.codec.keys import Keyset
from snapshot_plugin.codec.scan import last_frame, scan
from tests.tries import tries

HEADER = Header(v=2, id="01k", sid="session", lo=3, hi=4, root="ab" * 32, prev="cd" * 32)
PAYLOAD = b'{"meta":{"title":"t"}}\n{"message":{"role":"user"}}\n'


def frames_of(count: int) -> list[bytes]:
    return [encode_frame(HEADER._replace(lo=n, hi=n, id=f"{n}"), PAYLOAD * n, None) for n in range(1, count + 1)]


def kinds(data: bytes) -> list[str]:
    pieces = list(scan(data))
    assert [piece.end for piece in pieces[:-1]] == [piece.start for piece in pieces[1:]]
    assert not pieces or (pieces[0].start, pieces[-1].end) == (0, len(data))
    return [piece.kind for piece in pieces]


@pytest.mark.requirement("FORMAT-FRAME-LENGTH")
def test_segment_is_split_into_its_frames() -> None:
    frames = frames_of(4)

    pieces = list(scan(b"".join(frames)))

    assert [piece.header.hi for piece in pieces if piece.header] == [1, 2, 3, 4]
    assert [piece.end - piece.start for piece in pieces] == [len(each) for each in frames]
    assert kinds(b"") == []


@pytest.mark.requirement("FORMAT-READ-UNFINISHED", "FORMAT-READ-ZEROS")
def test_truncated_frame_at_the_end_is_an_unfinished_save() -> None:
    one, two, *_ = frames_of(2)

    for length in range(1, len(two)):
        assert kinds(one + two[:length]) == ["frame", "unfinished"]
    assert kinds(one + b"\0" * 50) == ["frame", "unfinished"]


@pytest.mark.requirement("FORMAT-READ-DAMAGE", "FORMAT-READ-RESYNC")
def test_foreign_bytes_between_or_after_frames_are_damage() -> None:
    one, two, three = frames_of(3)

    assert kinds(one + b"junk" + two) == ["frame", "damage", "frame"]
    assert kinds(one + two[:50] + three) == ["frame", "damage", "frame"]
    assert kinds(one + b"junk") == ["frame", "damage"]
    assert kinds(b"\0" * 9 + one) == ["damage", "frame"]
    too_long = struct.pack("<I", len(two) + 5)
    assert kinds(one + two[:16] + too_long + two[20:]) == ["frame", "damage"]


@tries(200)
@given(st.lists(st.one_of(st.sampled_from(frames_of(3)), st.binary(max_size=40), st.just(MAGIC)), max_size=6))
def test_every_byte_belongs_to_exactly_one_piece(parts: list[bytes]) -> None:
    kinds(b"".join(parts))


def test_last_frame_is_found_by_scanning_backwards() -> None:
    *_, last = frames = frames_of(3)
    segment = b"".join(frames)

    for start in (0, 5, len(segment) - len(last)):
        piece = last_frame(segment[start:])
        assert piece is not None
        assert piece.header is not None
        assert (piece.header.hi, segment[start:][piece.start :]) == (3, last)
    for wrong in (b"", segment[:-1], segment + b"\0", last[1:]):
        assert last_frame(wrong) is None


def test_frame_with_frames_in_its_content_is_one_frame() -> None:
    inner = b"".join(frames_of(2))
    keys = SessionKeys(Keyset.new(), store_id="store", session_id="session")
    outer = encode_frame(HEADER, hashlib.shake_256(b"x").digest(100) + inner, keys)
    stored = outer + frames_of(1)[0]

    assert kinds(stored) == ["frame", "frame"]
