"""The shape of a response (its fields and their kinds, no values), and how two shapes differ."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, NamedTuple

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.model.frozen import FrozenDict
from snapshot_plugin.model.value import JsonObject, Timestamp, Value

__all__ = ["Baseline", "Difference", "baseline_data", "differences", "shape_of", "with_shapes"]

_STRING: Final = "<string>"
_KINDS: Final = frozenset({_STRING, "<number>", "<boolean>", "<null>"})
_ANY_KEY: Final = "<key>"
_FIELD = re.compile(r"(?!.*\d{4})[@$_]?[A-Za-z][A-Za-z0-9_-]{0,39}")
"""The name of a field. Other keys are data: ids, addresses, dates."""
_VARIETY: Final = 8
"""The largest number of different shapes kept for one list."""

_BODIES: Final = frozenset({"body", "responsebody", "responsetext"})
_STATUSES: Final = frozenset({"status", "statuscode"})


class Baseline(Value):
    """How a feature behaves when it is right. Of what is under ``response`` or ``body`` the shape is stored."""

    _refused_as: ClassVar[type[InvalidInput]] = InvalidInput
    name: str
    data: JsonObject = FrozenDict()
    saved_at: Timestamp | None = None


def baseline_data(stored: Any) -> Any:
    """The part of a stored baseline to compare: its data if a `Baseline` was saved, else all of it."""
    is_baseline = isinstance(stored, dict) and "data" in stored and set(stored) <= {"name", "data", "saved_at"}
    return stored["data"] if is_baseline else stored


def shape_of(response: Any) -> Any:
    """The shape of *response*: for ``{"id": 7, "tags": ["a"]}``, ``{"id": "<number>", "tags": ["<string>"]}``.

    Items of a list with the same shape are listed once. Keys that are data (ids, dates) become one, ``<key>``.
    Idempotent.
    """
    if isinstance(response, Mapping):
        fields = {name: value for name, value in response.items() if _FIELD.fullmatch(name)}
        told = response.get(_ANY_KEY, ())
        under_data = [value for name, value in response.items() if name not in fields and name != _ANY_KEY]
        data = _different([*told, *under_data] if isinstance(told, Sequence) else under_data)
        return {name: shape_of(value) for name, value in fields.items()} | ({_ANY_KEY: data} if data else {})
    if isinstance(response, Sequence) and not isinstance(response, str):
        return _different(response)
    return response if isinstance(response, str) and response in _KINDS else _kind(response)


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "<null>" if value is None else "<boolean>"
    return _STRING if isinstance(value, str) else "<number>"


def _different(items: Sequence[Any]) -> list[Any]:
    shapes: list[Any] = []
    for item in items:
        shape = shape_of(item)
        if shape not in shapes:
            shapes.append(shape)
        if len(shapes) == _VARIETY:
            break
    return shapes


def with_shapes(data: Any) -> tuple[Any, int]:
    """JSON *data* with each response replaced by its shape, and how many that changed.

    A response is a value under ``response``, whose status is kept, or under ``body``.
    """
    if isinstance(data, list):
        items = [with_shapes(item) for item in data]
        return [item for item, _ in items], sum(count for _, count in items)
    if not isinstance(data, dict):
        return data, 0
    parts = {name: _part(_plain(name), item) for name, item in data.items()}
    return {name: item for name, (item, _) in parts.items()}, sum(count for _, count in parts.values())


def _part(name: str, item: Any) -> tuple[Any, int]:
    if name != "response" and name not in _BODIES:
        return with_shapes(item)
    shape = shape_of(item)
    if name == "response" and isinstance(item, dict):
        shape |= {field: value for field, value in item.items() if _is_status(field, value)}
    return shape, int(shape != item)


def _is_status(name: str, value: Any) -> bool:
    return _plain(name) in _STATUSES and isinstance(value, int) and 100 <= value < 600  # noqa: PLR2004 — HTTP's own


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


class Difference(NamedTuple):
    """One difference between an observation and its baseline. All kinds except ``added`` are regressions."""

    path: str
    kind: Literal["missing", "added", "type", "value", "slower"]
    was: Any
    now: Any

    def __str__(self) -> str:
        if self.kind in ("missing", "added"):
            return f"{self.path}: {self.kind}"
        unit = "ms" if self.kind == "slower" else ""
        return f"{self.path}: was {_short(self.was)}{unit}, now {_short(self.now)}{unit}"


def differences(was: Any, now: Any, path: str = "", *, slower: float = 1.5) -> list[Difference]:
    """How *now* differs from *was*. The caller has replaced responses in both by their shapes.

    Fields are compared by presence and kind, other values by value. A number that is a time (``load_ms``) differs
    only when it grew by more than the factor *slower*; counters and dates are compared by kind alone.
    """
    if isinstance(was, dict) and isinstance(now, dict):
        return _fields_differ(was, now, path, slower)
    if isinstance(was, list) and isinstance(now, list):
        return _items_differ(was, now, path, slower)
    here = path or "(all of it)"
    if _sort(was) != _sort(now):
        return [Difference(here, "type", _sort(was), _sort(now))]
    name = path.rpartition(".")[2].partition("[")[0]
    if was == now or was in _KINDS or now in _KINDS or _VARYING.fullmatch(_plain(name)):
        return []
    if _TIMES.search(name) and isinstance(was, int | float):
        return [Difference(here, "slower", was, now)] if now > slower * was else []
    return [Difference(here, "value", was, now)]


_TIMES = re.compile(r"(?i)(?:^|_)(?:ms|millis|seconds|latency|duration|time|took|elapsed|p\d\d)(?:$|_)|Ms$|Time$")
_VARYING = re.compile(r".*(?:timestamp|date|savedat|createdat|updatedat|validatedat|lastvalidated)|id|count|total")


def _fields_differ(was: dict[str, Any], now: dict[str, Any], path: str, slower: float) -> list[Difference]:
    found: list[Difference] = []
    for name in {**was, **now}:
        here = f"{path}.{name}" if path else name
        if name in was and name in now:
            found += differences(was[name], now[name], here, slower=slower)
        else:
            found.append(Difference(here, "added" if name in now else "missing", was.get(name), now.get(name)))
    return found


def _items_differ(was: list[Any], now: list[Any], path: str, slower: float) -> list[Difference]:
    """Compare lists of plain values as sets, and each other item with the most similar one."""
    if all(not isinstance(item, dict | list) for item in (*was, *now)):
        gone = [
            Difference(f"{path}[{_short(item)}]", "missing", item, None) for item in was if item not in now and now
        ]
        new = [Difference(f"{path}[{_short(item)}]", "added", None, item) for item in now if item not in was]
        return gone + new
    found: list[Difference] = []
    for item in now if was else ():
        candidates = [differences(other, item, f"{path}[]", slower=slower) for other in was]
        found += [each for each in min(candidates, key=_weight) if each not in found]
    return found


def _weight(found: list[Difference]) -> int:
    return sum(1 if each.kind == "added" else 3 for each in found)


def _sort(value: Any) -> str:
    """The kind of a value, as a word."""
    if isinstance(value, dict | list):
        return "object" if isinstance(value, dict) else "list"
    return str(shape_of(value)).strip("<>")


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    text = str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"  # noqa: PLR2004 — fits a line
