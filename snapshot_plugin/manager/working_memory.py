"""An agent's working memory: entries that may be many and large, loaded on first use.

Entries are stored in a second session, ``<id>+memory``; a save writes only the entries that changed. The agent's
snapshot names its memory snapshot, so both are restored from the same moment.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

import anyio
import anyio.to_thread

from snapshot_plugin.errors import InvalidInput, SnapshotNotFound
from snapshot_plugin.manager.context import Problem
from snapshot_plugin.manager.ports import Clock
from snapshot_plugin.model.frozen import FrozenDict, freeze, thaw
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.model.value import Value
from snapshot_plugin.model.withheld import without_credentials
from snapshot_plugin.store.base import SnapshotStore

__all__ = ["COMPANION", "PIN", "MemoryPin", "WorkingMemory", "find_memory", "memory_id", "pin_of"]

COMPANION = "+subgraphs"
"""The suffix of the id of a session that only holds parts of another session. Lists hide it."""

PIN = "working_memory"
"""The metadata entry that names the memory of a snapshot."""

_log = logging.getLogger(__name__)


def memory_id(session_id: str) -> str:
    """The session that holds the memory of another."""
    return f"{session_id}+memory"


class EntryDetails(TypedDict, total=False):
    """Metadata of an entry."""

    description: str
    scope: Any
    priority: str
    pinned: bool


class MemoryPin(Value):
    """The memory of a snapshot: its session, snapshot number, count and size."""

    session_id: str
    seq: int
    entries: int = 0
    size_bytes: int = 0


def pin_of(snapshot: SessionSnapshot) -> MemoryPin | None:
    """The memory that *snapshot* names; None if it names none. Raises `InvalidInput` if the entry is malformed."""
    raw = snapshot.metadata.get(PIN)
    if raw is None:
        return None
    try:
        return MemoryPin.model_validate(dict(raw))
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"session {snapshot.session_id!r} names its memory wrongly: {error}") from error


async def find_memory(store: SnapshotStore, session_id: str, *, seq: int | None = None) -> SessionSnapshot | None:
    """The memory in that session at snapshot *seq*; if that was forgotten, the newest."""
    try:
        return await store.load(session_id, at=seq)
    except SnapshotNotFound:
        if seq is None:
            return None
        _log.warning("memory snapshot %s of %s was forgotten: the newest is used", seq, session_id)
        return await find_memory(store, session_id)


class WorkingMemory:
    """Entries by key: JSON values, copied in and out.

    Nothing is read before the first use. Changes are saved with the session's next save.
    """

    def __init__(self, store: SnapshotStore, session_id: str, *, clock: Clock) -> None:
        self._store = store
        self._id = memory_id(session_id)
        self._clock = clock
        self._loading = anyio.Lock()
        self._pin: MemoryPin | None = None
        self._entries: dict[str, Any] | None = None
        self._sizes: dict[str, int] = {}
        self._saved: dict[str, Any] = {}
        self._base: SessionSnapshot | None = None
        self._imported: Mapping[str, Any] = {}
        self.problems: tuple[Problem, ...] = ()
        """What the last save left out: entries that hold credentials."""

    @property
    def pin(self) -> MemoryPin | None:
        """Count and size as of the last load or save, without loading any entry."""
        return self._pin

    @property
    def is_loaded(self) -> bool:
        """Whether entries are in this process's memory."""
        return self._entries is not None

    def reset(self, pin: MemoryPin | None, imported: Mapping[str, Any] | None = None) -> None:
        """Switch to the memory that *pin* names. Unsaved changes are dropped.

        *imported* are the entries of a session that another program wrote with its memory inside. They are used if
        there is no other memory.
        """
        self._pin, self._entries, self._base = pin, None, None
        self._saved, self._sizes, self._imported = {}, {}, imported or {}

    async def get(self, key: str, default: Any = None) -> Any:
        """A copy of the entry; change it with `set`. Only this entry is read, unless others were changed before."""
        found = await self._entry(key)
        return default if found is _ABSENT else _value(thaw(found))

    async def _entry(self, key: str) -> Any:
        if self._entries is None and self._pin is not None:
            try:
                found = await self._store.section(self._pin.session_id, "memory", key, at=self._pin.seq)
            except SnapshotNotFound:  # that snapshot was forgotten
                pass
            else:
                return _ABSENT if found is None else found
        return (await self._loaded()).get(key, _ABSENT)

    async def set(self, key: str, value: Any, **about: Unpack[EntryDetails]) -> None:
        """Store *value* under *key*, with its metadata *about*.

        `InvalidSnapshot` if it is not JSON. Metadata not given is kept. Values named like credentials stay in
        memory only and are not saved (`problems` names them).
        """
        entries = await self._loaded()
        now, before = rfc3339(self._clock()), _about(entries.get(key))
        told = {"created_at": now, **before, **about, "updated_at": now}
        is_told = about or before or value is None  # a bare None could not be told from no entry
        entries[key] = freeze({_ENTRY: told, "value": value} if is_told else value, key)

    async def about(self, key: str) -> Mapping[str, Any]:
        """An entry's metadata: description, scope, priority, pinned, times; empty if it has none."""
        return _about(await self._entry(key))

    async def delete(self, key: str) -> bool:
        """Delete an entry; returns whether it existed."""
        entries = await self._loaded()
        return entries.pop(key, _ABSENT) is not _ABSENT

    async def keys(self) -> tuple[str, ...]:
        """The keys, in insertion order."""
        return tuple(await self._loaded())

    async def save(self) -> MemoryPin | None:
        """Save changed entries; durable on return. Does nothing if nothing changed."""
        if self._entries is None or not self._is_changed(self._entries):
            return self._pin
        entries = dict(self._entries)
        kept, taken = without_credentials(entries)
        self.problems = tuple(Problem(f"memory {name}", "it may be a secret") for name in taken)
        snapshot = self._snapshot(freeze(kept))
        ref = await self._store.save(snapshot, trigger="memory")
        self._sizes = await anyio.to_thread.run_sync(_sizes, entries, self._saved, self._sizes)
        self._saved, self._base = entries, snapshot
        total = sum(self._sizes.values())
        self._pin = MemoryPin(session_id=self._id, seq=ref.seq, entries=len(entries), size_bytes=total)
        return self._pin

    async def _loaded(self) -> dict[str, Any]:
        async with self._loading:
            if self._entries is None:
                place, seq = (self._pin.session_id, self._pin.seq) if self._pin else (self._id, None)
                found = await find_memory(self._store, place, seq=seq)
                self._saved = dict(found.memory) if found else {}
                inside = {} if found else {key: _imported(entry) for key, entry in self._imported.items()}
                self._sizes = await anyio.to_thread.run_sync(_sizes, self._saved, {}, {})
                self._base = found if found and found.session_id == self._id else None
                self._entries = {**inside, **self._saved}
            return self._entries

    def _is_changed(self, entries: dict[str, Any]) -> bool:
        return entries.keys() != self._saved.keys() or any(entries[k] is not v for k, v in self._saved.items())

    def _snapshot(self, entries: dict[str, Any]) -> SessionSnapshot:
        now = self._clock()
        base = self._base or SessionSnapshot(
            session_id=self._id, provider_type="memory", title="working memory", created_at=now, updated_at=now
        )
        return base.evolve(memory=FrozenDict(entries), updated_at=now)


