"""One snapshot as bytes: a gzip member with our header in its FEXTRA field (docs/reference/format.md §2, §3)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import zlib
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import from_json, to_json

from snapshot_plugin.codec.compress import Effort, deflate, inflate, inflate_start, stored, stored_size, unstored
from snapshot_plugin.errors import InvalidInput, InvalidSnapshot, SnapshotCorrupted, SnapshotTampered
from snapshot_plugin.model.ids import short_id

if TYPE_CHECKING:
    from snapshot_plugin.codec.encrypt import SessionKeys

__all__ = [
    "MAGIC",
    "MAX_FRAME",
    "OPENING",
    "PREFIX",
    "Header",
    "encode_frame",
    "open_frame",
    "open_meta",
    "read_header",
    "summary_in",
]

MAGIC = bytes.fromhex("1f8b0804 00000000 00ff")
PREFIX = len(MAGIC) + 2 + 4 + 4
"""Bytes before the header JSON."""
TRAILER = 8
MAX_FRAME = 1 << 30
_MAX_HEADER = 0xFFFF - 8
_ZERO_SUM, _SUM = "0" * 64, b'"sum":"'
_INNER = bytes.fromhex("1f8b0800 00000000 00ff")
_META_BYTES = 1 << 12
OPENING = 160
"""The first bytes of a frame, up to and including its id, which identify the frame."""


class Header(NamedTuple):
    """The unencrypted header of a frame. `docs/reference/format.md` explains each field."""

    v: int
    id: str
    sid: str
    lo: int
    hi: int
    root: str
    prev: str = ""
    at: int = 0
    delete: int = 0
    insert: int = 0
    full: bool = False
    pack: int = 0
    t: str = ""
    w: str = ""
    trigger: str = "manual"
    tags: tuple[str, ...] = ()
    sum: str = ""
    kid: str = ""
    nonce: str = ""
    other: Mapping[str, Any] = MappingProxyType({})

    def to_bytes(self, **seal: str) -> bytes:
        """The header JSON: keys sorted, no spaces, ASCII. *seal* replaces the header's own seal."""
        seal = seal or {name: text for name in ("kid", "nonce", "sum") if (text := getattr(self, name))}
        data = {
            "at": self.at, "del": self.delete, "hi": self.hi, "id": self.id, "ins": self.insert, "lo": self.lo,
            "prev": self.prev, "root": self.root, "sid": self.sid, "t": self.t, "tags": self.tags,
            "trigger": self.trigger, "v": self.v, "w": self.w, **seal,
        }  # fmt: skip
        if self.full:
            data["full"] = True
        if self.pack:
            data["pack"] = self.pack
        data = dict(sorted({**self.other, **data}.items()))
        with contextlib.suppress(ValueError):  # only the standard library escapes lone surrogates
            text = to_json(data)
            if text.isascii():
                return text
        return json.dumps(data, sort_keys=True, separators=(",", ":")).encode("ascii")

    @classmethod
    def from_bytes(cls, data: bytes) -> Header:
        """Parse a header. Raises `SnapshotCorrupted` if it is not one."""
        try:
            return _header(_parsed(data))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise SnapshotCorrupted("a frame's header is unreadable") from error


@lru_cache(maxsize=1024)
def _read(data: bytes) -> Header:
    """The header of a frame. Cached, because a frame is first located and then opened; a segment has up to 256."""
    return Header.from_bytes(data)


def _parsed(data: bytes) -> Any:
    try:
        return from_json(data)
    except ValueError:  # only the standard library accepts an escaped lone surrogate in a tag
        return json.loads(data)


_KINDS: dict[str, type] = {
    "v": int, "id": str, "sid": str, "lo": int, "hi": int, "root": str, "prev": str, "at": int, "del": int,
    "ins": int, "full": bool, "pack": int, "t": str, "w": str, "trigger": str, "tags": list, "sum": str,
    "kid": str, "nonce": str,
}  # fmt: skip
"""The keys of a header with their types, in the order of `Header`."""
_TAGS = list(_KINDS).index("tags")
_TYPES = list(_KINDS.values())
_MISSING: list[Any] = [[] if name == "tags" else Header._field_defaults.get(name) for name in Header._fields]


