"""Fork a session: make a new one with the messages up to a point, recorded for undo."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from itertools import count
from typing import TYPE_CHECKING, ClassVar

from snapshot_plugin.errors import StoreUnavailable
from snapshot_plugin.operations.document import Document
from snapshot_plugin.operations.references import resolve

if TYPE_CHECKING:
    from snapshot_plugin.model.snapshot import SessionSnapshot
    from snapshot_plugin.operations.work import Work
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Forked", "fork", "free_title", "record_new", "save_new"]


class Forked(Document):
    """The new session, and where it came from."""

    kind: ClassVar[str] = "fork"
    session_id: str
    title: str | None
    messages: int
    parent_session_id: str
    parent_seq: int
    resume: str
    """The command that resumes it."""
    operation: str | None = None
    """Its id for `asnap undo`."""
    warning: str | None = None
    """Why it cannot be undone; null if it can."""


async def fork(
    work: Work, store: SnapshotStore, ref: str, *, messages: int | None = None, title: str | None = None
) -> Forked:
    """Branch the session or snapshot *ref* after its first *messages*, or after all of them.

    Raises:
        InvalidInput: *title* cannot be a name (see `checked_name`), or there are fewer messages.
    """
    from snapshot_plugin.manager.branches import branched
    from snapshot_plugin.manager.labels import checked_name
    from snapshot_plugin.model.ids import as_reference, new_id

    metas = await store.list()
    target = resolve(ref, metas)
    name = checked_name(title or "") or free_title(target.meta.title, "fork", {meta.title for meta in metas})
    new = await branched(
        store, target.session_id, as_id=new_id(), now=work.now, seq=target.seq, messages=messages, title=name
    )
    summary = f"forked {target.session_id} at message {len(new.messages)}"
    operation, warning = await save_new(work, store, new, kind="fork", summary=summary)
    return Forked(
        session_id=new.session_id,
        title=new.title,
        messages=len(new.messages),
        parent_session_id=target.session_id,
        parent_seq=new.parent.seq if new.parent else 0,
        resume=f"asnap resume {shlex.quote(as_reference(new.session_id))}",
        operation=operation,
        warning=warning,
    )


def free_title(title: str | None, what: str, taken: Collection[str | None]) -> str | None:
    """Return *title* followed by *what*, with a number if that is taken: people refer to sessions by name."""
    if not title:
        return None
    numbered = (f"{title} ({what}{f' {number}' if number > 1 else ''})" for number in count(1))
    return next(name for name in numbered if name not in taken)


async def save_new(
    work: Work, store: SnapshotStore, snapshot: SessionSnapshot, *, kind: str, summary: str
) -> tuple[str | None, str | None]:
    """Save a new session, recorded for undo. Returns the operation, or why it could not be recorded."""
    from snapshot_plugin.manager.branches import save_branch

    made = await save_branch(store, snapshot, trigger=kind)
    return await record_new(work, store, [made.session_id], kind=kind, summary=summary)


async def record_new(
    work: Work, store: SnapshotStore, session_ids: Collection[str], *, kind: str, summary: str
) -> tuple[str | None, str | None]:
    """Log that sessions were made, for undo. Returns the operation, or why it could not be recorded."""
    from snapshot_plugin.operations.log import deletion

    try:
        steps = [await deletion(store, session_id) for session_id in session_ids]
        operation = await work.operations(store).record(kind=kind, summary=summary, steps=steps)
    except StoreUnavailable as error:
        return None, f"{error.message}: asnap undo will not know of it"
    return operation.id, None
