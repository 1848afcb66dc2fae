"""Values: what a snapshot is, and pure functions on snapshots. No I/O, no clock.

=========================  =================================================================================
`snapshot`                 `SessionSnapshot`, `Message`, `SessionConfig`; `content`: the blocks of a message
`meta`                     `SnapshotMeta`, `SnapshotRef`: what lists and saves return
`value`, `frozen`          the base class of all values: frozen, unknown fields kept; immutable JSON
`ids`, `times`             session ids; UTC times and durations
`diff`, `align`, `splice`  what changed between two snapshots
`lineage`, `merge`         forks, the family tree, merging two branches; `three_way`: for JSON values
`policy`                   `RetentionPolicy`: which snapshots to keep
`repair` close open tool calls before a resume; the stored session is not changed
`redact`                   removing secrets; `secret_shapes`: finding them by `secret_table` and `secret_values`
`withheld`, `tool_calls`   credentials that are never stored; tool calls of other libraries
`topics` frequent words; `suggest`: tags; `statistics`: counts
=========================  =================================================================================

Promises: a value never changes, compares by content, and survives a round trip through JSON. Names are imported on
first use, so a command that needs only an id does not load pydantic.
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
    for part in ("ids", "meta", "content", "snapshot"):  # modules that import pydantic come last
        module = import_module(f"{__name__}.{part}")
        if name in module.__all__:
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
