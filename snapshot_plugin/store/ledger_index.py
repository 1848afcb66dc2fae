"""The list data of every ledger in a bucket, in one object, so that listing 10,000 sessions takes few requests.

::

    {"format":1,"rows":[[name,tag,size,has_trash,bytes of its newest frame],…]}
    those frames, one behind the other

A writer of many sessions leaves the same for those it wrote, some hundred at a time, in objects of their own
(``recent/<ulid>``): it has just sent these frames, and a list need not ask for each. A list merges them into the
index and removes them.

All this is a cache. A row is valid only while the ledger has the row's ETag, which the bucket listing returns.
Nothing depends on it: a lost, damaged or outdated object costs requests, never a session.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import NamedTuple

from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.store.bucket import Bucket, ObjectMoved, many_at_once
from snapshot_plugin.system import forks

__all__ = ["LARGEST_TAIL", "Indexed", "LedgerIndex"]

LARGEST_TAIL = 16 << 10
"""Sessions whose newest frame is larger are not indexed."""
_PATH, _RECENT = "index", "recent"
_FORMAT = 1
_FEW = 64
"""The index is rewritten once this many ledgers, or a tenth of all, have changed."""


_BATCH, _WORTH = 256, 16
"""A writer stores the rows of this many sessions at a time, and on close if there are at least this many."""
_BATCHES, _MOST = 8, 512
"""A list merges these objects once there are this many; objects beyond the maximum are not read."""
_LEFT = 64
"""How many of these objects a writer keeps if no list merges them: rows of 16,384 sessions."""


class Indexed(NamedTuple):
    """The list data of one ledger: the bytes of its session (0: deleted), and its newest frame."""

    tag: str
    size: int
    has_trash: bool
    tail: bytes


class LedgerIndex:
    """The index of one bucket. Thread-safe."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._tag: str | None = None
        self._noted: dict[str, Indexed] = {}
        self._batches: list[str] = []
        self._left: list[str] = []
        self._unindexed = 0
        self._lock = forks.lock()

    def note(self, name: str, row: Indexed) -> None:
        """This process has written a ledger. One call in some hundred makes a request. May fail silently."""
        with self._lock:
            self._noted[name] = row
            is_enough = len(self._noted) >= _BATCH
        if is_enough:
            self.flush()

    def flush(self) -> None:
        """Store the noted rows for later lists, if there are enough of them. May fail silently."""
        with self._lock:
            rows, self._noted = self._noted, {}
        if len(rows) >= _WORTH:
            with contextlib.suppress(ObjectMoved, SnapshotError):
                self._left.append(f"{_RECENT}/{new_id()}")
                self._bucket.put(self._left[-1], _encoded(rows), tag=None)
                self._bucket.delete(self._left[:-_LEFT])  # without a list to merge them, they would accumulate
                del self._left[:-_LEFT]

    def read(self, tags: Mapping[str, str]) -> dict[str, Indexed]:
        """The rows that are true of the ledgers with these *tags*, by name."""
        found = self._bucket.get(_PATH)
        self._tag = found.tag if found else None
        self._batches = [f"{_RECENT}/{name}" for name in sorted(self._bucket.names(_RECENT))]
        batches = many_at_once(self._bucket.get, self._batches[-_MOST:])
        with self._lock:
            recent = [dict(self._noted), *(_readable(each.data) for each in batches if each)]
        rows = _true(_readable(found.data), tags) if found else {}
        indexed = len(rows)
        for each in recent:
            rows |= _true(each, tags)
        self._unindexed = len(rows) - indexed
        return rows

    def write(self, rows: Mapping[str, Indexed], *, changed: int) -> None:
        """Keep *rows* for the next list, if enough of them are new or *changed*. May fail silently."""
        is_worth_it = changed + self._unindexed > max(_FEW, len(rows) // 10)
        if is_worth_it or len(self._batches) >= _BATCHES:
            # Another list was faster, or these credentials may only read.
            with contextlib.suppress(ObjectMoved, SnapshotError):
                self._tag = self._bucket.put(_PATH, _encoded(rows), tag=self._tag)
                self._bucket.delete(self._batches)


def _true(rows: Mapping[str, Indexed], tags: Mapping[str, str]) -> dict[str, Indexed]:
    return {name: row for name, row in rows.items() if row.tag and tags.get(name) == row.tag}


def _readable(data: bytes) -> dict[str, Indexed]:
    """Its rows; none if it is damaged."""
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        return _decoded(data)
    return {}


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
