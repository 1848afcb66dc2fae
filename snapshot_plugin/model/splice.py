"""The smallest single splice that turns one list of messages into another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

__all__ = ["Splice", "splice_between"]

T = TypeVar("T")


class Splice(NamedTuple):
    """Remove *delete* items at index *at*, and put *insert* items in their place."""

    at: int
    delete: int
    insert: int


def splice_between(old: Sequence[T], new: Sequence[T]) -> Splice:
    """The splice from *old* to *new*, without their common beginning and end.

    An append to a long list takes one comparison at C speed, because identical objects compare equal immediately.
    """
    if len(new) >= len(old) and new[: len(old)] == old:
        return Splice(len(old), 0, len(new) - len(old))
    head = _equal(old, new, min(len(old), len(new)))
    tail = _equal(old[head:][::-1], new[head:][::-1], min(len(old), len(new)) - head)
    return Splice(head, len(old) - head - tail, len(new) - head - tail)


def _equal(left: Sequence[T], right: Sequence[T], limit: int) -> int:
    return next((i for i in range(limit) if left[i] is not right[i] and left[i] != right[i]), limit)
