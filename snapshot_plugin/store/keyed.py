"""Common parts of persistent stores: a marker, keys, and a worker that compresses finished segments."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.keys import Keyset
from snapshot_plugin.codec.sources import KeySource, Passphrase
from snapshot_plugin.errors import (
    InvalidInput,
    KeyMissing,
    SessionLocked,
    SnapshotCorrupted,
    SnapshotError,
    StoreNotFound,
    WrongKey,
)
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.store import rewrite
from snapshot_plugin.store.base import Trashed
from snapshot_plugin.store.engine import LogStore, StoreLimits
from snapshot_plugin.store.keychain import Keychain
from snapshot_plugin.store.keyfiles import KeyDirectory, KeyFiles
from snapshot_plugin.store.log import FileChanged, FrameLog, SmallFile
from snapshot_plugin.store.marker import FORMAT, MARKER, parse_marker, without_marker
from snapshot_plugin.store.recent import Recent
from snapshot_plugin.store.small_files import KEYS, KeysFile, SharedLines
from snapshot_plugin.store.transfer import Copied, copies_in_trash
from snapshot_plugin.store.trash import discard
from snapshot_plugin.system import forks

__all__ = ["KeyedStore", "TendedLog"]

_WORTH = 64 << 10
"""Open segments of at least this many bytes are compressed when the store is closed."""
_MOMENT = 1.0
_SESSIONS = 1024
"""How many sessions' derived keys are cached."""


class TendedLog(FrameLog, Protocol):
    """A log whose finished segments are compressed in the background."""

    def grown(self, size: int) -> list[str]:
        """The sessions whose open segment, as this writer left it, has at least that many bytes."""

    def doubt(self) -> None:
        """Sync the keys before the next frame of each session, because there may be a new one."""


