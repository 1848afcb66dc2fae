"""Python values as JSON, and back, without pickles: objects are made by calling their classes.

Collections, dates and numbers of the standard library are known. Other classes have to be allowed; their objects
are made by the constructor (dataclasses, enums), by ``from_dict`` or by ``model_validate``. A value is rebuilt and
compared before it is saved, and refused if it would not come back.
"""

from __future__ import annotations

import base64
import sys
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic import BaseModel

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.frameworks.conversations import is_exact_json

__all__ = ["ValueCodec", "key_of"]

_KIND = "$"
"""The field of a stored object that says what it stands for. Dicts that have it are stored as pairs."""

_TEXTS: dict[type, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    bytes: (lambda value: base64.b64encode(value).decode(), base64.b64decode),
    datetime: (datetime.isoformat, datetime.fromisoformat),
    date: (date.isoformat, date.fromisoformat),
    time: (time.isoformat, time.fromisoformat),
    uuid.UUID: (str, uuid.UUID),
    Decimal: (str, Decimal),
    int: (str, int),
    float: (repr, float),
}
"""Values that are stored as text; numbers only where JSON would change them."""
_ITEMS: dict[type, Callable[[list[Any]], Any]] = {
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    dict: dict,
    OrderedDict: OrderedDict,
    Counter: lambda pairs: Counter(dict(pairs)),
    deque: lambda given: deque(given[1:], given[0]),
    defaultdict: lambda given: defaultdict(given[0], given[1:]),
    timedelta: lambda parts: timedelta(*parts),
}
"""Collections that are stored as a list: of what `_items` says."""
_BY_NAME = {kind.__name__: kind for kind in (*_TEXTS, *_ITEMS)}
_PLAIN_TYPES = {each.__name__: each for each in (*_TEXTS, *_ITEMS, str, bool, list, type(None), object)}


def key_of(cls: type) -> str:
    """How a class is named: ``module:qualname``."""
    return f"{cls.__module__}:{cls.__qualname__}"


