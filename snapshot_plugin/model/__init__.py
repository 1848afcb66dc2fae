"""WHAT a snapshot is: pure values and pure functions on them. No I/O, no clock."""

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
