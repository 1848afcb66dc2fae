"""Deleted sessions, copies of sessions, and quarantine: written once, over the areas of any `FrameLog`.

A trash entry is the area ``trash/<token>``. The token is a ULID whose time says when the session was deleted or
copied. A repair copies a damaged segment to the area ``quarantine/<name>``.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from snapshot_plugin.errors import Conflict, SessionLocked, SnapshotNotFound
from snapshot_plugin.model.ids import dated, time_of
from snapshot_plugin.store.base import Trashed
from snapshot_plugin.store.log import Area, FrameLog, Segment

__all__ = [
    "area_of",
    "copy_to_trash",
    "discard",
    "in_use",
    "no_such_entry",
    "purge",
    "quarantine",
    "quarantined",
    "taken",
    "trashed",
    "trashed_segments",
    "undelete",
    "unrecovered",
]

_TRASH, _QUARANTINE = "trash", "quarantine"


def area_of(token: str) -> str:
    """The area of a trash entry."""
    return f"{_TRASH}/{token}"


def discard(log: FrameLog, session_id: str, *, token: str, now: datetime) -> Trashed:
    """Move a session to the trash; called inside `FrameLog.exclusively`."""
    token = dated(token, now)
    log.move(session_id, "", area_of(token))
    return _entry_of(log, session_id, token, now)


def copy_to_trash(log: FrameLog, session_id: str, *, token: str, now: datetime) -> Trashed:
    """Put a copy of a session in the trash, whole or not at all; called inside `FrameLog.exclusively`."""
    token = dated(token, now)
    log.copy(session_id, log.segments(session_id), area_of(token))
    return _entry_of(log, session_id, token, now)


def _entry_of(log: FrameLog, session_id: str, token: str, now: datetime) -> Trashed:
    found = (_entry(area) for area in log.areas(_TRASH, session_id) if area.name == area_of(token))
    gone = Trashed(session_id=session_id, token=token, deleted_at=now)  # another process has purged or restored it
    return next(found, None) or gone


def _entry(area: Area) -> Trashed | None:
    token = area.name.partition("/")[2]
    deleted_at = time_of(token)
    if deleted_at is None:
        return None
    return Trashed(session_id=area.session_id, token=token, deleted_at=deleted_at, size_bytes=area.size_bytes)


def trashed(log: FrameLog) -> list[Trashed]:
    """The trash, newest first."""
    found = [entry for area in log.areas(_TRASH) if (entry := _entry(area))]
    return sorted(found, key=lambda entry: entry.token, reverse=True)


def _find(log: FrameLog, token: str) -> Trashed:
    entry = next((entry for entry in trashed(log) if entry.token == token), None)
    if entry is None:
        raise no_such_entry(token)
    return entry


def trashed_segments(log: FrameLog, token: str) -> list[Segment]:
    """The segments in the trash under *token*, oldest first; `SnapshotNotFound` if there is no such entry."""
    return log.segments(_find(log, token).session_id, area_of(token))


def undelete(log: FrameLog, token: str) -> str:
    """Bring a session back from the trash; called inside `FrameLog.exclusively`. Raises as `FrameLog.move` does."""
    session_id = _find(log, token).session_id
    log.move(session_id, area_of(token), "")
    return session_id


def purge(log: FrameLog, *, older_than: timedelta, now: datetime, only: str | None = None) -> list[Trashed]:
    """Permanently remove entries discarded longer ago than that, or *only* the one with this token.

    Atomic per entry: after an interruption an entry is in the trash whole, or gone.
    """
    old = [entry for entry in trashed(log) if now - entry.deleted_at >= older_than and only in (None, entry.token)]
    gone = {
        area.name
        for area in log.remove([Area(entry.session_id, area_of(entry.token), entry.size_bytes) for entry in old])
    }
    if only is None:
        log.tidy(older_than=older_than, now=now)
    return [entry for entry in old if area_of(entry.token) in gone]


def quarantine(log: FrameLog, session_id: str, segment: Segment) -> str:
    """Copy a segment to quarantine, durably, and say where; called inside `FrameLog.exclusively`."""
    names = {area.name for area in log.areas(_QUARANTINE, session_id)}
    name = f"{_QUARANTINE}/{segment.name}"
    while name in names:
        name += "+"
    return log.copy(session_id, [segment], name)


def quarantined(log: FrameLog, session_id: str | None = None) -> list[tuple[str, Segment]]:
    """What repairs have copied, of one session or of all: the session's id, and the segment by its place."""
    return [
        (area.session_id, segment)
        for area in log.areas(_QUARANTINE, session_id)
        for segment in log.segments(area.session_id, area.name)
    ]


# Errors ---------------------------------------------------------------------------------------------------


def no_such_entry(token: str) -> SnapshotNotFound:
    """The error of a token that is not in the trash."""
    return SnapshotNotFound(f"nothing in the trash has the token {token}", hint="it was purged, or restored before")


def taken(session_id: str) -> Conflict:
    """The error of a session that cannot come back because there is one with its id."""
    return Conflict(
        f"there is a new session {session_id}", session_id=session_id,
        hint="restore the old one under another id, or delete the new one first",
    )  # fmt: skip


def in_use(session_id: str) -> SessionLocked:
    """The error of a session that cannot come back because one with its id is live."""
    return SessionLocked(
        f"a new session {session_id} is live",
        session_id=session_id,
        hint="end its process first, or restore the old one under another id",
    )


def unrecovered(session_id: str) -> Conflict:
    """The error of a session that cannot come back because one with its id has words in its spool alone."""
    return Conflict(
        f"a new session {session_id} has words that no snapshot has yet", session_id=session_id,
        hint="recover them first, or restore the old one under another id", run="asnap recover",
    )  # fmt: skip
