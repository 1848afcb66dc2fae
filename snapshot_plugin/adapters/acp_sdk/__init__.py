"""For agents and clients written with the official SDK. Names are imported when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snapshot_plugin.adapters.acp_sdk.agent import SnapshotAgentMixin

_HOME = {
    "SnapshotAgentMixin": "snapshot_plugin.adapters.acp_sdk.agent",
}

__all__ = ["SnapshotAgentMixin"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