_ABSENT = object()
_ENTRY = "snapshot_plugin.entry"
"""The field of a stored entry that holds its metadata; the value is in the field ``value``."""
_OLD_NAMES = {"createdAt": "created_at", "lastAccessedAt": "accessed_at", "updatedAt": "updated_at"}


def _value(entry: Any) -> Any:
    return entry["value"] if isinstance(entry, dict) and _ENTRY in entry else entry


def _about(entry: Any) -> dict[str, Any]:
    told = entry.get(_ENTRY) if isinstance(entry, dict) else None
    return thaw(told) if isinstance(told, dict) else {}


def _imported(entry: Any) -> Any:
    """An entry of another program: its value and its metadata."""
    if not isinstance(entry, dict) or "value" not in entry:
        return entry
    told = {_OLD_NAMES.get(name, name): told for name, told in entry.items() if name != "value"}
    return freeze({_ENTRY: told, "value": entry["value"]})


def _sizes(entries: dict[str, Any], before: dict[str, Any], sizes: dict[str, int]) -> dict[str, int]:
    """The size of each entry in bytes of JSON; known sizes are not computed again."""
    return {
        key: sizes[key] if before.get(key, _ABSENT) is value and key in sizes else len(json.dumps(value).encode())
        for key, value in entries.items()
    }
