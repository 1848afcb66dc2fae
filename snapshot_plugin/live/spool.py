"""The spool: the records since the last snapshot, in one file ``live`` in the session's directory.

docs/reference/spool.md describes the file. Once `Spool.append` returns, the record is in the page cache and
survives the death of every process; `Spool.flush` makes it survive a power cut too. Only the owner of the session
(`lease`) opens its spool.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from zlib import crc32

from snapshot_plugin.codec.frame import MAX_FRAME
from snapshot_plugin.errors import InvalidInput, StoreUnavailable
from snapshot_plugin.live.spool_format import (
    HEAD,
    NAME,
    SUM,
    Record,
    Sealing,
    SpoolScan,
    file_bytes,
    header,
    opened,
    seed_of,
)
from snapshot_plugin.system import forks
from snapshot_plugin.system.files import disk_errors, sync_all, sync_data, sync_dir, write_all

if TYPE_CHECKING:
    from snapshot_plugin.codec.encrypt import SessionKeys

__all__ = ["Spool", "encoded", "framed"]

_TEMPORARY: Final = "live.tmp"
_MARK_BYTES: Final = 64 << 10
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def encoded(record: Mapping[str, Any], session_id: str) -> bytes:
    """Encode *record* as JSON. Raises `InvalidInput` for a value that could not be read back."""
    if not isinstance(record, dict):
        raise InvalidInput(f"a spool record must be a dict, not a {type(record).__name__}")
    try:
        return _encode(record).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInput(
            f"a spool record is not JSON: {error}", session_id=session_id, hint="use JSON values only"
        ) from error


def framed(n: int, body: bytes, seed: int) -> bytes:
    """The bytes of record *n* in the file; *seed* is the session's CRC seed (`seed_of`)."""
    if len(body) > MAX_FRAME:
        raise InvalidInput(
            f"a spool record of {len(body)} bytes is over the limit of {MAX_FRAME}", hint="take a snapshot instead"
        )
    head = HEAD.pack(n, len(body))
    check = crc32(head, seed)
    return head + SUM.pack(check) + body + SUM.pack(crc32(body, check))


