"""Moved to `snapshot_plugin.live.outcome`; the old names."""

from snapshot_plugin.live.outcome import Outcome, SnapshotAllReport, Status

__all__ = ["Outcome", "SnapshotAllReport", "Status"]