def _header(data: dict[str, Any]) -> Header:
    values: list[Any] = list(map(data.get, _KINDS, _MISSING))  # no loop: a list of sessions reads thousands
    if list(map(type, values)) != _TYPES:
        raise TypeError("a field is missing or has the wrong type")
    values[_TAGS] = tuple(map(str, values[_TAGS]))
    other = {} if data.keys() <= _KINDS.keys() else {key: data[key] for key in data if key not in _KINDS}
    header = Header._make([*values, other])
    if not 1 <= header.lo <= header.hi or min(header.at, header.delete, header.insert, header.pack) < 0:
        raise ValueError("numbers out of range")
    return header


def encode_frame(
    header: Header, payload: bytes, keys: SessionKeys | None, *, effort: Effort = "hot", spare: int = 0
) -> bytes:
    """Encode a frame: plain with a checksum, or sealed with *keys* and a new nonce.

    The header must leave *spare* bytes: it may grow when the frame is packed, merged or sealed later.
    """
    if len(payload) > MAX_FRAME:
        raise InvalidSnapshot(
            f"the change to session {header.sid} takes {len(payload)} bytes, over the limit of {MAX_FRAME}",
            session_id=header.sid, hint="move large values out of the session, or save more often",
        )  # fmt: skip
    body, trailer = deflate(payload, effort), _trailer(payload)
    if keys is None:
        start = _start(header.to_bytes(sum=_ZERO_SUM), len(body), spare)
        digest = hashlib.sha256(start)
        digest.update(body)
        digest.update(trailer)
        at = start.rindex(_SUM) + len(_SUM)  # the last one: a label may have that name, and stands before it
        return b"".join([start[:at], digest.hexdigest().encode(), start[at + len(_ZERO_SUM) :], body, trailer])
    inner = b"".join([_INNER, body, trailer])
    nonce = os.urandom(12)
    start = _start(header.to_bytes(kid=keys.primary, nonce=nonce.hex()), stored_size(len(inner) + 16), spare)
    return _assemble(start, keys.seal(nonce, inner, start))


def _start(header: bytes, body_size: int, spare: int) -> bytes:
    if len(header) > _MAX_HEADER - spare:
        raise InvalidInput(
            "the snapshot's tags, labels and trigger take over 64 KB", hint="use fewer or shorter tags"
        )
    size = PREFIX + len(header) + body_size + TRAILER
    return MAGIC + struct.pack("<H2sHI", len(header) + 8, b"SN", len(header) + 4, size) + header


def _trailer(content: bytes) -> bytes:
    return struct.pack("<II", zlib.crc32(content), len(content) & 0xFFFFFFFF)


def _assemble(start: bytes, ciphertext: bytes) -> bytes:
    """An encrypted frame: *ciphertext* in stored blocks, so that gzip can carry and check it."""
    return b"".join([start, stored(ciphertext), _trailer(ciphertext)])


def read_header(data: bytes, at: int = 0) -> tuple[Header, int, int]:
    """The header of the frame at *at*, the offset of its body, and the length of the frame.

    Checks only the structure; `open_frame` checks the content.
    """
    if data[at : at + len(MAGIC)] != MAGIC or len(data) < at + PREFIX:
        raise SnapshotCorrupted("no frame starts here")
    xlen, mark, length, size = struct.unpack_from("<H2sHI", data, at + len(MAGIC))
    body = at + PREFIX + length - 4
    if mark != b"SN" or xlen != length + 4 or length < 4 or size < body - at + TRAILER or size > 2 * MAX_FRAME:  # noqa: PLR2004 — fixed by the format
        raise SnapshotCorrupted("a frame's lengths contradict each other")
    if len(data) < body:
        raise SnapshotCorrupted("a frame's header is cut off")
    return _read(data[at + PREFIX : body]), body, size


