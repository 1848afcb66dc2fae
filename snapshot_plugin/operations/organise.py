"""Change a session's name, tags, pin or note, and fork it, recorded for undo."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

from snapshot_plugin.errors import InvalidInput, StoreUnavailable
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.references import resolve

if TYPE_CHECKING:
    from snapshot_plugin.manager.labels import Labelled
    from snapshot_plugin.model.snapshot import SessionSnapshot
    from snapshot_plugin.operations.references import Target
    from snapshot_plugin.operations.work import Work
    from snapshot_plugin.store.base import SnapshotStore, StoredSnapshot

__all__ = [
    "Forked",
    "Label",
    "SuggestedTag",
    "TagChange",
    "annotate",
    "fork",
    "free_title",
    "label_as_is",
    "pin",
    "record_new",
    "relabel",
    "rename",
    "save_new",
    "tag",
    "whole_session",
]


class Label(Document):
    """A session's label as it is now, and what was changed."""

    kind: ClassVar[str] = "label"
    session_id: str
    title: str | None
    tags: tuple[str, ...]
    pinned: bool
    note: str | None
    changed: bool
    snapshot: int
    """The snapshot that holds it."""
    live_pid: int | None
    """The process that owns the session and made the change; null if no process owns it."""
    operation: str | None
    """Its id for `asnap undo`; null if nothing changed."""
    told: str
    """What was done, in words."""


class SuggestedTag(Part):
    """A tag that the content suggests and that is not set."""

    tag: str
    about: str
    """project, language, tool, topic or place."""
    count: int
    """How often it occurs in the session."""


Change = Callable[["SessionSnapshot"], Mapping[str, Any]]
Told = Callable[["Labelled"], str]


async def rename(work: Work, store: SnapshotStore, session_id: str, name: str) -> Label:
    """Give a session a name; an empty one removes it.

    Raises:
        InvalidInput: see `checked_name`.
    """
    from snapshot_plugin.manager.labels import checked_name

    wanted = {"title": checked_name(name)}
    return await relabel(work, store, session_id, lambda _: wanted, kind="rename", told=_told_name)


async def tag(work: Work, store: SnapshotStore, session_id: str, change: TagChange) -> Label:
    """Add and remove tags."""
    return await relabel(work, store, session_id, change, kind="tag", told=_told_tags)


async def pin(work: Work, store: SnapshotStore, session_id: str, *, pinned: bool) -> Label:
    """Pin or unpin a session. No retention policy touches a pinned one."""
    return await relabel(work, store, session_id, lambda _: {"pinned": pinned}, kind="pin", told=_told_pin)


async def annotate(work: Work, store: SnapshotStore, session_id: str, note: str) -> Label:
    """Write a note on a session; an empty one removes it."""
    from snapshot_plugin.manager.labels import checked_label

    wanted = checked_label({"note": note})
    return await relabel(work, store, session_id, lambda _: wanted, kind="note", told=_told_note)


class TagChange:
    """Tags to add and remove, decided once the session is known; also collects the suggested tags."""

    def __init__(self, add: Sequence[str] = (), remove: Sequence[str] = (), *, suggested: bool = False) -> None:
        from snapshot_plugin.manager.labels import checked_label

        self._add, self._remove = checked_label({"tags": add})["tags"], frozenset(remove)
        self._suggested = suggested
        self.suggestions: tuple[SuggestedTag, ...] = ()

    def __call__(self, snapshot: SessionSnapshot) -> Mapping[str, Any]:
        """See `Change`."""
        from snapshot_plugin.model.suggest import suggest_tags

        found = [SuggestedTag(tag=each.tag, about=each.kind, count=each.count) for each in suggest_tags(snapshot)]
        add = [*self._add, *(each.tag for each in found if self._suggested)]
        self.suggestions = tuple(each for each in found if each.tag not in add)
        tags = dict.fromkeys((*snapshot.tags, *add))
        return {"tags": [tag for tag in tags if tag not in self._remove]}


async def relabel(
    work: Work, store: SnapshotStore, session_id: str, change: Change, *, kind: str, told: Told
) -> Label:
    """Change a session's label. *told* describes the change, for the user and the operation log."""
    from snapshot_plugin.manager.labels import label

    done = await label(store, session_id, change, clock=lambda: work.now)
    operation = None
    if done.changed:
        operation = await work.operations(store).record(kind=kind, summary=told(done), steps=[done.step])
    return Label(
        session_id=session_id,
        **_fields(done.after),
        changed=done.changed,
        snapshot=done.seq,
        live_pid=done.owner.pid if done.owner else None,
        operation=operation.id if operation else None,
        told=told(done),
    )


def label_as_is(stored: StoredSnapshot) -> Label:
    """Return a session's label unchanged."""
    from snapshot_plugin.live.label import label_of

    return Label(
        session_id=stored.snapshot.session_id,
        **_fields(label_of(stored.snapshot)),
        changed=False,
        snapshot=stored.ref.seq,
        live_pid=None,
        operation=None,
        told="",
    )


def _fields(label: Mapping[str, Any]) -> dict[str, Any]:
    return {**label, "tags": tuple(label["tags"])}


def whole_session(target: Target, what: str) -> str:
    """Return the id of the target session; a single snapshot has no label of its own."""
    if target.seq is not None:
        raise InvalidInput(
            f"{what} belongs to a session, not to its snapshot {target.seq}",
            session_id=target.session_id,
            hint=f"leave out @{target.seq}",
        )
    return target.session_id


# What was done, in words ---------------------------------------------------------------------------------


def _told_name(done: Labelled) -> str:
    before, after = done.before["title"], done.after["title"]
    if after is None:
        return f"{done.session_id} has no name any more; it was {before!r}" if before else "it has no name"
    return f"{done.session_id} is called {after!r}" + (
        f"; it was {before!r}" if before not in (None, after) else ""
    )


def _told_tags(done: Labelled) -> str:
    return (
        f"{done.session_id} is tagged {', '.join(done.after['tags'])}" if done.after["tags"] else "it has no tags"
    )


def _told_pin(done: Labelled) -> str:
    return f"{done.session_id} is {'pinned' if done.after['pinned'] else 'not pinned'}"


def _told_note(done: Labelled) -> str:
    if done.after["note"] is None:
        return f"there is no note on {done.session_id}" + (" any more" if done.changed else "")
    return f"{done.session_id} has {'a new' if done.changed else 'this'} note"


# Forks --------------------------------------------------------------------------------------------------------


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
    from snapshot_plugin.operations.undo import deletion

    try:
        steps = [await deletion(store, session_id) for session_id in session_ids]
        operation = await work.operations(store).record(kind=kind, summary=summary, steps=steps)
    except StoreUnavailable as error:
        return None, f"{error.message}: asnap undo will not know of it"
    return operation.id, None
