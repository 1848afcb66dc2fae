"""Packs: several snapshots in one frame, which share a compressed stream (docs/reference/format.md §2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.frame import Header, encode_frame, open_frame
from snapshot_plugin.errors import SnapshotCorrupted

__all__ = ["Change", "open_changes", "packed", "payload_of", "payload_size", "split_pack"]

Change = tuple[Header, list[bytes]]
"""A snapshot as stored: its header, and the lines of its payload, which lead to it from the one before."""

_PACK_BYTES = 128 << 10
"""The largest pack. More would hardly compress better, and reading one snapshot would take longer."""
_PACKS = 4
"""The least number of packs of a session that is not small, so that damage costs one pack and not the session."""
_WORTH = 8 << 10
"""The smallest pack. Less than this fits into one or two disk blocks anyway."""
_BEGINS = b'{"frame":'


def packed(snapshots: Iterable[Change], keys: SessionKeys | None, *, packs: int = _PACKS) -> list[bytes]:
    """Encode these snapshots as frames; adjacent snapshots share a pack."""
    listed = list(snapshots)
    total = sum(payload_size(lines) for _, lines in listed)
    limit = max(2 * _WORTH, min(_PACK_BYTES, total // packs))  # twice: a group below _WORTH is not packed
    return [frame for group in _groups(listed, limit) for frame in _frames(group, keys)]


def _groups(snapshots: Iterable[Change], limit: int) -> Iterator[list[Change]]:
    group: list[Change] = []
    size = 0
    for header, lines in snapshots:
        more = payload_size(lines)
        # A full snapshot begins a pack, so that a reader finds it by its header.
        if group and (header.full or size + more > limit):
            yield group
            group, size = [], 0
        group.append((header, lines))
        size += more
    if group:
        yield group


def _frames(group: Sequence[Change], keys: SessionKeys | None) -> list[bytes]:
    if len(group) == 1 or sum(payload_size(lines) for _, lines in group) < _WORTH:
        return [encode_frame(header, payload_of(lines), keys, effort="best") for header, lines in group]
    (first, _), (newest, shown) = group[0], group[-1]
    outside = newest._replace(
        lo=first.lo, prev=first.prev, full=first.full, pack=len(group), at=0, delete=0, insert=0
    )
    inside = [shown[0]]  # a list reads the first line only: the newest summary
    for header, lines in group:
        inside += [_BEGINS + header._replace(sum="", kid="", nonce="").to_bytes() + b"}", *lines]
    return [encode_frame(outside, payload_of(inside), keys, effort="best")]


def payload_of(lines: Sequence[bytes]) -> bytes:
    """Join lines to a payload."""
    return b"\n".join([*lines, b""])


def payload_size(lines: Sequence[bytes]) -> int:
    """The size of these lines as a payload."""
    return sum(map(len, lines)) + len(lines)


def open_changes(frame: bytes, *, session_id: str, keys: SessionKeys | None) -> list[Change]:
    """The changes in a frame, oldest first: one, or those of a pack. Raises what `open_frame` raises."""
    header, payload = open_frame(frame, session_id=session_id, keys=keys)
    lines = payload.split(b"\n")
    if lines.pop():
        raise SnapshotCorrupted(f"snapshot {header.hi} ends in the middle of a line", session_id=session_id)
    if not header.pack:
        return [(header, lines)]
    snapshots = list(split_pack(lines))
    if not _agree(header, [each for each, _ in snapshots]):
        raise SnapshotCorrupted(f"a pack up to snapshot {header.hi} contradicts itself", session_id=session_id)
    return snapshots


def split_pack(lines: Sequence[bytes]) -> Iterator[Change]:
    """The snapshots in the lines of a pack, oldest first, as far as their headers can be read."""
    starts = [number for number, line in enumerate(lines) if line.startswith(_BEGINS)]
    for start, end in pairwise([*starts, len(lines)]):
        try:
            header = Header.from_bytes(lines[start][len(_BEGINS) : -1])
        except SnapshotCorrupted:
            return
        yield header, list(lines[start + 1 : end])


def _agree(header: Header, inside: Sequence[Header]) -> bool:
    if len(inside) != header.pack:
        return False
    first, last = inside[0], inside[-1]
    return (
        (first.lo, first.prev, first.full) == (header.lo, header.prev, header.full)
        and (last.hi, last.id, last.root) == (header.hi, header.id, header.root)
        and all((each.v, each.sid) == (header.v, header.sid) for each in inside)
        and all(
            (one.hi + 1, one.root, False) == (following.lo, following.prev, following.full)
            for one, following in pairwise(inside)
        )
    )
