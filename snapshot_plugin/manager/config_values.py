"""Parse one setting from code, a variable or a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.model.times import span_of
from snapshot_plugin.store import is_url

if TYPE_CHECKING:
    from snapshot_plugin.model.policy import RetentionPolicy

__all__ = ["count", "lifetime", "limit", "place", "policy", "seconds", "switch"]

_LONGEST = 1e9
_SWITCH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}

Reader = Callable[[Any], Any]


def seconds(value: Any) -> float:
    """A positive duration: a number of seconds, a timedelta, or text such as ``90`` or ``5m``."""
    if isinstance(value, str):
        value = span_of(value) or value
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"{value!r} is not a duration", hint="use seconds, or text like 30s, 5m, 2h")
    if not 0 < value <= _LONGEST:  # also false for NaN
        raise InvalidInput(
            f"{value!r} is not a duration: it must be more than zero", hint="use 0.1 or more seconds"
        )
    return float(value)


def switch(value: Any) -> bool:
    """A boolean, or text such as ``on`` and ``off``."""
    if isinstance(value, str):
        value = _SWITCH.get(value.strip().lower(), value)
    if not isinstance(value, bool):
        raise InvalidInput(f"{value!r} is neither on nor off", hint="use true or false")
    return value


def count(value: Any) -> int:
    """A whole number, at least one."""
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInput(f"{value!r} is not a count", hint="use a whole number, 1 or more")
    return value


def limit(value: Any) -> int | None:
    """A whole number of at least 1; None, or text such as ``none``, means no limit."""
    return None if value in (None, "", "none") else count(value)


def lifetime(value: Any) -> float | None:
    """A duration as in `seconds`; None, or text such as ``none``, means for ever."""
    return None if value in (None, "", "none") else seconds(value)


def place(value: Any) -> str:
    """A directory, in which ``~`` is expanded, or the URL of a store."""
    if not isinstance(value, str | PathLike) or not fspath(value):
        raise InvalidInput(f"{value!r} names no place", hint="use a directory or a store URL")
    text = str(fspath(value))
    if text.startswith("file:/"):
        from snapshot_plugin.store.filesystem import path_of  # noqa: PLC0415 — most places are directories

        return path_of(text)
    return text if is_url(text) else str(Path(text).expanduser())


def policy(value: Any) -> RetentionPolicy | None:
    """A policy, a table of its fields, or the same as JSON text; None means that the count applies."""
    if isinstance(value, str):
        value = _json(value)
    if value is None:
        return None

    from snapshot_plugin.model.policy import RetentionPolicy  # noqa: PLC0415 — most settings name none

    if isinstance(value, RetentionPolicy):
        return value
    if not isinstance(value, Mapping):
        raise InvalidInput(
            f"{value!r} is not a retention policy", hint="name its fields, for example keep_last = 10"
        )
    return RetentionPolicy(**value)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"this is not a retention policy: {error}", hint='as {"keep_last": 10}') from error
