"""Whole sessions between stores and files, each with the memory that belongs to it. What is there already wins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import anyio

from snapshot_plugin.adapters.exchange.edits import moved, renamed
from snapshot_plugin.errors import Conflict, Damaged, InvalidInput, InvalidSnapshotVersion, SnapshotNotFound
from snapshot_plugin.manager.working_memory import memory_id
from snapshot_plugin.model.ids import check_session_id, new_id
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import SnapshotStore, Trashed
from snapshot_plugin.store.memory import MemoryStore
from snapshot_plugin.store.transfer import Copied, verified

__all__ = ["Arrival", "Carrier", "as_copies", "bring", "carrier", "collect"]

Copies = Sequence[Copied]
Outcome = Literal["imported", "renamed", "already_there"]


@runtime_checkable
class Carrier(Protocol):
    """A store that gives and takes whole sessions, with every snapshot."""

    async def take_out(self, session_id: str) -> Copies:
        """See `LogStore.take_out`."""

    async def put_in(self, session_id: str, copies: Copies) -> None:
        """See `LogStore.put_in`."""

    async def delete(self, session_id: str) -> Trashed:
        """See `SnapshotStore.delete`."""


class Arrival(NamedTuple):
    """What became of one session."""

    outcome: Outcome
    source_id: str
    session_id: str
    newest: SessionSnapshot
    snapshots: int
    made: tuple[str, ...]
    """The sessions that are new in the store (or would be): itself, and its memory."""


def carrier(store: SnapshotStore) -> Carrier:
    """*store*, if it can give and take whole sessions; `InvalidInput` otherwise."""
    if isinstance(store, Carrier):
        return store
    raise InvalidInput(
        f"a {type(store).__name__} cannot give or take sessions with their history",
        hint="use a store on disk; Markdown, HTML and JSON can be written from any store",
    )


async def collect(store: SnapshotStore, session_id: str, *, at: int | None = None) -> list[Copies]:
    """A session with its history, and its memory if it has one. With *at*, as it was at that snapshot."""
    place = carrier(store)
    copies = _upto(await place.take_out(session_id), at)
    newest = verified(copies)
    pin = newest.metadata.get("working_memory")
    pinned = pin.get("seq") if isinstance(pin, dict) and at is not None else None
    try:
        memory = _upto(await place.take_out(memory_id(session_id)), pinned)
    except SnapshotNotFound:
        return [copies]
    return [copies, memory]


def _upto(copies: Copies, at: int | None) -> Copies:
    if at is None:
        return copies
    kept = [copy for copy in copies if copy.header.hi <= at]
    if not kept or kept[-1].header.hi != at:
        session_id = copies[0].header.sid
        what = f"session {session_id} has no snapshot {at}, or it was forgotten"
        raise SnapshotNotFound(what, session_id=session_id, hint="")
    return kept


async def as_copies(snapshot: SessionSnapshot, *, now: datetime) -> Copies:
    """A session that comes without history, as one snapshot."""
    async with MemoryStore(clock=lambda: now) as store:
        await store.save(snapshot, trigger="import")
        return await store.take_out(snapshot.session_id)


class _Family(NamedTuple):
    """A session and what belongs to it, verified."""

    newest: SessionSnapshot
    members: tuple[Copies, ...]

    @property
    def session_id(self) -> str:
        return self.newest.session_id


async def bring(
    store: SnapshotStore,
    sessions: Sequence[Copies],
    *,
    paths: Mapping[str, str] | None = None,
    under: str | None = None,
    dry_run: bool = False,
    make_id: Callable[[], str] = new_id,
) -> tuple[Arrival, ...]:
    """Put *sessions* into *store*: all of them, or none if one is not what it should be.

    A session that is there with the same content is left alone. One that is there with other content is left
    alone, too, and what arrives gets a new id.

    Args:
        store: where they go.
        sessions: what arrives, each with its snapshots, oldest first.
        paths: directories that are elsewhere here; see `edits.moved`.
        under: the id to give the one session that arrives; `Conflict` if another one has it.
        dry_run: say what would be done, and do nothing.
        make_id: makes new ids.
    """
    place = carrier(store)
    families = _families(sessions, paths or {})
    if under is not None and len(families) != 1:
        raise InvalidInput(f"{len(families)} sessions cannot all be {under!r}", hint="import them one by one")
    planned = [await _planned(place, family, under, make_id) for family in families]
    if not dry_run:
        await _put_in(place, [copies for _, members in planned for copies in members])
    return tuple(arrival for arrival, _ in planned)


def _families(sessions: Sequence[Copies], paths: Mapping[str, str]) -> list[_Family]:
    by_id = {check_session_id(copies[0].header.sid): copies for copies in sessions}
    if len(by_id) < len(sessions):
        raise InvalidInput("a session is in the file twice", hint="nothing was imported; import them one by one")
    memories = {memory_id(name) for name in by_id} & by_id.keys()
    newest = {name: verified(copies) for name, copies in by_id.items()}
    families = []
    for name in [name for name in by_id if name not in memories]:
        members = [by_id[each] for each in (name, memory_id(name)) if each in by_id]
        if paths:
            members = [moved(copies, paths) for copies in members]
            newest[name] = verified(members[0])
        families.append(_Family(newest[name], tuple(members)))
    return families


async def _planned(
    place: Carrier, family: _Family, under: str | None, make_id: Callable[[], str]
) -> tuple[Arrival, list[Copies]]:
    source = family.session_id
    target = check_session_id(under) if under is not None else source
    members = _under(family.members, target)
    is_there = [await _is_there(place, each) for each in members]
    outcome: Outcome = "imported"
    if all(found is True for found in is_there):
        outcome, members = "already_there", []
    elif any(found is not None for found in is_there):
        if under is not None:
            raise Conflict(
                f"there is another session {target}", session_id=target, hint="give another id with --as"
            )
        target, outcome = make_id(), "renamed"
        members = _under(family.members, target)
    made = tuple(each[0].header.sid for each in members)
    return Arrival(outcome, source, target, family.newest, len(family.members[0]), made), members


def _under(members: Sequence[Copies], session_id: str) -> list[Copies]:
    """The session, and its memory, under another id; as they are where it is their own."""
    if members[0][0].header.sid == session_id:
        return list(members)
    names = (session_id, memory_id(session_id))
    return [renamed(copies, name) for copies, name in zip(members, names, strict=False)]


async def _is_there(place: Carrier, copies: Copies) -> bool | None:
    """Whether the store has all of these snapshots; None if it has no session of that name."""
    try:
        local = {_identity(copy) for copy in await place.take_out(copies[0].header.sid)}
    except SnapshotNotFound:
        return None
    except (Damaged, InvalidSnapshotVersion):  # not for us to judge, so not the same
        return False
    return {_identity(copy) for copy in copies} <= local


def _identity(copy: Copied) -> tuple[int, str, tuple[str, ...]]:
    return copy.header.hi, copy.header.root, copy.header.tags


async def _put_in(place: Carrier, sessions: Sequence[Copies]) -> None:
    """All or none: whoever is interrupted half way, by an error or by Ctrl-C, takes back what is done."""
    done: list[str] = []
    try:
        for copies in sessions:
            session_id = copies[0].header.sid
            await place.put_in(session_id, copies)
            done.append(session_id)
    except BaseException:
        with anyio.CancelScope(shield=True):
            for session_id in done:
                await place.delete(session_id)
        raise
