"""Values with fields this release does not know, as a newer release would have stored them."""

from __future__ import annotations

from typing import Any, TypeVar

from snapshot_plugin.model.value import Value

V = TypeVar("V", bound=Value)


def with_unknown(value: V, fields: dict[str, Any] | None = None, **more: Any) -> V:
    """*value* with more fields, read as stored data is read: code cannot make one, as it may be a typo."""
    return type(value).model_validate({**value.__dict__, **(value.model_extra or {}), **(fields or {}), **more})
