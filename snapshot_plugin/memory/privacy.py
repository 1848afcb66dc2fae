"""What must not reach the disk is taken out first: auth headers, and everything that has the shape of a secret."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.redact import redact

__all__ = ["without_secrets"]

_CREDENTIALS = re.compile(r"(?i:(?:proxy-)?authorization|x-(?:api-key|auth-token|csrf-token|amz-security-token))")
_COOKIES = re.compile(r"(?i:set-)?(?i:cookie)")
_SCHEME = re.compile(r"(?i:bearer|basic|digest|token|apikey|negotiate|hawk|aws4-hmac-sha256)\s+\S.*", re.DOTALL)
_TOKEN = re.compile(r"(?=\D*\d)\S{8,}")
_MARK = "[redacted:header]"


def without_secrets(data: Any) -> tuple[Any, dict[str, int]]:
    """*data* with marks in the place of secrets, and how many of each kind there were. *data* is not changed."""
    stripped = thaw(data)
    headers = _strip(stripped)
    clean, report = redact(stripped)
    counts = report.counts | ({"header": headers} if headers else {})
    return clean, dict(sorted(counts.items()))


def _strip(value: Any) -> int:
    """Take auth headers out of a plain JSON value, in place; return how many."""
    if isinstance(value, list):
        return sum(_strip(item) for item in value)
    if not isinstance(value, dict):
        return 0
    count: Counter[str] = Counter()
    for name, item in value.items():
        if _is_credential(name, item):
            value[name] = _MARK
            count["header"] += 1
        else:
            count["header"] += _strip(item)
    return count["header"] + _strip_pair(value)


def _strip_pair(value: dict[str, Any]) -> int:
    """A header as HAR files have it: ``{"name": "Cookie", "value": "…"}``."""
    name = value.get("name")
    if isinstance(name, str) and _is_credential(name, value.get("value")):
        value["value"] = _MARK
        return 1
    return 0


def _is_credential(name: str, value: Any) -> bool:
    if not isinstance(value, str) or value.startswith("[redacted:"):
        return False
    if _COOKIES.fullmatch(name):
        return "=" in value
    return bool(_CREDENTIALS.fullmatch(name) and (_SCHEME.fullmatch(value) or _TOKEN.fullmatch(value)))
