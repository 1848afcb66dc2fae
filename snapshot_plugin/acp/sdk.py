"""Public names for agents and clients that use the official SDK. Each is imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snapshot_plugin.acp.hosts.sdk_agent import SnapshotAgentMixin
    from snapshot_plugin.acp.hosts.sdk_client import Handshake, Restoration, record
    from snapshot_plugin.acp.hosts.sdk_provider import AcpProvider, AcpSession, resume_agent, resume_over

_HOME = {
    "AcpProvider": "sdk_provider",
    "AcpSession": "sdk_provider",
    "Handshake": "sdk_client",
    "Restoration": "sdk_client",
    "SnapshotAgentMixin": "sdk_agent",
    "record": "sdk_client",
    "resume_agent": "sdk_provider",
    "resume_over": "sdk_provider",
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
    return getattr(import_module(f"snapshot_plugin.acp.hosts.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
