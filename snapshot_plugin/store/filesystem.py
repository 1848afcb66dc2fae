"""The store on a local disk: gzipped frames in append-only segments, optionally encrypted."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes, urlsplit

import anyio

from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.keys import Keyset
from snapshot_plugin.codec.sources import KeySource, Passphrase, source_from_environment
from snapshot_plugin.errors import (
    InvalidInput,
    KeyMissing,
    SnapshotCorrupted,
    SnapshotError,
    StoreNotFound,
    WrongKey,
)
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.store import rewrite
from snapshot_plugin.store.base import Trashed
from snapshot_plugin.store.engine import Limits, LogStore
from snapshot_plugin.store.files import disk_errors, make_private_dir, replace_file
from snapshot_plugin.store.keychain import Keychain
from snapshot_plugin.store.lock import locked
from snapshot_plugin.store.log import Segment
from snapshot_plugin.store.marker import FORMAT, MARKER, read_marker
from snapshot_plugin.store.segments import SEGMENT_BYTES, SEGMENT_FRAMES, SegmentFiles
from snapshot_plugin.store.trash import TrashDir

T = TypeVar("T")

__all__ = ["FilesystemStore", "open_url"]

_WORTH = 64 << 10
"""An open segment of so many bytes is worth compressing when the store is closed; a smaller one may grow on."""
_MOMENT = 1.0


class _FilesystemLog(SegmentFiles, TrashDir):
    """`FrameLog` on a local disk."""

    def __init__(self, root: Path, *, segment_bytes: int, segment_frames: int, lock_timeout: float) -> None:
        SegmentFiles.__init__(
            self, root, segment_bytes=segment_bytes, segment_frames=segment_frames, lock_timeout=lock_timeout
        )
        TrashDir.__init__(self, root)

    def keep(self, session_id: str, *, token: str, now: datetime) -> Trashed:
        """See `FrameLog`. Files that never change again are linked; only the one that may still grow is copied."""
        segments = self.segments(session_id)
        growing = {segment.name for segment in segments[-1:] if not segment.rewritten}
        finished = [segment.name for segment in segments if segment.name not in growing]
        return self.copy(session_id, linked=finished, copied=sorted(growing), token=token, now=now)

    def kept(self, token: str) -> list[Segment]:
        """See `FrameLog`."""
        entry, path = self.find(token)
        return _Copy(path).segments(entry.session_id)

    def close(self) -> None:
        """See `FrameLog`."""


class _Copy(SegmentFiles):
    """The segments of a session that is not at its own place."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._path = str(path)

    def _place(self, session_id: str) -> str:
        _ = session_id
        return self._path


