"""``asnap undo``: take back what a command did."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.document import Document, Part
from snapshot_plugin.cli.failures import PARTIAL
from snapshot_plugin.cli.output import Column, Output
from snapshot_plugin.cli.refs import short_ids
from snapshot_plugin.cli.text import ago, plain
from snapshot_plugin.errors import (
    Conflict,
    InvalidInput,
    SessionLocked,
    SnapshotError,
    SnapshotNotFound,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from snapshot_plugin.manager.operations import Operation, OperationLog
    from snapshot_plugin.manager.undoing import TakenBack
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Undone", "command"]


class Done(Part):
    """An operation that is written down."""

    id: str
    short_id: str
    at: datetime
    operation: str
    summary: str
    state: str
    """done, undone, or purged: it cannot be taken back any more."""


class Problem(Part):
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
    problems: tuple[Problem, ...] = ()
    redo: str | None = None
    """The operation that brings it back again."""
    as_of: datetime

    @property
    def exit_code(self) -> int:
        """3 if only a part could be taken back."""
        return PARTIAL if self.problems else 0

    def show(self, out: Output) -> None:
        """See `Document`."""
        if not self.told:
            self._show_list(out)
            return
        for line in self.told:
            out.note(plain(line))
        for each in self.problems:
            out.warn(f"not taken back: {plain(each.problem)}", fg="yellow")
        if self.redo:
            out.note(f"  to do it again: {out.run(f'asnap undo {self.redo}')}")

    def _show_list(self, out: Output) -> None:
        if not self.operations:
            out.note("nothing was done that could be taken back")
            return
        columns = (
            Column("ID"), Column("AGE", right=True), Column("DONE"), Column("WHAT", flexible=True), Column("STATE")
        )  # fmt: skip
        rows = [
            (
                each.short_id,
                ago(each.at, self.as_of),
                plain(each.operation),
                plain(each.summary),
                _shown(each.state),
            )
            for each in self.operations
        ]
        out.table(columns, rows)


def _shown(state: str) -> str:
    return "" if state == "done" else state


@declare(
    "undo",
    section="Change",
    answer=Undone,
    examples=(
        ("asnap undo", "take back the last forget, rename, tag, import, …"),
        ("asnap undo --list", "what was done, newest first"),
        ("asnap undo 01jd7a", "take back that one, also an undo; or bring back what purge -n lists"),
    ),
    exits=(3, 4, 6, 7, 10),
)
@click.argument("operation", metavar="[ID]", required=False)
@click.option("--list", "only_list", is_flag=True, help="Only say what was done.")
async def command(call: Call, *, operation: str | None, only_list: bool) -> Undone:
    """Take back what a command did: forget, rename, tag, pin, note, import, fork, merge, secrets --fix.

    What asnap purge removed is gone; what was worked with since is left alone, and you are told.
    """
    async with call.store() as store:
        log = call.operations(store)
        known = await log.read()
        if only_list:
            return Undone(operations=await _listed(store, known), as_of=call.now)
        chosen = await _trashed(store, known, operation) or _chosen(known, operation)
        return await _undo(call, store, log, known, chosen)


async def _trashed(store: SnapshotStore, known: Sequence[Operation], wanted: str | None) -> Operation | None:
    """What is in the trash under that id, if it is no operation: whoever forgot it may not have written it down."""
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
            raise _refused(SnapshotNotFound("nothing was done that could be taken back", hint=""))
        return newest
    found = [each for each in known if each.id.startswith(wanted.lower())]
    if len(found) != 1:
        problem = "is no operation" if not found else f"could be {len(found)} operations"
        raise _refused(SnapshotNotFound(f"{wanted!r} {problem}", hint="operations are not sessions; see the list"))
    if found[0].undone:
        again = next((each.id for each in known if each.undoes == found[0].id and not each.undone), None)
        hint = f"to do it again: asnap undo {again}" if again else ""
        raise _refused(InvalidInput(f"{found[0].kind} {found[0].id} was taken back before", hint=hint))
    return found[0]


async def _undo(
    call: Call, store: SnapshotStore, log: OperationLog, known: Sequence[Operation], chosen: Operation
) -> Undone:
    from snapshot_plugin.manager.undoing import record_undo, take_back

    if not chosen.steps:
        raise _refused(InvalidInput(f"{chosen.kind} {chosen.id} cannot be taken back", hint=chosen.summary))
    taken = await take_back(store, chosen)
    if not any(each.is_done for each in taken):
        raise _refused(_failure(chosen, taken))
    undo = await record_undo(log, chosen, taken)
    done = _Listing([*known, chosen]).row(chosen, "undone")
    return Undone(
        operations=(done,),
        told=(f"took back {chosen.kind}: {chosen.summary}", *(f"  {each.told}" for each in taken if each.is_done)),
        problems=tuple(
            Problem(session_id=_session_of(each), code=each.code, problem=each.problem)
            for each in taken
            if not each.is_done
        ),
        redo=undo.id if undo.steps else None,
        as_of=call.now,
    )


def _failure(chosen: Operation, taken: Sequence[TakenBack]) -> SnapshotError:
    first = taken[0]
    kinds: dict[str, type[SnapshotError]] = {k.code: k for k in (SnapshotNotFound, SessionLocked, StoreUnavailable)}
    error = kinds.get(first.code, Conflict)(
        f"{chosen.kind} {chosen.id} cannot be taken back: {first.problem}", hint=chosen.summary
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
