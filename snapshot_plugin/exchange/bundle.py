"""One file that holds whole sessions (docs/reference/bundle.md): a head, then every snapshot as a plain frame.

The same sessions give the same bytes. Reading returns exactly what was written, or raises an error.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from snapshot_plugin.codec.frame import MAGIC, encode_frame, read_header
from snapshot_plugin.codec.pack import open_changes, payload_of
from snapshot_plugin.errors import InvalidInput, InvalidSnapshotVersion, LimitExceeded, SnapshotCorrupted
from snapshot_plugin.store.transfer import Copied

__all__ = ["BUNDLE_VERSION", "MAX_CONTENT", "MAX_MESSAGES", "is_bundle", "pack", "too_many_messages", "unpack"]

BUNDLE_VERSION = 1
MAX_CONTENT = 1 << 30
"""The most bytes of content that a bundle may hold. Checked before anything is decompressed."""

MAX_LINES = 2_000_000
"""The most messages and sections that a bundle may hold, over all snapshots."""
MAX_MESSAGES = 100_000
"""The most messages of a session that is read from a file."""

_MARK = b"AB"
_STEP = 1 << 20
_SECTIONS = 1000
_HEAD = len(MAGIC) + 6
_NOTHING = b"\x03\x00" + bytes(8)
"""The end of an empty gzip member."""
_ZERO_SUM = "0" * 64
_SUM = re.compile(rb'"sum":"([0-9a-f]{64})"')


def is_bundle(data: bytes) -> bool:
    """Whether *data* begins like a bundle."""
    return data[: len(MAGIC)] == MAGIC and data[len(MAGIC) + 2 : len(MAGIC) + 4] == _MARK


def pack(sessions: Sequence[Sequence[Copied]]) -> bytes:
    """The bundle of these sessions, in this order."""
    frames = [
        encode_frame(header, payload, None, effort="best") for copies in sessions for header, payload in copies
    ]
    body = b"".join(frames)
    about = {"bundle": BUNDLE_VERSION, "bytes": len(body), "frames": len(frames), "sum": _ZERO_SUM}
    text = json.dumps(about, sort_keys=True, separators=(",", ":")).encode()
    head = MAGIC + struct.pack("<H2sH", len(text) + 4, _MARK, len(text)) + text + _NOTHING
    digest = hashlib.sha256(head + body).hexdigest()
    return head.replace(_ZERO_SUM.encode(), digest.encode(), 1) + body


def unpack(data: bytes, *, limit: int = MAX_CONTENT) -> list[list[Copied]]:
    """Return the sessions in a bundle, each with its snapshots, oldest first. The caller verifies their roots.

    Raises:
        InvalidInput: it is not a bundle.
        InvalidSnapshotVersion: a newer release wrote it.
        LimitExceeded: it would decompress to more than *limit* bytes. Nothing was decompressed.
        SnapshotCorrupted, SnapshotTampered: it was cut off or changed.
    """
    if not is_bundle(data):
        raise InvalidInput("this is not a bundle", hint="asnap export makes one")
    about, body = _head(data)
    _check_sum(data, about, len(data) - body)
    frames = list(_frames(data, body))
    if len(frames) != about.get("frames"):
        raise SnapshotCorrupted("the bundle holds another number of snapshots than it says")
    declared = sum(int.from_bytes(frame[-4:], "little") for frame in frames)
    if declared > limit:
        raise LimitExceeded(
            f"the bundle would unfold to {declared} bytes, over the limit of {limit}",
            hint="do not import it if you do not trust its author, or export fewer sessions into each bundle",
        )
    _check_lines(frames)
    return _sessions(frames)


def _check_lines(frames: Sequence[bytes]) -> None:
    """Count the lines without keeping them: a few hundred KiB can decompress to millions of tiny messages."""
    total = 0
    for frame in frames:
        header, lines = read_header(frame)[0], _lines_in(frame)
        total += lines
        if total > MAX_LINES or (not header.pack and lines > MAX_MESSAGES + _SECTIONS):
            raise too_many_messages(header.sid)


def _lines_in(frame: bytes) -> int:
    unfold, count, data = zlib.decompressobj(wbits=31), 0, frame
    try:
        while data and not unfold.eof:
            count += unfold.decompress(data, _STEP).count(b"\n")
            data = unfold.unconsumed_tail
    except zlib.error:
        return count  # opening the frame raises the precise error
    return count


def too_many_messages(session_id: str) -> LimitExceeded:
    """The error for a session that would take too much memory."""
    return LimitExceeded(
        f"session {session_id} has more messages than can be imported ({MAX_MESSAGES})",
        session_id=session_id,
        hint="nothing was imported; do not import files of people you do not trust",
    )


def _head(data: bytes) -> tuple[dict[str, Any], int]:
    """The head of a bundle, and where its frames begin."""
    length = int.from_bytes(data[_HEAD - 2 : _HEAD], "little")
    try:
        about = json.loads(data[_HEAD : _HEAD + length])
        version = about["bundle"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SnapshotCorrupted("the head of the bundle is cut off or changed", hint=_AGAIN) from error
    if type(version) is not int or version != BUNDLE_VERSION:
        raise InvalidSnapshotVersion(f"the bundle has version {version!r}; this release reads {BUNDLE_VERSION}")
    return about, _HEAD + length + len(_NOTHING)


_AGAIN = "get the file again; nothing was imported"


def _check_sum(data: bytes, about: dict[str, Any], size: int) -> None:
    if size != about.get("bytes"):
        raise SnapshotCorrupted(
            f"the bundle was cut off, or something was added: {size} bytes of {about.get('bytes')}", hint=_AGAIN
        )
    found = _SUM.search(data, 0, _HEAD + 0xFFFF)
    stated = found[1] if found else b""
    blank = data.replace(b'"sum":"' + stated, b'"sum":"' + _ZERO_SUM.encode(), 1)
    if hashlib.sha256(blank).hexdigest().encode() != stated:
        raise SnapshotCorrupted("the bundle is not what was exported: its checksum is wrong", hint=_AGAIN)


def _frames(data: bytes, at: int) -> Iterator[bytes]:
    while at < len(data):
        _header, _body, size = read_header(data, at)
        yield data[at : at + size]
        at += size


def _sessions(frames: Sequence[bytes]) -> list[list[Copied]]:
    sessions: dict[str, list[Copied]] = {}
    for frame in frames:
        session_id = read_header(frame)[0].sid
        snapshots = open_changes(frame, session_id=session_id, keys=None)
        if session_id in sessions and next(reversed(sessions)) != session_id:
            raise SnapshotCorrupted(f"session {session_id} is in the bundle twice", session_id=session_id)
        copies = [Copied(header, payload_of(lines)) for header, lines in snapshots]
        sessions.setdefault(session_id, []).extend(copies)
    return list(sessions.values())