def open_frame(frame: bytes, *, session_id: str, keys: SessionKeys | None) -> tuple[Header, bytes]:
    """Verify every byte of *frame*, and return its header and payload.

    Raises:
        SnapshotCorrupted: the bytes were changed, or belong to another session.
        SnapshotTampered: the bytes are well-formed, but not sealed by this store's key for this session; or a
            plain frame is in an encrypted store.
        WrongKey: the frame names a key this keyset does not have.
    """
    header, content, size = _verified(frame, session_id, keys)
    return header, inflate(content, size)


def open_meta(frame: bytes, *, session_id: str, keys: SessionKeys | None) -> tuple[Header, dict[str, Any]]:
    """Like `open_frame`, but decompresses only the first line, which is enough for lists."""
    header, content, size = _verified(frame, session_id, keys)
    limit = min(_META_BYTES, size)
    while b"\n" not in (start := inflate_start(content, limit)) and limit < size:
        limit = min(limit * 8, size)
    return header, summary_in(start)


def summary_in(payload: bytes) -> dict[str, Any]:
    """The summary that lists show: the first line of the payload."""
    try:
        meta = _parsed(payload.split(b"\n", 1)[0])["meta"]
    except (ValueError, KeyError, TypeError) as error:
        raise SnapshotCorrupted("a frame has no summary") from error
    return meta if isinstance(meta, dict) else {}


def _verified(frame: bytes, session_id: str, keys: SessionKeys | None) -> tuple[Header, memoryview, int]:
    header, body, size = read_header(frame)
    if size != len(frame):
        raise SnapshotCorrupted("a frame has another length than it says")
    if header.kid:
        content, length = _decrypted(frame, header, body, keys)
    elif keys is not None:
        raise SnapshotTampered("a plain frame stands in an encrypted store", session_id=session_id)
    else:
        content, length = _checked(frame, header, body), _declared(frame)
    if header.sid != session_id and short_id(header.sid) != session_id:
        raise SnapshotCorrupted(
            f"a frame of session {header.sid} stands in session {session_id}", session_id=session_id
        )
    if length > MAX_FRAME:
        raise SnapshotCorrupted(
            f"a frame declares {length} bytes of content, over the limit", session_id=session_id
        )
    return header, content, length


def _declared(member: bytes) -> int:
    return int.from_bytes(member[-4:], "little")


def _checked(frame: bytes, header: Header, body: int) -> memoryview:
    position = frame.find(_SUM + header.sum.encode(errors="replace"), PREFIX, body) + len(_SUM) if header.sum else 0
    digest = hashlib.sha256(frame[:position])
    digest.update(_ZERO_SUM.encode())
    view = memoryview(frame)  # a copy would cost more than the checksum
    digest.update(view[position + len(_ZERO_SUM) :])
    if digest.hexdigest() != header.sum:
        raise SnapshotCorrupted(f"the checksum of snapshot {header.hi} is wrong", session_id=header.sid)
    return view[body:-TRAILER]


def _decrypted(frame: bytes, header: Header, body: int, keys: SessionKeys | None) -> tuple[memoryview, int]:
    if keys is None:
        raise SnapshotTampered(f"snapshot {header.hi} is encrypted and the store is not", session_id=header.sid)
    ciphertext = unstored(memoryview(frame)[body:-TRAILER], _declared(frame))
    if ciphertext is None or _trailer(ciphertext) != frame[-TRAILER:]:
        raise SnapshotCorrupted(
            f"the bytes of snapshot {header.hi} are not what was written", session_id=header.sid
        )
    try:
        nonce = bytes.fromhex(header.nonce)
    except ValueError as error:
        raise SnapshotCorrupted(
            f"the nonce of snapshot {header.hi} is unreadable", session_id=header.sid
        ) from error
    inner = keys.open(header.kid, nonce, ciphertext, frame[:body])
    return memoryview(inner)[len(_INNER) : -TRAILER], _declared(inner)
