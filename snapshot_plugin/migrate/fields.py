"""Read raw JSON: null counts as absent, errors name the path of a wrong value, unknown fields are kept.

The ``take_…`` functions remove the field they return. Fields that a step leaves in a dict are those it does not
know.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from snapshot_plugin.errors import InvalidSnapshot
from snapshot_plugin.model.times import rfc3339

__all__ = ["Raw", "as_object", "keep", "lifetime", "take_list", "take_object", "utc_text"]

Raw = dict[str, Any]
"""A JSON object as ``json.loads`` returns it."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_object(value: Any, path: str) -> Raw:
    """Return *value* if it is a JSON object; raise `InvalidSnapshot` naming *path* otherwise."""
    if not isinstance(value, dict):
        raise InvalidSnapshot(f"{path} is {_kind(value)}, not an object")
    return value


def take_object(holder: Raw, name: str) -> Raw:
    """Remove and return the object called *name*; empty if it is missing or null."""
    value = holder.pop(name, None)
    return {} if value is None else as_object(value, name)


def take_list(holder: Raw, name: str) -> list[Any]:
    """Remove and return the list called *name*; empty if it is missing or null."""
    value = holder.pop(name, None)
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidSnapshot(f"{name} is {_kind(value)}, not a list")
    return value


def keep(holder: Raw, name: str, value: Any) -> None:
    """Put *value* into *holder* under *name*; underscores are added to the name if it is taken."""
    while name in holder and holder[name] != value:
        name += "_"
    holder[name] = value


def utc_text(value: Any, path: str) -> str:
    """A time in the notation of version 1 and later. Text without a zone is UTC; a number is epoch milliseconds.

    Digits beyond microseconds are truncated, as everywhere in this package.
    """
    try:
        return rfc3339(_moment(value))
    except (ValueError, TypeError, OverflowError):
        raise InvalidSnapshot(
            f"{path} is {_kind(value)} that is not a time", hint="use ISO 8601 text, or milliseconds since 1970"
        ) from None


def lifetime(created: Any, updated: Any) -> Raw:
    """``created_at`` and ``updated_at`` as text; if one is missing, the other is used for both."""
    if created is None and updated is None:
        raise InvalidSnapshot("it does not say when it was created or last changed", hint="add created_at")
    return {
        "created_at": utc_text(updated if created is None else created, "created_at"),
        "updated_at": utc_text(created if updated is None else updated, "updated_at"),
    }


def _moment(value: Any) -> datetime:
    if isinstance(value, bool):
        raise TypeError
    if isinstance(value, int | float):
        return _EPOCH + timedelta(milliseconds=value)
    moment = datetime.fromisoformat(value)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _kind(value: Any) -> str:
    names = {type(None): "null", bool: "a boolean", str: "a text", list: "a list", dict: "an object"}
    return names.get(type(value), "a number")
