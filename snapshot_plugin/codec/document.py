"""A snapshot as lines, and the change between two snapshots (docs/reference/format.md §2 Payload, §4 Digests)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from pydantic_core import from_json, to_json

from snapshot_plugin.codec.frame import Header
from snapshot_plugin.errors import SnapshotCorrupted
from snapshot_plugin.model.meta import summary_of
from snapshot_plugin.model.snapshot import CURRENT_VERSION, Message, SessionSnapshot

__all__ = [
    "CHAIN_START",
    "GROUPS",
    "Digest",
    "StoredDocument",
    "chain_from",
    "encoded_line",
    "message_line",
    "message_of",
    "meta_line",
    "parsed",
    "path_key",
    "plain_digest",
    "removed",
    "root_of",
    "section_key",
    "section_line",
    "section_paths",
]

GROUPS = ("memory", "metadata", "plugins")
"""Sections stored entry by entry, so that one changed entry does not rewrite the others."""

Digest = Callable[[bytes], bytes]
CHAIN_START = bytes(32)
_VALUE = b'],"value":'


def plain_digest(data: bytes) -> bytes:
    """SHA-256: the digest of stores without a key."""
    return hashlib.sha256(data).digest()


def encoded_line(data: Any) -> bytes:
    """*data* as one line of a payload."""
    try:
        return to_json(data)
    except ValueError:  # lone surrogates: JSON can escape what UTF-8 cannot carry
        return json.dumps(data, separators=(",", ":"), allow_nan=False).encode()


def parsed(line: bytes) -> Any:
    """The JSON value of a line. Raises ValueError if it is not JSON."""
    try:
        return from_json(line, cache_strings="keys")
    except ValueError:  # escaped lone surrogates and very long integers need the standard library
        return json.loads(line, parse_int=_integer)


def _integer(digits: str) -> int | str:
    """The number, or its digits as text if Python refuses to convert them. Release 0.1.0 stored such numbers."""
    try:
        return int(digits)
    except ValueError:
        return digits


def message_line(message: Message) -> bytes:
    """The payload line of one message."""
    return encoded_line({"message": message.raw()})


@lru_cache(maxsize=256)
def path_key(path: tuple[str, ...]) -> bytes:
    """The key of the section at *path*: its line up to the value."""
    return encoded_line({"section": list(path)})[:-1]


def section_line(path: Sequence[str], value: Any) -> bytes:
    """The payload line that sets a section."""
    # Encoded separately, so that the bytes of the key do not depend on the value.
    return path_key(tuple(path)) + b',"value":' + encoded_line(value) + b"}"


def meta_line(snapshot: SessionSnapshot) -> bytes:
    """The payload line with the summary that lists show."""
    return encoded_line({"meta": summary_of(snapshot)})


def section_key(line: bytes) -> bytes:
    """The key of a section's line (see `path_key`). Inside a string the quote would be escaped."""
    end = line.find(_VALUE)
    return line[: end + 1] if end >= 0 else line[:-1]


def removed(key: bytes) -> bytes:
    """The line that removes the section with this key."""
    return key + b"}"


def chain_from(start: bytes, digests: Iterable[bytes], digest: Digest) -> list[bytes]:
    """The chain values Cᵢ after *start*, one for each message digest."""
    out = []
    link = start
    for each in digests:
        link = digest(link + each)
        out.append(link)
    return out


def root_of(link: bytes, sections: Iterable[bytes], digest: Digest) -> str:
    """The root: last chain value and sorted section digests, digested together."""
    return digest(link + digest(b"".join(sorted(sections)))).hex()


