"""An archive: the sessions of a store, copied to a bucket frame by frame without re-encoding.

The archive is a store itself, with the id and the keys of the one it copies: every machine can list it, and read
it with the same key. A session is copied when its newest snapshot is not there. The archive never loses data: a
session that was continued in the archive is left alone and reported, and snapshots that the source forgets or
deletes stay there.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Literal, NamedTuple

from snapshot_plugin.codec.frame import OPENING, Header, read_header
from snapshot_plugin.errors import InvalidInput, SnapshotCorrupted, SnapshotError, SnapshotNotFound
from snapshot_plugin.model.ids import COMPANIONS
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.store import copies
from snapshot_plugin.store.keyed import KeyedStore
from snapshot_plugin.store.log import FileChanged, Frame, Segment, SessionEntry, session_frames
from snapshot_plugin.store.s3 import ObjectStore
from snapshot_plugin.store.small_files import KeysFile

__all__ = ["Archive", "ArchiveNote", "CopiedSession", "notes_of"]

_NOTES = "archive"


class CopiedSession(NamedTuple):
    """What became of one session: ``copied``, ``current`` (it was there), ``diverged`` or ``failed``."""

    session_id: str
    status: Literal["copied", "current", "diverged", "failed"]
    seq: int = 0
    problem: str = ""


class ArchiveNote(NamedTuple):
    """The record of the last pass over a store: source, time, and the sessions not copied."""

    store: str
    host: str
    at: datetime
    sessions: int
    behind: tuple[str, ...]
    """Sessions whose newest snapshot is not in the archive, each with the reason."""


class Archive:
    """Copies sessions of *source* to *target*. Blocks; for one thread."""

    def __init__(self, source: KeyedStore, target: ObjectStore) -> None:
        self._source, self._target = source, target
        self._copied: dict[str, tuple[int, bytes]] = {}
        """The size of a session, and the beginning of its newest frame, when it was found or made current."""

    def prepare(self) -> None:
        """Make the archive if it is not there, and bring its keys up to date.

        Raises:
            InvalidInput: the bucket holds another store that cannot be its archive.
        """
        self._source.prepare()
        about = self._source.about()
        self._target.become_archive(about)
        there = self._target.about()
        if there["encrypted"] != about["encrypted"] or (about["encrypted"] and there["id"] != about["id"]):
            raise InvalidInput(
                "the bucket holds another store, and encrypted frames can only be read in an archive of their own",
                hint="give the archive a prefix of its own: s3://bucket/another-prefix",
            )
        if about["encrypted"]:
            KeysFile(self._target.frames, "the archive").replace(self._source.key_files())

    def copy_all(self, now: datetime, *, only: Sequence[str] | None = None) -> list[CopiedSession]:
        """Copy every session, or *only* these and their companions, that changed since this object last looked.

        Never raises for one session. After an interruption, the next call continues where it stopped.
        """
        entries = self._source.frames.sessions()
        wanted = {name + suffix for name in only or () for suffix in ("", *COMPANIONS)}
        done = []
        for entry in [each for each in entries if only is None or each.session_id in wanted]:
            state = self._state(entry)
            if state is None or self._copied.get(entry.session_id) != state:
                done.append(copied := self._tried(entry.session_id))
                if state and copied.status in ("copied", "current"):
                    self._copied[entry.session_id] = state
        if done:
            self._leave_note(now, len(entries), done)
        return done

    def _state(self, entry: SessionEntry) -> tuple[int, bytes] | None:
        with contextlib.suppress(SnapshotError):  # the copy reports it
            tail = entry.tail or self._source.frames.tail(entry.session_id) or b""
            return entry.size_bytes, tail[:OPENING]
        return None

    def _tried(self, session_id: str) -> CopiedSession:
        try:
            return self._target.prepared(partial(self._copy, session_id))  # retries if another writer was faster
        except SnapshotError as error:
            return CopiedSession(session_id, "failed", problem=error.message)

    def _copy(self, session_id: str) -> CopiedSession:
        ours = _whole(session_frames(self._source.frames, session_id), session_id)
        newest = ours[-1][0]
        log = self._target.frames
        with log.exclusively(session_id):
            segments, tail = log.segments(session_id), log.tail(session_id)
            theirs = read_header(tail)[0] if tail else None
            if theirs and (theirs.hi, theirs.root) == (newest.hi, newest.root):
                return CopiedSession(session_id, "current", newest.hi)
            more = _after(ours, theirs)
            if more:
                log.append(session_id, b"".join(frame for _, frame in more), more[0][0], after=log.tip(session_id))
            elif not segments:
                log.replace(session_id, segments, [frame for _, frame in ours], newest.hi)
            elif self._is_ours(session_id):
                read = Segment("", 1, newest.hi, rewritten=True, read=lambda: b"".join(frame for _, frame in ours))
                copies.undrop(log, session_id, self._target.session_keys(session_id), [read], is_later=True)
            else:
                problem = "the archive holds a session of that id that went on elsewhere"
                return CopiedSession(session_id, "diverged", newest.hi, problem)
        written = log.tail(session_id)
        if written is None or read_header(written)[0].id != newest.id:
            raise SnapshotCorrupted(f"session {session_id} does not read back from the archive as it was written")
        return CopiedSession(session_id, "copied", newest.hi)

    def _is_ours(self, session_id: str) -> bool:
        """Whether the archive holds an earlier state of our session, whatever either of them has forgotten."""
        here, there = self._source.core.history(session_id), self._target.core.history(session_id)
        roots = {meta.seq: meta.root for meta in here}
        shared = [meta for meta in there if meta.seq in roots]
        is_same = bool(shared) or here[0].created_at == there[0].created_at
        return is_same and there[0].seq < here[0].seq and all(roots[meta.seq] == meta.root for meta in shared)

    def _leave_note(self, now: datetime, sessions: int, done: Sequence[CopiedSession]) -> None:
        behind = [f"{each.session_id}: {each.problem}" for each in done if each.problem]
        note = {"host": socket.gethostname(), "at": rfc3339(now), "sessions": sessions, "behind": behind}
        name, log = f"{_NOTES}/{self._source.store_id}", self._target.frames
        with contextlib.suppress(FileChanged):  # another process has just written a newer one
            present = log.get(name)
            log.put(name, json.dumps(note).encode(), present.tag if present else None)


def _whole(frames: Sequence[Frame], session_id: str) -> list[tuple[Header, bytes]]:
    if any(frame.kind == "damage" for frame in frames):
        raise SnapshotCorrupted(f"session {session_id} is damaged; asnap check names it", session_id=session_id)
    whole = [(frame.header, frame.data) for frame in frames if frame.kind == "frame" and frame.header]
    if not whole:
        raise SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)
    return whole


def _after(ours: Sequence[tuple[Header, bytes]], theirs: Header | None) -> Sequence[tuple[Header, bytes]]:
    """Our frames that follow *theirs*; none if that is not one of ours."""
    for index, (header, _) in enumerate(ours):
        if theirs and (header.hi, header.root) == (theirs.hi, theirs.root):
            return ours[index + 1 :]
    return ()


def notes_of(archive: ObjectStore) -> list[ArchiveNote]:
    """The records of the stores archived there, newest first."""
    notes = []
    for name in archive.frames.names(_NOTES):
        found = archive.frames.get(f"{_NOTES}/{name}")
        try:
            raw = json.loads(found.data if found else b"")
            at = datetime.fromisoformat(raw["at"])
            notes.append(ArchiveNote(name, raw["host"], at, raw["sessions"], tuple(raw["behind"])))
        except (ValueError, KeyError, TypeError):  # of another release
            continue
    return sorted(notes, key=lambda note: note.at, reverse=True)