class Spool:
    """The owner's end of the spool, usable from several threads. `append` never waits for a sync."""

    def __init__(self, directory: Path, *, session_id: str, keys: SessionKeys | None) -> None:
        self.set_aside: Path | None = None
        """Where the damaged file is kept, if the spool was damaged when it was opened."""
        self.found: tuple[Record, ...] = ()
        """The records that were in the file when it was opened. The caller drops them once they are saved."""
        self.damage: str | None = None
        """What was wrong with the file after those records; None if nothing was."""
        self._directory = directory
        self._session_id = session_id
        self._seed = seed_of(session_id)
        self._is_sealed = keys is not None
        self._sealing = Sealing(session_id, keys)
        self._lock = forks.lock()
        """Guards the fields below. Held briefly, never during a sync."""
        self._syncing = forks.lock()
        """Held by flush, truncate and close, so that only one of them runs at a time. Taken before `_lock`."""
        self._fd = -1
        self._base = self._last = self._end = 0
        self._marks = [(0, 0)]
        """Some record numbers and the offsets where these records end. A truncate cuts at such an offset."""
        self._doubtful_tail = False
        self._unsynced = False
        self._unlisted = False
        self._sync_failed = False
        self._promised = 0
        forks.in_child(self.close)  # the parent goes on writing to the file

    @classmethod
    def open(cls, directory: Path, *, session_id: str, keys: SessionKeys | None = None) -> Self:
        """Open the session's spool, or create one. Existing records stay (`found`), and numbers continue.

        A damaged file is set aside (`set_aside`); the records before the damage stay.

        Raises:
            KeyMissing, InvalidSnapshotVersion, StoreUnavailable: as `read_spool`; the file is unchanged.
        """
        spool = cls(directory, session_id=session_id, keys=keys)
        data = file_bytes(directory, session_id) or b""
        found, records = opened(data, session_id, keys)
        with disk_errors("opening the spool", session_id=session_id):
            spool._adopt(data, found)
        spool.found, spool.damage = records, found.damage
        if found.records and found.records[-1].n <= found.base:  # a kill came before the file was cut
            spool._drop(found.base)
        return spool

    @property
    def last(self) -> int:
        """The number of the newest record, even if it was dropped."""
        return self._last

    def append(self, record: Mapping[str, Any]) -> int:
        """Add one record; see `append_all`."""
        return self.append_all((record,))

    def append_all(self, records: Iterable[Mapping[str, Any]]) -> int:
        """Add *records* in one write and return the number of the last. On return they survive ``kill -9``.

        Raises:
            InvalidInput: one is not JSON; none was added.
            StoreUnavailable: the disk refused, or the spool is closed; none was added.
        """
        bodies = [encoded(record, self._session_id) for record in records]
        with self._lock:
            first = self._last + 1
            if self._is_sealed:
                bodies = [self._sealing.seal(n, body) for n, body in enumerate(bodies, first)]
            data = b"".join([framed(n, body, self._seed) for n, body in enumerate(bodies, first)])
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
        """Sync to disk what was appended before the call. Does nothing if everything is synced.

        Raises:
            StoreUnavailable: the disk refused. A second sync of the same file may succeed without writing, so every
                flush raises until `truncate` has begun a new file.
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
        """Drop the records numbered up to *upto*, which a snapshot contains. Atomic: a kill leaves all or none.

        Numbers continue as before, or after *upto* if that is higher.
        """
        if upto > self._base:
            self._drop(upto)

    def rekey(self, keys: SessionKeys | None) -> None:
        """Seal later records with *keys*, the session's keys after a rotation."""
        if self._is_sealed and keys is not None:
            self._sealing.keys = keys

    def _drop(self, upto: int) -> None:
        with self._syncing, disk_errors("truncating the spool", session_id=self._session_id):
            self._open_fd()
            if not self._dropped_in_place(upto):
                self._rewrite(upto)

    def _dropped_in_place(self, upto: int) -> bool:
        """Drop in this file, if all records go or a new file would save too little space. False: not done."""
        with self._lock:
            if self._sync_failed:
                return False
            if upto >= self._last:
                self._empty(upto)
                return True
            if upto < self._promised or self._mark_before(upto) != self._marks[0]:
                return False  # a power cut during the write could damage the header, and lose flushed records
            os.pwrite(self._open_fd(), self._header(upto), 0)  # records up to its base are ignored
            self._base = upto
            return True

    def keep_aside(self, after: int) -> Path:
        """Copy the file to a name that nothing reads, such as ``live.aside-1``; then drop all records, durably.

        Use this for records that could not be recovered: the session can continue, and the copy keeps them. Numbers
        continue as before, or after *after* if that is higher.
        """
        with disk_errors("setting a spool aside", session_id=self._session_id):
            aside = _kept_aside(self._directory, (self._directory / NAME).read_bytes())
        self.truncate(max(after, self._last))
        return aside

    def close(self) -> None:
        """Close the file without removing it. Appending afterwards raises `StoreUnavailable`."""
        with self._syncing, self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def _header(self, base: int) -> bytes:
        return header(self._session_id, base=base, sealed=self._is_sealed)

    def _open_fd(self) -> int:
        if self._fd < 0:
            raise self._unavailable("the spool is closed")
        return self._fd

    def _unavailable(self, why: str) -> StoreUnavailable:
        return StoreUnavailable(f"{why} (session {self._session_id})", session_id=self._session_id)

    def _adopt(self, data: bytes, found: SpoolScan) -> None:
        """Continue the existing file, or replace it if it is damaged or has no header."""
        self._promised = found.last
        if found.damage is not None:
            self.set_aside = _kept_aside(self._directory, data)
        if found.damage is not None or not found.end:
            self._begin(found, data)
            return
        self._fd = os.open(self._directory / NAME, os.O_RDWR | os.O_CLOEXEC)
        self._continue_after(found.base, found.last, found.end, _marks(found))
        self._unsynced = self._unlisted = True
        self._doubtful_tail = found.torn
        self._cut_doubtful_tail()

    def _begin(self, found: SpoolScan, data: bytes) -> None:
        """Replace the file with a new one that holds the records of *found*."""
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
        """Write after the last record. A partial write is truncated."""
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
        """Drop all records. The new header is written first; from then on the old records are ignored."""
        header = self._header(base)
        os.pwrite(self._open_fd(), header, 0)
        self._doubtful_tail = True
        self._continue_after(base, max(base, self._last), len(header), [])
        self._cut_doubtful_tail()

    def _rewrite(self, base: int) -> None:
        """Replace the file with one that lacks the records up to the last mark at or before *base*.

        The caller holds `_syncing`. Most bytes are copied and synced without `_lock`, so that appends continue.
        """
        header = self._header(base)
        with self._lock:
            end = self._end
            dropped, start = self._mark_before(base)
        with self._replacement() as fd:
            write_all(fd, header + self._pread(start, end))
            if base < self._promised:  # some of these records were flushed, and must stay durable
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
        """The last mark at or before *upto*; the end of the file if *upto* covers all records."""
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
        """A temporary file next to the spool, removed on error unless it was swapped in."""
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
        (self._directory / _TEMPORARY).rename(self._directory / NAME)
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


def _kept_aside(directory: Path, data: bytes) -> Path:
    """Write *data* to the first free name ``live.aside-1``, ``-2``, …, durably."""
    number = 1
    while True:
        aside = directory / f"{NAME}.aside-{number}"
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