def _message(line: bytes, version: int) -> Message | None:
    """The message of a line; None if it needs a migration or cannot be read."""
    if version != CURRENT_VERSION:
        return None
    try:  # `suppress` would cost as much as parsing a short line
        return Message.model_validate(parsed(line)["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def message_of(line: bytes, session_id: str) -> Message:
    """The message of a line of the current version. Raises `SnapshotCorrupted` if it cannot be read."""
    try:
        return Message.model_validate(parsed(line)["message"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SnapshotCorrupted("a stored message cannot be read", session_id=session_id) from error


def section_paths(lines: Iterable[bytes]) -> dict[tuple[str, ...], Any]:
    """The sections of these lines: path and value."""
    entries = [parsed(line) for line in lines]
    return {tuple(entry["section"]): entry["value"] for entry in entries}


class StoredDocument:
    """A snapshot that is assembled from frames, as stored lines.

    JSON is parsed at the end. With *ahead*, messages are parsed as they arrive, while other threads decompress.
    """

    def __init__(self, *, ahead: bool = False) -> None:
        self.version = 0
        self.meta = b""
        self.sections: dict[bytes, bytes] = {}
        self.messages: list[bytes] = []
        self._read: list[Message | None] | None = [] if ahead else None

    def apply(self, header: Header, payload: bytes) -> None:
        """Apply the change of one frame, or raise and change nothing. A full frame replaces everything."""
        lines = payload.split(b"\n")
        if lines.pop():
            raise SnapshotCorrupted(f"snapshot {header.hi} ends in the middle of a line", session_id=header.sid)
        self.take(header, lines)

    def take(self, header: Header, lines: Sequence[bytes]) -> None:
        """Like `apply`, for a payload that is already split into lines."""
        if len(lines) < header.insert + 1:
            raise SnapshotCorrupted(f"snapshot {header.hi} has fewer lines than it says", session_id=header.sid)
        if header.at + header.delete > (0 if header.full else len(self.messages)):
            raise SnapshotCorrupted(f"snapshot {header.hi} does not fit the one before", session_id=header.sid)
        if header.full:
            self.sections, self.messages = {}, []
            self._read = None if self._read is None else []
        first = len(lines) - header.insert
        self.version, self.meta = header.v, lines[0]
        for line in lines[1:first]:
            self._set(line)
        self.messages[header.at : header.at + header.delete] = lines[first:]
        if self._read is not None:
            self._read[header.at : header.at + header.delete] = [_message(line, header.v) for line in lines[first:]]

    def _set(self, line: bytes) -> None:
        key = section_key(line)
        if len(key) + 1 == len(line):
            self.sections.pop(key, None)
        else:
            self.sections[key] = line

    def copy(self) -> StoredDocument:
        """An independent copy. The lines, which never change, are shared."""
        twin = StoredDocument()
        twin.version, twin.meta = self.version, self.meta
        twin.sections, twin.messages = dict(self.sections), list(self.messages)
        return twin

    def summary(self) -> dict[str, Any]:
        """The summary that lists show."""
        try:
            return dict(parsed(self.meta)["meta"])
        except (ValueError, KeyError, TypeError) as error:
            raise SnapshotCorrupted("a frame has no summary") from error

    def raw(self, session_id: str) -> dict[str, Any]:
        """The snapshot as plain data of its own version, except for messages that were parsed ahead."""
        return self._parsed(session_id, self._messages)

    def head(self, session_id: str) -> dict[str, Any]:
        """Like `raw`, without the messages."""
        return self._parsed(session_id, list)

    def _messages(self) -> list[Any]:
        read = self._read or [None] * len(self.messages)
        return [message or parsed(line)["message"] for message, line in zip(read, self.messages, strict=True)]

    def _parsed(self, session_id: str, messages: Callable[[], list[Any]]) -> dict[str, Any]:
        try:
            return {**self._sections(session_id), "messages": messages()}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise SnapshotCorrupted(
                "a snapshot's content is not the JSON it should be", session_id=session_id
            ) from error

    def _sections(self, session_id: str) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for line in self.sections.values():
            entry = parsed(line)
            *group, name = entry["section"]
            target = out.setdefault(group[0], {}) if group else out
            target[name] = entry["value"]
        return {
            **out,
            "version": self.version,
            "session_id": session_id,
            "updated_at": self.summary()["updated_at"],
        }
