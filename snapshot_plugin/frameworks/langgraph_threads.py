"""A LangGraph thread in a store: which snapshot holds which checkpoint, told by labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from snapshot_plugin.errors import SnapshotNotFound
from snapshot_plugin.frameworks.langgraph_checkpoints import (
    FRAMEWORK,
    Codec,
    Messages,
    core_of,
    writes_key,
    writes_prefix,
)
from snapshot_plugin.frameworks.sessions import (
    COMPANION,
    Change,
    labelled,
    new_session,
    session_id_for,
    shared_session,
)
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.sync import SyncStore

__all__ = ["Entry", "Key", "Thread", "thread_ids"]

Key = tuple[str, str]
"""The namespace and the id of a checkpoint."""
LABEL = "framework"


class Entry(NamedTuple):
    """Where a checkpoint is: the number of the newest snapshot that holds it, its parent, and its run."""

    seq: int
    parent: str | None
    run: str | None


class Thread:
    """All checkpoints of a thread in its root namespace, or (*sub*) in all others."""

    def __init__(self, store: SyncStore, thread_id: str, codec: Codec, *, sub: bool) -> None:
        self.thread_id, self.sub = thread_id, sub
        self._session = shared_session(store, session_id_for(thread_id) + (COMPANION if sub else ""))
        self._codec, self._messages = codec, Messages(codec)
        self._index: dict[Key, Entry] = {}
        self._indexed = 0
        """The number of the newest snapshot that the index knows."""

    # Finding ---------------------------------------------------------------------------------------------

    def index(self) -> Mapping[Key, Entry]:
        """Every checkpoint and where it is."""
        with self._session.lock:
            head = self._session.current()
            if self._session.seq != self._indexed:
                self._index = self._read_index(head) if head else {}
                self._indexed = self._session.seq
            return dict(self._index)

    def _read_index(self, head: SessionSnapshot) -> dict[Key, Entry]:
        out: dict[Key, Entry] = {}
        for meta in reversed(self._session.store.history(head.session_id)):
            if (found := meta.labels.get("checkpoint")) is not None:
                about = Entry(meta.seq, meta.labels.get("parent"), meta.labels.get("run"))
                out[meta.labels.get("ns", ""), found] = about
        core = core_of(head)
        if core:  # people's own saves (a new title, a fork) have no labels
            out[core["ns"], core["id"]] = Entry(self._session.seq, core["parent"], core["metadata"].get("run_id"))
        return out

    def latest(self, ns: str) -> str | None:
        """The id of the newest checkpoint in a namespace."""
        return max((each for space, each in self.index() if space == ns), default=None)

    def head(self) -> SessionSnapshot | None:
        """The newest snapshot: it may hold writes of checkpoints that are in older ones."""
        return self._session.current()

    def load(self, keys: Sequence[Key]) -> list[tuple[SessionSnapshot, SessionSnapshot]]:
        """The snapshots of these checkpoints, each with the newest snapshot of the thread."""
        with self._session.lock:
            index, head = self.index(), self._session.current()
            seqs = [index[key].seq for key in keys]
            if head is None:
                return []
            older = sorted({seq for seq in seqs if seq != self._session.seq})
            found = {self._session.seq: head}
            if len(older) == 1:
                found[older[0]] = self._session.store.load(head.session_id, at=older[0])
            elif older:
                found.update(zip(older, self._session.store.walk(head.session_id, older), strict=True))
            return [(found[seq], head) for seq in seqs]

    def checkpoint(self, snapshot: SessionSnapshot) -> dict[str, Any]:
        """The checkpoint that *snapshot* holds."""
        with self._session.lock:
            return self._codec.checkpoint(snapshot, self._messages)

    # Writing ---------------------------------------------------------------------------------------------

    def put(
        self, key: Key, checkpoint: Mapping[str, Any], parent: str | None, metadata: Mapping[str, Any],
        new_versions: Mapping[str, Any],
    ) -> None:  # fmt: skip
        """Save a checkpoint; durable on return."""
        about = {"ns": key[0], "id": key[1], "parent": parent, "metadata": metadata, "thread": self.thread_id}

        def make(head: SessionSnapshot | None) -> Change:
            base = head or new_session(self._session.session_id, FRAMEWORK)
            made = self._codec.snapshot(base, checkpoint, about, new_versions=new_versions, messages=self._messages)
            return Change(made, labels_of(made))

        self._save(make)

    def put_writes(self, key: Key, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str) -> None:
        """Save a task's pending writes. They may come before their checkpoint, and after the next one."""
        section = writes_key(*key, task_id)

        def make(head: SessionSnapshot | None) -> Change | None:
            base = head or new_session(self._session.session_id, FRAMEWORK)
            core = core_of(head)
            if self.sub and core and (core["ns"], core["id"]) != key and key in self.index():
                base = self.load([key])[0][0]
            made = self._codec.with_writes(base, section, writes, task_path)
            return None if made is head else Change(made, labels_of(made))

        self._save(make)

    def _save(self, make: Callable[[SessionSnapshot | None], Change | None]) -> None:
        with self._session.lock:
            seq = self._session.change(make)
            core = core_of(self._session.last)
            if core and seq == self._indexed + 1:  # nobody else saved since the index was read
                run = core["metadata"].get("run_id")
                self._index[core["ns"], core["id"]] = Entry(seq, core["parent"], run)
                self._indexed = seq

    # Removing --------------------------------------------------------------------------------------------

    def keep(self, keys: Iterable[Key]) -> None:
        """Remove every other checkpoint, and every snapshot that holds none of these as it is now."""
        with self._session.lock:
            index, wanted = self.index(), set(keys)
            if not wanted & index.keys():
                self.delete()
                return
            kept = {index[key].seq for key in wanted}
            if self._session.seq not in kept:
                newest = max(wanted, key=lambda key: index[key].seq)
                [(snapshot, head)] = self.load([newest])
                moved = _with_writes_of(snapshot, head, wanted)
                self._session.change(lambda _: Change(moved, labels_of(moved)))
                kept = (kept - {index[newest].seq}) | {self._session.seq}
            every = {meta.seq for meta in self._session.store.history(self._session.session_id)}
            if gone := every - kept - {max(every)}:
                self._session.store.forget(self._session.session_id, seqs=gone)
            self._indexed = 0

    def delete(self) -> None:
        """Remove the thread's session for ever."""
        self._session.delete()
        self._index, self._indexed = {}, 0

    def copy_to(self, other: Thread) -> None:
        """Put every snapshot into the session of another thread, which must not exist."""
        store = self._session.store
        try:
            copies = store.take_out(self._session.session_id)
        except SnapshotNotFound:
            return
        target = other._session
        store.put_in(target.session_id, copies)
        target.change(lambda head: _renamed(head, other.thread_id))


