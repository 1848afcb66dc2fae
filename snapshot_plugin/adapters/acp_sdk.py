"""The old name of `snapshot_plugin.acp.sdk`."""

from __future__ import annotations

from typing import Any

from snapshot_plugin.acp import sdk

__all__ = sdk.__all__


def __getattr__(name: str) -> Any:
    try:
        return getattr(sdk, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return __all__
