"""The keys of an encrypted store: which secrets open it, and the data keys behind them.

Every change is durable when its method returns. A change that fails or is cut off anywhere leaves every secret
that opened the store before able to open it still (the one being removed or changed: until it is gone). One process
changes keys at a time; opening needs no lock. No secret is kept between calls. All methods block.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from snapshot_plugin.codec.keys import KEY_BYTES, Keyset, KeySlot, pack, unpack
from snapshot_plugin.codec.sources import KeySource
from snapshot_plugin.errors import (
    Damaged,
    InvalidInput,
    KeyMissing,
    NotFound,
    SnapshotCorrupted,
    SnapshotError,
    SnapshotTampered,
    WrongKey,
)
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.store.keyfiles import KeyDirectory, KeyFiles
from snapshot_plugin.system.files import disk_errors

__all__ = ["KEYSET", "Keychain", "SlotInfo"]

KEYSET: Final = "keyset.json"
_SLOT: Final = re.compile(r"([0-9a-hjkmnp-tv-z]{26})\.json")
_BACKUP: Final = "restore the store's keys from a backup; delete nothing of them"


@dataclass(frozen=True, kw_only=True)
class SlotInfo:
    """One way to open the store. Label and time come from the file and are not authenticated."""

    id: str
    kind: str = ""
    label: str = ""
    created: datetime | None = None
    problem: SnapshotError | None = None

    @property
    def damaged(self) -> bool:
        """The slot's file cannot be trusted; its user needs another slot."""
        return isinstance(self.problem, Damaged)


