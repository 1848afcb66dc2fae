"""Moved to `snapshot_plugin.manager.managed`; the old name."""

from snapshot_plugin.manager.managed import ManagedSession as Claim

__all__ = ["Claim"]
