"""For agents and clients written with the official SDK. Names are imported when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snapshot_plugin.adapters.acp_sdk.agent import SnapshotAgentMixin
    from snapshot_plugin.adapters.acp_sdk.client import record, resume_agent, resume_over
    from snapshot_plugin.adapters.acp_sdk.contact import Handshake, Restoration
    from snapshot_plugin.adapters.acp_sdk.provider import AcpProvider, AcpSession

_HOME = {
    "AcpProvider": "snapshot_plugin.adapters.acp_sdk.provider",
    "AcpSession": "snapshot_plugin.adapters.acp_sdk.provider",
    "Handshake": "snapshot_plugin.adapters.acp_sdk.contact",
    "Restoration": "snapshot_plugin.adapters.acp_sdk.contact",
    "record": "snapshot_plugin.adapters.acp_sdk.client",
    "resume_agent": "snapshot_plugin.adapters.acp_sdk.client",
    "resume_over": "snapshot_plugin.adapters.acp_sdk.client",
    "SnapshotAgentMixin": "snapshot_plugin.adapters.acp_sdk.agent",
}

__all__ = [
    "AcpProvider",
    "AcpSession",
    "Handshake",
    "Restoration",
    "SnapshotAgentMixin",
    "record",
    "resume_agent",
    "resume_over",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
