"""Where a loaded snapshot came from, which is what a save builds on. Never stored, ignored by equality."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Origin"]


class Origin(NamedTuple):
    """The frame that a save of the snapshot builds on: its session, number and id, and the store it is in."""

    session_id: str
    seq: int
    id: str
    store: str = ""
    """The store's own id; empty where it has none."""
