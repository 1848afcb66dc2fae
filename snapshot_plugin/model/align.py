"""Align the messages of two conversations: unchanged, edited, removed, or new."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from snapshot_plugin.model.snapshot import Message
from snapshot_plugin.model.splice import splice_between

__all__ = ["Alignment", "align"]

Pair = tuple[int, int]


class Alignment(NamedTuple):
    """Positions of messages: removed (in the old list), added (in the new list), and edited (in both)."""

    common_prefix: int
    removed: tuple[int, ...]
    added: tuple[int, ...]
    edited: tuple[Pair, ...]


def align(old: Sequence[Message], new: Sequence[Message]) -> Alignment:
    """Compare two conversations with a patience diff.

    The anchors are messages that are unique by id (or by content, if they have no id) and in the same order on both
    sides. Between two anchors, messages without ids count as edited if they have the same position and role.
    Applying the result to *old* gives *new*.
    """
    splice = splice_between(old, new)
    before = range(splice.at, splice.at + splice.delete)
    after = range(splice.at, splice.at + splice.insert)
    pairs = [(i + splice.at, j + splice.at) for i, j in _pairs([old[i] for i in before], [new[j] for j in after])]
    return Alignment(
        common_prefix=splice.at,
        removed=tuple(sorted(set(before) - {i for i, _ in pairs})),
        added=tuple(sorted(set(after) - {j for _, j in pairs})),
        edited=tuple((i, j) for i, j in pairs if old[i] != new[j]),
    )


def _pairs(old: Sequence[Message], new: Sequence[Message]) -> Iterator[Pair]:
    i, j = 0, 0
    for anchor in [*_anchors(old, new), (len(old), len(new))]:
        between = zip(range(i, anchor[0]), range(j, anchor[1]), strict=False)
        yield from (pair for pair in between if _may_be_the_same(old[pair[0]], new[pair[1]]))
        i, j = anchor[0] + 1, anchor[1] + 1
        if anchor[0] < len(old):
            yield anchor


def _may_be_the_same(one: Message, other: Message) -> bool:
    return one.role == other.role and (one.id is None or other.id is None)


def _anchors(old: Sequence[Message], new: Sequence[Message]) -> list[Pair]:
    here, there = ([message.id or message for message in messages] for messages in (old, new))
    once = {key for key, count in Counter(here).items() if count == 1}
    once &= {key for key, count in Counter(there).items() if count == 1}
    places = {key: i for i, key in enumerate(here) if key in once}
    return _longest_rising([(places[key], j) for j, key in enumerate(there) if key in once])


def _longest_rising(pairs: Sequence[Pair]) -> list[Pair]:
    """The longest subsequence of pairs whose first numbers increase."""
    tails: list[int] = []
    ends: list[int] = []
    previous: list[int | None] = []
    for index, (first, _) in enumerate(pairs):
        length = bisect_left(tails, first)
        previous.append(ends[length - 1] if length else None)
        tails[length : length + 1] = [first]
        ends[length : length + 1] = [index]
    run: list[Pair] = []
    at = ends[-1] if ends else None
    while at is not None:
        run.append(pairs[at])
        at = previous[at]
    return run[::-1]
