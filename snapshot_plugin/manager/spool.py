"""The spool: what streamed by since the last snapshot, kept so that ``kill -9`` loses none of it.

One file ``live`` in the session's directory (docs/reference/spool.md). A record is safe from the death of every
process as soon as `Spool.append` returns, because the system's page cache holds it; `Spool.flush` makes it safe
from the death of the power too. Only the owner of the session (`lease`) opens its spool.
"""

from __future__ import annotations

import contextlib
import os
import threading
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from snapshot_plugin.codec.keys import Random
from snapshot_plugin.errors import Damaged, KeyMissing, StoreUnavailable
from snapshot_plugin.manager.spool_format import Bodies, Layout, SpoolScan
from snapshot_plugin.store.files import disk_errors, sync_all, sync_data, sync_dir, write_all

if TYPE_CHECKING:
    from snapshot_plugin.codec.encrypt import SessionKeys

__all__ = ["Spool", "SpoolContents", "SpoolRecord", "read_spool", "set_aside"]

_NAME: Final = "live"


class SpoolRecord(NamedTuple):
    """One record as it was appended, with its number."""

    n: int
    data: dict[str, Any]


class SpoolContents(NamedTuple):
    """What a spool holds. The records are exactly those that were appended, in order, up to any damage.

    `base`: records up to this number were dropped by `Spool.truncate`. `torn`: an append was cut off; nobody was
    told that it is safe. `damage`: what is wrong behind the last record; records that followed are not in here.
    """

    records: tuple[SpoolRecord, ...] = ()
    torn: bool = False
    damage: str | None = None
    base: int = 0

    @property
    def last(self) -> int:
        """The highest number that was given out, as far as the spool knows."""
        return self.records[-1].n if self.records else self.base


def read_spool(directory: Path, *, session_id: str, keys: SessionKeys | None = None) -> SpoolContents:
    """What the session's spool holds; nothing, if there is none. Changes nothing.

    Raises:
        KeyMissing: it is sealed and *keys* is None.
        WrongKey: it was sealed under a key that *keys* does not have.
        InvalidSnapshotVersion: a newer release wrote it.
        StoreUnavailable: the disk refused.
    """
    data = _read(directory, session_id)
    if data is None:
        return SpoolContents()
    found, records = _scan(data, session_id, keys)
    return SpoolContents(records, found.torn, found.damage, found.base)


def set_aside(directory: Path) -> Path | None:
    """Move the spool out of the way under a name nothing reads, and say where it is; None if there is none.

    For a spool that could not be recovered: the session can go on, and nothing is lost.
    """
    data = _read(directory, None)
    if data is None:
        return None
    with disk_errors("setting a spool aside"):
        aside = _copy_aside(directory, data)
        (directory / _NAME).unlink()
        sync_dir(directory)
        return aside


