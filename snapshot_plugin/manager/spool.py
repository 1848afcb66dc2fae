"""Moved to `snapshot_plugin.live.spool`; the old names."""

from snapshot_plugin.live.spool import Record as SpoolRecord
from snapshot_plugin.live.spool import Spool, SpoolContents, read_spool, set_aside

__all__ = ["Spool", "SpoolContents", "SpoolRecord", "read_spool", "set_aside"]
