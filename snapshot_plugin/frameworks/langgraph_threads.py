"""A LangGraph thread in a store. Labels say which snapshot holds which checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from snapshot_plugin.errors import SnapshotNotFound
from snapshot_plugin.frameworks.checkpoints import CheckpointKey, Checkpoints, Located
from snapshot_plugin.frameworks.langgraph_checkpoints import (
    FRAMEWORK,
    Codec,
    MessageMap,
    SubgraphPart,
    core_of,
    part_core_of,
    writes_key,
    writes_prefix,
)
from snapshot_plugin.frameworks.sessions import (
    COMPANION,
    LabelledSnapshot,
    labelled,
    name_in,
    new_session,
    session_id_for,
    shared_session,
)
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.sync import SyncStore

__all__ = ["Thread", "ancestors", "loaded", "matches", "thread_ids"]


class Thread:
    """All checkpoints of a thread: of the graph itself in the root namespace, of its subgraphs in others."""

    def __init__(self, store: SyncStore, thread_id: str, codec: Codec) -> None:
        self.thread_id = thread_id
        self._session = shared_session(store, session_id_for(thread_id))
        self._codec = codec
        self._messages = {"root": MessageMap(codec), "part": MessageMap(codec)}
        self._part = SubgraphPart()
        self._checkpoints = Checkpoints(self._session, self._held)
        self._has_moved = False

    def _held(self, snapshot: SessionSnapshot) -> list[dict[str, str]]:
        part = part_core_of(snapshot)
        return [labels_of(core_of(snapshot)), *([labels_of(part)] if part else [])]

    # Reading. Without a namespace, all are meant. ------------------------------------------------------------

    def index(self, ns: str | None = None) -> Mapping[CheckpointKey, Located]:
        """Every checkpoint and where it is, oldest first; with *ns*, perhaps only those of that namespace."""
        with self._session.lock:
            if ns != "":
                self._move_in()
            return self._checkpoints.index()

    def latest(self, ns: str) -> str | None:
        """The highest id in a namespace, which is the newest checkpoint's."""
        self.index(ns)
        return self._checkpoints.latest(ns)

    def find(self, ns: str, checkpoint_id: str | None) -> tuple[SessionSnapshot, SessionSnapshot] | None:
        """As `load`, for one checkpoint, or without an id for the newest in a namespace; None if there is none."""
        with self._session.lock:
            if ns:
                self._move_in()
            found = self._checkpoints.find(ns, checkpoint_id)
            return (self._view(ns, found[0]), self._view(ns, found[1])) if found else None

    def load(self, keys: Sequence[CheckpointKey]) -> list[tuple[SessionSnapshot, SessionSnapshot]]:
        """The snapshots of these checkpoints, each with the newest snapshot of the thread."""
        with self._session.lock:
            found = zip(keys, self._checkpoints.load(keys), strict=False)
            return [(self._view(key[0], snapshot), self._view(key[0], head)) for key, (snapshot, head) in found]

    def _view(self, ns: str, snapshot: SessionSnapshot) -> SessionSnapshot:
        return self._part.of(snapshot) if ns else snapshot

    def checkpoint(self, snapshot: SessionSnapshot) -> dict[str, Any]:
        """The checkpoint that *snapshot* holds."""
        with self._session.lock:
            return self._codec.checkpoint(snapshot, self._map((core_of(snapshot) or {}).get("ns", "")))

    def _map(self, ns: str) -> MessageMap:
        return self._messages["part" if ns else "root"]

    # Writing ---------------------------------------------------------------------------------------------

    def put(
        self, key: CheckpointKey, checkpoint: Mapping[str, Any], parent: str | None, metadata: Mapping[str, Any],
        new_versions: Mapping[str, Any],
    ) -> None:  # fmt: skip
        """Save a checkpoint; durable on return."""
        ns = key[0]
        about = {"ns": ns, "id": key[1], "parent": parent, "metadata": metadata, "thread": self.thread_id}

        def made(base: SessionSnapshot) -> SessionSnapshot:
            return self._codec.snapshot(base, checkpoint, about, new_versions=new_versions, messages=self._map(ns))

        def make(head: SessionSnapshot | None) -> SessionSnapshot:
            base = head or self._new()
            if ns:
                return self._part.put(base, made(self._part.of(base)))
            return self._part.without_finished(made(base))

        self._checkpoints.save(make, ns)

    def put_writes(
        self, key: CheckpointKey, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        """Save a task's pending writes. They may come before their checkpoint, and after the next one."""
        section = writes_key(*key, task_id)

        def make(head: SessionSnapshot | None) -> SessionSnapshot:
            base = head or self._new()
            if not key[0]:
                return self._codec.with_writes(base, section, writes, task_path)
            part = self._part.of(base)
            core = core_of(part)
            if (core is None or (core["ns"], core["id"]) != key) and key in self.index(key[0]):
                part = self.load([key])[0][0]
            changed = self._codec.with_writes(part, section, writes, task_path)
            return base if changed is part else self._part.put(base, changed)

        self._checkpoints.save(make, key[0])

    def _new(self) -> SessionSnapshot:
        return new_session(self._session.session_id, FRAMEWORK)

    def _move_in(self) -> None:
        """Take in what release 0.2 stored in a second session: the checkpoints of all subgraphs.

        It goes to the trash afterwards. If this is interrupted, the rest is moved the next time.
        """
        if self._has_moved:
            return
        old = shared_session(self._session.store, self._session.session_id + COMPANION)
        if old.current() is not None:
            source = Checkpoints(old, lambda snapshot: [labels_of(core_of(snapshot))])
            known = self._checkpoints.index()
            for key in [key for key in source.index() if key not in known]:
                [(part, head)] = source.load([key])
                self._put_part(key[0], _with_writes_of(part, head, [key]))
            old.store.delete(old.session_id)
        self._has_moved = True

    def _put_part(self, ns: str, part: SessionSnapshot) -> None:
        self._checkpoints.save(lambda head: self._part.put(head or self._new(), part), ns)

    # Removing and copying --------------------------------------------------------------------------------

    def keep(self, keys: Iterable[CheckpointKey]) -> None:
        """Remove every other checkpoint; the writes of these stay."""
        wanted = set(keys)
        self._checkpoints.keep(wanted, lambda snapshot, head: _with_writes_of(snapshot, head, wanted))

    def delete(self) -> None:
        """Remove the thread for ever."""
        self._checkpoints.delete()
        shared_session(self._session.store, self._session.session_id + COMPANION).delete()

    def copy_to(self, other: Thread) -> None:
        """Put every snapshot into the session of another thread, which must not exist."""
        self.index()
        store = self._session.store
        try:
            copies = store.take_out(self._session.session_id)
        except SnapshotNotFound:
            return
        target = other._session
        store.put_in(target.session_id, copies)
        target.change(other._renamed)

    def _renamed(self, head: SessionSnapshot | None) -> LabelledSnapshot | None:
        """*head*, copied from another thread, with the id of this one."""
        if head is None:
            return None
        part = self._part.of(head)
        made = self._part.put(_of_thread(head, self.thread_id), _of_thread(part, self.thread_id))
        return LabelledSnapshot(made, labels_of(core_of(made)))


def _of_thread(snapshot: SessionSnapshot, thread_id: str) -> SessionSnapshot:
    core = core_of(snapshot)
    if core is None:
        return snapshot
    return snapshot.evolve(plugins={**snapshot.plugins, FRAMEWORK: {**core, "thread": thread_id}})


def labels_of(core: Mapping[str, Any] | None) -> dict[str, str]:
    """The labels by which the checkpoint with these fields is found."""
    if core is None:
        return {"framework": FRAMEWORK}
    run = core["metadata"].get("run_id")
    named = {"checkpoint": core["id"], "ns": core["ns"], "parent": core["parent"], "run": run}
    return {
        "framework": FRAMEWORK,
        "thread": core["thread"],
        **{k: v for k, v in named.items() if isinstance(v, str) and v},
    }


def _with_writes_of(
    snapshot: SessionSnapshot, head: SessionSnapshot, keys: Iterable[CheckpointKey]
) -> SessionSnapshot:
    """*snapshot* with the writes that *head* holds for these checkpoints."""
    prefixes = tuple(writes_prefix(*key) for key in keys)
    late = {name: value for name, value in head.plugins.items() if name.startswith(prefixes)}
    return snapshot.evolve(plugins={**snapshot.plugins, **late}) if late else snapshot


def thread_ids(store: SyncStore) -> set[str]:
    """The ids of all threads in a store."""
    out = set()
    for meta, about in labelled(store, FRAMEWORK, "thread"):
        out.add(name_in(meta.session_id.removesuffix(COMPANION), about.get("thread")))
    return out


def loaded(
    keys: Sequence[tuple[CheckpointKey, Thread]],
) -> Iterator[tuple[Thread, SessionSnapshot, SessionSnapshot]]:
    """The snapshots of checkpoints in several threads, in this order."""
    by_thread: dict[int, list[CheckpointKey]] = {}
    for key, thread in keys:
        by_thread.setdefault(id(thread), []).append(key)
    threads = {id(thread): thread for _, thread in keys}
    found = {name: iter(threads[name].load(each)) for name, each in by_thread.items()}
    for _, thread in keys:
        yield (thread, *next(found[id(thread)]))


def matches(metadata: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Whether the metadata of a checkpoint has these values."""
    return all(metadata.get(name) == value for name, value in (wanted or {}).items())


def ancestors(index: Mapping[CheckpointKey, Located], ns: str, checkpoint_id: str | None) -> list[CheckpointKey]:
    """The stored ancestors of a checkpoint, nearest first."""
    out: dict[CheckpointKey, None] = {}
    entry = index.get((ns, checkpoint_id or ""))
    while entry and (key := (ns, entry.labels.get("parent", ""))) in index and key not in out:
        out[key] = None
        entry = index[key]
    return list(out)
