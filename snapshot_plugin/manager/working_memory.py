"""An agent's working memory: entries by key, which are the section ``memory`` of its session.

Each entry is stored by itself: a save writes only the entries that changed, and `SnapshotStore.section` returns one
alone. Releases before 0.3 stored the entries in a second session, ``<id>+memory``, which the metadata of a snapshot
named; `with_memory` takes them from there, and the next save has them in the session itself.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple, TypedDict, Unpack

from snapshot_plugin.errors import InvalidInput, SnapshotNotFound
from snapshot_plugin.manager.context import Problem
from snapshot_plugin.manager.ports import Clock
from snapshot_plugin.model.frozen import FrozenDict, freeze, thaw
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.model.withheld import without_credentials
from snapshot_plugin.store.base import SnapshotStore

__all__ = ["COMPANION", "PIN", "WorkingMemory", "memory_id", "pinned", "with_memory"]

COMPANION = "+subgraphs"
"""The suffix of the id of a session that only holds parts of another session. Lists hide it."""

PIN = "working_memory"
"""The metadata entry that says which session, and which snapshot of it, holds the memory of a snapshot."""

_log = logging.getLogger(__name__)


def memory_id(session_id: str) -> str:
    """The session in which releases before 0.3 stored the memory of another."""
    return f"{session_id}+memory"


async def with_memory(store: SnapshotStore, snapshot: SessionSnapshot) -> SessionSnapshot:
    """*snapshot* with its memory, also if a release before 0.3 stored it in a second session.

    If that session no longer has the snapshot that belongs to this one, its newest is used.

    Raises:
        InvalidInput: the metadata names the memory wrongly.
    """
    pin = snapshot.metadata.get(PIN)
    if pin is None:
        return snapshot
    place, seq = (pin.get("session_id"), pin.get("seq")) if isinstance(pin, dict) else (None, None)
    if not isinstance(place, str) or not isinstance(seq, int):
        raise InvalidInput(f"session {snapshot.session_id!r} names its memory wrongly: {pin!r}")
    if not place.endswith(memory_id("")):
        return snapshot
    entries = await _stored_beside(store, place, seq)
    return pinned(snapshot.evolve(memory=snapshot.memory if entries is None else entries))


async def _stored_beside(store: SnapshotStore, session_id: str, seq: int | None) -> dict[str, Any] | None:
    try:
        found = await store.load(session_id, at=seq)
    except SnapshotNotFound:
        if seq is None:
            return None
        _log.warning("memory snapshot %s of %s was forgotten: the newest is used", seq, session_id)
        return await _stored_beside(store, session_id, None)
    return {key: _unmistakable(entry) for key, entry in found.memory.items()}


def pinned(snapshot: SessionSnapshot) -> SessionSnapshot:
    """*snapshot*, marked as holding its memory itself.

    Release 0.2 asks the session named here for the memory. It finds no snapshot 0, and takes the newest instead.
    Without the mark it would read what it finds in ``<id>+memory``, or take our entries for another program's.
    """
    pin = {"session_id": snapshot.session_id, "seq": 0}
    if snapshot.metadata.get(PIN) == pin or not (snapshot.memory or PIN in snapshot.metadata):
        return snapshot
    return snapshot.evolve(metadata={**snapshot.metadata, PIN: pin})


class EntryDetails(TypedDict, total=False):
    """Metadata of an entry."""

    description: str
    scope: Any
    priority: str
    pinned: bool


class _StoredEntry(NamedTuple):
    """An entry, what a snapshot holds of it, and the names of what was left out as a credential."""

    entry: Any
    stored: Any
    withheld: tuple[str, ...]


class WorkingMemory:
    """Entries by key: JSON values, copied in and out. Changes are saved with the session's next save."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self.reset({})

    def reset(self, section: Mapping[str, Any]) -> None:
        """Take the entries of a snapshot. Changes since the last save are dropped."""
        self._entries: dict[str, Any] = dict(section)
        self._section = FrozenDict(section)
        self._kept = {key: _StoredEntry(entry, entry, ()) for key, entry in section.items()}
        self._sizes: dict[str, tuple[Any, int]] = {}

    @property
    def entries(self) -> int:
        """How many entries there are."""
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        """The size of the entries in bytes of JSON. Those that changed since it was last asked for are measured."""
        known = self._sizes
        self._sizes = {
            key: known[key] if key in known and known[key][0] is entry else (entry, len(json.dumps(entry).encode()))
            for key, entry in self._entries.items()
        }
        return sum(size for _, size in self._sizes.values())

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What the last save left out: entries that hold credentials."""
        withheld = (name for kept in self._kept.values() for name in kept.withheld)
        return tuple(Problem(f"memory {name}", "it may be a secret") for name in withheld)

    async def get(self, key: str, default: Any = None) -> Any:
        """A copy of the entry; change it with `set`."""
        found = self._entries.get(key, _ABSENT)
        return default if found is _ABSENT else _value(thaw(found))

    async def set(self, key: str, value: Any, **about: Unpack[EntryDetails]) -> None:
        """Store *value* under *key*, with its metadata *about*.

        `InvalidSnapshot` if it is not JSON. Metadata not given is kept. Values named like credentials stay in
        memory only and are not saved (`problems` names them).
        """
        now, before = rfc3339(self._clock()), _about(self._entries.get(key))
        told = {"created_at": now, **before, **about, "updated_at": now}
        if about or before or value is None:  # a bare None could not be told from no entry
            value = {_ENTRY: told, "value": value}
        self._entries[key] = _unmistakable(freeze(value, key))

    async def about(self, key: str) -> Mapping[str, Any]:
        """An entry's metadata: description, scope, priority, pinned, times; empty if it has none."""
        return _about(self._entries.get(key))

    async def delete(self, key: str) -> bool:
        """Delete an entry; returns whether it existed."""
        return self._entries.pop(key, _ABSENT) is not _ABSENT

    async def keys(self) -> tuple[str, ...]:
        """The keys, in insertion order."""
        return tuple(self._entries)

    def section(self) -> Mapping[str, Any]:
        """The entries for a snapshot, without credentials; the same object while nothing changed."""
        before = self._kept
        if before.keys() == self._entries.keys() and all(before[k].entry is e for k, e in self._entries.items()):
            return self._section
        self._kept = {
            key: before[key] if key in before and before[key].entry is entry else _without_credentials(key, entry)
            for key, entry in self._entries.items()
        }
        stored = {key: kept.stored for key, kept in self._kept.items() if kept.stored is not _ABSENT}
        self._section = FrozenDict(stored)
        return self._section