def labels_of(snapshot: SessionSnapshot) -> dict[str, str]:
    """The labels by which a checkpoint is found."""
    core = core_of(snapshot)
    if core is None:
        return {LABEL: FRAMEWORK}
    run = core["metadata"].get("run_id")
    named = {"checkpoint": core["id"], "ns": core["ns"], "parent": core["parent"], "run": run}
    return {
        LABEL: FRAMEWORK,
        "thread": core["thread"],
        **{k: v for k, v in named.items() if isinstance(v, str) and v},
    }


def _with_writes_of(snapshot: SessionSnapshot, head: SessionSnapshot, keys: Iterable[Key]) -> SessionSnapshot:
    """*snapshot* with the writes that *head* holds for these checkpoints."""
    prefixes = tuple(writes_prefix(*key) for key in keys)
    late = {name: value for name, value in head.plugins.items() if name.startswith(prefixes)}
    return snapshot.evolve(plugins={**snapshot.plugins, **late}) if late else snapshot


def _renamed(head: SessionSnapshot | None, thread_id: str) -> Change | None:
    core = core_of(head)
    if head is None or core is None:
        return None
    made = head.evolve(plugins={**head.plugins, FRAMEWORK: {**core, "thread": thread_id}})
    return Change(made, labels_of(made))


def thread_ids(store: SyncStore) -> set[str]:
    """The ids of all threads in a store."""
    out = set()
    for meta, about in labelled(store, FRAMEWORK, "thread"):
        root, named = meta.session_id.removesuffix(COMPANION), about.get("thread")
        out.add(named if named and session_id_for(named) == root else root)  # a fork is a thread of its own
    return out