class Keychain:
    """Opens an encrypted store and manages its key slots. The keys are in a directory, or in other `KeyFiles`."""

    def __init__(self, place: Path | KeyFiles, *, store_id: str) -> None:
        self._files = KeyDirectory(place) if isinstance(place, Path) else place
        self._store_id = store_id

    @classmethod
    def create(
        cls, place: Path | KeyFiles, store_id: str, source: KeySource | None, label: str = "", *, now: datetime
    ) -> Keyset:
        """Create keys that *source* opens; atomically.

        Existing keys are never replaced; they are opened with *source* instead. So an interrupted creation can be
        repeated, and two concurrent creations end with the same keys.
        """
        chain, master, keyset = cls(place, store_id=store_id), os.urandom(KEY_BYTES), Keyset.new()
        slot = chain._wrap(master, source, label, now)
        with disk_errors(f"creating the keys of store {store_id}"):
            created = chain._files.create(
                {KEYSET: pack(keyset.seal(master, store_id)), f"{slot.id}.json": pack(slot.raw())}
            )
        return keyset if created else chain.unlock(source)

    def unlock(self, source: KeySource | None) -> Keyset:
        """The store's keys.

        Raises:
            KeyMissing: there is no source, or it has no secret.
            WrongKey: every slot is intact, and none opens.
            SnapshotCorrupted, SnapshotTampered, InvalidSnapshotVersion: the keyset cannot be read; or no slot
            opens, and an unreadable one may have been the right one. StoreUnavailable: a disk error.
        """
        return self._keyset(self._master(source))

    def slots(self) -> tuple[SlotInfo, ...]:
        """Every way to open the store, oldest first. Needs no key; slots that cannot be read say why."""
        good, bad = self._scan()
        found = [_info(slot) for slot in good.values()]
        found += [SlotInfo(id=slot_id, problem=problem) for slot_id, problem in bad.items()]
        return tuple(sorted(found, key=lambda info: info.id))

    def add(self, source: KeySource | None, new: KeySource, label: str = "", *, now: datetime) -> SlotInfo:
        """Let *new* open the store as well. Writes one slot file."""
        with self._changing("adding a key"):
            return _info(self._write_slot(self._master(source), new, label, now))

    def remove(self, source: KeySource | None, slot_id: str, *, now: datetime | None = None) -> bool:
        """Remove a slot. Returns whether the master key was replaced.

        A copy of the removed file and its secret still yield the old master key. So if only the slot of *source* is
        left, master key and data key are replaced: nothing sealed from now on opens with the removed slot. If other
        slots are left, the master key stays, because they cannot be rewrapped without their secrets.

        Raises:
            NotFound: there is no such slot.
            InvalidInput: no readable slot would be left, and the store could never be opened again.
        """
        with self._changing("removing a key"):
            master, own = self._opened(source)
            self._find(slot_id)
            left = self._scan()[0].keys() - {slot_id}
            if not left:
                raise InvalidInput(
                    f"slot {slot_id} is the last one that can be read; without it the store never opens again",
                    hint="add another key first",
                )
            if left != {own.id}:
                self._delete_slot(slot_id)
                return False
            # Until the keyset is replaced, the old slot opens it; after that, the new one does.
            keyset, new_master = self._keyset(master).rotated(), os.urandom(KEY_BYTES)
            self._write(self._wrap(new_master, source, own.label, now or datetime.now(UTC)))
            self._files.write(KEYSET, pack(keyset.seal(new_master, self._store_id)))
            for each in (slot_id, own.id):
                self._delete_slot(each)
            return True

    def change(self, source: KeySource | None, slot_id: str, new: KeySource, *, now: datetime) -> SlotInfo:
        """Let *new* open the store in place of what opened *slot_id*, which goes once the new slot is durable."""
        with self._changing("changing a key"):
            master = self._master(source)
            label = self._find(slot_id).label
            slot = self._write_slot(master, new, label, now)
            self._delete_slot(slot_id)
            return _info(slot)

    def rotate(self, source: KeySource | None) -> Keyset:
        """Give new frames a new data key. Writes only the keyset; frames under older keys stay readable."""
        with self._changing("rotating the data key"):
            master = self._master(source)
            keyset = self._keyset(master).rotated()
            self._files.write(KEYSET, pack(keyset.seal(master, self._store_id)))
            return keyset

    def stamp(self) -> object:
        """A value that changes with the data keys; see `KeyFiles.stamp`."""
        return self._files.stamp(KEYSET)

    def _master(self, source: KeySource | None) -> bytes:
        return self._opened(source)[0]

    def _opened(self, source: KeySource | None) -> tuple[bytes, KeySlot]:
        """The master key, and the slot it came from. Cheap slots first: planted ones cost no time."""
        secret, kind = _given(source)
        good, bad = self._scan()
        opened: tuple[bytes, KeySlot] | None = None
        for slot in sorted(good.values(), key=lambda slot: (slot.work, slot.kind != kind)):
            try:
                master = slot.unwrap(secret)
            except (MemoryError, ValueError) as error:
                bad[slot.id] = SnapshotTampered(f"slot {slot.id} cannot be tried: {type(error).__name__}")
                continue
            if master is not None:
                opened = (master, slot)
                if self._opens(master):
                    return opened
        if opened:  # the keyset itself is damaged, and says how
            return opened
        if bad:
            raise next(iter(bad.values()))
        if not good:
            raise self._gone("key slots")
        raise WrongKey(f"the key opens none of the {len(good)} slots of store {self._store_id}")

    def _opens(self, master: bytes) -> bool:
        """Whether this is the master key of the keyset: an interrupted `remove` leaves slots for two."""
        try:
            self._keyset(master)
        except SnapshotError:
            return False
        return True

    def _keyset(self, master: bytes) -> Keyset:
        with self._naming(KEYSET):
            data = self._files.read(KEYSET)
            if data is not None:
                return Keyset.open(unpack(data), master, self._store_id)
        raise self._gone("data keys")

    def _scan(self) -> tuple[dict[str, KeySlot], dict[str, SnapshotError]]:
        """The slots that can be read, and why the others cannot: a damaged slot never hides a good one."""
        good: dict[str, KeySlot] = {}
        bad: dict[str, SnapshotError] = {}
        for slot_id in self._slot_ids():
            try:
                slot = self._slot(slot_id)
            except SnapshotError as problem:
                bad[slot_id] = problem
            else:
                if slot:
                    good[slot_id] = slot
        return good, bad

    def _slot(self, slot_id: str) -> KeySlot | None:
        """The slot, or None if it was removed while we were looking."""
        name = f"{slot_id}.json"
        with self._naming(name):
            data = self._files.read(name)
            return None if data is None else KeySlot.parse(unpack(data), store_id=self._store_id, slot_id=slot_id)

    def _slot_ids(self) -> list[str]:
        with disk_errors(f"listing the keys of store {self._store_id}"):
            names = self._files.names()
        if names is None:
            raise self._gone("keys")
        return sorted(match[1] for match in map(_SLOT.fullmatch, names) if match)

    def _find(self, slot_id: str) -> SlotInfo:
        for info in self.slots():
            if info.id == slot_id:
                return info
        raise NotFound(f"store {self._store_id} has no key slot {slot_id!r}", hint="list the slots first")

    def _wrap(self, master: bytes, source: KeySource | None, label: str, now: datetime) -> KeySlot:
        secret, kind = _given(source)
        return KeySlot.wrap(
            master, secret, store_id=self._store_id, slot_id=new_id(), kind=kind, label=label, created=now
        )

    def _write_slot(self, master: bytes, new: KeySource, label: str, now: datetime) -> KeySlot:
        return self._write(self._wrap(master, new, label, now))

    def _write(self, slot: KeySlot) -> KeySlot:
        self._files.write(f"{slot.id}.json", pack(slot.raw()))
        return slot

    def _delete_slot(self, slot_id: str) -> None:
        self._files.remove(f"{slot_id}.json")

    @contextlib.contextmanager
    def _changing(self, doing: str) -> Iterator[None]:
        """Hold the lock on these keys: of two concurrent rotations, one would lose the other's key."""
        self._slot_ids()  # raises if there are no keys
        with disk_errors(f"{doing} of store {self._store_id}"), self._files.changing():
            yield

    @contextlib.contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        """Make an error say which file of which store it is about."""
        try:
            yield
        except SnapshotError as error:
            raise type(error)(f"{name} of store {self._store_id}: {error.message}", hint=error.hint) from error

    def _gone(self, what: str) -> SnapshotCorrupted:
        return SnapshotCorrupted(f"store {self._store_id} is encrypted, and its {what} are gone", hint=_BACKUP)


def _given(source: KeySource | None) -> tuple[bytes, str]:
    """The secret of *source*, and its kind."""
    secret = b"" if source is None else source.secret()
    if source is None or not secret:
        raise KeyMissing("the store is encrypted and no key was given")
    return secret, source.kind


def _info(slot: KeySlot) -> SlotInfo:
    return SlotInfo(id=slot.id, kind=slot.kind, label=slot.label, created=slot.created)
