"""Split a segment into frames, and distinguish unfinished saves from damage (docs/reference/format.md §5)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal, NamedTuple

from snapshot_plugin.codec.compress import stream_length
from snapshot_plugin.codec.frame import MAGIC, PREFIX, TRAILER, Header, read_header
from snapshot_plugin.errors import SnapshotCorrupted

__all__ = ["Piece", "last_frame", "scan"]


class Piece(NamedTuple):
    """A byte range of a segment: a frame (not yet verified), an unfinished save at the end, or damage."""

    kind: Literal["frame", "unfinished", "damage"]
    start: int
    end: int
    header: Header | None = None


def scan(data: bytes) -> Iterator[Piece]:
    """Split *data* into pieces: each byte belongs to exactly one. Reads headers only."""
    at = 0
    while at < len(data):
        piece = _piece(data, at)
        yield piece
        at = piece.end


def _piece(data: bytes, at: int) -> Piece:
    try:
        header, _body, size = read_header(data, at)
        if at + size <= len(data):
            return Piece("frame", at, at + size, header)
    except SnapshotCorrupted:
        pass
    if _unfinished(data, at):
        return Piece("unfinished", at, len(data))
    following = data.find(MAGIC, at + 1)
    return Piece("damage", at, following if following > 0 else len(data))


def _unfinished(data: bytes, at: int) -> bool:
    """Whether the rest is an interrupted append: the beginning of a frame, or zeros.

    A complete frame with a damaged length field also seems to reach past the end. It is recognised by its
    compressed stream, which is complete.
    """
    rest = data[at:]
    if not rest.strip(b"\0"):
        return True
    if rest[: len(MAGIC)] != MAGIC[: len(rest)]:
        return False
    if len(rest) < PREFIX:
        return True
    try:
        _header, body, _size = read_header(rest)
    except SnapshotCorrupted:
        length = int.from_bytes(rest[14:16], "little")
        consistent = rest[12:14] == b"SN" and int.from_bytes(rest[10:12], "little") == length + 4
        return consistent and len(rest) < PREFIX + length - 4
    return not _stream_is_complete(rest[body:])


def _stream_is_complete(body: bytes) -> bool:
    try:
        used = stream_length(body)
    except SnapshotCorrupted:
        return True  # an interrupted append leaves a valid beginning
    return used is not None and len(body) >= used + TRAILER


def last_frame(tail: bytes) -> Piece | None:
    """The last frame of *tail* (the end of a segment), which must end where *tail* ends; None if none does."""
    at = tail.rfind(MAGIC)
    while at >= 0:
        with contextlib.suppress(SnapshotCorrupted):
            header, _body, size = read_header(tail, at)
            if at + size == len(tail):
                return Piece("frame", at, len(tail), header)
        at = tail.rfind(MAGIC, 0, at + len(MAGIC) - 1)
    return None