class FilesystemStore(LogStore):
    """Snapshots in a directory.

    Args:
        path: the store's directory; created on first use unless *create* is false.
        key: what opens an encrypted store, and makes a new one encrypted: a passphrase, or any `KeySource`.
            A store is encrypted from its first moment or never; there is no mixture.
        create: whether a missing store is made or refused with `StoreNotFound`.
        background: compress finished segments better in a background thread.

    Raises (from the first operation):
        KeyMissing, WrongKey: the store is encrypted, and *key* does not open it.
        InvalidInput: a key was given for a store that is not encrypted.
        InvalidSnapshotVersion: the directory was made by a newer release.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        key: str | KeySource | None = None,
        *,
        create: bool = True,
        background: bool = True,
        limits: Limits | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        segment_bytes: int = SEGMENT_BYTES,
        segment_frames: int = SEGMENT_FRAMES,
        lock_timeout: float = 30.0,
    ) -> None:
        self.path = Path(path).absolute()
        self._files = _FilesystemLog(
            self.path, segment_bytes=segment_bytes, segment_frames=segment_frames, lock_timeout=lock_timeout
        )
        super().__init__(self._files, limits=limits, clock=clock)
        self._source = Passphrase(key) if isinstance(key, str) else key
        self._create = create
        self._lock_timeout = lock_timeout
        self._opening = threading.Lock()
        self._store_id: str | None = None
        self._keyset: Keyset | None = None
        self._keys: dict[str, SessionKeys] = {}
        self._worker = ThreadPoolExecutor(1, "asnap-compact") if background else None

    # Opening ---------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        if self._store_id is None:
            with self._opening, disk_errors(f"opening the store {self.path}"):
                if self._store_id is None:
                    self._open()

    def _open(self) -> None:
        marker = self.path / MARKER
        if not marker.exists():
            if not self._create:
                raise StoreNotFound(
                    f"there is no store at {self.path}", hint="check the path, or let it be created"
                )
            make_private_dir(self.path)
            with locked(self.path / ".create", session_id="(new store)", timeout=self._lock_timeout):
                if not marker.exists():  # of several processes that try at once, one makes it
                    self._make(marker)
        data = read_marker(self.path)
        make_private_dir(self.path / "sessions")
        self._keyset = self._unlock(data)
        self._store_id = data["id"]

    def _make(self, marker: Path) -> None:
        if (self.path / "keys").exists() or any((self.path / "sessions").glob("*/*.snap.gz")):
            raise SnapshotCorrupted(
                f"{self.path} holds a store without its STORE.json",
                hint="restore it from a backup; frames are untouched",
            )
        now, store_id = rfc3339(self._clock()), new_id()
        data = {"created": now, "encrypted": bool(self._source), "format": FORMAT, "id": store_id}
        replace_file(marker, json.dumps(data, sort_keys=True).encode() + b"\n")

    def _unlock(self, data: dict[str, Any]) -> Keyset | None:
        keys = self.path / "keys"
        if data["encrypted"]:
            if self._source is None:
                raise KeyMissing(f"the store {self.path} is encrypted")
            if not keys.exists() and not self._files.sessions():  # its maker was interrupted before this step
                return Keychain.create(keys, data["id"], self._source, now=self._clock())
            return Keychain(keys, store_id=data["id"]).unlock(self._source)
        if keys.exists():
            raise SnapshotCorrupted(f"{self.path} has keys, and its STORE.json says it is not encrypted")
        if self._source is not None:
            raise InvalidInput(
                f"the store {self.path} is not encrypted, and a key was given", hint="leave the key out"
            )
        return None

    @property
    def store_id(self) -> str:
        """The store's own id, which it keeps wherever it is moved."""
        self._prepare()
        return self._store_id or ""

    @property
    def keychain(self) -> Keychain:
        """The store's keys: add, remove and change ways to open it, rotate the data key."""
        self._prepare()
        if self._keyset is None or self._store_id is None:
            raise WrongKey(f"the store {self.path} is not encrypted", hint="create a new store with key=…")
        return Keychain(self.path / "keys", store_id=self._store_id)

    def _prepared(self, work: Callable[..., T], args: tuple[Any, ...]) -> T:
        try:
            return super()._prepared(work, args)
        except WrongKey:
            # Another process may have rotated the key since we read it: look once more.
            if self._keyset is None:
                raise
            self._reload_keys()
            return work(*args)

    async def rotate_key(self) -> None:
        """Seal new frames with a new data key from now on; older frames stay readable. See `compact` for those."""
        await self._run(lambda: self.keychain.rotate(self._source))
        await self._run(self._reload_keys)

    def _reload_keys(self) -> None:
        self._keyset = self.keychain.unlock(self._source)
        self._keys.clear()
        self._files.doubt()

    def session_keys(self, session_id: str) -> SessionKeys | None:
        """The keys of one session; None in a plain store."""
        self._prepare()
        if self._keyset is None or self._store_id is None:
            return None
        if session_id not in self._keys:
            self._keys[session_id] = SessionKeys(self._keyset, store_id=self._store_id, session_id=session_id)
        return self._keys[session_id]

    def session_dir(self, session_id: str) -> Path:
        """The session's own directory, where a live session keeps its spool and lease. Created where needed."""
        self._prepare()
        path = self._files.directory(session_id)
        with disk_errors(f"opening session {session_id}", session_id=session_id):
            make_private_dir(path)
        return path

    # Background ------------------------------------------------------------------------------------------

    def _segment_finished(self, session_id: str) -> None:
        if self._worker:
            self._worker.submit(self._compact_quietly, session_id)

    def _compact_quietly(self, session_id: str) -> None:
        # Best effort: the frames are safe as they are; next time is soon enough.
        with contextlib.suppress(SnapshotError, OSError):
            self._compact(session_id, newest_too=False)

    async def aclose(self) -> None:
        """See `SnapshotStore.aclose`. What was saved is compressed, as far as that is done in a moment."""
        worker, self._worker = self._worker, None
        if worker:
            with anyio.CancelScope(shield=True):
                await self._in_thread(self._settle, worker)
        await super().aclose()

    def _settle(self, worker: ThreadPoolExecutor) -> None:
        worker.shutdown()
        enough = time.monotonic() + _MOMENT
        for session_id in self._files.grown(_WORTH):
            with contextlib.suppress(SnapshotError, OSError):  # best effort, as above
                rewrite.settle(self._files, session_id, self.session_keys(session_id))
            if time.monotonic() > enough:
                break


def open_url(url: str) -> FilesystemStore:
    """``file:///path`` — a store on disk; keys come from the environment (`source_from_environment`)."""
    parts = urlsplit(url)
    path = os.fsdecode(unquote_to_bytes(parts.path))
    # Nothing of a URL may be ignored: file://tmp/x would silently mean /x.
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment or not path or "\0" in path:
        raise InvalidInput(
            f"the URL {url!r} does not name a directory",
            hint="write file:///absolute/path, with ? and # as %3f and %23",
        )
    return FilesystemStore(path, key=source_from_environment(os.environ))
