"""Read a spool file (docs/reference/spool.md): a header, then numbered records, each checked and decrypted.

`spool` writes the file.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from snapshot_plugin.codec.keys import NONCE_BYTES, Random
from snapshot_plugin.errors import Damaged, InvalidSnapshotVersion, KeyMissing, SnapshotCorrupted
from snapshot_plugin.store.filenames import SPOOL
from snapshot_plugin.system.files import disk_errors

if TYPE_CHECKING:
    from snapshot_plugin.codec.encrypt import SessionKeys

__all__ = [
    "HEAD",
    "NAME",
    "SUM",
    "RawRecord",
    "Record",
    "Sealing",
    "SpoolContents",
    "SpoolScan",
    "file_bytes",
    "header",
    "opened",
    "read_spool",
    "scan",
    "seed_of",
    "session_in",
    "spool_has_records",
    "unsaved",
]

NAME: Final = SPOOL

_MAGIC: Final = b"ASNAPSP1"
_START: Final = struct.Struct("<8sQ")
HEAD: Final = struct.Struct("<QI")
"""The number of a record and the length of its body."""
SUM: Final = struct.Struct("<I")
_HEAD_BYTES: Final = HEAD.size + SUM.size
_LONGEST_ABOUT: Final = 1 << 18
_TORN: Final = "torn"


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
    """What a spool file holds, up to the first byte that cannot be trusted.

    `base` is the number up to which records were dropped; records at or below it may still be in the file and are
    ignored. `end` is where the last whole record ends. `torn`: the file ends in an unfinished record, which was
    never acknowledged. `damage` says what is wrong after `end`, if it is more than a torn record.
    """

    base: int
    records: tuple[RawRecord, ...]
    end: int
    sealed: bool = False
    torn: bool = False
    damage: str | None = None

    @property
    def last(self) -> int:
        """The highest record number in this file, including dropped records."""
        return max(self.base, self.records[-1].n if self.records else 0)


def seed_of(session_id: str) -> int:
    """The CRC seed of the session's records, so that records of other sessions fail the check."""
    return zlib.crc32(session_id.encode())


def header(session_id: str, *, base: int, sealed: bool) -> bytes:
    """The header of a file whose records were dropped up to *base*. Its length does not depend on *base*."""
    start = _START.pack(_MAGIC, base)
    about = json.dumps({"sealed": sealed, "session_id": session_id}, separators=(",", ":")).encode() + b"\n"
    return start + SUM.pack(zlib.crc32(about, zlib.crc32(start))) + about


def session_in(path: Path) -> str | None:
    """The session id in the header of a spool file; None if there is no such file, or no whole header."""
    try:
        with path.open("rb") as file:
            file.seek(_START.size + SUM.size)
            found = json.loads(file.readline(_LONGEST_ABOUT))["session_id"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


def scan(data: bytes, session_id: str) -> SpoolScan:
    """Parse *data*, a whole spool file. Raises `InvalidSnapshotVersion` if a newer release wrote it."""
    if len(data) < _START.size or not data.strip(b"\0"):
        return SpoolScan(base=0, records=(), end=0, torn=True)
    magic, base = _START.unpack_from(data)
    if magic[:-1] == _MAGIC[:-1] and magic[-1:].isdigit() and magic > _MAGIC:
        raise InvalidSnapshotVersion("the spool was written by a newer release", session_id=session_id)
    for sealed in (False, True):
        begin = header(session_id, base=base, sealed=sealed)
        if data.startswith(begin):
            empty = SpoolScan(base=base, records=(), end=len(begin), sealed=sealed)
            return _scan_records(data, empty, seed_of(session_id))
        if begin.startswith(data):
            return SpoolScan(base=0, records=(), end=0, torn=True)
    return SpoolScan(base=0, records=(), end=0, damage="its header is not one this session's spool can have")


def _scan_records(data: bytes, empty: SpoolScan, seed: int) -> SpoolScan:
    records: list[RawRecord] = []
    end, problem = empty.end, None
    while end < len(data):
        found = _record_at(data, end, seed)
        if isinstance(found, RawRecord) and not _follows(found, records, empty.base):
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
    n, length = HEAD.unpack_from(data, at)
    check = zlib.crc32(data[at : at + HEAD.size], seed)
    if SUM.unpack_from(data, at + HEAD.size) != (check,):
        # After a power cut a file may be longer than what was written: the rest is zeros.
        return f"the record at byte {at} has a damaged head" if data[at:].strip(b"\0") else _TORN
    end = body + length + SUM.size
    if end > len(data):
        return _TORN
    content = data[body : body + length]
    if SUM.unpack_from(data, body + length) != (zlib.crc32(content, check),):
        return f"record {n} at byte {at} is not what was written"
    return RawRecord(n, content, at, end)


def _follows(record: RawRecord, before: list[RawRecord], base: int) -> bool:
    return record.n == before[-1].n + 1 if before else 0 < record.n <= base + 1


def opened(data: bytes, session_id: str, keys: SessionKeys | None) -> tuple[SpoolScan, tuple[Record, ...]]:
    """Parse *data* and decrypt its records. A record that does not decrypt counts as damage.

    Raises:
        KeyMissing: it is sealed and *keys* is None.
        WrongKey: it was sealed under a key that *keys* does not have.
        InvalidSnapshotVersion: a newer release wrote it.
    """
    found = scan(data, session_id)
    if found.sealed and keys is None:
        raise KeyMissing(f"the spool of session {session_id!r} is sealed", session_id=session_id)
    if keys is not None and found.end and not found.sealed:
        return SpoolScan(base=0, records=(), end=0, damage="it is not sealed, and the store is encrypted"), ()
    sealing = Sealing(session_id, keys)
    records: list[Record] = []
    for index, raw in enumerate(found.records):
        if raw.n > found.base:
            try:
                records.append(Record(raw.n, sealing.open(raw.n, raw.body)))
            except Damaged as error:
                whole = found._replace(records=found.records[:index], end=raw.start)
                return whole._replace(torn=False, damage=error.message), tuple(records)
    return found, tuple(records)


class SpoolContents(NamedTuple):
    """The contents of a spool: exactly the appended records, in order, up to any damage.

    `base`: records up to this number were dropped by `Spool.truncate`. `torn`: an append was cut off before it was
    acknowledged. `damage`: what is wrong after the last record; later records are not included.
    """

    records: tuple[Record, ...] = ()
    torn: bool = False
    damage: str | None = None
    base: int = 0


def read_spool(directory: Path, *, session_id: str, keys: SessionKeys | None = None) -> SpoolContents:
    """Read the session's spool; empty if there is none. Changes nothing.

    Raises:
        KeyMissing: it is sealed and *keys* is None.
        WrongKey: it was sealed under a key that *keys* does not have.
        InvalidSnapshotVersion: a newer release wrote it.
        StoreUnavailable: the disk refused.
    """
    data = file_bytes(directory, session_id)
    if data is None:
        return SpoolContents()
    found, records = opened(data, session_id, keys)
    return SpoolContents(records, found.torn, found.damage, found.base)


def spool_has_records(directory: Path, session_id: str) -> bool:
    """Whether the spool is longer than its header. A cheap check: the rest may be torn, or already dropped."""
    try:
        size = (directory / NAME).stat().st_size
    except OSError:
        return False
    return size > len(header(session_id, base=0, sealed=False))


def file_bytes(directory: Path, session_id: str) -> bytes | None:
    """The bytes of the session's spool file; None if there is none."""
    with disk_errors("reading the spool", session_id=session_id):
        try:
            return (directory / NAME).read_bytes()
        except FileNotFoundError:
            return None


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
