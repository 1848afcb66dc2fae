"""What every operation needs besides the store: settings, environment, and time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from snapshot_plugin.manager.config import SnapshotConfig
    from snapshot_plugin.operations.undo import OperationLog
    from snapshot_plugin.store.base import SnapshotStore, Trashed

__all__ = ["Progress", "Step", "Work"]

Step = Callable[[str], None]
"""Called before each step with the name of what is being worked on."""
Progress = Callable[[str, int], AbstractContextManager[Step]]
"""Opens a report on so many steps of something: ``with progress("indexing", 12) as step: …``."""


def _silent(_what: str, _total: int) -> AbstractContextManager[Step]:
    return nullcontext(lambda _name: None)


@dataclass(frozen=True)
class Work:
    """The context of one operation."""

    config: SnapshotConfig
    environ: Mapping[str, str]
    now: datetime
    progress: Progress = field(default=_silent)

    def operations(self, store: SnapshotStore) -> OperationLog:
        """Return the operation log of *store*. An operation that changes something records it there."""
        from snapshot_plugin.manager.places import user_state_dir
        from snapshot_plugin.operations.undo import OperationLog, log_path

        keys = getattr(store, "session_keys", lambda _session_id: None)("+operations")
        # A store that several machines share keeps the log itself, so that undo works from each of them.
        place = getattr(store, "operation_lines", None) or log_path(user_state_dir(self.environ), self.name(store))
        return OperationLog(place, keys=keys)

    async def record_deletion(self, store: SnapshotStore, trashed: Sequence[Trashed]) -> None:
        """Record that a session was deleted by another program's request, so that undo knows of it."""
        steps = [{"do": "undelete", "token": each.token} for each in trashed]
        summary = f"deletion of {trashed[0].session_id}"
        await self.operations(store).record(kind="forget", summary=summary, steps=steps)

    def name(self, store: SnapshotStore) -> str:
        """The store's identity: its id if it has one, otherwise its place."""
        return getattr(store, "store_id", "") or self.config.storage_path

    @property
    def cache(self) -> Path:
        """Where the search index is."""
        from snapshot_plugin.manager.places import user_cache_dir

        return user_cache_dir(self.environ)
