"""What statistics need of a session and a list does not tell. Worked out once, when the session is indexed."""

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
    """When what happened in a session, what it is about, and how large it would be as plain JSON."""

    slots: Sequence[TimeSlot] = ()
    plain_bytes: int = 0
    """Its newest state as lines of JSON, once."""
    copies_bytes: int = 0
    """Each of its snapshots as such a file of its own, as if each began with the newest one's messages."""
    topics: Sequence[str] = ()
    """Worked out when statistics are asked for: searches do without."""


def facts_of(history: Sequence[SnapshotMeta], lines: Sequence[bytes], times: Sequence[int | None]) -> Facts:
    """The facts of a session, but for its topics. *history* is newest first, as the store gives it."""
    sizes = [0, *accumulate(len(line) + 1 for line in lines)]
    moments = (None if at is None else datetime.fromtimestamp(at, UTC) for at in times)
    copies = sum(sizes[min(meta.messages, len(sizes) - 1)] for meta in history)
    return Facts(slots_of(reversed(history), moments), sizes[-1], copies)


def pack(facts: Facts) -> str:
    """The facts as text."""
    slots = [(int(slot.start.timestamp()), *slot[1:]) for slot in facts.slots]
    return json.dumps([slots, facts.plain_bytes, facts.copies_bytes, list(facts.topics)])


def unpack(text: str) -> Facts:
    """What `pack` was given."""
    slots, plain_bytes, copies_bytes, topics = json.loads(text)
    times = (TimeSlot(datetime.fromtimestamp(start, UTC), *rest) for start, *rest in slots)
    return Facts(tuple(times), plain_bytes, copies_bytes, tuple(topics))
