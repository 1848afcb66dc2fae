"""Immutable JSON.

A store recognises an unchanged value by identity. That is only safe when the value cannot be edited in
place, so every dict and list that enters a snapshot is copied once into `FrozenDict` and `FrozenList`. They
compare equal to, and serialise as, the plain kind. Values that JSON cannot carry are refused on the way in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

from snapshot_plugin.errors import InvalidSnapshot

__all__ = ["MAX_DEPTH", "MAX_INT", "FrozenDict", "FrozenList", "check_depth", "freeze", "thaw"]

MAX_DEPTH = 128
"""How deeply new values may be nested. Stored values may be deeper: earlier releases had no such limit."""
MAX_INT = 10**4300
"""Integers of this size or larger cannot be read back: Python and JSON parsers refuse more than 4300 digits."""


def _refuse(self: object, *_args: object, **_kwargs: object) -> NoReturn:
    kind = type(self).__name__
    raise TypeError(f"{kind} cannot be changed: a snapshot is a value; build a new one with evolve()")


class FrozenDict(dict[str, Any]):
    """A dict that refuses every change."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self))

    def __reduce__(self) -> tuple[type[FrozenDict], tuple[dict[str, Any]]]:
        return FrozenDict, (dict(self),)


class FrozenList(list[Any]):
    """A list that refuses every change."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(len(self))

    def __reduce__(self) -> tuple[type[FrozenList], tuple[list[Any]]]:
        return FrozenList, (list(self),)


_SAFE = frozenset({type(None), str, bool, FrozenDict, FrozenList})
_PLAIN: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
)
"""The conversion of a subclass to plain JSON: ``str()`` of an enum member would give its name, not its value."""


def freeze(value: Any, path: str = "value") -> Any:
    """Return *value* as immutable JSON; a frozen value is returned unchanged.

    Raises:
        InvalidSnapshot: naming the path of a NaN, an infinity, an integer of more than 4300 digits, a key that is
            not a string, or an object that is not JSON; or because the value is nested too deeply, as one that
            contains itself is.
    """
    try:
        return _freeze(value, path)
    except RecursionError:
        raise InvalidSnapshot(f"{path} is nested too deeply, or contains itself", hint="flatten it") from None


def _freeze(value: Any, path: str) -> Any:
    kind = type(value)
    if kind in _SAFE:
        return value
    if kind is int:
        if not -MAX_INT < value < MAX_INT:
            raise InvalidSnapshot(f"{path} is an integer of more than 4300 digits", hint="store it as a string")
        return value
    if kind is float:
        if not math.isfinite(value):
            raise InvalidSnapshot(f"{path} is {value}, which JSON cannot carry", hint="use null or a string")
        return value
    if isinstance(value, dict):
        return FrozenDict(
            {
                (k if type(k) is str else _key(k, path)): v if type(v) in _SAFE else _freeze(v, f"{path}.{k}")
                for k, v in value.items()
            }
        )
    if isinstance(value, list | tuple):
        return FrozenList([v if type(v) in _SAFE else _freeze(v, f"{path}[{i}]") for i, v in enumerate(value)])
    for base, plain in _PLAIN:
        if isinstance(value, base):
            return _freeze(plain(value), path)
    raise InvalidSnapshot(f"{path} is a {kind.__name__}, which is not JSON", hint="convert it to JSON values")


def _key(key: object, path: str) -> str:
    if not isinstance(key, str):
        raise InvalidSnapshot(f"{path} has the key {key!r}, which is not a string", hint="use string keys")
    return str.__str__(key)


def check_depth(value: Any, path: str) -> None:
    """Raise `InvalidSnapshot` if JSON in *value* is nested more than `MAX_DEPTH` deep, or contains itself.

    Frozen values are not checked again: they were checked when they were made, or come from a store.
    """
    if _is_deeper(value, MAX_DEPTH):
        raise InvalidSnapshot(f"{path} is nested more than {MAX_DEPTH} deep", hint="flatten it")


def _is_deeper(value: Any, levels: int) -> bool:
    if isinstance(value, FrozenDict | FrozenList) or not isinstance(value, dict | list | tuple):
        return False
    if levels == 0:
        return True
    for item in value.values() if isinstance(value, dict) else value:
        if type(item) not in _SAFE and _is_deeper(item, levels - 1):
            return True
    return False


def thaw(value: Any) -> Any:
    """Return a plain, editable deep copy of a frozen value."""
    if isinstance(value, dict):
        return {k: thaw(v) for k, v in value.items()}
    if isinstance(value, list):
        return [thaw(v) for v in value]
    return value
