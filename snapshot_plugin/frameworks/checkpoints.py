"""Checkpoints of a framework as snapshots of one session, found by their labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from snapshot_plugin.frameworks.sessions import LabelledSnapshot, SharedSession
from snapshot_plugin.model.snapshot import SessionSnapshot

__all__ = ["CheckpointKey", "Checkpoints", "Located"]

CheckpointKey: TypeAlias = tuple[str, str]
"""The namespace (often empty) and the id of a checkpoint."""


class Located(NamedTuple):
    """Where a checkpoint is: the number of the newest snapshot that holds it, and its labels."""

    seq: int
    labels: Mapping[str, str]


class Checkpoints:
    """The checkpoints in a session. Each was put with one snapshot, whose labels name it.

    Args:
        session: where they are.
        held: the labels of each checkpoint that a snapshot holds; ``checkpoint`` is its id, ``ns`` its namespace.
            The first are those of the root namespace, also if it has no checkpoint yet.
    """

    def __init__(
        self, session: SharedSession, held: Callable[[SessionSnapshot], Sequence[Mapping[str, str]]]
    ) -> None:
        self.session, self._held = session, held
        self._index: dict[CheckpointKey, Located] = {}
        self._latest: dict[str, str] = {}
        """The highest id in each namespace."""
        self._indexed = (0, 0)
        """What the index is of: `SharedSession.read_anew`, and the number of the newest snapshot it knows."""

    def index(self) -> Mapping[CheckpointKey, Located]:
        """Every checkpoint and where it is, oldest first."""
        with self.session.lock:
            self._refreshed()
            return dict(self._index)

    def latest(self, ns: str) -> str | None:
        """The highest id in a namespace, which is the newest checkpoint's."""
        with self.session.lock:
            self._refreshed()
            return self._latest.get(ns)

    def _refreshed(self) -> SessionSnapshot | None:
        """Bring the index up to date; returns the newest snapshot of the session."""
        head = self.session.current()
        if self._indexed != (self.session.read_anew, self.session.seq):
            self._index, self._latest = {}, {}
            history = self.session.store.history(head.session_id) if head else ()
            for meta in reversed(history):
                self._add(meta.seq, meta.labels)
            held = self._held(head) if head else ()  # raises if a newer adapter wrote it
            if not (history and history[0].labels):  # people saved it: a new title, a fork
                for labels in held:
                    self._add(self.session.seq, labels)
            self._indexed = self.session.read_anew, self.session.seq
        return head

    def _add(self, seq: int, labels: Mapping[str, str]) -> None:
        if (found := labels.get("checkpoint")) is not None:
            ns = labels.get("ns", "")
            self._index[ns, found] = Located(seq, labels)
            self._latest[ns] = max(found, self._latest.get(ns, found))

    def find(self, ns: str, checkpoint_id: str | None) -> tuple[SessionSnapshot, SessionSnapshot] | None:
        """As `load`, for one checkpoint, or without an id for the newest in a namespace; None if there is none."""
        with self.session.lock:
            head = self._refreshed()
            located = self._index.get((ns, checkpoint_id or self._latest.get(ns, "")))
            if head is None or located is None:
                return None
            if located.seq == self.session.seq:
                return head, head
            return self.session.store.load(head.session_id, at=located.seq), head

    def load(self, keys: Sequence[CheckpointKey]) -> list[tuple[SessionSnapshot, SessionSnapshot]]:
        """The snapshots of these checkpoints, each with the newest snapshot of the session."""
        with self.session.lock:
            head = self._refreshed()
            seqs = [self._index[key].seq for key in keys]
            if head is None:
                return []
            older = sorted({seq for seq in seqs if seq != self.session.seq})
            found = {self.session.seq: head}
            if len(older) == 1:
                found[older[0]] = self.session.store.load(head.session_id, at=older[0])
            elif older:
                found.update(zip(older, self.session.store.walk(head.session_id, older), strict=True))
            return [(found[seq], head) for seq in seqs]

    def save(self, make: Callable[[SessionSnapshot | None], SessionSnapshot | None], ns: str = "") -> None:
        """Save what *make* returns for the newest snapshot; see `SharedSession.change`.

        Its labels name the checkpoint in the namespace *ns*.
        """

        def labels_of(made: SessionSnapshot) -> Mapping[str, str]:
            held = self._held(made)
            return next((labels for labels in held if labels.get("ns", "") == ns), held[0])

        def change(head: SessionSnapshot | None) -> LabelledSnapshot | None:
            made = make(head)
            return None if made is None or made is head else LabelledSnapshot(made, labels_of(made))

        with self.session.lock:
            seq, saved = self.session.change(change), self.session.last
            if seq == 1:
                self._index, self._latest, self._indexed = {}, {}, (self.session.read_anew, 0)
            if saved and self._indexed == (self.session.read_anew, seq - 1):  # no other save since it was read
                self._add(seq, labels_of(saved))
                self._indexed = self.session.read_anew, seq

    def keep(
        self,
        keys: Iterable[CheckpointKey],
        moved: Callable[[SessionSnapshot, SessionSnapshot], SessionSnapshot] = lambda snapshot, _: snapshot,
    ) -> None:
        """Remove every other checkpoint, and every snapshot that holds none of these as it is now.

        The newest snapshot always stays: if it holds none of these, the newest that does is saved again, as
        ``moved(snapshot, head)``.
        """
        with self.session.lock:
            index, wanted = self.index(), set(keys)
            if not wanted & index.keys():
                self.delete()
                return
            kept = {index[key].seq for key in wanted}
            if self.session.seq not in kept:
                newest = max(wanted, key=lambda key: index[key].seq)
                [(snapshot, head)] = self.load([newest])
                self.save(lambda _: moved(snapshot, head), newest[0])
                kept = (kept - {index[newest].seq}) | {self.session.seq}
            every = {meta.seq for meta in self.session.store.history(self.session.session_id)}
            if gone := every - kept - {max(every)}:
                self.session.store.forget(self.session.session_id, seqs=gone)
            self._indexed = (0, 0)

    def delete(self) -> None:
        """Remove the session for ever."""
        self.session.delete()
        self._index, self._indexed = {}, (0, 0)
