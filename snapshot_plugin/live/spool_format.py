"""The bytes of a spool file (docs/reference/spool.md): a header, then numbered records. No I/O."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from snapshot_plugin.codec.frame import MAX_FRAME
from snapshot_plugin.codec.keys import NONCE_BYTES, Random
from snapshot_plugin.errors import InvalidInput, InvalidSnapshotVersion, SnapshotCorrupted

if TYPE_CHECKING:
    from snapshot_plugin.codec.encrypt import SessionKeys

__all__ = ["Bodies", "Layout", "RawRecord", "SpoolScan"]

_MAGIC: Final = b"ASNAPSP1"
_START: Final = struct.Struct("<8sQ")
_HEAD: Final = struct.Struct("<QI")
_SUM: Final = struct.Struct("<I")
_HEAD_BYTES: Final = _HEAD.size + _SUM.size
_TORN: Final = "torn"
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


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
    never acknowledged. `damage` says what is wrong behind `end`, where it is more than that.
    """

    base: int
    records: tuple[RawRecord, ...]
    end: int
    sealed: bool = False
    torn: bool = False
    damage: str | None = None

    @property
    def last(self) -> int:
        """The highest number that was given out, as far as this file knows."""
        return max(self.base, self.records[-1].n if self.records else 0)


class Layout:
    """Writes and reads the spool bytes of one session. Every sum begins with the session's id."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._seed = zlib.crc32(session_id.encode())

    def header(self, *, base: int, sealed: bool) -> bytes:
        """The beginning of a file whose records were dropped up to *base*. Its length does not depend on *base*."""
        start = _START.pack(_MAGIC, base)
        about = (
            json.dumps({"sealed": sealed, "session_id": self._session_id}, separators=(",", ":")).encode() + b"\n"
        )
        return start + _SUM.pack(zlib.crc32(about, zlib.crc32(start))) + about

    def record(self, n: int, body: bytes) -> bytes:
        """Record number *n*."""
        if len(body) > MAX_FRAME:
            raise InvalidInput(
                f"a spool record of {len(body)} bytes is over the limit of {MAX_FRAME}",
                session_id=self._session_id,
                hint="take a snapshot instead",
            )
        head = _HEAD.pack(n, len(body))
        check = zlib.crc32(head, self._seed)
        return head + _SUM.pack(check) + body + _SUM.pack(zlib.crc32(body, check))

    def scan(self, data: bytes) -> SpoolScan:
        """What *data*, a whole file, holds. Raises `InvalidSnapshotVersion` for the file of a newer release."""
        if len(data) < _START.size or not data.strip(b"\0"):
            return SpoolScan(base=0, records=(), end=0, torn=True)
        magic, base = _START.unpack_from(data)
        if magic[:-1] == _MAGIC[:-1] and magic[-1:].isdigit() and magic > _MAGIC:
            raise InvalidSnapshotVersion("the spool was written by a newer release", session_id=self._session_id)
        for sealed in (False, True):
            header = self.header(base=base, sealed=sealed)
            if data.startswith(header):
                return self._scan_records(data, SpoolScan(base=base, records=(), end=len(header), sealed=sealed))
            if header.startswith(data):
                return SpoolScan(base=0, records=(), end=0, torn=True)
        return SpoolScan(base=0, records=(), end=0, damage="its header is not one this session's spool can have")

    def _scan_records(self, data: bytes, empty: SpoolScan) -> SpoolScan:
        records: list[RawRecord] = []
        end, problem = empty.end, None
        while end < len(data):
            found = self._record_at(data, end)
            if isinstance(found, RawRecord) and not _follows(found, records, empty.base):
                found = f"the record at byte {end} has number {found.n}, which is out of order"
            if isinstance(found, str):
                problem = found
                break
            records.append(found)
            end = found.end
        damage = problem if problem != _TORN else None
        return empty._replace(records=tuple(records), end=end, torn=problem == _TORN, damage=damage)

    def _record_at(self, data: bytes, at: int) -> RawRecord | str:
        """The record that begins at *at*, or what is wrong with it."""
        body = at + _HEAD_BYTES
        if body > len(data):
            return _TORN
        n, length = _HEAD.unpack_from(data, at)
        check = zlib.crc32(data[at : at + _HEAD.size], self._seed)
        if _SUM.unpack_from(data, at + _HEAD.size) != (check,):
            # After a power cut a file may be longer than what was written to it.
            return f"the record at byte {at} has a damaged head" if data[at:].strip(b"\0") else _TORN
        end = body + length + _SUM.size
        if end > len(data):
            return _TORN
        content = data[body : body + length]
        if _SUM.unpack_from(data, body + length) != (zlib.crc32(content, check),):
            return f"record {n} at byte {at} is not what was written"
        return RawRecord(n, content, at, end)


def _follows(record: RawRecord, before: list[RawRecord], base: int) -> bool:
    return record.n == before[-1].n + 1 if before else 0 < record.n <= base + 1


class Bodies:
    """Turns records into bodies and back: JSON, sealed where the store is encrypted.

    A sealed body is bound to its session and its number: moved anywhere else, it does not open.
    """

    def __init__(self, session_id: str, keys: SessionKeys | None, random: Random) -> None:
        self._session_id = session_id
        self._place = b"asnap spool " + session_id.encode() + b" "
        self.keys = keys
        self._random = random

    def encode(self, record: Mapping[str, Any]) -> bytes:
        """*record* as JSON; `InvalidInput` if it is none, for what cannot be read back must not be acknowledged."""
        if not isinstance(record, dict):
            raise InvalidInput(f"a spool record must be a dict, not a {type(record).__name__}")
        try:
            return _encode(record).encode()
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidInput(
                f"a spool record is not JSON: {error}", session_id=self._session_id, hint="use JSON values only"
            ) from error

    def seal(self, n: int, body: bytes) -> bytes:
        """*body* as record *n* stores it."""
        keys = self.keys
        if keys is None:
            return body
        nonce, kid = self._random(NONCE_BYTES), keys.primary.encode()
        return bytes([len(kid)]) + kid + nonce + keys.seal(nonce, body, self._bound_to(n))

    def open(self, raw: RawRecord) -> dict[str, Any]:
        """The record in *raw*.

        Raises:
            SnapshotTampered: it was not sealed for this place.
            SnapshotCorrupted: it holds no record.
            WrongKey: it was sealed under a key that is not there.
        """
        body = raw.body if self.keys is None else self._opened(raw, self.keys)
        try:
            record = json.loads(body)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise SnapshotCorrupted(
                f"record {raw.n} of the spool holds no JSON object", session_id=self._session_id
            )
        return record

    def _opened(self, raw: RawRecord, keys: SessionKeys) -> bytes:
        nonce = 1 + raw.body[0] if raw.body else 1
        sealed = nonce + NONCE_BYTES
        kid = raw.body[1:nonce].decode(errors="replace")
        return keys.open(kid, raw.body[nonce:sealed], raw.body[sealed:], self._bound_to(raw.n))

    def _bound_to(self, n: int) -> bytes:
        return self._place + n.to_bytes(8, "little")
