"""The one object of a session that changes: which frames it has, which are in the trash, and the newest frames.

::

    {"format":1,"ids":[…],"parts":[[name,first,last,rewritten,size,object],…],"trash":[[token,time,[parts]],…]}
    sha256 of that line, in hex
    the bytes of those parts that are not objects of their own, one behind the other
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from typing import Any, NamedTuple

from snapshot_plugin.errors import InvalidSnapshotVersion, SnapshotCorrupted
from snapshot_plugin.model.times import rfc3339

__all__ = ["Gone", "Ledger", "LedgerPart"]

_FORMAT = 1
_REMEMBERED = 8


class LedgerPart(NamedTuple):
    """A run of frames: in an object of its own, which never changes, or (*object* empty) in the ledger itself."""

    name: str
    first: int
    last: int
    rewritten: bool
    size: int
    object: str = ""
    data: bytes = b""


class Gone(NamedTuple):
    """A session in the trash, or an earlier copy of one."""

    token: str
    at: datetime
    parts: tuple[LedgerPart, ...]


class Ledger(NamedTuple):
    """Everything the bucket knows of a session. Without parts, the session does not exist (any more)."""

    parts: tuple[LedgerPart, ...] = ()
    trash: tuple[Gone, ...] = ()
    ids: tuple[str, ...] = ()
    """The ids of this version and the last ones before it, by which a writer without an answer finds its write."""

    def written_as(self, version: str) -> Ledger:
        """The same ledger as a new version: no two versions of an object are equal, so their ETags differ."""
        return self._replace(ids=(*self.ids[1 - _REMEMBERED :], version))

    def objects(self) -> set[str]:
        """The objects it refers to; all others are unused."""
        return {part.object for part in self._all_parts() if part.object}

    def _all_parts(self) -> Iterator[LedgerPart]:
        return chain(self.parts, *(gone.parts for gone in self.trash))

    def encoded(self) -> bytes:
        """As it is stored."""
        line = json.dumps(
            {
                "format": _FORMAT,
                "ids": self.ids,
                "parts": [part[:-1] for part in self.parts],
                "trash": [
                    (gone.token, rfc3339(gone.at), [part[:-1] for part in gone.parts]) for gone in self.trash
                ],
            },
            separators=(",", ":"),
        ).encode()
        return b"\n".join([line, _digest(line), b"".join(part.data for part in self._all_parts())])

    @classmethod
    def decoded(cls, data: bytes, session_id: str) -> Ledger:
        """From what is stored.

        Raises:
            SnapshotCorrupted: the ledger was changed. (Damage in frames is found when they are read.)
            InvalidSnapshotVersion: a newer release wrote it.
        """
        line, _, rest = data.partition(b"\n")
        digest, _, inline = rest.partition(b"\n")
        try:
            if digest != _digest(line):
                raise ValueError(digest)  # noqa: TRY301 — one way out for all that is wrong
            raw = json.loads(line)
            if raw["format"] != _FORMAT:
                raise InvalidSnapshotVersion(f"session {session_id} is stored in format {raw['format']}")
            return _Reading(raw, inline).ledger()
        except (ValueError, KeyError, TypeError) as error:
            raise SnapshotCorrupted(
                f"the ledger of session {session_id} is damaged", session_id=session_id,
                hint="restore an earlier version of the object, if the bucket keeps versions",
            ) from error  # fmt: skip


class _Reading:
    def __init__(self, raw: dict[str, Any], inline: bytes) -> None:
        self._raw, self._inline, self._at = raw, inline, 0

    def ledger(self) -> Ledger:
        parts = self._parts(self._raw["parts"])
        trash = tuple(
            Gone(token, datetime.fromisoformat(at).astimezone(UTC), self._parts(parts))
            for token, at, parts in self._raw["trash"]
        )
        if self._at != len(self._inline):
            raise ValueError(self._at)
        return Ledger(parts, trash, tuple(self._raw["ids"]))

    def _parts(self, rows: list[Any]) -> tuple[LedgerPart, ...]:
        return tuple(self._part(LedgerPart(*row)) for row in rows)

    def _part(self, part: LedgerPart) -> LedgerPart:
        if part.object:
            return part
        start, self._at = self._at, self._at + part.size
        return part._replace(data=self._inline[start : self._at])


def _digest(line: bytes) -> bytes:
    return hashlib.sha256(line).hexdigest().encode()
