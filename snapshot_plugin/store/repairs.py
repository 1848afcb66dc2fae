"""Salvage a damaged session, and rewrite it with its intact snapshots. No acknowledged save is lost meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from snapshot_plugin.errors import Conflict, SessionLocked, SnapshotNotFound, WrongKey
from snapshot_plugin.model.meta import LoadedFrom, SnapshotRef
from snapshot_plugin.model.snapshot import SessionSnapshot, with_origin
from snapshot_plugin.store import check
from snapshot_plugin.store.replay import Replayed, items_in, replay
from snapshot_plugin.store.salvage import Salvaged, salvage
from snapshot_plugin.store.writer import Writers

if TYPE_CHECKING:
    from snapshot_plugin.store.engine import LogStore

__all__ = ["Repairs"]

_ATTEMPTS = 20


class Repairs:
    """The repairs of one store object. *save* saves a salvaged snapshot; see `StoreCore` for turns and threads."""

    def __init__(self, store: LogStore, writers: Writers, save: Callable[[SessionSnapshot], SnapshotRef]) -> None:
        self._store, self._writers, self._save = store, writers, save

    def repair(self, session_id: str) -> str:
        """Rewrite a damaged session with its intact snapshots; returns what was done."""
        salvaged: SnapshotRef | None = None
        for _ in range(_ATTEMPTS):
            try:
                salvaged = self.salvage(session_id) or salvaged
            except Conflict:  # it was saved meanwhile
                continue
            except SnapshotNotFound:
                return f"{session_id}: deleted meanwhile"
            if done := self._repaired(session_id):
                self._writers.forget(session_id)  # what we saw before may be gone
                return (
                    f"{done}; snapshot {salvaged.seq} is salvaged from what follows the damage"
                    if salvaged
                    else done
                )
        raise SessionLocked(
            f"session {session_id} is saved all the time, so it cannot be repaired", session_id=session_id,
            hint="try again in a moment",
        )  # fmt: skip

    def _repaired(self, session_id: str) -> str:
        """Repair; "" if there is something to salvage first: writers that do not know of the damage build on it."""
        keys = self._store.session_keys(session_id)
        with self._store.frames.exclusively(session_id):
            frames = check.replayed(self._store.frames, session_id, keys)
            if self._salvaged(frames, session_id):
                return ""
            return check.repair(self._store.frames, session_id, keys, frames)

    def salvage(self, session_id: str) -> SnapshotRef | None:
        """Save the intact parts of a damaged session as a new snapshot."""
        keys = self._store.session_keys(session_id)
        tip = self._store.frames.tip(session_id)  # first, so that a concurrent save is noticed
        frames = check.replayed(self._store.frames, session_id, keys)
        if not any(each.loads for each in frames):  # an earlier repair may have kept nothing
            aside = sorted(
                (segment for _, segment in self._store.frames.aside(session_id)), key=lambda each: each.first
            )
            kept = [each._replace(loads=False) for each in replay(items_in(aside), session_id, keys)]
            frames = [*kept, *frames]
        if not frames:
            raise SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)
        salvaged = self._salvaged(frames, session_id)
        if salvaged is None:
            return None
        snapshot, name = salvaged.snapshot, salvaged.snapshot.session_id
        self._writers.forget(name)  # what we wrote last may build on the damage
        if tip:
            with_origin(snapshot, LoadedFrom(name, tip.seq, tip.id, self._store.place_id()))
        return self._save(snapshot)

    def _salvaged(self, frames: Sequence[Replayed], session_id: str) -> Salvaged | None:
        if any(isinstance(each.error, WrongKey) for each in frames):  # not damage: the key may be available later
            return None
        return salvage(frames, session_id, self._store.session_keys(session_id))
