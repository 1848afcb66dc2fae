"""What ``fork`` and ``merge`` have in common: a title that no other session has, and a record for undo."""

from __future__ import annotations

from collections.abc import Collection
from itertools import count
from typing import TYPE_CHECKING

from snapshot_plugin.cli.call import Call
from snapshot_plugin.errors import StoreUnavailable

if TYPE_CHECKING:
    from snapshot_plugin.model.snapshot import SessionSnapshot
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["free_title", "save_new"]


def free_title(title: str | None, what: str, taken: Collection[str | None]) -> str | None:
    """*title* with *what* behind it, and a number where that is taken: names are how people refer to sessions."""
    if not title:
        return None
    numbered = (f"{title} ({what}{f' {number}' if number > 1 else ''})" for number in count(1))
    return next(name for name in numbered if name not in taken)


async def save_new(call: Call, store: SnapshotStore, snapshot: SessionSnapshot, *, kind: str, summary: str) -> None:
    """Save a session that this command made, so that ``asnap undo`` takes it back."""
    from snapshot_plugin.manager.branches import save_branch

    made = await save_branch(store, snapshot, trigger=kind)
    try:
        steps = [{"do": "delete", "session_id": session_id} for session_id in made.session_ids]
        await call.operations(store).record(kind=kind, summary=summary, steps=steps)
    except StoreUnavailable as error:
        call.out.warn(f"{error.message}: asnap undo will not know of it", fg="yellow")
