"""WHAT a snapshot is: pure values and pure functions on them. No I/O, no clock.

Names are imported when they are first used: who needs an id does not wait for pydantic.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snapshot_plugin.model.content import (
        AudioBlock,
        Block,
        ImageBlock,
        ResourceBlock,
        ResourceLinkBlock,
        TextBlock,
        ThoughtBlock,
        ToolCallBlock,
        UnknownBlock,
        parse_block,
    )
    from snapshot_plugin.model.ids import check_session_id, new_id
    from snapshot_plugin.model.meta import SnapshotMeta, SnapshotRef
    from snapshot_plugin.model.snapshot import (
        CURRENT_VERSION,
        AgentInfo,
        McpServer,
        Message,
        Metrics,
        Parent,
        PlanEntry,
        Role,
        SessionConfig,
        SessionSnapshot,
    )

__all__ = [
    "CURRENT_VERSION",
    "AgentInfo",
    "AudioBlock",
    "Block",
    "ImageBlock",
    "McpServer",
    "Message",
    "Metrics",
    "Parent",
    "PlanEntry",
    "ResourceBlock",
    "ResourceLinkBlock",
    "Role",
    "SessionConfig",
    "SessionSnapshot",
    "SnapshotMeta",
    "SnapshotRef",
    "TextBlock",
    "ThoughtBlock",
    "ToolCallBlock",
    "UnknownBlock",
    "check_session_id",
    "new_id",
    "parse_block",
]


def __getattr__(name: str) -> Any:
    for part in ("ids", "meta", "content", "snapshot"):  # what brings pydantic last
        module = import_module(f"{__name__}.{part}")
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