class ValueCodec:
    """Turns values into JSON and back.

    Args:
        prefixes: beginnings of module names whose classes are allowed.
        allowed: further classes, as ``module:qualname``; called for each use.
        special: for classes with a form of their own: the keyword arguments of their constructor.
    """

    def __init__(
        self,
        prefixes: tuple[str, ...],
        allowed: Callable[[], Iterable[str]],
        special: Mapping[type, Callable[[Any], dict[str, Any]]],
    ) -> None:
        self._prefixes, self._allowed, self._special = prefixes, allowed, special

    def packed(self, value: Any) -> Any:
        """*value* as JSON.

        Raises:
            InvalidInput: it would not come back: a class that is not allowed, or that cannot be rebuilt.
        """
        try:
            stored = self._pack(value)
        except RecursionError:
            raise InvalidInput("a value contains itself, or is nested too deeply for JSON") from None
        if not is_exact_json(stored):
            raise InvalidInput("a value is nested too deeply for JSON")
        if self._pack(self.unpacked(stored)) != stored:
            raise InvalidInput(f"a {type(value).__name__} would not come back as it is")
        return stored

    # Writing ---------------------------------------------------------------------------------------------

    def _pack(self, value: Any) -> Any:
        kind = type(value)
        if kind in (str, bool, int, float, type(None)) and is_exact_json(value):
            return value
        if kind is list:
            return [self._pack(each) for each in value]
        if kind is dict and all(type(name) is str for name in value) and _KIND not in value:
            return {name: self._pack(each) for name, each in value.items()}
        return self._pack_special(value, kind)

    def _pack_special(self, value: Any, kind: type) -> dict[str, Any]:
        if kind in _TEXTS:
            return {_KIND: kind.__name__, "text": _TEXTS[kind][0](value)}
        if kind in _ITEMS:
            return {_KIND: kind.__name__, "items": [self._pack(each) for each in _items(value)]}
        if isinstance(value, type):
            plain = _PLAIN_TYPES.get(value.__name__) is value
            return {_KIND: "type", "name": value.__name__ if plain else self._named(value)}
        return self._pack_object(value, self._named(kind))

    def _pack_object(self, value: Any, name: str) -> dict[str, Any]:
        kind = type(value)
        if isinstance(value, Enum):
            return {_KIND: "enum", "class": name, "member": value.name}
        if kind in self._special:
            return {_KIND: "made", "class": name, "with": self._pack(self._special[kind](value))}
        if is_dataclass(value):
            given = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
            rest = {each.name: getattr(value, each.name) for each in fields(value) if not each.init}
            stored = {_KIND: "made", "class": name, "with": self._pack(given)}
            return {**stored, "rest": self._pack(rest)} if rest else stored  # not given back, but compared
        if isinstance(value, BaseModel):
            return {_KIND: "model", "class": name, "data": self._pack(value.model_dump(mode="json"))}
        if callable(getattr(value, "to_dict", None)) and callable(getattr(kind, "from_dict", None)):
            return {_KIND: "dict of", "class": name, "data": self._pack(value.to_dict())}
        raise InvalidInput(
            f"a {name} cannot be stored without pickling it", hint="use dataclasses, or give it to_dict"
        )

    def _named(self, cls: type) -> str:
        name = key_of(cls)
        self._check(name)
        return name

    def _check(self, name: str) -> None:
        if not name.startswith(self._prefixes) and name not in set(self._allowed()):
            raise InvalidInput(
                f"the class {name} is not allowed in a checkpoint", hint="name it as an allowed type"
            )

    # Reading ---------------------------------------------------------------------------------------------

    def unpacked(self, stored: Any) -> Any:
        """The value that was packed.

        Raises:
            InvalidInput: it names a class that is not allowed, or is damaged.
        """
        if isinstance(stored, list | tuple):
            return [self.unpacked(each) for each in stored]
        if not isinstance(stored, dict):
            return stored
        kind = stored.get(_KIND)
        if kind is None:
            return {name: self.unpacked(each) for name, each in stored.items()}
        try:
            return self._made(kind, stored)
        except InvalidInput:
            raise
        except Exception as error:
            raise InvalidInput(f"a stored {stored.get('class', kind)} cannot be made again: {error}") from error

    def _made(self, kind: str, stored: Mapping[str, Any]) -> Any:
        if "text" in stored:
            return _TEXTS[_BY_NAME[kind]][1](stored["text"])
        if "items" in stored:
            return _ITEMS[_BY_NAME[kind]](self.unpacked(stored["items"]))
        if kind == "type":
            return _PLAIN_TYPES.get(stored["name"]) or self._class(stored["name"])
        return self._made_object(kind, self._class(stored["class"]), stored)

    def _made_object(self, kind: str, cls: type[Any], stored: Mapping[str, Any]) -> Any:
        if kind == "enum" and issubclass(cls, Enum):
            return cls[stored["member"]]
        if kind == "made" and (is_dataclass(cls) or cls in self._special):
            return cls(**self.unpacked(stored["with"]))
        if kind == "model" and issubclass(cls, BaseModel):
            return cls.model_validate(self.unpacked(stored["data"]))
        if kind == "dict of" and callable(getattr(cls, "to_dict", None)):
            return cls.from_dict(self.unpacked(stored["data"]))  # type: ignore[attr-defined]  # checked when packed
        raise InvalidInput(f"{stored['class']} cannot be made from a stored {kind!r}")

    def _class(self, name: str) -> type[Any]:
        self._check(name)
        module, _, path = name.partition(":")
        found: Any = sys.modules.get(module)  # stored data must not decide what is imported
        for part in path.split("."):
            found = getattr(found, part, None)
        if not isinstance(found, type) or key_of(found) != name:
            raise InvalidInput(f"there is no class {name}", hint=f"import {module} first")
        return found


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, timedelta):
        return (value.days, value.seconds, value.microseconds)
    if isinstance(value, deque):
        return (value.maxlen, *value)
    if isinstance(value, dict):
        pairs = [list(pair) for pair in value.items()]
        return [value.default_factory, *pairs] if isinstance(value, defaultdict) else pairs
    return sorted(value, key=repr) if isinstance(value, set | frozenset) else value
