"""Merge two versions of a JSON value: a change on one side is kept; of two changes, the first wins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from snapshot_plugin.model.value import Json, Value

__all__ = ["ABSENT", "Clash", "is_same", "three_way"]

ABSENT: Any = type("Absent", (), {"__repr__": lambda _: "absent"})()
"""Stands for a missing value, which differs from null."""


class Clash(Value):
    """A conflict: both sides changed a value; which was kept and which dropped. Missing values are null."""

    path: str
    kept: Json = None
    other: Json = None


def three_way(base: Any, first: Any, second: Any, path: str) -> tuple[Any, list[Clash]]:
    """Merge two values derived from *base*, and report the conflicts.

    Objects are merged entry by entry, everything else as a whole. Without a known *base* (`ABSENT`), two different
    values conflict, and a value that only one side has is used.
    """
    clashes: list[Clash] = []
    return _merged(base, first, second, path, clashes), clashes


def _merged(base: Any, first: Any, second: Any, path: str, clashes: list[Clash]) -> Any:
    if is_same(first, second) or is_same(second, base):
        return first
    if is_same(first, base):
        return second
    if isinstance(first, dict) and isinstance(second, dict):
        return dict(_entries(base if isinstance(base, dict) else {}, first, second, path, clashes))
    clashes.append(Clash(path=path, kept=_shown(first), other=_shown(second)))
    return first


def _entries(
    base: dict[str, Any], first: dict[str, Any], second: dict[str, Any], path: str, clashes: list[Clash]
) -> Iterator[tuple[str, Any]]:
    for name in [*first, *(name for name in second if name not in first)]:
        before, one, other = (side.get(name, ABSENT) for side in (base, first, second))
        value = _merged(before, one, other, f"{path}.{name}" if path else name, clashes)
        if value is not ABSENT:
            yield name, value


def _shown(value: Any) -> Any:
    return None if value is ABSENT else value


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON. Python's ``==`` is not enough: 1, 1.0 and true are equal there."""
    if one is other or one is ABSENT or other is ABSENT:
        return one is other
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
