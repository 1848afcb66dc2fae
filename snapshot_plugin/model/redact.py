"""Remove secrets from text, JSON and snapshots.

Only precise shapes count (`secret_shapes`), because redacting harmless text damages a transcript. A random value
counts as a secret only after a name that says so; commit ids, UUIDs, signatures, images and audio are kept.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from snapshot_plugin.errors import InvalidSnapshot
from snapshot_plugin.model.secret_shapes import (
    RULES,
    SecretRule,
    assigned_kind,
    known_name,
    may_hold_secrets,
    redact_text,
)
from snapshot_plugin.model.value import Value

__all__ = ["Redaction", "RedactionReport", "may_name_a_secret", "redact"]

T = TypeVar("T")

_IDENTITIES = frozenset({"session_id", "agent_session_id", "tool_call_id"})
_OPAQUE = frozenset({"blob", "signature", "thoughtSignature", "thought_signature", "encrypted_content"})
_HEADERS = frozenset({"authorization", "proxy-authorization"})


class Redaction(Value):
    """A place where a secret was removed; never the secret itself."""

    kind: str
    path: str
    count: int = 1


class RedactionReport(Value):
    """What `redact` removed: kinds, paths and counts."""

    redactions: tuple[Redaction, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """How many secrets of each kind there were."""
        counts: Counter[str] = Counter()
        for redaction in self.redactions:
            counts[redaction.kind] += redaction.count
        return dict(sorted(counts.items()))

    @property
    def is_empty(self) -> bool:
        """Whether nothing was removed."""
        return not self.redactions


def redact(value: T, *, rules: Sequence[SecretRule] = RULES) -> tuple[T, RedactionReport]:
    """Replace every secret in *value* with ``[redacted:kind]``; returns the copy, and a report without the secrets.

    *value* is text, JSON, or any value of the model. It is never changed; parts without secrets stay the same
    objects, so saving a redacted session writes only the changed parts. Redaction is idempotent. The ids of
    sessions and tool calls are kept.

    Args:
        value: what to search.
        rules: the rules to apply to text; ``(*RULES, mine)`` adds your own.

    Raises:
        InvalidSnapshot: *value* is nested too deeply.
    """
    walk = _RedactionWalk(rules)
    try:
        redacted = walk.value(value, None)
    except RecursionError:
        raise InvalidSnapshot("the value is nested too deeply to be searched", hint="flatten it") from None
    return redacted, RedactionReport(redactions=tuple(walk.redactions))


@lru_cache(maxsize=4096)
def may_name_a_secret(name: str) -> bool:
    """Return False only if no value of this *name* can be a secret because of the name."""
    return name == "value" or name.lower() in _HEADERS or known_name(name) is not None


_Path = tuple[Any, str | int] | None
"""The path to a value as a linked list: the parent's path, and the name or index in the parent."""


class _RedactionWalk:
    def __init__(self, rules: Sequence[SecretRule]) -> None:
        self._rules = rules
        self.redactions: list[Redaction] = []

    def value(self, value: Any, path: _Path) -> Any:
        if isinstance(value, str):
            return self._text(value, path)
        if isinstance(value, Value):
            return self._model(value, path)
        if isinstance(value, dict):
            return self._object(value, path)
        if isinstance(value, list | tuple):
            items = [self.value(item, (path, index)) for index, item in enumerate(value)]
            changed = any(new is not old for new, old in zip(items, value, strict=True))
            return type(value)(items) if changed else value
        return value

    def _text(self, text: str, path: _Path) -> str:
        if self._rules is RULES and not may_hold_secrets(text):  # true of most text
            return text
        redacted, found = redact_text(text, self._rules)
        self._report(found, path)
        return redacted if found else text

    def _model(self, model: Value, path: _Path) -> Value:
        fields = {name: item for name, item in model.__dict__.items() if name not in _IDENTITIES}
        fields |= model.model_extra or {}
        changes = {}
        for name, old in fields.items():
            field = type(model).model_fields.get(name)
            new = self._entry(fields, name, (path, (field and field.alias) or name))
            if new is not old:
                changes[name] = new
        return model.evolve(**changes) if changes else model

    def _object(self, items: dict[str, Any], path: _Path) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name in items:
            out[_unused(self._text(name, path), out)] = self._entry(items, name, (path, name))
        changed = any(old != new or items[old] is not out[new] for old, new in zip(items, out, strict=True))
        return type(items)(out) if changed else items

    def _entry(self, items: Mapping[str, Any], name: str, here: _Path) -> Any:
        item = items[name]
        if name in _OPAQUE or (name == "data" and items.get("type") in ("image", "audio", "base64")):
            return item
        if not isinstance(item, str):
            return self.value(item, here)
        kind = assigned_kind(name, item)
        if name == "value" and not kind and isinstance(named := items.get("name", items.get("key")), str):
            kind = assigned_kind(named, item)  # a variable or a header: {"name": "TOKEN", "value": "…"}
        if kind:
            self._report(Counter({kind: 1}), here)
            return f"[redacted:{kind}]"
        if name.lower() in _HEADERS:
            as_header = f"authorization: {item}"
            redacted = self._text(as_header, here)
            return item if redacted is as_header else redacted.removeprefix("authorization: ")
        return self._text(item, here)

    def _report(self, found: Mapping[str, int], path: _Path) -> None:
        for kind, count in found.items():
            self.redactions.append(Redaction(kind=kind, path=_shown(path), count=count))


def _shown(path: _Path) -> str:
    parts: list[str] = []
    while path is not None:
        path, name = path
        if isinstance(name, str):
            name = redact_text(name)[0]
            parts.append(f".{name}" if name.isidentifier() else f"[{json.dumps(name)}]")
        else:
            parts.append(f"[{name}]")
    return "$" + "".join(reversed(parts))


def _unused(name: str, taken: Mapping[str, Any]) -> str:
    """A free name for an entry whose name was redacted, so that two entries do not collide."""
    number = 2
    free = name
    while free in taken:
        free, number = f"{name} {number}", number + 1
    return free