class Spool:
    """The owner's end of the spool. Safe to use from several threads; `append` never waits for a `flush`."""

    def __init__(self, directory: Path, *, session_id: str, keys: SessionKeys | None, random: Random) -> None:
        self.set_aside: Path | None = None
        """Where a damaged file is kept that stood in the spool's place when it was opened."""
        self._directory = directory
        self._session_id = session_id
        self._sealed = keys is not None
        self._layout = Layout(session_id)
        self._bodies = Bodies(session_id, keys, random)
        self._lock, self._syncing = threading.Lock(), threading.Lock()
        self._fd = -1
        self._base = 0
        self._ends = array("Q")
        self._doubtful_tail = False
        self._unsynced = False
        self._unlisted = False
        self._sync_failed = False
        self._promised = 0

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        session_id: str,
        keys: SessionKeys | None = None,
        after: int = 0,
        random: Random = os.urandom,
    ) -> Self:
        """Open the session's spool, or begin one. Numbers go on after what is there, and after *after*.

        What is in it stays, so recover it first. Pass as *after* the number up to which the session's head
        contains records: should the file be gone or cut, a number the head claims is then not given out again.
        A damaged file is kept aside (`Spool.set_aside`) and the records before the damage are taken over.

        Raises:
            KeyMissing, InvalidSnapshotVersion, StoreUnavailable: as `read_spool`; the file is as it was.
        """
        spool = cls(directory, session_id=session_id, keys=keys, random=random)
        data = _read(directory, session_id)
        found, _ = _scan(data or b"", session_id, keys)
        with disk_errors("opening the spool", session_id=session_id):
            spool._adopt(data or b"", found)
        spool.truncate(max(found.base, after))
        return spool

    @property
    def last(self) -> int:
        """The number of the newest record; of the newest that was dropped, if none is left."""
        return self._base + len(self._ends)

    def append(self, record: dict[str, Any]) -> int:
        """Add *record* and return its number. From then on no ``kill -9`` loses it.

        Raises:
            InvalidInput: it is not JSON.
            StoreUnavailable: the disk refused, or the spool is closed. The spool is as it was before.
        """
        body = self._bodies.encode(record)
        with self._lock:
            n = self.last + 1
            data = self._layout.record(n, self._bodies.seal(n, body))
            with disk_errors("writing to the spool", session_id=self._session_id):
                self._write(data)
            return n

    def flush(self) -> None:
        """Force to disk what was appended before the call. Costs nothing when nothing was.

        Raises:
            StoreUnavailable: the disk refused. Syncing this file again would prove nothing, so this goes on being
                raised until a `truncate` has begun a new file.
        """
        with self._syncing:  # whoever finds nothing to do must not return before the one who does it
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            if not self._unsynced:
                return
            if self._sync_failed:
                raise self._unavailable("an earlier sync of the spool failed")
            fd, unlisted, last = os.dup(self._open_fd()), self._unlisted, self.last
            self._unsynced = self._unlisted = False
        # Outside the lock: a sync takes milliseconds, and append is called in the event loop.
        try:
            with disk_errors("syncing the spool", session_id=self._session_id):
                sync_data(fd)
                if unlisted:
                    sync_dir(self._directory)
            self._promised = last
        except BaseException:
            self._unsynced = self._sync_failed = True
            raise
        finally:
            os.close(fd)

    def truncate(self, upto: int) -> None:
        """Drop the records numbered up to *upto*: a snapshot contains them. A kill leaves all of them or none.

        Numbers go on as before, or after *upto* if that is higher.
        """
        with self._lock, disk_errors("truncating the spool", session_id=self._session_id):
            if upto <= self._base:
                return
            kept = self._ends[upto - self._base :]
            if kept or self._sync_failed:
                self._rewrite(upto, kept)
            else:
                self._empty(upto)

    def close(self) -> None:
        """Let go of the file, which stays. Appending afterwards raises `StoreUnavailable`."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    @property
    def _size(self) -> int:
        return self._ends[-1] if self._ends else len(self._header(self._base))

    def _header(self, base: int) -> bytes:
        return self._layout.header(base=base, sealed=self._sealed)

    def _open_fd(self) -> int:
        if self._fd < 0:
            raise self._unavailable("the spool is closed")
        return self._fd

    def _unavailable(self, why: str) -> StoreUnavailable:
        return StoreUnavailable(f"{why} (session {self._session_id})", session_id=self._session_id)

    def _adopt(self, data: bytes, found: SpoolScan) -> None:
        """Take over the file as it was found, or put a sound one in its place."""
        base = found.records[0].n - 1 if found.records else found.base
        ends = array("Q", (record.end for record in found.records))
        self._promised = found.last
        if found.damage is not None:
            self.set_aside = _copy_aside(self._directory, data)
        if found.damage is not None or not found.end:
            self._begin(base, data[len(self._header(base)) : found.end], ends)
            return
        self._fd = os.open(self._directory / _NAME, os.O_RDWR | os.O_CLOEXEC)
        self._base, self._ends = base, ends
        self._unsynced = self._unlisted = True
        self._doubtful_tail = found.torn
        self._cut_doubtful_tail()

    def _write(self, data: bytes) -> None:
        """Write one record behind the last one. What cannot be written whole is taken back."""
        fd, start = self._open_fd(), self._size
        self._cut_doubtful_tail()
        self._doubtful_tail = True
        try:
            written = os.pwrite(fd, data, start)
            while written < len(data):
                written += os.pwrite(fd, data[written:], start + written)
        except BaseException:
            with contextlib.suppress(OSError):
                self._cut_doubtful_tail()
            raise
        self._ends.append(start + written)
        self._doubtful_tail = False
        self._unsynced = True

    def _cut_doubtful_tail(self) -> None:
        if self._doubtful_tail:
            os.ftruncate(self._open_fd(), self._size)
            self._doubtful_tail = False

    def _empty(self, base: int) -> None:
        """Drop everything. The header says so first: once it does, the records behind it mean nothing."""
        os.pwrite(self._open_fd(), self._header(base), 0)
        self._doubtful_tail = True
        self._base, self._ends = base, array("Q")
        self._cut_doubtful_tail()

    def _rewrite(self, base: int, ends: array[int]) -> None:
        """Put a file in place that holds only the last ``len(ends)`` records."""
        start = self._ends[-len(ends) - 1] if ends else self._size
        shift = start - len(self._header(base))
        kept = os.pread(self._open_fd(), self._size - start, start)
        if len(kept) != self._size - start:
            raise self._unavailable("the spool could not be read back")
        self._begin(base, kept, array("Q", (end - shift for end in ends)))

    def _begin(self, base: int, records: bytes, ends: array[int]) -> None:
        """Put a new file in place, at once, and go on in it."""
        temporary = self._directory / f"{_NAME}.tmp"
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write_all(fd, self._header(base) + records)
            if base < self._promised:  # some of these records are safe from a power cut, and must stay so
                sync_data(fd)
            temporary.rename(self._directory / _NAME)
        except BaseException:
            os.close(fd)
            temporary.unlink(missing_ok=True)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._base, self._ends = fd, base, ends
        self._unsynced = self._unlisted = True
        self._sync_failed = self._doubtful_tail = False


def _read(directory: Path, session_id: str | None) -> bytes | None:
    with disk_errors("reading the spool", session_id=session_id):
        try:
            return (directory / _NAME).read_bytes()
        except FileNotFoundError:
            return None


def _scan(data: bytes, session_id: str, keys: SessionKeys | None) -> tuple[SpoolScan, tuple[SpoolRecord, ...]]:
    """What *data* holds, and its records opened. A record that does not open is damage like any other."""
    found = Layout(session_id).scan(data)
    if found.sealed and keys is None:
        raise KeyMissing(f"the spool of session {session_id!r} is sealed", session_id=session_id)
    if keys is not None and found.end and not found.sealed:
        return SpoolScan(base=0, records=(), end=0, damage="it is not sealed, and the store is encrypted"), ()
    bodies = Bodies(session_id, keys, os.urandom)
    records: list[SpoolRecord] = []
    for index, raw in enumerate(found.records):
        if raw.n > found.base:
            try:
                records.append(SpoolRecord(raw.n, bodies.open(raw)))
            except Damaged as error:
                whole = found._replace(records=found.records[:index], end=raw.start)
                return whole._replace(torn=False, damage=error.message), tuple(records)
    return found, tuple(records)


def _copy_aside(directory: Path, data: bytes) -> Path:
    """Keep *data* under the first free name ``live.aside-1``, ``-2``, …, durably."""
    number = 1
    while True:
        aside = directory / f"{_NAME}.aside-{number}"
        try:
            fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            number += 1
            continue
        try:
            write_all(fd, data)
            sync_all(fd)
        finally:
            os.close(fd)
        sync_dir(directory)
        return aside
