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
    core_of,
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
    """All checkpoints of a thread in its root namespace, or (*sub*) in all others."""

    def __init__(self, store: SyncStore, thread_id: str, codec: Codec, *, sub: bool) -> None:
        self.thread_id, self.sub = thread_id, sub
        self._session = shared_session(store, session_id_for(thread_id) + (COMPANION if sub else ""))
        self._codec, self._messages = codec, MessageMap(codec)
        self._checkpoints = Checkpoints(self._session, labels_of)
        kept = self._checkpoints
        self.index, self.latest, self.find, self.load = kept.index, kept.latest, kept.find, kept.load
        self.delete = kept.delete

    def checkpoint(self, snapshot: SessionSnapshot) -> dict[str, Any]:
        """The checkpoint that *snapshot* holds."""
        with self._session.lock:
            return self._codec.checkpoint(snapshot, self._messages)

    # Writing ---------------------------------------------------------------------------------------------

    def put(
        self, key: CheckpointKey, checkpoint: Mapping[str, Any], parent: str | None, metadata: Mapping[str, Any],
        new_versions: Mapping[str, Any],
    ) -> None:  # fmt: skip
        """Save a checkpoint; durable on return."""
        about = {"ns": key[0], "id": key[1], "parent": parent, "metadata": metadata, "thread": self.thread_id}

        def make(head: SessionSnapshot | None) -> SessionSnapshot:
            base = head or new_session(self._session.session_id, FRAMEWORK)
            return self._codec.snapshot(base, checkpoint, about, new_versions=new_versions, messages=self._messages)

        self._checkpoints.save(make)

    def put_writes(
        self, key: CheckpointKey, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        """Save a task's pending writes. They may come before their checkpoint, and after the next one."""
        section = writes_key(*key, task_id)

        def make(head: SessionSnapshot | None) -> SessionSnapshot:
            base = head or new_session(self._session.session_id, FRAMEWORK)
            core = core_of(head)
            if self.sub and core and (core["ns"], core["id"]) != key and key in self.index():
                base = self.load([key])[0][0]
            return self._codec.with_writes(base, section, writes, task_path)

        self._checkpoints.save(make)

    # Removing and copying --------------------------------------------------------------------------------

    def keep(self, keys: Iterable[CheckpointKey]) -> None:
        """Remove every other checkpoint; the writes of these stay."""
        wanted = set(keys)
        self._checkpoints.keep(wanted, lambda snapshot, head: _with_writes_of(snapshot, head, wanted))

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


def _renamed(head: SessionSnapshot | None, thread_id: str) -> LabelledSnapshot | None:
    core = core_of(head)
    if head is None or core is None:
        return None
    made = head.evolve(plugins={**head.plugins, FRAMEWORK: {**core, "thread": thread_id}})
    return LabelledSnapshot(made, labels_of(made))


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
