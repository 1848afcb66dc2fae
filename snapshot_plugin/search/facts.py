"""What statistics need of a session and a list does not tell. Worked out once, when the session is indexed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import NamedTuple

from snapshot_plugin.codec.document import message_line
from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.model.searchable import Passage
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.model.statistics import TimeSlot, slots_of
from snapshot_plugin.model.topics import keywords

__all__ = ["Facts", "facts_of", "pack", "unpack"]


class Facts(NamedTuple):
    """When what happened in a session, what it is about, and how large it would be as plain JSON."""

    slots: Sequence[TimeSlot] = ()
    topics: Sequence[str] = ()
    plain_bytes: int = 0
    """Its newest state as lines of JSON, once."""
    copies_bytes: int = 0
    """Each of its snapshots as such a file of its own, as if each began with the newest one's messages."""


def facts_of(snapshot: SessionSnapshot, history: Sequence[SnapshotMeta], passages: Iterable[Passage]) -> Facts:
    """The facts of a session. *history* is newest first, as the store gives it."""
    sizes = [0, *accumulate(len(message_line(message)) + 1 for message in snapshot.messages)]
    said = [passage.body for passage in passages if passage.role == "user" or not passage.number]
    return Facts(
        slots_of(reversed(history), (message.timestamp for message in snapshot.messages)),
        keywords(said),
        sizes[-1],
        sum(sizes[min(meta.messages, len(sizes) - 1)] for meta in history),
    )


def pack(facts: Facts) -> str:
    """The facts as text."""
    slots = [(int(slot.start.timestamp()), *slot[1:]) for slot in facts.slots]
    return json.dumps([slots, list(facts.topics), facts.plain_bytes, facts.copies_bytes])


def unpack(text: str) -> Facts:
    """What `pack` was given."""
    slots, topics, plain_bytes, copies_bytes = json.loads(text)
    times = (TimeSlot(datetime.fromtimestamp(start, UTC), *rest) for start, *rest in slots)
    return Facts(tuple(times), tuple(topics), plain_bytes, copies_bytes)
