"""`SnapshotSaver`: LangGraph checkpoints as sessions of a snapshot store.

::

    graph = builder.compile(checkpointer=SnapshotSaver("sessions"))

A thread is one session, with the checkpoints of its subgraphs. Values that are neither JSON nor messages go through
LangGraph's own serializer; pickles are refused. Install ``snapshot-plugin[langgraph]``.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from snapshot_plugin.errors import InvalidInput, SnapshotError
from snapshot_plugin.extras import needs_extra
from snapshot_plugin.frameworks.checkpoints import CheckpointKey, Located
from snapshot_plugin.frameworks.conversations import left_out, reading
from snapshot_plugin.frameworks.sessions import Key, Place, open_place
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.hop import in_thread
from snapshot_plugin.store.recent import Recent

with needs_extra("langgraph", "checkpoints of LangGraph need the package langgraph"):
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        get_checkpoint_id,
        get_checkpoint_metadata,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from snapshot_plugin.frameworks.langgraph_checkpoints import FRAMEWORK, Codec, core_of, metadata_of
    from snapshot_plugin.frameworks.langgraph_threads import (
        Thread,
        ancestors,
        loaded,
        matches,
        thread_ids,
    )

__all__ = ["SnapshotSaver"]

_THREADS = 64
_CHUNK = 32


class SnapshotSaver(BaseCheckpointSaver[str]):
    """A checkpointer that keeps every checkpoint as a snapshot: durable when a call returns, small on disk.

    Use one for synchronous and asynchronous graphs, by any number of threads and processes.

    Args:
        place: a directory, a URL, or an open store.
        key: a passphrase or key source; everything but ids is then encrypted.
        serde: for values that are neither JSON nor messages; default: LangGraph's own.
    """

    def __init__(
        self,
        place: Place,
        key: Key = None,
        *,
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(serde=serde)
        self.store = open_place(place, key)
        self._threads: Recent[Thread] = Recent(_THREADS)

    # Reading ---------------------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that *config* names, or the thread's newest."""
        thread, ns = self._thread_of(config)
        found = thread.find(ns, get_checkpoint_id(config))
        return self._tuple(thread, *found) if found else None

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 — the framework's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints that match, newest first.

        A thread that is damaged or that a newer adapter wrote raises an error if *config* names it. Otherwise the
        list leaves it out, and a warning is logged.
        """
        end = get_checkpoint_id(before) if before else None
        only = get_checkpoint_id(config) if config else None
        named = sorted(
            (
                (key[1], key, thread)
                for thread, ns in self._listed(config)
                for key in self._index(thread, ns, config)
                if (ns is None or key[0] == ns) and (not end or key[1] < end) and (not only or key[1] == only)
            ),
            key=lambda each: each[0], reverse=True,
        )  # fmt: skip
        left = len(named) if limit is None else limit
        while named and left > 0:
            size = min(left, _CHUNK) if not filter else _CHUNK
            chunk, named = named[:size], named[size:]
            for thread, snapshot, head in loaded([(key, thread) for _, key, thread in chunk]):
                if left > 0 and (not filter or matches(metadata_of(core_of(snapshot) or {}), filter)):
                    left -= 1
                    yield self._tuple(thread, snapshot, head)

    def get_delta_channel_history(self, *, config: RunnableConfig, channels: Sequence[str]) -> Mapping[str, Any]:
        """The writes and the seed of channels that are stored as deltas; see the base class."""
        thread, ns = self._thread_of(config)
        index, found = thread.index(ns), get_checkpoint_id(config) or thread.latest(ns)
        writes: dict[str, list[list[Any]]] = {channel: [] for channel in channels}
        seeds: dict[str, Any] = {}
        chain = ancestors(index, ns, found)
        while chain and len(seeds) < len(writes):
            chunk, chain = chain[:_CHUNK], chain[_CHUNK:]
            for key, (snapshot, head) in zip(chunk, thread.load(chunk), strict=True):
                open_ = frozenset(writes) - seeds.keys()
                pending = self._codec.pending(*key, snapshot, head, channels=open_)
                for channel in open_:
                    writes[channel].append([each for each in pending if each[1] == channel])
                    if self._codec.has_value(snapshot, channel):
                        seeds[channel] = self._codec.value(snapshot, channel)
        return {
            channel: {
                "writes": [each for group in reversed(groups) for each in group],
                **({"seed": seeds[channel]} if channel in seeds else {}),
            }
            for channel, groups in writes.items()
        }

    # Writing ---------------------------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint; durable on return."""
        thread, ns = self._thread_of(config)
        about = thaw(get_checkpoint_metadata(config, metadata))
        thread.put((ns, checkpoint["id"]), checkpoint, get_checkpoint_id(config), about, new_versions)
        return _config(config["configurable"]["thread_id"], ns, checkpoint["id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Save what a task wrote before its step is complete; durable on return."""
        thread, ns = self._thread_of(config)
        thread.put_writes((ns, str(config["configurable"]["checkpoint_id"])), writes, task_id, task_path)

    def get_next_version(self, current: str | int | None, channel: None = None) -> str:
        """A version that grows and that no fork of the thread makes again."""
        _ = channel
        number = int(str(current).split(".")[0]) if current is not None else 0
        return f"{number + 1:032}.{random.random():016}"  # noqa: S311 — tells forks apart, guards nothing

    # Removing and copying --------------------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread for ever, with its subgraphs' checkpoints."""
        self._thread(thread_id).delete()

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints of these runs from every thread.

        A thread that cannot be read does not stop the others; its error is raised at the end.
        """
        gone, errors = set(run_ids), list[SnapshotError]()
        for thread, _ in self._listed(None) if gone else ():
            with left_out(errors):
                index = thread.index()
                keep = [key for key, entry in index.items() if entry.labels.get("run") not in gone]
                if len(keep) < len(index):
                    thread.keep(keep)
        if errors:
            raise errors[0]

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes to a thread that must not exist."""
        self._thread(source_thread_id).copy_to(self._thread(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Remove old checkpoints of these threads: all but the newest of each namespace, or (``delete``) all.

        Ancestors that a delta channel of a kept checkpoint is rebuilt from stay.
        """
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInput(f"there is no prune strategy {strategy!r}", hint="use keep_latest or delete")
        for thread in map(self._thread, thread_ids):
            spaces = {ns for ns, _ in thread.index()} if strategy == "keep_latest" else set()
            latest = [(ns, found) for ns in spaces if (found := thread.latest(ns))]
            if latest or strategy == "delete":
                thread.keep([*latest, *(key for each in latest for key in self._needed(thread, each))])

    def _needed(self, thread: Thread, key: CheckpointKey) -> Iterator[CheckpointKey]:
        """The ancestors that hold what delta channels of a checkpoint are made of."""
        [(snapshot, _)] = thread.load([key])
        metadata = (core_of(snapshot) or {}).get("metadata", {})
        counted = metadata.get("counters_since_delta_snapshot") or {}
        missing = {channel for channel in counted if not self._codec.has_value(snapshot, channel)}
        for each in ancestors(thread.index(), *key):
            if not missing:
                return
            yield each
            [(snapshot, _)] = thread.load([each])
            missing = {channel for channel in missing if not self._codec.has_value(snapshot, channel)}

    # Asynchronously --------------------------------------------------------------------------------------

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """See `get_tuple`."""
        return await in_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 — the framework's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """See `list`."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (each := await in_thread(next, found, None)) is not None:
            yield each

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, Any]:
        """See `get_delta_channel_history`."""
        return await in_thread(lambda: self.get_delta_channel_history(config=config, channels=channels))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """See `put`."""
        return await in_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """See `put_writes`."""
        await in_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """See `delete_thread`."""
        await in_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """See `delete_for_runs`."""
        await in_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """See `copy_thread`."""
        await in_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """See `prune`."""
        await in_thread(lambda: self.prune(thread_ids, strategy=strategy))

    # Inside ----------------------------------------------------------------------------------------------

    @property
    def _codec(self) -> Codec:
        return Codec(self.serde)  # LangGraph replaces `serde` in copies of the saver

    def _thread(self, thread_id: str) -> Thread:
        name = f"{thread_id}{id(self.serde)}"
        thread = self._threads.get(name)
        if thread is None:
            thread = Thread(self.store, str(thread_id), self._codec)
            self._threads.put(name, thread)
        return thread

    def _thread_of(self, config: RunnableConfig) -> tuple[Thread, str]:
        ns = config["configurable"].get("checkpoint_ns", "")
        return self._thread(config["configurable"]["thread_id"]), ns

    def _listed(self, config: RunnableConfig | None) -> Iterator[tuple[Thread, str | None]]:
        """The threads that *config* may mean, each with the namespace it is about; None: all."""
        about = config["configurable"] if config else {}
        thread_id, ns = about.get("thread_id"), about.get("checkpoint_ns")
        for name in thread_ids(self.store) if thread_id is None else {str(thread_id)}:
            yield self._thread(name), ns

    @staticmethod
    def _index(thread: Thread, ns: str | None, config: RunnableConfig | None) -> Mapping[CheckpointKey, Located]:
        if config and "thread_id" in config["configurable"]:
            return thread.index(ns)
        with left_out():
            return thread.index(ns)
        return {}

    def _tuple(self, thread: Thread, snapshot: SessionSnapshot, head: SessionSnapshot) -> CheckpointTuple:
        core = core_of(snapshot) or {}
        with reading(snapshot.session_id, FRAMEWORK):
            ns, found, parent = core["ns"], core["id"], core["parent"]
            return CheckpointTuple(
                _config(thread.thread_id, ns, found),
                thread.checkpoint(snapshot),  # type: ignore[arg-type]  # a Checkpoint, as it was given
                metadata_of(core),
                _config(thread.thread_id, ns, parent) if parent else None,
                self._codec.pending(ns, found, snapshot, head),
            )


def _config(thread_id: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}