class KeyedStore(LogStore):
    """A `LogStore` that is opened once, is encrypted as a whole or not at all, and compresses its segments."""

    def __init__(
        self,
        frames: TendedLog,
        *,
        name: str,
        key: str | KeySource | None,
        create: bool,
        background: bool,
        limits: StoreLimits | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__(frames, limits=limits, clock=clock)
        self._tended, self._name, self._create = frames, name, create
        self._copied_marker: bytes | None = None
        if not (key is None or isinstance(key, str) or hasattr(key, "secret")):
            raise InvalidInput(
                f"a key is given as {type(key).__name__}", hint="pass a passphrase as str, or a KeySource"
            )
        self._source = Passphrase(key) if isinstance(key, str) else key
        self._opening = forks.lock()
        self._store_id: str | None = None
        self._keyset: Keyset | None = None
        self._keys: Recent[SessionKeys] = Recent(_SESSIONS)
        self._chain: Keychain | None = None
        self._stamp: object = None
        self._keys_to_come = ""
        """Where a plain store on a disk gets its keys when it is encrypted."""
        self.key_label = ""
        """The label of the slot that a new store is made with."""
        self._worker = _Worker() if background else None

    def forked(self) -> None:
        """See `LogStore`."""
        super().forked()
        self._worker = _Worker() if self._worker else None  # its thread is not here

    # Opening ---------------------------------------------------------------------------------------------

    def _marker(self) -> dict[str, Any]:
        """The store's marker; a missing store is created first if requested."""
        return parse_marker((self.frames.get(MARKER) or self._made()).data, self._name)

    def _made(self) -> SmallFile:
        if not self._create:
            raise self.missing()
        if self._has_data():
            if made := self.frames.get(MARKER):  # another process has made the store since we looked
                return made
            raise without_marker(self._name)
        with contextlib.suppress(FileChanged):  # of several processes that try at once, one makes it
            self.frames.put(MARKER, self._new_marker(), None)
        made = self.frames.get(MARKER)
        if made is None:  # a service refused all concurrent attempts
            raise SessionLocked(f"other processes are making the store {self._name}", hint="try again")
        return made

    def missing(self) -> StoreNotFound:
        """The error of a place without a store."""
        return StoreNotFound(f"there is no store at {self._name}")

    def _has_data(self) -> bool:
        """Whether a place without a marker holds keys or sessions nevertheless."""
        return self._has_keys() or bool(self.frames.sessions())

    def _key_files(self) -> Path | KeyFiles:
        return KeysFile(self.frames, self._name)

    def _has_keys(self) -> bool:
        return self.frames.stamp(KEYS) is not None

    def prepare(self) -> None:
        """Open the store once: its marker, then its keys."""
        if self._store_id is None:
            with self._opening:
                if self._store_id is None:
                    marker = self._marker()
                    self._keyset = self._unlock(marker)
                    self._store_id = marker["id"]

    def _new_marker(self) -> bytes:
        now, store_id = rfc3339(self.clock()), new_id()
        if self._copied_marker is not None:
            return self._copied_marker
        data = {"created": now, "encrypted": bool(self._source), "format": FORMAT, "id": store_id}
        return json.dumps(data, sort_keys=True).encode() + b"\n"

    def _unlock(self, marker: dict[str, Any]) -> Keyset | None:
        if marker["encrypted"]:
            if self._source is None:
                raise KeyMissing(f"the store {self._name} is encrypted")
            if not self._has_keys() and not self.frames.sessions():  # its maker was interrupted before this step
                Keychain.create(self._key_files(), marker["id"], self._source, self.key_label, now=self.clock())
            self._chain = Keychain(self._key_files(), store_id=marker["id"])
            self._stamp = self._chain.stamp()
            return self._chain.unlock(self._source)
        if self._has_keys():
            raise SnapshotCorrupted(f"{self._name} has keys, and its {MARKER} says it is not encrypted")
        if self._source is not None:
            raise InvalidInput(
                f"the store {self._name} is not encrypted, and a key was given",
                hint="open it without a key (at a shell: unset ASNAP_KEY… and ASNAP_PASSPHRASE), or encrypt it "
                "with asnap keys init --encrypt-existing",
            )
        files = self._key_files()
        self._keys_to_come = str(files) if isinstance(files, Path) else ""
        return None

    # Keys ------------------------------------------------------------------------------------------------

    @property
    def has_key(self) -> bool:
        """Whether it was opened with a key. If so, it is encrypted, or its first operation fails."""
        return self._source is not None

    def about(self) -> dict[str, Any]:
        """The store's marker (``id``, ``encrypted``, ``created``, ``format``). Needs no key; blocks."""
        return self._marker()

    def locked_keychain(self) -> Keychain:
        """The store's keys without opening it: to list the slots, and to change them with a secret at hand.

        Raises:
            InvalidInput: the store is not encrypted.
        """
        about = self.about()
        if not about["encrypted"]:
            raise InvalidInput(
                f"the store {self._name} is not encrypted",
                hint="encrypt it with asnap keys init --encrypt-existing",
            )
        return Keychain(self._key_files(), store_id=about["id"])

    @property
    def store_id(self) -> str:
        """The store's own id, which it keeps wherever it is moved."""
        self.prepare()
        return self._store_id or ""

    def place_id(self) -> str:
        """See `LogStore`."""
        return self.store_id

    @property
    def keychain(self) -> Keychain:
        """The store's keys: add, remove and change ways to open it, rotate the data key."""
        self.prepare()
        if self._keyset is None or self._store_id is None:
            raise WrongKey(
                f"the store {self._name} is not encrypted",
                hint="encrypt it with asnap keys init --encrypt-existing",
            )
        return Keychain(self._key_files(), store_id=self._store_id)

    async def rotate_key(self) -> None:
        """Seal new frames with a new data key from now on; older frames stay readable. See `compact` for those."""
        await self.run(None, lambda: self.keychain.rotate(self._source))
        await self.run(None, self.reload_keys)

    def reload_keys(self) -> bool:
        """See `LogStore`."""
        if self._keyset is None:
            return False
        self._chain = chain = self.keychain
        stamp = chain.stamp()  # before the keys are read: a change in between is noticed next time
        self._keyset = chain.unlock(self._source)
        self._stamp = stamp  # only now: if the keys are gone, no frame may be sealed with them
        self._keys.clear()
        self._tended.doubt()
        return True

    def session_keys(self, session_id: str) -> SessionKeys | None:
        """The keys of one session; None in a plain store.

        What other processes do is noticed here, before each frame: a rotated key is read again.

        Raises:
            KeyMissing: the store was plain when it was opened, and has been encrypted since.
        """
        if self._store_id is None:
            self.prepare()
        if self._keyset is None or self._store_id is None:
            if self._keys_to_come and os.access(self._keys_to_come, os.F_OK):
                raise KeyMissing(
                    f"the store {self._name} was encrypted after it was opened",
                    hint="start this program again with the key",
                )
            return None
        if self._chain and self._chain.stamp() != self._stamp:  # another process rotated the key
            self.reload_keys()
        keys = self._keys.get(session_id)
        if keys is None:
            keys = SessionKeys(self._keyset, store_id=self._store_id, session_id=session_id)
            self._keys.put(session_id, keys)
        return keys

    def key_files(self) -> dict[str, bytes]:
        """The files of the keychain, as an archive of the store needs them."""
        place = self._key_files()
        files = KeyDirectory(place) if isinstance(place, Path) else place
        found = {name: files.read(name) for name in files.names() or []}
        return {name: data for name, data in found.items() if data is not None}

    def become_archive(self, about: Mapping[str, Any]) -> None:
        """Create the store if it is missing, with the id in the marker *about* of the archived store."""
        self._copied_marker = json.dumps(dict(about), sort_keys=True).encode() + b"\n"
        self._marker()

    @property
    def operation_lines(self) -> SharedLines | None:
        """What commands did to the store, for undo, where several machines share it; None: kept beside it."""
        if not self.capabilities.several_machines:
            return None
        return SharedLines(self.frames, self._name, self.prepare)

    async def trashed_copies(self, entry: Trashed) -> Sequence[Copied]:
        """Every snapshot of a session in the trash, which stays there."""
        return await self.run(
            None, lambda: copies_in_trash(self.frames, entry, self.session_keys(entry.session_id))
        )

    async def discard_as(self, entry: Trashed) -> None:
        """Put a session in the trash as *entry*, which is that of another store."""
        await self.run(None, lambda: self._discard_as(entry))

    def _discard_as(self, entry: Trashed) -> None:
        with self.frames.exclusively(entry.session_id):
            discard(self.frames, entry.session_id, token=entry.token, now=entry.deleted_at)

    # Background ------------------------------------------------------------------------------------------

    def segment_finished(self, session_id: str) -> None:
        """Compress it in the background."""
        if self._worker:
            self._worker.submit(partial(self._compact_quietly, session_id))

    def _compact_quietly(self, session_id: str) -> None:
        # Best effort: the frames are safe as they are; next time is soon enough.
        with contextlib.suppress(SnapshotError, OSError):
            self.core.compact(session_id, newest_too=False)

    def finish(self) -> None:
        """Close the store. Saved frames are compressed within a short time limit; the rest stays as it is."""
        worker, self._worker = self._worker, None
        if worker:
            worker.finish([partial(self._settle_quietly, name) for name in self._tended.grown(_WORTH)], _MOMENT)
        super().finish()

    def _settle_quietly(self, session_id: str) -> None:
        with contextlib.suppress(SnapshotError, OSError):  # best effort, as above
            rewrite.compact_idle(self.frames, session_id, self.session_keys(session_id))


class _Worker:
    """Works in the background, in one daemon thread: a disk that hangs must not keep the process from exiting.

    What it does is crash-safe, and may be left undone.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._starting = forks.lock()
        self._thread: threading.Thread | None = None

    def submit(self, job: Callable[[], object]) -> None:
        """Call *job* after all that were submitted before."""
        self._jobs.put(job)
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="asnap-compact", daemon=True)
                self._thread.start()

    def finish(self, jobs: Sequence[Callable[[], object]], within: float) -> None:
        """Drop what waits, do *jobs* instead, and return after *within* seconds at the latest."""
        enough = time.monotonic() + within
        with contextlib.suppress(Empty):
            while True:
                self._jobs.get_nowait()

        def all_in_time() -> None:
            for job in jobs:
                if time.monotonic() < enough:
                    job()

        if jobs:
            self.submit(all_in_time)
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(within)

    def _run(self) -> None:
        while job := self._jobs.get():
            job()
