"""Taking back what was done: the list of operations, the way back of each, and the trash."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from snapshot_plugin.errors import (
    Conflict,
    InvalidInput,
    SessionLocked,
    SnapshotError,
    SnapshotNotFound,
    StoreUnavailable,
)
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.failures import PARTIAL
from snapshot_plugin.operations.references import short_ids

if TYPE_CHECKING:
    from snapshot_plugin.manager.operations import Operation, OperationLog
    from snapshot_plugin.manager.undoing import TakenBack
    from snapshot_plugin.operations.work import Work
    from snapshot_plugin.store.base import SnapshotStore, Trashed

__all__ = ["Discarded", "Purged", "Undone", "discarded", "in_the_trash", "operations", "undo"]


class Done(Part):
    """An operation that is written down."""

    id: str
    short_id: str
    at: datetime
    operation: str
    summary: str
    state: str
    """done, undone, or purged: it cannot be taken back any more."""


class UndoProblem(Part):
    """A part of it that could not be taken back."""

    session_id: str | None
    code: str
    problem: str


class Undone(Document):
    """What was taken back; with --list, what could be."""

    kind: ClassVar[str] = "undo"
    rows: ClassVar[str] = "operations"
    operations: tuple[Done, ...]
    """The operation that was taken back; or those there are, newest first."""
    told: tuple[str, ...] = ()
    """What was done, in words."""
    problems: tuple[UndoProblem, ...] = ()
    redo: str | None = None
    """The operation that brings it back again."""
    as_of: datetime

    @property
    def exit_code(self) -> int:
        """3 if only a part could be taken back."""
        return PARTIAL if self.problems else 0


async def operations(work: Work, store: SnapshotStore) -> Undone:
    """What was done to the store by this user, newest first."""
    known = await work.operations(store).read()
    return Undone(operations=await _listed(store, known), as_of=work.now)


async def undo(work: Work, store: SnapshotStore, wanted: str | None = None) -> Undone:
    """Take back the operation whose id begins with *wanted*, something in the trash, or the newest operation."""
    log = work.operations(store)
    known = await log.read()
    chosen = await _trashed(store, known, wanted) or _chosen(known, wanted)
    return await _undo(work, store, log, known, chosen)


async def _trashed(store: SnapshotStore, known: Sequence[Operation], wanted: str | None) -> Operation | None:
    """The trash entry with that id, if it is not an operation: the forget may not have been logged."""
    from snapshot_plugin.manager.operations import Operation

    if not wanted or any(each.id.startswith(wanted.lower()) for each in known):
        return None
    found = [each for each in await store.trash() if each.token.startswith(wanted.lower())]
    if len(found) != 1:
        return None
    [entry] = found
    there = {meta.session_id for meta in await store.list()}
    step: dict[str, str] = {"do": "undelete", "token": entry.token}
    if entry.session_id in there:
        step = {"do": "restore", "session_id": entry.session_id, "token": entry.token}
    return Operation(
        id=entry.token, at=entry.deleted_at, kind="forget", summary=entry.session_id, steps=({**step},)
    )


def _chosen(known: Sequence[Operation], wanted: str | None) -> Operation:
    from snapshot_plugin.manager.operations import newest_to_undo

    if wanted is None:
        newest = newest_to_undo(known)
        if newest is None:
            raise _refused(SnapshotNotFound("there is nothing to undo", hint=""))
        return newest
    found = [each for each in known if each.id.startswith(wanted.lower())]
    if len(found) != 1:
        problem = "is no operation" if not found else f"could be {len(found)} operations"
        raise _refused(SnapshotNotFound(f"{wanted!r} {problem}", hint="operations are not sessions; see the list"))
    if found[0].undone:
        again = next((each.id for each in known if each.undoes == found[0].id and not each.undone), None)
        hint = f"to do it again: asnap undo {again}" if again else ""
        raise _refused(InvalidInput(f"{found[0].kind} {found[0].id} was undone before", hint=hint))
    return found[0]


async def _undo(
    work: Work, store: SnapshotStore, log: OperationLog, known: Sequence[Operation], chosen: Operation
) -> Undone:
    from snapshot_plugin.manager.undoing import record_undo, take_back

    if not chosen.steps:
        raise _refused(InvalidInput(f"{chosen.kind} {chosen.id} cannot be undone", hint=chosen.summary))
    taken = await take_back(store, chosen)
    if not any(each.is_done for each in taken):
        raise _refused(_failure(chosen, taken))
    undo = await record_undo(log, chosen, taken)
    done = _Listing([*known, chosen]).row(chosen, "undone")
    return Undone(
        operations=(done,),
        told=(f"undid {chosen.kind}: {chosen.summary}", *(f"  {each.told}" for each in taken if each.is_done)),
        problems=tuple(
            UndoProblem(session_id=_session_of(each), code=each.code, problem=each.problem)
            for each in taken
            if not each.is_done
        ),
        redo=undo.id if undo.steps else None,
        as_of=work.now,
    )


def _failure(chosen: Operation, taken: Sequence[TakenBack]) -> SnapshotError:
    first = taken[0]
    kinds: dict[str, type[SnapshotError]] = {k.code: k for k in (SnapshotNotFound, SessionLocked, StoreUnavailable)}
    error = kinds.get(first.code, Conflict)(
        f"{chosen.kind} {chosen.id} cannot be undone: {first.problem}", hint=chosen.summary
    )
    error.session_id = _session_of(first)
    return error


def _session_of(each: TakenBack) -> str | None:
    found = each.step.get("session_id")
    return found if isinstance(found, str) else None


def _refused(error: SnapshotError) -> SnapshotError:
    error.run = "asnap undo --list"
    return error


async def _listed(store: SnapshotStore, known: Sequence[Operation]) -> tuple[Done, ...]:
    from snapshot_plugin.manager.undoing import is_purged

    tokens = [each.token for each in await store.trash()]
    listing = _Listing(known)
    return tuple(
        listing.row(each, "undone" if each.undone else "purged" if is_purged(each, tokens) else "done")
        for each in known
    )


class _Listing:
    def __init__(self, known: Sequence[Operation]) -> None:
        self._short = short_ids([each.id for each in known])

    def row(self, each: Operation, state: str) -> Done:
        return Done(
            id=each.id,
            short_id=self._short[each.id],
            at=each.at,
            operation=each.kind,
            summary=each.summary,
            state=state,
        )


class Discarded(Part):
    """Something in the trash."""

    session_id: str
    token: str
    """What `asnap undo` calls it."""
    deleted_at: datetime
    size_bytes: int
    is_copy: bool
    """Whether the session is still there: then this is a copy from before snapshots were dropped."""


class Purged(Document):
    """What was removed for ever, or would be."""

    kind: ClassVar[str] = "purge"
    rows: ClassVar[str] = "removed"
    removed: tuple[Discarded, ...]
    size_bytes: int
    kept: int
    """How many are not old enough, and stay."""
    dry_run: bool
    as_of: datetime


async def in_the_trash(work: Work, store: SnapshotStore) -> Purged:
    """What a purge would remove for ever. Changes nothing."""
    trash = await store.trash()
    return await discarded(work, store, trash, kept=0, dry_run=True)


async def discarded(
    work: Work, store: SnapshotStore, entries: Sequence[Trashed], *, kept: int, dry_run: bool
) -> Purged:
    """What is told of *entries* of the trash."""
    there = {meta.session_id for meta in await store.list()}
    return Purged(
        removed=tuple(_discarded(each, there) for each in entries),
        size_bytes=sum(each.size_bytes for each in entries),
        kept=kept,
        dry_run=dry_run,
        as_of=work.now,
    )


def _discarded(each: Trashed, there: set[str]) -> Discarded:
    return Discarded(
        session_id=each.session_id,
        token=each.token,
        deleted_at=each.deleted_at,
        size_bytes=each.size_bytes,
        is_copy=each.session_id in there,
    )
