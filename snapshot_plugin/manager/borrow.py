"""Moved to `snapshot_plugin.live.exclusive`; the old names."""

from snapshot_plugin.live.exclusive import held_alone, must_be_recovered
from snapshot_plugin.live.exclusive import leased_or_owned as borrowed

__all__ = ["borrowed", "held_alone", "must_be_recovered"]
