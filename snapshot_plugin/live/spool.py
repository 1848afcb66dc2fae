"""The spool: the records since the last snapshot, in one file ``live`` in the session's directory.

docs/reference/spool.md describes the file. A record survives the death of every process as soon as `Spool.append`
returns, because it is in the page cache then; `Spool.flush` makes it survive a power cut too. Only the owner of the
session (`lease`) opens its spool.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from snapshot_plugin.codec.keys import Random
from snapshot_plugin.errors import Damaged, KeyMissing, StoreUnavailable
from snapshot_plugin.live.aside import copy_aside
from snapshot_plugin.live.spool_format import Bodies, Layout, SpoolScan
from snapshot_plugin.store.files import disk_errors, sync_data, sync_dir, write_all

if TYPE_CHECKING:
    from snapshot_plugin.codec.encrypt import SessionKeys

__all__ = ["Record", "Spool", "SpoolContents", "read_spool", "spool_has_records"]

_NAME: Final = "live"
_TEMPORARY: Final = "live.tmp"
_MARK_BYTES: Final = 64 << 10


class Record(NamedTuple):
    """One record as it was appended, with its number."""

    n: int
    data: dict[str, Any]


class SpoolContents(NamedTuple):
    """The contents of a spool: exactly the appended records, in order, up to any damage.

    `base`: records up to this number were dropped by `Spool.truncate`. `torn`: an append was cut off before it was
    acknowledged. `damage`: what is wrong behind the last record; records that followed are not included.
    """

    records: tuple[Record, ...] = ()
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


def spool_has_records(directory: Path, session_id: str) -> bool:
    """Whether the spool is longer than its header. A cheap look: the rest may be torn, or dropped already."""
    try:
        size = (directory / _NAME).stat().st_size
    except OSError:
        return False
    return size > len(Layout(session_id).header(base=0, sealed=False))


class Spool:
    """The owner's end of the spool, usable from several threads. `append` never waits for a sync."""

    def __init__(self, directory: Path, *, session_id: str, keys: SessionKeys | None, random: Random) -> None:
        self.set_aside: Path | None = None
        """Where the damaged file is kept that was in the spool's place when it was opened."""
        self.found: tuple[Record, ...] = ()
        """The records that were in the file when it was opened. The caller drops them once they are saved."""
        self.damage: str | None = None
        """What was wrong behind those records."""
        self._directory = directory
        self._session_id = session_id
        self._sealed = keys is not None
        self._layout = Layout(session_id)
        self._bodies = Bodies(session_id, keys, random)
        self._lock = threading.Lock()
        """Guards the fields below. Held for an instant: never while the disk syncs."""
        self._syncing = threading.Lock()
        """Held by flush, truncate and close, so that none of them runs beside another. Taken before `_lock`."""
        self._fd = -1
        self._base = self._last = self._end = 0
        self._marks = [(0, 0)]
        """Some record numbers and where these records end: a truncate keeps the file from such a place on."""
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
        """Open the session's spool, or begin one. Numbers continue after what is there, and after *after*.

        What is in it stays (`found`), except for records up to *after*: pass the number up to which the session's
        head contains records. A damaged file is kept aside (`set_aside`); the records before the damage stay.

        Raises:
            KeyMissing, InvalidSnapshotVersion, StoreUnavailable: as `read_spool`; the file is as it was.
        """
        spool = cls(directory, session_id=session_id, keys=keys, random=random)
        data = _read(directory, session_id) or b""
        found, records = _scan(data, session_id, keys)
        with disk_errors("opening the spool", session_id=session_id):
            spool._adopt(data, found)
        spool.found, spool.damage = records, found.damage
        is_stale = bool(found.records) and found.records[-1].n <= found.base  # a kill left them behind the header
        if is_stale or after > found.base:
            spool._drop(max(found.base, after))
        return spool

    @property
    def last(self) -> int:
        """The number of the newest record; of the newest that was dropped, if none is left."""
        return self._last

    def append(self, record: Mapping[str, Any]) -> int:
        """Add one record; see `append_all`."""
        return self.append_all((record,))

    def append_all(self, records: Iterable[Mapping[str, Any]]) -> int:
        """Add *records* in one write and return the number of the last. On return no ``kill -9`` loses them.

        Raises:
            InvalidInput: one is not JSON; none was added.
            StoreUnavailable: the disk refused, or the spool is closed; none was added.
        """
        bodies = [self._bodies.encode(record) for record in records]
        with self._lock:
            numbered = enumerate(bodies, self._last + 1)
            data = b"".join([self._layout.record(n, self._bodies.seal(n, body)) for n, body in numbered])
            try:
                self._write(data)
            except OSError:
                with disk_errors("writing to the spool", session_id=self._session_id):
                    raise
            self._last += len(bodies)
            if self._end - self._marks[-1][1] >= _MARK_BYTES:
                self._marks.append((self._last, self._end))
            return self._last

    def flush(self) -> None:
        """Force to disk what was appended before the call. Costs nothing when nothing was.

        Raises:
            StoreUnavailable: the disk refused. Syncing this file again would prove nothing, so every flush raises
                until a `truncate` has begun a new file.
        """
        with self._syncing:
            with self._lock:
                if not self._unsynced:
                    return
                if self._sync_failed:
                    raise self._unavailable("an earlier sync of the spool failed")
                fd, unlisted, last = self._open_fd(), self._unlisted, self._last
                self._unsynced = self._unlisted = False
            self._sync(fd, unlisted=unlisted)
            self._promised = last

    def _sync(self, fd: int, *, unlisted: bool) -> None:
        try:
            with disk_errors("syncing the spool", session_id=self._session_id):
                sync_data(fd)
                if unlisted:
                    sync_dir(self._directory)
        except BaseException:
            self._unsynced = self._sync_failed = True
            raise

    def truncate(self, upto: int) -> None:
        """Drop the records numbered up to *upto*, which a snapshot contains. A kill leaves all of them or none.

        Numbers continue as before, or after *upto* if that is higher.
        """
        if upto > self._base:
            self._drop(upto)

    def rekey(self, keys: SessionKeys | None) -> None:
        """Seal the next records with *keys*: those of the same session, after a rotation."""
        if self._sealed and keys is not None:
            self._bodies.keys = keys

    def _drop(self, upto: int) -> None:
        with self._syncing, disk_errors("truncating the spool", session_id=self._session_id):
            if not self._dropped_in_place(upto):
                self._rewrite(upto)

    def _dropped_in_place(self, upto: int) -> bool:
        """Drop in this file, where everything goes or there is too little to give back for a new file."""
        with self._lock:
            if self._sync_failed:
                return False
            if upto >= self._last:
                self._empty(upto)
                return True
            if upto < self._promised or self._mark_before(upto) != self._marks[0]:
                return False  # a power cut may garble a header in place, and the flushed records behind it
            os.pwrite(self._open_fd(), self._header(upto), 0)  # records up to its base mean nothing
            self._base = upto
            return True

    def close(self) -> None:
        """Close the file, which stays. Appending afterwards raises `StoreUnavailable`."""
        with self._syncing, self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

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
        self._promised = found.last
        if found.damage is not None:
            self.set_aside = copy_aside(self._directory, data)
        if found.damage is not None or not found.end:
            self._begin(found, data)
            return
        self._fd = os.open(self._directory / _NAME, os.O_RDWR | os.O_CLOEXEC)
        self._continue_after(found.base, found.last, found.end, _marks(found))
        self._unsynced = self._unlisted = True
        self._doubtful_tail = found.torn
        self._cut_doubtful_tail()

    def _begin(self, found: SpoolScan, data: bytes) -> None:
        """Put a new file in place that holds the records of *found*."""
        header = self._header(found.base)
        with self._replacement() as fd:
            write_all(fd, header + data[len(header) : found.end])
            if found.records:
                sync_data(fd)
            self._swap_in(fd)
        self._continue_after(found.base, found.last, max(found.end, len(header)), _marks(found))

    def _continue_after(self, base: int, last: int, end: int, marks: list[tuple[int, int]]) -> None:
        self._base, self._last, self._end = base, last, end
        self._marks = marks or [(base, len(self._header(base)))]

    def _write(self, data: bytes) -> None:
        """Write behind the last record. What cannot be written whole is taken back."""
        fd, start = self._open_fd(), self._end
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
        self._end = start + written
        self._doubtful_tail = False
        self._unsynced = True

    def _cut_doubtful_tail(self) -> None:
        if self._doubtful_tail:
            os.ftruncate(self._open_fd(), self._end)
            self._doubtful_tail = False

    def _empty(self, base: int) -> None:
        """Drop all records. The header is written first: after that, the records in the file are ignored."""
        header = self._header(base)
        os.pwrite(self._open_fd(), header, 0)
        self._doubtful_tail = True
        self._continue_after(base, max(base, self._last), len(header), [])
        self._cut_doubtful_tail()

    def _rewrite(self, base: int) -> None:
        """Put a file in place without the records up to *base*, as far as the marks tell them apart.

        Called with `_syncing` held. The bulk is copied and synced without `_lock`, so that appends continue.
        """
        header = self._header(base)
        with self._lock:
            end = self._end
            dropped, start = self._mark_before(base)
        with self._replacement() as fd:
            write_all(fd, header + self._pread(start, end))
            if base < self._promised:  # some of these records are safe from a power cut, and must stay so
                sync_data(fd)
            with self._lock:
                write_all(fd, self._pread(end, self._end))
                shift = start - len(header)
                marks = [(n, at - shift) for n, at in self._marks if n > dropped]
                self._swap_in(fd)
                self._continue_after(
                    base, max(base, self._last), self._end - shift, [(dropped, len(header)), *marks]
                )

    def _mark_before(self, upto: int) -> tuple[int, int]:
        """The last place before which every record is numbered up to *upto*; the end, where that covers all."""
        if upto >= self._last:
            return upto, self._end
        return max(mark for mark in self._marks if mark[0] <= upto)

    def _pread(self, start: int, end: int) -> bytes:
        data = os.pread(self._open_fd(), end - start, start)
        if len(data) != end - start:
            raise self._unavailable("the spool could not be read back")
        return data

    @contextlib.contextmanager
    def _replacement(self) -> Iterator[int]:
        """A new file beside the spool, removed again unless it was swapped in."""
        temporary = self._directory / _TEMPORARY
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            yield fd
        except BaseException:
            if fd != self._fd:
                os.close(fd)
                temporary.unlink(missing_ok=True)
            raise

    def _swap_in(self, fd: int) -> None:
        (self._directory / _TEMPORARY).rename(self._directory / _NAME)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fd
        self._unsynced = self._unlisted = True
        self._sync_failed = self._doubtful_tail = False


