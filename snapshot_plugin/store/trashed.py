"""Read a session that is in the trash, without bringing it back."""

from __future__ import annotations

from typing import cast

from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.store.base import Trashed
from snapshot_plugin.store.log import FrameLog, Segment, SessionEntry
from snapshot_plugin.store.transfer import Copied, take_out

__all__ = ["copies_in_trash"]


def copies_in_trash(log: FrameLog, entry: Trashed, keys: SessionKeys | None) -> list[Copied]:
    """Every snapshot of a session in the trash, oldest first. Raises as `take_out` does."""
    kept = cast("FrameLog", _Kept(log, entry.token))  # taking out only reads
    return take_out(kept, entry.session_id, keys)


class _Kept:
    """A `FrameReader` of one entry of the trash."""

    def __init__(self, log: FrameLog, token: str) -> None:
        self._log, self._token = log, token

    def sessions(self, only: str | None = None) -> list[SessionEntry]:
        """None: what is in the trash is not listed."""
        _ = only
        return []

    def segments(self, session_id: str) -> list[Segment]:
        """The segments of the entry."""
        _ = session_id
        return self._log.kept(self._token)

    def tail(self, session_id: str) -> bytes | None:
        """Not known without reading it."""
        _ = session_id
        return None
