"""Moved to `snapshot_plugin.live.owners`; the old names."""

from snapshot_plugin.live.owners import Ownership as Presence
from snapshot_plugin.live.owners import abandoned, sessions_of, unsaved
from snapshot_plugin.live.owners import ownerships as presences

__all__ = ["Presence", "abandoned", "presences", "sessions_of", "unsaved"]
