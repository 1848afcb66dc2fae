"""What statistics need of a session beyond its list entry. Computed once, when the session is indexed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import NamedTuple

from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.model.statistics import TimeSlot, slots_of

__all__ = ["Facts", "facts_of", "pack", "unpack"]


class Facts(NamedTuple):
    """A session's activity over time, its topics, and its size as plain JSON."""

    slots: Sequence[TimeSlot] = ()
    plain_bytes: int = 0
    """The size of its newest snapshot as plain JSON lines."""
    copies_bytes: int = 0
    """The estimated size of all its snapshots as plain JSON, each in a file of its own."""
    topics: Sequence[str] = ()
    """Computed when statistics are requested; searches do not need them."""


def facts_of(history: Sequence[SnapshotMeta], sizes: Sequence[int], times: Sequence[int | None]) -> Facts:
    """The facts of a session without its topics. *history* is newest first; *sizes* are those of its lines."""
    ends = [0, *accumulate(size + 1 for size in sizes)]
    moments = (None if at is None else datetime.fromtimestamp(at, UTC) for at in times)
    copies = sum(ends[min(meta.messages, len(ends) - 1)] for meta in history)
    return Facts(slots_of(reversed(history), moments), ends[-1], copies)


def pack(facts: Facts) -> str:
    """Serialise the facts."""
    slots = [(int(slot.start.timestamp()), *slot[1:]) for slot in facts.slots]
    return json.dumps([slots, facts.plain_bytes, facts.copies_bytes, list(facts.topics)])


def unpack(text: str) -> Facts:
    """Parse what `pack` returned."""
    slots, plain_bytes, copies_bytes, topics = json.loads(text)
    times = (TimeSlot(datetime.fromtimestamp(start, UTC), *rest) for start, *rest in slots)
    return Facts(tuple(times), plain_bytes, copies_bytes, tuple(topics))
