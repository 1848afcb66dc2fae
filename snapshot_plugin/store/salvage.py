"""Rebuild a session from every intact frame, with a marked gap where messages are missing.

A frame tells which messages it inserts where. What a damaged frame inserted is missing; the frames after it still
say at which index they continue, so the messages around the gap keep their order. The result never existed in this
form, so it becomes a new snapshot tagged ``salvaged``.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from snapshot_plugin.codec.document import StoredDocument, encoded_line, plain_digest
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.frame import Header, read_header
from snapshot_plugin.codec.pack import Change, split_pack
from snapshot_plugin.errors import SnapshotCorrupted, SnapshotError
from snapshot_plugin.inert import several
from snapshot_plugin.migrate import load_document
from snapshot_plugin.model.ids import short_id
from snapshot_plugin.model.snapshot import CURRENT_VERSION, SessionSnapshot
from snapshot_plugin.store.log import Frame
from snapshot_plugin.store.walk import Replay, Replayed

__all__ = ["SALVAGED", "Salvaged", "salvage", "whole_in_damaged"]

SALVAGED = "salvaged"
"""The tag of a salvaged snapshot, and the key of what it says about itself in `metadata`."""
_SUMMARIZED = ("created_at", "title", "provider_type", "tags", "pinned", "parent")
"""What every frame's summary repeats of the sections, which may be in a frame that is lost."""
_LOST = b""
_RAW, _STEP = -15, 64
_MOST = 2 << 20
"""How much of a damaged frame is decompressed. A pack is far smaller; a forged frame may say anything."""


class Salvaged(NamedTuple):
    """A session rebuilt from its intact frames."""

    snapshot: SessionSnapshot
    lost: int
    """How many messages are missing; those that the missing frames themselves deleted again are not counted."""
    frames: int
    """How many frames could not be used."""


def salvage(replayed: Iterable[Replayed], session_id: str, keys: SessionKeys | None) -> Salvaged | None:
    """The session's newest state as far as it can be rebuilt; None if that is no more than `load` finds.

    *session_id* may be its `short_id`; the result has the id in full.
    """
    document, frames, is_more = StoredDocument(), 0, False
    seen: set[int] = set()
    replayed = list(replayed)
    sids = [each.frame.header.sid for each in replayed if each.frame.header]
    session_id = next((sid for sid in sids if short_id(sid) == session_id), session_id)
    for each in replayed:
        if each.frame.kind == "unfinished":
            continue
        changes = each.changes or list(whole_in_damaged(each.frame, document, session_id, keys))
        fresh = [one for one in changes if each.loads or not _is_old(one[0], seen)]
        if changes and not fresh:
            continue
        used = [_apply(document, header, lines) for header, lines in fresh]
        seen.update(header.hi for (header, _), is_used in zip(fresh, used, strict=True) if is_used)
        frames += not (each.changes and all(used))
        is_more = not each.loads and (is_more or any(used))
    return _as_snapshot(document, session_id, frames) if is_more else None


def _is_old(header: Header, seen: set[int]) -> bool:
    """Whether a frame repeats a snapshot that is applied, or is a full one that would replace newer ones."""
    return header.hi in seen or (header.full and header.hi < max(seen, default=0))


def _apply(document: StoredDocument, header: Header, lines: list[bytes]) -> bool:
    """Apply a change; messages of lost frames become placeholders. Returns False if it cannot be applied."""
    before = len(document.messages)
    if not header.full:
        document.messages += [_LOST] * (header.at + header.delete - before)
    try:
        document.take(header, lines)
    except SnapshotCorrupted:
        del document.messages[before:]
        return False
    try:
        document.summary()
    except SnapshotCorrupted:  # no root covers it: it may be damaged in a frame whose content is whole
        document.meta = encoded_line({"meta": {"updated_at": header.t}})
    return True


def _as_snapshot(document: StoredDocument, session_id: str, frames: int) -> Salvaged:
    lost = document.messages.count(_LOST)
    messages: list[bytes] = []
    for is_lost, run in groupby(document.messages, lambda line: line is _LOST):
        lines = list(run)
        messages += [_marker(len(lines), document.version)] if is_lost else lines
    document.messages = messages
    summary = {name: value for name, value in document.summary().items() if name in _SUMMARIZED}
    snapshot = load_document({**document.raw(session_id), **summary})
    note = {"lost_messages": lost, "damaged_frames": frames}
    return Salvaged(snapshot.evolve(metadata={**snapshot.metadata, SALVAGED: note}), lost, frames)


def _marker(count: int, version: int) -> bytes:
    missing = f"{several(count, 'message')} {'is' if count == 1 else 'are'} missing"
    text = f"[{missing} here: the stored bytes were damaged, and the rest was salvaged]"
    content = [{"type": "text", "text": text}] if version == CURRENT_VERSION else text
    return encoded_line(
        {"message": {"role": "system", "content": content, "metadata": {SALVAGED: {"lost": count}}}}
    )


def whole_in_damaged(
    frame: Frame, before: StoredDocument, session_id: str, keys: SessionKeys | None
) -> Iterator[Change]:
    """The snapshots at the beginning of a damaged pack that are proven whole by their own roots.

    Only for plain frames, and only while nothing before them is missing: a root covers the whole session.
    """
    if keys is not None or _LOST in before.messages:
        return
    walk = Replay(session_id, plain_digest)
    if before.meta:
        full = Header(v=before.version, id="", sid=session_id, lo=1, hi=1, root="", full=True,
                      insert=len(before.messages))  # fmt: skip
        walk.apply(full, [before.meta, *before.sections.values(), *before.messages])
    for header, lines in _inside(frame):
        try:
            if header.sid != session_id or walk.apply(header, lines) != header.root:
                return
        except SnapshotError:
            return
        yield header, lines


def _inside(frame: Frame) -> list[Change]:
    """The part of a frame that can be decompressed, unverified."""
    try:
        header, body, _length = read_header(frame.data)
    except SnapshotCorrupted:
        return []
    if header.kid:
        return []
    payload = _inflated(frame.data[body:], _MOST)
    lines = payload.split(b"\n")[:-1]
    if not header.pack:
        return [(header, lines)]
    return list(split_pack(lines))


def _inflated(data: bytes, limit: int) -> bytes:
    """As much as decompresses before the first error, at most *limit* bytes."""
    unpacker, out = zlib.decompressobj(_RAW), bytearray()
    with contextlib.suppress(zlib.error):
        for at in range(0, len(data), _STEP):
            if len(out) >= limit:
                break
            out += unpacker.decompress(data[at : at + _STEP], limit - len(out))
    return bytes(out)
