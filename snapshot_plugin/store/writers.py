"""The sessions one store object writes: what each next save builds on, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.errors import Conflict, Damaged, SnapshotNotFound
from snapshot_plugin.migrate import load_document
from snapshot_plugin.model.origin import Origin
from snapshot_plugin.model.snapshot import SessionSnapshot, origin_of, with_origin
from snapshot_plugin.store.log import FrameLog, Tip
from snapshot_plugin.store.reader import Found, error_of, find
from snapshot_plugin.store.recent import Recent
from snapshot_plugin.store.writer import SessionWriter

__all__ = ["Loaded", "Writers", "overtaken"]

_READ = 4
"""How many sessions that were only read are kept ready for a save; each keeps its lines in memory."""
_TIPS = 1 << 14
"""Of how many sessions a store object remembers its own last save, after their writers were dropped."""


class Loaded(NamedTuple):
    """A snapshot that was read, with all that is needed to save the next one."""

    found: Found
    snapshot: SessionSnapshot

    def writer(self, keys: SessionKeys | None) -> SessionWriter:
        """A writer that continues here. It builds nothing on what follows damage."""
        return SessionWriter.after(self.found, self.snapshot, keys)


class Writers:
    """What one store object knows of the sessions it writes. Reading changes nothing here but a cache.

    **Base.** A save builds on the newer of two: where its value was loaded from, and this object's own last save of
    the session. With neither, it builds on nothing: the session must not exist.
    """

    def __init__(
        self, log: FrameLog, keys_of: Callable[[str], SessionKeys | None], place: Callable[[], str], *, limit: int
    ) -> None:
        self._log, self._keys_of, self._place = log, keys_of, place
        self._writers: Recent[SessionWriter] = Recent(limit)
        self._saved: Recent[Tip] = Recent(_TIPS)
        self._read: Recent[Loaded] = Recent(_READ)

    def load(self, session_id: str, at: int | None = None, *, strict: bool = False) -> Loaded:
        """Read a snapshot; it remembers where it came from."""
        found = find(self._log, session_id, self._keys_of(session_id), at=at)
        if found.skipped and strict:
            raise error_of(found.skipped[0], f"session {session_id}")
        tip = found.tip if at is None else Tip(found.header.hi, found.header.id)
        origin = Origin(found.header.sid, tip.seq, tip.id, self._place())
        loaded = Loaded(found, with_origin(load_document(found.document.raw(found.header.sid)), origin))
        if at is None:
            self._read.put(session_id, loaded)
        return loaded

    def base(self, snapshot: SessionSnapshot, named: int | None = None) -> SessionWriter:
        """The writer that a save of *snapshot* continues.

        Raises:
            Conflict: the session is not at the number *named*; or, without one, not where the save builds on.
        """
        session_id = snapshot.session_id
        writer = self._writers.get(session_id)
        expected = self._expected(snapshot)
        if writer is None or (named is None and writer.tip != expected) or named not in (None, writer.seq):
            writer = self._opened(session_id, expected)
            if named is None and writer.tip != expected and (expected or writer.seq):
                raise overtaken(session_id, writer.tip)
        if named is not None and named not in (writer.seq, writer.tip.seq if writer.tip else 0):
            raise Conflict(
                f"session {session_id} is at snapshot {writer.seq}, not {named}",
                session_id=session_id, hint="load it again and make the change on top of it",
            )  # fmt: skip
        self._writers.put(session_id, writer)
        return writer

    def at_origin(self, snapshot: SessionSnapshot) -> SessionWriter | None:
        """The writer that continues the frame *snapshot* was loaded from, if that frame is the end of the log.

        Needed when this object's own last save is gone: the session was deleted and made anew, or set back.
        """
        session_id, loaded = snapshot.session_id, self._loaded_from(snapshot)
        if loaded is None or self._log.tip(session_id) != loaded:
            return None
        writer = self._opened(session_id, loaded)
        if writer.tip != loaded:
            return None
        self._writers.put(session_id, writer)
        return writer

    def _expected(self, snapshot: SessionSnapshot) -> Tip | None:
        own, loaded = self._saved.get(snapshot.session_id), self._loaded_from(snapshot)
        if own is None or loaded is None:
            return own or loaded
        return own if own.seq >= loaded.seq else loaded

    def _loaded_from(self, snapshot: SessionSnapshot) -> Tip | None:
        origin = origin_of(snapshot)
        if origin is None or origin.session_id != snapshot.session_id or not self._is_here(origin):
            return None
        return Tip(origin.seq, origin.id)

    def _is_here(self, origin: Origin) -> bool:
        place = self._place()
        return not (origin.store and place) or origin.store == place

    def _opened(self, session_id: str, expected: Tip | None) -> SessionWriter:
        keys = self._keys_of(session_id)
        read = self._read.pop(session_id)
        if read and read.found.tip == expected:  # whether it still is the end is confirmed under the lock
            return read.writer(keys)
        tip = self._log.tip(session_id)  # first: what is saved while we look is then noticed
        try:
            found = find(self._log, session_id, keys)
            return Loaded(found, load_document(found.document.raw(found.header.sid))).writer(keys)
        except (SnapshotNotFound, Damaged) as error:
            if isinstance(error, SnapshotNotFound) and tip and tip.id:  # it was deleted while we looked
                raise overtaken(session_id, None) from error
            return SessionWriter.anew(keys, tip)

    def present(self, session_id: str) -> int:
        """The number of the newest snapshot that is whole, as a base; 0 if none is."""
        return self._opened(session_id, None).seq

    def accepted(self, session_id: str, writer: SessionWriter) -> None:
        """A save of ours is durable."""
        if writer.tip:
            self._saved.put(session_id, writer.tip)

    def drop(self, session_id: str) -> None:
        """Open the session anew for the next save: its log is not what this object wrote last.

        It may have been deleted and made anew, and be at the same number.
        """
        writer = self._writers.get(session_id)
        if writer and not writer.refused:  # which frames of ours were never acknowledged must not be forgotten
            self._writers.pop(session_id)

    def forget(self, session_id: str) -> None:
        """Have saved nothing of this session."""
        for memory in (self._writers, self._saved, self._read):
            memory.pop(session_id)


def overtaken(session_id: str, tip: Tip | None) -> Conflict:
    """The error of a writer whose base is not the end of the log."""
    now = f"is at snapshot {tip.seq} now" if tip else "is not there any more"
    return Conflict(
        f"session {session_id} {now}: this save does not build on it",
        session_id=session_id,
        hint="load it again and make the change on top of it",
    )
