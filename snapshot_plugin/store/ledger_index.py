"""The list data of every ledger in a bucket, in one object, so that listing 10,000 sessions takes few requests.

::

    {"format":1,"rows":[[name,tag,size,has_trash,bytes of its newest frame],…]}
    those frames, one behind the other

The index is a cache. A row is valid only while the ledger has the row's ETag, which the bucket listing returns.
Listing writes the index, and nothing depends on it: a lost, damaged or outdated index costs requests, never a
session.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import NamedTuple

from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.store.bucket import Bucket, ObjectMoved

__all__ = ["LARGEST_TAIL", "Indexed", "LedgerIndex"]

LARGEST_TAIL = 16 << 10
"""Sessions whose newest frame is larger are not indexed."""
_PATH = "index"
_FORMAT = 1
_FEW = 64
"""So many changed ledgers, or a tenth of all, are read one by one before the index is written again."""


class Indexed(NamedTuple):
    """The list data of one ledger: the bytes of its session (0: deleted), and its newest frame."""

    tag: str
    size: int
    has_trash: bool
    tail: bytes


class LedgerIndex:
    """The index of one bucket."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._tag: str | None = None

    def read(self, tags: Mapping[str, str]) -> dict[str, Indexed]:
        """The rows that are true of the ledgers with these *tags*, by name."""
        found = self._bucket.get(_PATH)
        self._tag = found.tag if found else None
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):  # damaged: as if there were none
            rows = _decoded(found.data) if found else {}
            return {name: row for name, row in rows.items() if row.tag and tags.get(name) == row.tag}
        return {}

    def write(self, rows: Mapping[str, Indexed], *, changed: int) -> None:
        """Keep *rows* for the next list, if enough of them *changed* to be worth it. May fail silently."""
        if changed > max(_FEW, len(rows) // 10):
            # Another list was faster, or these credentials may only read.
            with contextlib.suppress(ObjectMoved, SnapshotError):
                self._tag = self._bucket.put(_PATH, _encoded(rows), tag=self._tag)


def _encoded(rows: Mapping[str, Indexed]) -> bytes:
    table = [(name, row.tag, row.size, row.has_trash, len(row.tail)) for name, row in rows.items()]
    line = json.dumps({"format": _FORMAT, "rows": table}, separators=(",", ":")).encode()
    return b"\n".join([line, b"".join(row.tail for row in rows.values())])


def _decoded(data: bytes) -> dict[str, Indexed]:
    line, _, tails = data.partition(b"\n")
    raw, at, rows = json.loads(line), 0, {}
    if raw["format"] != _FORMAT:
        return {}
    for name, tag, size, has_trash, length in raw["rows"]:
        rows[name] = Indexed(tag, size, has_trash, tails[at : at + length])
        at += length
    return rows if at == len(tails) else {}
