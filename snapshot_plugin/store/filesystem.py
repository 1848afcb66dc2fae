"""The store on a local disk: gzipped frames in append-only segments, optionally encrypted."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from snapshot_plugin.codec.sources import KeySource
from snapshot_plugin.errors import InvalidInput, StoreUnavailable
from snapshot_plugin.store.base import Capabilities
from snapshot_plugin.store.directories import SessionDirectories
from snapshot_plugin.store.engine import StoreLimits
from snapshot_plugin.store.keyed import KeyedStore
from snapshot_plugin.store.marker import is_store
from snapshot_plugin.store.segments import SEGMENT_BYTES, SEGMENT_FRAMES
from snapshot_plugin.system.files import disk_errors, make_private_dir, require

__all__ = ["FilesystemStore", "open_url", "path_of"]


class FilesystemStore(KeyedStore):
    """Snapshots in a directory.

    Args:
        path: the store's directory; created on first use unless *create* is false.
        key: what opens an encrypted store, and makes a new one encrypted: a passphrase, or any `KeySource`.
            A store is encrypted as a whole or not at all; `asnap keys init --encrypt-existing` encrypts one.
        create: whether a missing store is made or refused with `StoreNotFound`.
        background: compress finished segments better in a background thread.

    Raises `Unsupported` on a system without locks on files, and from the first operation:
        KeyMissing, WrongKey: the store is encrypted, and *key* does not open it.
        InvalidInput: a key was given for a store that is not encrypted.
        InvalidSnapshotVersion: the directory was made by a newer release.
    """

    capabilities = Capabilities(live=True)

    def __init__(
        self,
        path: str | os.PathLike[str],
        key: str | KeySource | None = None,
        *,
        create: bool = True,
        background: bool = True,
        limits: StoreLimits | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        segment_bytes: int = SEGMENT_BYTES,
        segment_frames: int = SEGMENT_FRAMES,
        lock_timeout: float = 30.0,
    ) -> None:
        require("a store on a disk")
        self.path = Path(path).absolute()
        self._files = SessionDirectories(
            self.path, segment_bytes=segment_bytes, segment_frames=segment_frames, lock_timeout=lock_timeout
        )
        super().__init__(
            self._files,
            name=str(self.path),
            key=key,
            create=create,
            background=background,
            limits=limits,
            clock=clock,
        )
        self._files.make_dir = self._make_dir

    def prepare(self) -> None:
        """See `LogStore`."""
        if self._store_id is None:
            with disk_errors(f"opening the store {self.path}"):
                super().prepare()

    def _marker(self) -> dict[str, Any]:
        data = super()._marker()
        make_private_dir(self.path / "sessions")
        return data

    def _has_data(self) -> bool:
        return self._has_keys() or any((self.path / "sessions").glob("*/*.snap.gz"))

    def _key_files(self) -> Path:
        return self.path / "keys"

    def _has_keys(self) -> bool:
        return self._key_files().exists()

    def session_dir(self, session_id: str) -> Path:
        """The session's own directory, where a live session keeps its spool and lease. Created where needed."""
        self.prepare()
        path = self._files.directory(session_id)
        with disk_errors(f"opening session {session_id}", session_id=session_id):
            self._make_dir(path)
        return path

    def _make_dir(self, path: Path) -> None:
        """Create a session's directory; the store first, if it was removed while it was open.

        What an encrypted store is about to write is sealed with keys that are gone: the caller tries again.
        """
        if not self._files.sessions_dir.exists():
            is_encrypted = self._keyset is not None
            self._begin_anew()
            if is_encrypted:
                raise StoreUnavailable(f"the store {self.path} was removed while it was open", hint="try again")
        make_private_dir(path)

    def _begin_anew(self) -> None:
        self._store_id = self._keyset = None
        self._keys.clear()
        self.prepare()

    def reload_keys(self) -> bool:
        """See `LogStore`. A store that was removed while it was open is begun anew."""
        if self._keyset is None or self._has_keys() or is_store(self.path):
            return super().reload_keys()
        self._begin_anew()
        return True


def open_url(
    url: str, *, key: str | KeySource | None = None, create: bool = True, background: bool = True
) -> FilesystemStore:
    """``file:///path`` — a store on disk."""
    return FilesystemStore(path_of(url), key, create=create, background=background)


def path_of(url: str) -> str:
    """The directory that a ``file:`` URL names."""
    parts = urlsplit(url)
    path = os.fsdecode(unquote_to_bytes(parts.path))
    # Nothing of a URL may be ignored: file://tmp/x would silently mean /x.
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment or not path or "\0" in path:
        raise InvalidInput(
            f"the URL {url!r} does not name a directory",
            hint="write file:///absolute/path, with ? and # as %3f and %23",
        )
    return path
