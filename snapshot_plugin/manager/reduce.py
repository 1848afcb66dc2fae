"""Moved to `snapshot_plugin.live.messages`; the old name."""

from snapshot_plugin.live.messages import reduce_messages

__all__ = ["reduce_messages"]