def _marks(found: SpoolScan) -> list[tuple[int, int]]:
    if not found.records:
        return []
    first, last = found.records[0], found.records[-1]
    return [(first.n - 1, first.start), (last.n, last.end)]


def _read(directory: Path, session_id: str | None) -> bytes | None:
    with disk_errors("reading the spool", session_id=session_id):
        try:
            return (directory / _NAME).read_bytes()
        except FileNotFoundError:
            return None


def _scan(data: bytes, session_id: str, keys: SessionKeys | None) -> tuple[SpoolScan, tuple[Record, ...]]:
    """What *data* holds, and its records opened. A record that does not open is damage like any other."""
    found = Layout(session_id).scan(data)
    if found.sealed and keys is None:
        raise KeyMissing(f"the spool of session {session_id!r} is sealed", session_id=session_id)
    if keys is not None and found.end and not found.sealed:
        return SpoolScan(base=0, records=(), end=0, damage="it is not sealed, and the store is encrypted"), ()
    bodies = Bodies(session_id, keys, os.urandom)
    records: list[Record] = []
    for index, raw in enumerate(found.records):
        if raw.n > found.base:
            try:
                records.append(Record(raw.n, bodies.open(raw)))
            except Damaged as error:
                whole = found._replace(records=found.records[:index], end=raw.start)
                return whole._replace(torn=False, damage=error.message), tuple(records)
    return found, tuple(records)
