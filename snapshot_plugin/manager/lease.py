"""Moved to `snapshot_plugin.live.lease`; the old names."""

from snapshot_plugin.live.lease import Lease, Owner, ended_without_stop, owner_of

__all__ = ["Lease", "Owner", "ended_without_stop", "owner_of"]
