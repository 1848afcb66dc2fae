"""Remove secrets from data before it is written: auth headers, secret fields, and text that looks like a secret."""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.model.frozen import freeze, thaw

__all__ = ["redacted", "without_secrets"]

T = TypeVar("T")
_HEADERS = re.compile(r"(?i:(?:proxy-)?authorization|x-(?:api-key|auth-token|csrf-token|amz-security-token))")
_COOKIES = re.compile(r"(?i:set-)?(?i:cookie)")
_SCHEME = re.compile(r"(?i:bearer|basic|digest|token|apikey|negotiate|hawk|aws4-hmac-sha256)\s+\S.*", re.DOTALL)
_TOKEN = re.compile(r"(?=\D*\d)\S{8,}")
_FIELDS = re.compile(
    r"(?:.*[_-])?(?:api[_-]?key|apikey|secret|client[_-]?secret|token|access[_-]?key|private[_-]?key|passphrase"
    r"|credentials?)",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_KINDS: Final = frozenset(
    {"string", "str", "text", "number", "integer", "int", "boolean", "bool", "null", "object"}
)
"""Type names in a schema. As the value of a secret field they describe it, and are not secrets."""


def redacted(value: T) -> tuple[T, dict[str, int]]:
    """*value* without what looks like a secret, and how much was replaced, by kind."""
    from snapshot_plugin.model.redact import redact  # noqa: PLC0415 — compiles patterns for 80 ms; a start needs none

    clean, report = redact(value)
    return clean, report.counts


def without_secrets(data: Any) -> tuple[Any, dict[str, int]]:
    """*data* with secrets replaced by marks, and their count by kind. Raises `InvalidInput` if it is not JSON."""
    found: dict[str, int] = {}
    try:
        clean, counts = redacted(_stripped(thaw(freeze(data, "data")), found))
    except RecursionError:
        raise InvalidInput("the data is nested too deeply", hint="flatten it") from None
    for kind, count in counts.items():
        found[kind] = found.get(kind, 0) + count
    return clean, dict(sorted(found.items()))


def _stripped(value: Any, found: dict[str, int]) -> Any:
    if isinstance(value, list):
        return [_stripped(item, found) for item in value]
    if not isinstance(value, dict):
        return value
    clean = {name: _field(name, item, found) for name, item in value.items()}
    named = clean.get("name")  # HAR files write a header as {"name": "Cookie", "value": "…"}
    if isinstance(named, str) and "value" in clean:
        clean["value"] = _field(named, clean["value"], found)
    return clean


def _field(name: str, item: Any, found: dict[str, int]) -> Any:
    if not isinstance(item, str):
        return _stripped(item, found)
    kind = _secret_kind(name, item)
    if kind is None:
        return item
    found[kind] = found.get(kind, 0) + 1
    return f"[redacted:{kind}]"


def _secret_kind(name: str, value: str) -> str | None:
    if not value.strip() or value.startswith(("[redacted:", "<")) or value.lower() in _KINDS:
        return None
    if _COOKIES.fullmatch(name):
        return "header" if "=" in value else None
    if _HEADERS.fullmatch(name):
        return "header" if _SCHEME.fullmatch(value) or _TOKEN.fullmatch(value) else None
    return "field" if _FIELDS.fullmatch(_CAMEL.sub("_", name)) and " " not in value.strip() else None
