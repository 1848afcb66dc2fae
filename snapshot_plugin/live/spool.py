"""The spool: the records since the last snapshot, in two files of the session's directory that take turns.

docs/reference/spool.md describes the files. Once `Spool.append` returns, the record is in the page cache and
survives the death of every process; `Spool.flush` makes it survive a power cut too. Only the owner of the session
(`lease`) opens its spool; anybody may read it (`read_spool`).

Records go to one file, until a snapshot holds some of them and others came meanwhile: then the other file goes on.
So a file is emptied as a whole, and no record that may be needed is ever moved or overwritten.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from zlib import crc32

from snapshot_plugin.codec.frame import MAX_FRAME
from snapshot_plugin.codec.keys import NONCE_BYTES, Random
from snapshot_plugin.errors import (
    Damaged,
    InvalidInput,
    InvalidSnapshotVersion,
    KeyMissing,
    SnapshotCorrupted,
    StoreUnavailable,
)
from snapshot_plugin.store.filenames import SPOOL, SPOOL_FILES
from snapshot_plugin.system import forks
from snapshot_plugin.system.files import disk_errors, sync_all, sync_data, sync_dir, write_all

if TYPE_CHECKING:
    from snapshot_plugin.codec.encrypt import SessionKeys

__all__ = [
    "RawRecord",
    "Record",
    "Sealing",
    "Spool",
    "SpoolContents",
    "SpoolScan",
    "encoded",
    "framed",
    "header",
    "read_spool",
    "scan",
    "seed_of",
    "session_in",
    "unsaved",
]

_MAGIC: Final = b"ASNAPSP"
_NEWEST: Final = 2
_START: Final = struct.Struct("<8sQ")
_HEAD: Final = struct.Struct("<QI")
"""The number of a record and the length of its body."""
_SUM: Final = struct.Struct("<I")
_HEAD_BYTES: Final = _HEAD.size + _SUM.size
_LONGEST_ABOUT: Final = 1 << 18
_TORN: Final = "torn"
_MOST_READS: Final = 1000
"""An owner that saves all the time empties a file between two reads; each takes some 50 µs."""
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


# The owner's end ------------------------------------------------------------------------------------------


class Spool:
    """The owner's end of the spool, usable from several threads. `append` never waits for a sync."""

    def __init__(self, directory: Path, *, session_id: str, keys: SessionKeys | None) -> None:
        self.set_aside: str | None = None
        """Where the damaged bytes are kept, if the spool was damaged when it was opened."""
        self.found: tuple[Record, ...] = ()
        """The records that were in the spool when it was opened. The caller drops them once they are saved."""
        self.damage: str | None = None
        """What was wrong with the spool beside those records; None if nothing was."""
        self._directory = directory
        self._session_id = session_id
        self._seed = seed_of(session_id)
        self._is_sealed = keys is not None
        self._sealing = Sealing(session_id, keys)
        self._lock = forks.lock()
        """Guards the fields below. Held briefly, never during a sync."""
        self._syncing = forks.lock()
        """Held by flush, truncate and close, so that only one of them runs at a time. Taken before `_lock`."""
        self._files = (_File(), _File())
        self._active, self._older = self._files
        """The file that takes the next record, and the other one: empty, or with the records before."""
        self._dropped = self._last = 0
        self._unlisted = True
        forks.in_child(self._leave_to_parent)

    @classmethod
    def open(cls, directory: Path, *, session_id: str, keys: SessionKeys | None = None) -> Self:
        """Open the session's spool, or create one. Existing records stay (`found`), and numbers continue.

        What is damaged is set aside (`set_aside`); the records before the damage stay.

        Raises:
            KeyMissing, InvalidSnapshotVersion, StoreUnavailable: as `read_spool`; nothing was changed.
        """
        spool = cls(directory, session_id=session_id, keys=keys)
        data = _read_files(directory, session_id)
        contents = _contents(data, session_id, keys)
        with disk_errors("opening the spool", session_id=session_id):
            try:
                spool._adopt(contents, data)
            except BaseException:
                spool._leave_to_parent()
                raise
        spool.found, spool.damage = contents.records, contents.damage
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
            self._last = self._active.last = self._last + len(bodies)
            return self._last

    def _write(self, data: bytes) -> None:
        if self._active.fd < 0:
            raise self._unavailable("the spool is closed")
        self._active.write(data)

    def flush(self) -> None:
        """Sync to disk what was appended before the call. Does nothing if everything is synced.

        Raises:
            StoreUnavailable: the disk refused. A second sync of the same bytes may succeed without writing them, so
                every flush raises until `truncate` has emptied the file.
        """
        with self._syncing:
            with self._lock:
                dirty = [file for file in (self._older, self._active) if file.unsynced]
                if not dirty:
                    return
                if self._active.fd < 0:
                    raise self._unavailable("the spool is closed")
                if any(file.sync_failed for file in dirty):
                    raise self._unavailable("an earlier sync of the spool failed")
                unlisted, self._unlisted = self._unlisted, False
                for file in dirty:
                    file.unsynced = False
            try:
                with disk_errors("syncing the spool", session_id=self._session_id):
                    for file in dirty:
                        sync_data(file.fd)
                    if unlisted:
                        sync_dir(self._directory)
            except BaseException:
                self._unlisted = unlisted
                for file in dirty:
                    file.unsynced = file.sync_failed = True
                raise

    def truncate(self, upto: int) -> None:
        """Drop the records numbered up to *upto*, which a snapshot contains. Atomic: a kill leaves all or none.

        Numbers continue as before, or after *upto* if that is higher. If the older file has a record after *upto*,
        nothing is dropped: no harm, because recovery skips what the snapshot contains.
        """
        if upto <= self._dropped:
            return
        with self._syncing, self._lock, disk_errors("truncating the spool", session_id=self._session_id):
            if self._active.fd < 0:
                raise self._unavailable("the spool is closed")
            header = self._header(upto)
            if upto >= self._last:
                self._older.empty(header)  # from here on, readers ignore what is in the other file too
                self._active.empty(header)
                self._last = upto
            elif self._older.last > upto or self._active.is_old:
                return
            else:
                self._older.empty(header)
                self._active, self._older = self._older, self._active
            self._dropped = upto

    def rekey(self, keys: SessionKeys | None) -> None:
        """Seal later records with *keys*, the session's keys after a rotation."""
        if self._is_sealed and keys is not None:
            self._sealing.keys = keys

    def keep_aside(self, after: int) -> str:
        """Copy the records to a name that nothing reads, such as ``live.aside-1``; then drop them all, durably.

        Use this for records that could not be recovered: the session can continue, and the copy keeps them. Numbers
        continue as before, or after *after* if that is higher. Returns the names of the copies.
        """
        with disk_errors("setting a spool aside", session_id=self._session_id):
            data = _read_files(self._directory, self._session_id)
            used = [each for each, file in zip(data, self._files, strict=True) if file.last]
            aside = _kept_aside(self._directory, used or data[:1])
        self.truncate(max(after, self._last))
        return aside

    def close(self) -> None:
        """Close the files without removing them. Appending afterwards raises `StoreUnavailable`.

        A spool without records becomes one that releases before 0.3.0 can use.
        """
        with self._syncing, self._lock:
            if self._active.fd >= 0 and not (self._active.last or self._older.last):
                with contextlib.suppress(OSError):  # it is recovered instead, and turns out to be empty
                    self._files[0].empty(self._header(self._last, version=1))
            self._leave_to_parent()

    def _leave_to_parent(self) -> None:
        """Only close the files: in a forked child, because its parent goes on writing to them."""
        for file in self._files:
            file.close()

    def _header(self, base: int, version: int = _NEWEST) -> bytes:
        return header(self._session_id, base=base, sealed=self._is_sealed, version=version)

    def _unavailable(self, why: str) -> StoreUnavailable:
        return StoreUnavailable(f"{why} (session {self._session_id})", session_id=self._session_id)

    def _adopt(self, found: SpoolContents, data: Sequence[bytes]) -> None:
        """Open both files, and continue the one with the newest records."""
        damaged = [each for each, scanned in zip(data, found.files, strict=True) if scanned.damage is not None]
        if damaged:
            self.set_aside = _kept_aside(self._directory, damaged)
        for file, name in zip(self._files, SPOOL_FILES, strict=True):
            file.fd = os.open(self._directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._dropped = found.base
        self._last = found.records[-1].n if found.records else found.base
        for file, scanned in reversed([*zip(self._files, found.files, strict=True)]):
            # The first file is last: once it has a header of version 2, the second file counts.
            if scanned.last > found.base:
                file.continue_from(scanned)
            else:
                file.empty(self._header(found.base))
        if self._files[1].last > self._files[0].last:
            self._active, self._older = self._older, self._active


class _File:
    """One of the two files of a spool, as its owner knows it."""

    __slots__ = ("doubtful_tail", "end", "fd", "is_old", "last", "sync_failed", "unsynced")

    def __init__(self) -> None:
        self.fd = -1
        self.last = 0
        """The number of its last record; 0 if it has none that counts."""
        self.end = 0
        """Where its last record ends."""
        self.is_old = False
        """Whether a release before 0.3.0 reads it. Then it may not be continued in the other file."""
        self.unsynced = self.sync_failed = self.doubtful_tail = False

    def continue_from(self, found: SpoolScan) -> None:
        """Keep its records; cut what follows them."""
        self.last, self.end, self.is_old = found.last, found.end, found.version < _NEWEST
        self.unsynced = True
        self.doubtful_tail = found.torn or found.damage is not None
        self._cut_doubtful_tail()

    def write(self, data: bytes) -> None:
        """Write after the last record. A partial write is truncated."""
        fd, start = self.fd, self.end
        self._cut_doubtful_tail()
        self.doubtful_tail = True
        try:
            written = os.pwrite(fd, data, start)
            while written < len(data):
                written += os.pwrite(fd, data[written:], start + written)
        except BaseException:
            with contextlib.suppress(OSError):
                self._cut_doubtful_tail()
            raise
        self.end = start + written
        self.doubtful_tail = False
        self.unsynced = True

    def empty(self, header: bytes) -> None:
        """Drop its records. The header is written first; from then on they are ignored.

        Every byte that it has then was written anew, so a sync that failed before is forgotten. A file that was not
        synced stays so: with its header, the disk may also lack that there are two files.
        """
        os.pwrite(self.fd, header, 0)
        self.last, self.end, self.is_old = 0, len(header), False
        self.sync_failed = False
        self.doubtful_tail = True
        self._cut_doubtful_tail()

    def close(self) -> None:
        """Close it, if it is open."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _cut_doubtful_tail(self) -> None:
        if self.doubtful_tail:
            os.ftruncate(self.fd, self.end)
            self.doubtful_tail = False


def _kept_aside(directory: Path, contents: Iterable[bytes]) -> str:
    """Write each of *contents* to the first free name ``live.aside-1``, ``-2``, …, durably. Returns the names."""
    kept: list[str] = []
    number = 1
    for data in contents:
        while True:
            aside = directory / f"{SPOOL}.aside-{number}"
            number += 1
            with contextlib.suppress(FileExistsError):
                fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                break
        try:
            write_all(fd, data)
            sync_all(fd)
        finally:
            os.close(fd)
        kept.append(str(aside))
    sync_dir(directory)
    return " and ".join(kept)


# Records as bytes -----------------------------------------------------------------------------------------


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
    """The bytes of record *n* in a file; *seed* is the session's CRC seed (`seed_of`)."""
    if len(body) > MAX_FRAME:
        raise InvalidInput(
            f"a spool record of {len(body)} bytes is over the limit of {MAX_FRAME}", hint="take a snapshot instead"
        )
    head = _HEAD.pack(n, len(body))
    check = crc32(head, seed)
    return head + _SUM.pack(check) + body + _SUM.pack(crc32(body, check))


class Record(NamedTuple):
    """One record as it was appended to a spool, with its number."""

    n: int
    data: dict[str, Any]


class RawRecord(NamedTuple):
    """One whole record: its number, its body as stored, and where in the file it lies."""

    n: int
    body: bytes
    start: int
    end: int


class SpoolScan(NamedTuple):
    """What one file of a spool holds, up to the first byte that cannot be trusted.

    `version` is 0 if it has no whole header. `base` is the number up to which records were dropped; records at or
    below it may still be in the files and are ignored. `end` is where the last whole record ends. `torn`: the file
    ends in an unfinished record, which was never acknowledged. `damage` says what is wrong after `end`, if it is
    more than a torn record.
    """

    version: int = 0
    base: int = 0
    records: tuple[RawRecord, ...] = ()
    end: int = 0
    sealed: bool = False
    torn: bool = False
    damage: str | None = None

    @property
    def last(self) -> int:
        """The number of its last record; 0 if it has none."""
        return self.records[-1].n if self.records else 0


def seed_of(session_id: str) -> int:
    """The CRC seed of the session's records, so that records of other sessions fail the check."""
    return crc32(session_id.encode())


def header(session_id: str, *, base: int, sealed: bool, version: int = _NEWEST) -> bytes:
    """The header of a file whose records were dropped up to *base*. Its length does not depend on *base*.

    Version 1 is read by all releases. Version 2, with one line more, says that ``live.1`` counts too.
    """
    start = _START.pack(_MAGIC + b"%d" % version, base)
    about = json.dumps({"sealed": sealed, "session_id": session_id}, separators=(",", ":")).encode() + b"\n"
    if version > 1:
        about += SPOOL_FILES[1].encode() + b"\n"
    return start + _SUM.pack(crc32(about, crc32(start))) + about


def session_in(path: Path) -> str | None:
    """The session id in the header of a spool file; None if there is no such file, or no whole header."""
    try:
        with path.open("rb") as file:
            file.seek(_START.size + _SUM.size)
            found = json.loads(file.readline(_LONGEST_ABOUT))["session_id"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


def scan(data: bytes, session_id: str) -> SpoolScan:
    """Parse *data*, one file of a spool. Raises `InvalidSnapshotVersion` if a newer release wrote it."""
    if len(data) < _START.size or not data.strip(b"\0"):
        return SpoolScan(torn=bool(data))
    magic, base = _START.unpack_from(data)
    version = int(magic[-1:]) if magic[:-1] == _MAGIC and magic[-1:].isdigit() else 0
    if version > _NEWEST:
        raise InvalidSnapshotVersion("the spool was written by a newer release", session_id=session_id)
    for sealed in (False, True) if version else ():
        begin = header(session_id, base=base, sealed=sealed, version=version)
        if data.startswith(begin):
            return _scan_records(data, SpoolScan(version, base, end=len(begin), sealed=sealed), seed_of(session_id))
        if begin.startswith(data):
            return SpoolScan(torn=True)
    return SpoolScan(damage="its header is not one this session's spool can have")


def _scan_records(data: bytes, empty: SpoolScan, seed: int) -> SpoolScan:
    records: list[RawRecord] = []
    end, problem = empty.end, None
    while end < len(data):
        found = _record_at(data, end, seed)
        if isinstance(found, RawRecord) and not _follows(found, records, empty):
            found = f"the record at byte {end} has number {found.n}, which is out of order"
        if isinstance(found, str):
            problem = found
            break
        records.append(found)
        end = found.end
    damage = problem if problem != _TORN else None
    return empty._replace(records=tuple(records), end=end, torn=problem == _TORN, damage=damage)


def _record_at(data: bytes, at: int, seed: int) -> RawRecord | str:
    """The record that begins at *at*, or what is wrong with it."""
    body = at + _HEAD_BYTES
    if body > len(data):
        return _TORN
    n, length = _HEAD.unpack_from(data, at)
    check = crc32(data[at : at + _HEAD.size], seed)
    if _SUM.unpack_from(data, at + _HEAD.size) != (check,):
        # After a power cut a file may be longer than what was written: the rest is zeros.
        return f"the record at byte {at} has a damaged head" if data[at:].strip(b"\0") else _TORN
    end = body + length + _SUM.size
    if end > len(data):
        return _TORN
    content = data[body : body + length]
    if _SUM.unpack_from(data, body + length) != (crc32(content, check),):
        return f"record {n} at byte {at} is not what was written"
    return RawRecord(n, content, at, end)


def _follows(record: RawRecord, before: list[RawRecord], empty: SpoolScan) -> bool:
    if before:
        return record.n == before[-1].n + 1
    return record.n > 0 and (empty.version > 1 or record.n <= empty.base + 1)  # the one before is in the other file


class Sealing:
    """Seals and opens the bodies of records if the store is encrypted.

    A sealed body is bound to its session and its number: it does not open under another session or number.
    """

    def __init__(self, session_id: str, keys: SessionKeys | None, random: Random = os.urandom) -> None:
        self._session_id = session_id
        self._place = b"asnap spool " + session_id.encode() + b" "
        self.keys = keys
        self._random = random

    def seal(self, n: int, body: bytes) -> bytes:
        """*body* as record *n* stores it."""
        keys = self.keys
        if keys is None:
            return body
        nonce, kid = self._random(NONCE_BYTES), keys.primary.encode()
        return bytes([len(kid)]) + kid + nonce + keys.seal(nonce, body, self._bound_to(n))

    def open(self, n: int, body: bytes) -> dict[str, Any]:
        """The record in *body*, which is stored under number *n*.

        Raises:
            SnapshotTampered: it was not sealed for this session and number.
            SnapshotCorrupted: it is not a JSON object.
            WrongKey: it was sealed under a key that the store does not have.
        """
        plain = body if self.keys is None else self._unsealed(n, body, self.keys)
        try:
            record = json.loads(plain)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise SnapshotCorrupted(f"record {n} of the spool holds no JSON object", session_id=self._session_id)
        return record

    def _unsealed(self, n: int, body: bytes, keys: SessionKeys) -> bytes:
        nonce = 1 + body[0] if body else 1
        sealed = nonce + NONCE_BYTES
        kid = body[1:nonce].decode(errors="replace")
        return keys.open(kid, body[nonce:sealed], body[sealed:], self._bound_to(n))

    def _bound_to(self, n: int) -> bytes:
        return self._place + n.to_bytes(8, "little")


# Reading --------------------------------------------------------------------------------------------------


class SpoolContents(NamedTuple):
    """The contents of a spool: exactly the appended records, in order, up to any damage.

    `base`: records up to this number were dropped by `Spool.truncate`. `files`: the two files, without what cannot
    be trusted or does not follow.
    """

    records: tuple[Record, ...]
    base: int
    files: tuple[SpoolScan, ...]

    @property
    def torn(self) -> bool:
        """Whether an append was cut off before it was acknowledged."""
        return any(each.torn for each in self.files)

    @property
    def damage(self) -> str | None:
        """What is wrong after the last record; later records are not included."""
        return next((each.damage for each in self.files if each.damage is not None), None)


def read_spool(directory: Path, *, session_id: str, keys: SessionKeys | None = None) -> SpoolContents:
    """Read the session's spool; empty if there is none. Changes nothing.

    Raises:
        KeyMissing: it is sealed and *keys* is None.
        WrongKey: it was sealed under a key that *keys* does not have.
        InvalidSnapshotVersion: a newer release wrote it.
        StoreUnavailable: the disk refused.
    """
    return _contents(_read_files(directory, session_id), session_id, keys)


def _contents(data: Sequence[bytes], session_id: str, keys: SessionKeys | None) -> SpoolContents:
    """Parse both files and decrypt their records. A record that does not decrypt counts as damage.

    Raises:
        KeyMissing, WrongKey, InvalidSnapshotVersion: see `read_spool`.
    """
    scans = [_usable(scan(each, session_id), session_id, keys) for each in data]
    if scans[0].version == 1:  # then the second file is empty, or a power cut brought its old records back
        scans[1] = SpoolScan()
    base = max(each.base for each in scans)
    sealing, records = Sealing(session_id, keys), list[Record]()
    for index in sorted(range(len(scans)), key=lambda index: scans[index].last):
        found = scans[index]
        for raw in (raw for raw in found.records if raw.n > base):
            try:
                if records and raw.n != records[-1].n + 1:
                    raise SnapshotCorrupted(f"the records before record {raw.n} are missing", session_id=session_id)
                records.append(Record(raw.n, sealing.open(raw.n, raw.body)))
            except Damaged as error:
                whole = tuple(each for each in found.records if each.n < raw.n)
                scans[index] = found._replace(records=whole, end=raw.start, torn=False, damage=error.message)
                break
    return SpoolContents(tuple(records), base, tuple(scans))


def _usable(found: SpoolScan, session_id: str, keys: SessionKeys | None) -> SpoolScan:
    if found.sealed and keys is None:
        raise KeyMissing(f"the spool of session {session_id!r} is sealed", session_id=session_id)
    if keys is not None and found.end and not found.sealed:
        is_empty = not found.records and found.damage is None
        return SpoolScan(damage=None if is_empty else "it is not sealed, and the store is encrypted")
    return found


def _read_files(directory: Path, session_id: str) -> list[bytes]:
    """The bytes of both files; empty for one that does not exist.

    The owner may empty a file while it is read, which leaves a mixture of old and new bytes. So both are read until
    each only grew: a mixture is no beginning of what is there afterwards. And the second is read before the first,
    with the first not emptied in between: else a record could be in neither.
    """
    first, second = (directory / name for name in SPOOL_FILES)
    with disk_errors("reading the spool", session_id=session_id):
        reads = [_pair(first, second), _pair(first, second)]
        for _ in range(_MOST_READS):
            earlier, found, later = *reads, _pair(first, second)
            if found[0].startswith(earlier[0]) and all(map(bytes.startswith, later, found)):
                break
            reads = [found, later]
    return reads[1]


def _pair(first: Path, second: Path) -> list[bytes]:
    later = _bytes(second)
    return [_bytes(first), later]


def _bytes(path: Path) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        size, data = os.fstat(fd).st_size, b""
        while len(data) < size and (more := os.pread(fd, size - len(data), len(data))):
            data += more  # a call reads 2 GB at most
        return data
    finally:
        os.close(fd)


def unsaved(found: Sequence[Record], after: int, session_id: str) -> Sequence[Record]:
    """The records in *found* with higher numbers than *after*.

    Raises:
        SnapshotCorrupted: records between *after* and the first one are missing.
    """
    if found and found[0].n > after + 1:
        raise SnapshotCorrupted(
            f"spool records {after + 1} to {found[0].n - 1} are missing; those after them were not applied",
            session_id=session_id,
        )
    return [record for record in found if record.n > after]
