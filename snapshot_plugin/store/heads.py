"""What one store object has seen of its sessions: the base of its next saves, and proof that it is the last."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from snapshot_plugin.codec.document import plain_digest
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.errors import Conflict, Damaged, SnapshotNotFound
from snapshot_plugin.migrate import load_document
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.head import Head
from snapshot_plugin.store.log import FrameLog, Tip
from snapshot_plugin.store.reader import Found, error_of, find

__all__ = ["Heads", "Loaded", "overtaken"]

_RECENT = 4
"""How many sessions that were only read are kept ready for a save; each keeps its lines in memory."""


class Loaded(NamedTuple):
    """A snapshot that was read, with all that is needed to save the next one."""

    found: Found
    snapshot: SessionSnapshot

    def head(self, keys: SessionKeys | None) -> Head:
        """The writer's view of it. What stands behind damage is not built upon."""
        head = Head.found(self.found.document, self.snapshot, _digest(keys), written=self.found.written)
        head.seq, head.root, head.tip = self.found.header.hi, self.found.header.root, self.found.tip
        head.size_bytes = self.found.size_bytes
        if self.found.skipped:
            head.after_damage = True
            head.rebase()
        return head


class Heads:
    """The newest snapshot of each session, as last seen by this store object."""

    def __init__(self, log: FrameLog, keys_of: Callable[[str], SessionKeys | None], *, limit: int) -> None:
        self._log, self._keys_of, self._limit = log, keys_of, limit
        self._seen: dict[str, Tip | None] = {}
        self._saved: dict[str, Head] = {}
        self._read: dict[str, Loaded] = {}

    def load(self, session_id: str, at: int | None = None, *, strict: bool = False) -> Loaded:
        """Read a snapshot. The newest one becomes the base of the next save."""
        found = find(self._log, session_id, self._keys_of(session_id), at=at)
        if found.skipped and strict:
            raise error_of(found.skipped[0], f"session {session_id}")
        loaded = Loaded(found, load_document(found.document.raw(session_id)))
        if at is None:
            self.forget(session_id)
            self._seen[session_id] = found.tip
            self._read[session_id] = loaded
            _trim(self._read, _RECENT)
        return loaded

    def base(self, session_id: str, named: int | None = None) -> Head:
        """What the next save builds on: the snapshot *named*, or what this object has seen, or what is there.

        Raises:
            Conflict: what is there is not the one named, or not what this object has seen.
        """
        head = self._known(session_id)
        if head is None or named not in (None, head.seq):
            head = self._opened(session_id)
            if named is None and self._seen.get(session_id, head.tip) != head.tip:
                raise overtaken(session_id, head.tip)
        if named not in (None, head.seq):
            raise Conflict(f"session {session_id} is at snapshot {head.seq}, not {named}", session_id=session_id)
        self._saved[session_id] = head
        self._seen[session_id] = head.tip
        _trim(self._saved, self._limit)
        return head

    def _known(self, session_id: str) -> Head | None:
        loaded = self._read.pop(session_id, None)
        return self._saved.pop(session_id, None) or (loaded.head(self._keys_of(session_id)) if loaded else None)

    def _opened(self, session_id: str) -> Head:
        keys = self._keys_of(session_id)
        tip = self._log.tip(session_id)  # first: what is saved while we look is then noticed
        try:
            found = find(self._log, session_id, keys)
            return Loaded(found, load_document(found.document.raw(session_id))).head(keys)
        except (SnapshotNotFound, Damaged) as error:
            if isinstance(error, SnapshotNotFound) and tip and tip.id:  # it was deleted while we looked
                raise overtaken(session_id, None) from error
            # Nothing whole to build on: start anew, behind whatever is there.
            opened = Head(_digest(keys))
            opened.tip, opened.after_damage = tip, tip is not None
            return opened

    def accepted(self, session_id: str, head: Head) -> None:
        """A save went through: its frame is what this object has seen now."""
        self._seen[session_id] = head.tip

    def forget(self, session_id: str) -> None:
        """Have seen nothing of this session."""
        for memory in (self._seen, self._saved, self._read):
            memory.pop(session_id, None)


def overtaken(session_id: str, tip: Tip | None) -> Conflict:
    """The error of a writer that is not the last one any more."""
    now = f"is at snapshot {tip.seq} now" if tip else "is not there any more"
    return Conflict(f"session {session_id} {now}: another writer came first", session_id=session_id)


def _digest(keys: SessionKeys | None) -> Callable[[bytes], bytes]:
    return keys.digest if keys else plain_digest


def _trim(memory: dict[str, Head] | dict[str, Loaded], limit: int) -> None:
    if len(memory) > limit:
        for oldest in list(memory)[: len(memory) - limit]:
            memory.pop(oldest, None)  # other sessions are saved in other threads meanwhile