_ABSENT = object()
_ENTRY = "snapshot_plugin.entry"
"""The field of a stored entry that holds its metadata; the value is in the field ``value``."""
_OLD_NAMES = {"createdAt": "created_at", "lastAccessedAt": "accessed_at", "updatedAt": "updated_at"}
"""What oneringai calls the metadata of an entry: its imported entries are read as they are."""


def _without_credentials(key: str, entry: Any) -> _StoredEntry:
    stored, withheld = without_credentials({key: entry})
    if not withheld:
        return _StoredEntry(entry, entry, ())
    return _StoredEntry(entry, freeze(stored[key]) if key in stored else _ABSENT, withheld)


def _unmistakable(entry: Any) -> Any:
    """*entry*, wrapped if its fields could be taken for those of an entry with metadata."""
    return freeze({_ENTRY: {}, "value": entry}) if _is_foreign(entry) else entry


def _is_foreign(entry: Any) -> bool:
    """Whether another program wrote the entry: it has a value, and metadata beside it."""
    return isinstance(entry, dict) and "value" in entry and _ENTRY not in entry


def _value(entry: Any) -> Any:
    return entry["value"] if _is_foreign(entry) or (isinstance(entry, dict) and _ENTRY in entry) else entry


def _about(entry: Any) -> dict[str, Any]:
    if _is_foreign(entry):
        return {_OLD_NAMES.get(name, name): thaw(told) for name, told in entry.items() if name != "value"}
    told = entry.get(_ENTRY) if isinstance(entry, dict) else None
    return thaw(told) if isinstance(told, dict) else {}
