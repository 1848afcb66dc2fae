"""The shape of a response: which fields it has, and of which kind they are; nothing of what it says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["shape_of", "with_shapes"]

_STRING: Final = "<string>"
_KINDS: Final = frozenset({_STRING, "<number>", "<boolean>", "<null>"})
_ANY_KEY: Final = "<key>"
_FIELD = re.compile(r"(?!.*\d{4})[@$_]?[A-Za-z][A-Za-z0-9_-]{0,39}")
"""What a field is called. Other keys are data: ids, addresses, dates."""
_VARIETY: Final = 8
"""So many different shapes of a list's items are told apart."""

_BODIES: Final = frozenset({"body", "responsebody", "responsetext"})
_STATUSES: Final = frozenset({"status", "statuscode"})


def shape_of(response: Any) -> Any:
    """What *response* looks like: of ``{"id": 7, "tags": ["a"]}``, ``{"id": "<number>", "tags": ["<string>"]}``.

    Items of a list with the same shape are told once. Keys that are no names of fields become one, ``<key>``. The
    shape of a shape is itself, so two responses are alike where their shapes are equal.
    """
    if isinstance(response, str):
        return response if response in _KINDS else _STRING
    if isinstance(response, bool):
        return "<boolean>"
    if response is None:
        return "<null>"
    if isinstance(response, Mapping):
        return _shape_of_fields(response)
    if isinstance(response, Sequence):
        return _different(response)
    return "<number>"


def _shape_of_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    shape = {name: shape_of(value) for name, value in fields.items() if _FIELD.fullmatch(name)}
    under_data = [value for name, value in fields.items() if name != _ANY_KEY and not _FIELD.fullmatch(name)]
    told = fields.get(_ANY_KEY, ())
    if under_data or told:
        shape[_ANY_KEY] = _different([*told, *under_data] if isinstance(told, Sequence) else under_data)
    return shape


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
    """JSON *data* with the shape of each response in its place, and how many that changed.

    A response is what stands under ``response``, where its status stays, and what stands under ``body``.
    """
    if isinstance(data, list):
        items = [with_shapes(item) for item in data]
        return [item for item, _ in items], sum(count for _, count in items)
    if not isinstance(data, dict):
        return data, 0
    parts = {name: _part(_plain(name), item) for name, item in data.items()}
    return {name: item for name, (item, _) in parts.items()}, sum(count for _, count in parts.values())


def _part(name: str, item: Any) -> tuple[Any, int]:
    if name == "response":
        shape = _with_status(item)
    elif name in _BODIES:
        shape = shape_of(item)
    else:
        return with_shapes(item)
    return shape, int(shape != item)


def _with_status(response: Any) -> Any:
    shape = shape_of(response)
    if isinstance(response, dict):
        shape |= {name: value for name, value in response.items() if _is_status(name, value)}
    return shape


def _is_status(name: str, value: Any) -> bool:
    return _plain(name) in _STATUSES and isinstance(value, int) and 100 <= value < 600  # noqa: PLR2004 — HTTP's own


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
