"""Move whole sessions between stores and files, with their companions. Nothing is overwritten.

On the way a session can be edited: other paths, another id, no secrets. Each edit works on the lines of the
snapshots, so it touches only the lines that change.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import anyio

from snapshot_plugin.codec.document import StoredDocument, encoded_line, parsed, plain_digest, section_line
from snapshot_plugin.errors import (
    Conflict,
    Damaged,
    InvalidInput,
    InvalidSnapshot,
    InvalidSnapshotVersion,
    SnapshotCorrupted,
    SnapshotNotFound,
)
from snapshot_plugin.exchange.bundle import MAX_MESSAGES, too_many_messages
from snapshot_plugin.live.place import held_alone, must_be_recovered
from snapshot_plugin.live.recovery import upto_of
from snapshot_plugin.manager.ports import Clock, utc_now
from snapshot_plugin.manager.working_memory import memory_id
from snapshot_plugin.model.ids import (
    COMPANIONS,
    check_new_id,
    check_session_id,
    companions,
    local_id,
    new_id,
    owner_of,
)
from snapshot_plugin.model.redact import Redaction, RedactionReport, redact
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import SnapshotStore, Trashed
from snapshot_plugin.store.memory import MemoryStore
from snapshot_plugin.store.transfer import Copied, verified, with_roots

__all__ = ["Arrival", "Carrier", "as_copies", "bring", "carrier", "collect", "moved", "redacted", "renamed"]

Copies = Sequence[Copied]
Outcome = Literal["imported", "updated", "renamed", "already_there"]


@runtime_checkable
class Carrier(Protocol):
    """A store that gives and takes whole sessions, with every snapshot."""

    async def take_out(self, session_id: str) -> Copies:
        """See `LogStore.take_out`."""

    async def put_in(self, session_id: str, copies: Copies, *, instead_of: Copies = ()) -> None:
        """See `LogStore.put_in`."""

    async def delete(self, session_id: str) -> Trashed:
        """See `SnapshotStore.delete`."""


class Arrival(NamedTuple):
    """The result of importing one session."""

    outcome: Outcome
    source_id: str
    session_id: str
    newest: SessionSnapshot
    """Without its messages, which may be many."""
    messages: int
    snapshots: int
    made: tuple[str, ...]
    """The sessions that are new in the store (or would be): itself, and its memory."""
    was_at: int | None = None
    """The newest snapshot before the import, if an existing session was updated."""
    with_memory: bool = False
    """Whether its memory was imported too."""


def carrier(store: SnapshotStore) -> Carrier:
    """*store*, if it can give and take whole sessions; `InvalidInput` otherwise."""
    if isinstance(store, Carrier):
        return store
    raise InvalidInput(
        f"a {type(store).__name__} cannot give or take sessions with their history",
        hint="use a store on disk; Markdown, HTML and JSON can be written from any store",
    )


async def collect(store: SnapshotStore, session_id: str, *, at: int | None = None) -> list[Copies]:
    """A session with its history and its companions. With *at*, the state at that snapshot and its memory then."""
    place = carrier(store)
    copies = _upto(await place.take_out(session_id), at)
    pin = verified(copies).metadata.get("working_memory")
    pinned = pin.get("seq") if isinstance(pin, dict) else None
    found = [copies]
    for suffix, seq in {memory_id(""): pinned}.items() if at is not None else dict.fromkeys(COMPANIONS).items():
        with contextlib.suppress(SnapshotNotFound):
            found.append(_upto(await place.take_out(session_id + suffix), seq))
    return found


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
    """A session without history, as one snapshot."""
    async with MemoryStore(clock=lambda: now) as store:
        await store.save(snapshot, trigger="import")
        return await store.take_out(snapshot.session_id)


class _Family(NamedTuple):
    """A session and its companions, verified. The messages of the newest snapshot are only counted."""

    newest: SessionSnapshot
    messages: int
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
    id_for: Callable[[str], str] = local_id,
    dry_run: bool = False,
    before: Callable[[Sequence[Arrival]], None] = lambda _arrivals: None,
    make_id: Callable[[], str] = new_id,
    clock: Clock = utc_now,
) -> tuple[Arrival, ...]:
    """Put *sessions* into *store*: all of them, or none if one is invalid.

    A stored session that has the newest imported snapshot is left alone. If the stored session's newest snapshot is
    an earlier one of the imported session, the later snapshots are appended to its history. Any other stored
    session is left alone, and the imported one gets a new id. So does one whose id is that of a part of a session
    which is not among *sessions*: it would become a hidden part of a session here (`model.ids.local_id`).

    Args:
        store: where they go.
        sessions: the sessions to import, each with its snapshots, oldest first.
        paths: directories to remap; see `moved`.
        under: the id for the one imported session; `Conflict` if it is taken.
        id_for: the id that a session gets here. What comes back from an archive of the user's own keeps its id.
        dry_run: report what would be done, and change nothing.
        before: called with what will be done, before anything is written.
        make_id: makes new ids.
        clock: the time of day.

    Raises:
        SessionLocked: a session that would be updated is live.
        Conflict: the session has a spool that is not recovered yet, or it changed during the import.
    """
    place = carrier(store)
    families = _families(sessions, paths or {})
    if under is not None and len(families) != 1:
        raise InvalidInput(f"{len(families)} sessions cannot all be {under!r}", hint="import them one by one")
    planned = [await _planned(place, family, id_for(family.session_id), under, make_id) for family in families]
    changes = [change for _, changes in planned for change in changes]
    arrivals = tuple(arrival for arrival, _ in planned)
    if not dry_run:
        before(arrivals)
        async with AsyncExitStack() as held:
            for session_id in [change.session_id for change in changes if change.kind == "longer"]:
                await held.enter_async_context(held_alone(store, session_id, clock, to="import again"))
                await must_be_recovered(store, session_id)
            await _put_in(place, changes)
    return arrivals


def _families(sessions: Sequence[Copies], paths: Mapping[str, str]) -> list[_Family]:
    by_id = {check_session_id(copies[0].header.sid): copies for copies in sessions}
    if len(by_id) < len(sessions):
        raise InvalidInput("a session is in the file twice", hint="nothing was imported; import them one by one")
    families = []
    for name in [name for name in by_id if owner_of(name) not in by_id]:
        members = [by_id[each] for each in (name, *companions(name, by_id))]
        found = [_outline(copies) for copies in members]
        if paths:
            members = [moved(copies, paths) for copies in members]
            found[0] = _outline(members[0])
        families.append(_Family(*found[0], tuple(members)))
    return families


def _outline(copies: Copies) -> tuple[SessionSnapshot, int]:
    """The newest snapshot without its messages, and how many there are: one session is in memory at a time."""
    document = StoredDocument()
    for copy in copies:
        document.apply(*copy)
        if len(document.messages) > MAX_MESSAGES:  # many small snapshots also add up to a large session
            raise too_many_messages(copy.header.sid)
    newest = verified(copies)
    return newest.evolve(messages=()), len(newest.messages)


class _Change(NamedTuple):
    """A session after the import, and as it is in the store now."""

    after: Copies
    before: Copies = ()

    @property
    def session_id(self) -> str:
        return self.after[0].header.sid

    @property
    def kind(self) -> Literal["new", "same", "longer"]:
        if not self.before:
            return "new"
        return "longer" if len(self.after) > len(self.before) else "same"


async def _planned(
    place: Carrier, family: _Family, local: str, under: str | None, make_id: Callable[[], str]
) -> tuple[Arrival, list[_Change]]:
    source = family.session_id
    target = check_new_id(under) if under is not None else local
    changes = await _changes(place, _under(family.members, target))
    outcome: Outcome = "imported" if under is not None or target == source else "renamed"
    if changes is None:
        if under is not None:
            raise Conflict(
                f"there is another session {target}", session_id=target, hint="give another id with --as"
            )
        target, outcome = make_id(), "renamed"
        changes = [_Change(copies) for copies in _under(family.members, target)]
    elif changes[0].kind != "new":
        outcome = "updated" if changes[0].kind == "longer" else "already_there"
    needed = [change for change in changes if change.kind != "same"]
    arrival = Arrival(
        outcome,
        source,
        target,
        family.newest,
        family.messages,
        len(family.members[0]),
        made=tuple(change.session_id for change in needed if change.kind == "new"),
        was_at=changes[0].before[-1].header.hi if outcome == "updated" else None,
        with_memory=memory_id(target) in [change.session_id for change in needed],
    )
    return arrival, needed


async def _changes(place: Carrier, members: Sequence[Copies]) -> list[_Change] | None:
    """Return the changes after which the store has all of *members*; None if other sessions have their ids."""
    changes = []
    for copies in members:
        change = await _change(place, copies)
        if change is None:
            return None
        changes.append(change)
    first = changes[0].kind  # a session that is left alone keeps its memory, too
    return changes if first == "longer" or all(change.kind == first for change in changes) else None


async def _change(place: Carrier, copies: Copies) -> _Change | None:
    try:
        local = await place.take_out(copies[0].header.sid)
        if _identity(copies[-1]) in map(_identity, local):  # also if earlier ones were forgotten here
            return _Change(local, local)
        later = _later(local, copies)
    except SnapshotNotFound:
        return _Change(copies)
    except (Damaged, InvalidSnapshot, InvalidSnapshotVersion):  # cannot be compared: a new id
        return None
    return _Change([*local, *later], local) if later else None


def _under(members: Sequence[Copies], session_id: str) -> list[Copies]:
    """Return the session and its companions under another id; unchanged if the id is its own."""
    before = members[0][0].header.sid
    if before == session_id:
        return list(members)
    return [renamed(copies, session_id + copies[0].header.sid.removeprefix(before)) for copies in members]


def _later(local: Copies, copies: Copies) -> Copies:
    """The *copies* after the newest of *local*; none if that one is not among them.

    Also none if they cover fewer spool records than were written here: later records would then follow a gap, and
    recovery would not apply them.
    """
    numbers = [_identity(copy) for copy in copies]
    here = _identity(local[-1])
    if here not in numbers or upto_of(verified(copies)) < upto_of(verified(local)):
        return ()
    return copies[numbers.index(here) + 1 :]


def _identity(copy: Copied) -> tuple[int, str, tuple[str, ...]]:
    return copy.header.hi, copy.header.root, copy.header.tags


async def _put_in(place: Carrier, changes: Sequence[_Change]) -> None:
    """Put in all sessions or none: an error or Ctrl-C half way rolls back."""
    done: list[_Change] = []
    try:
        for change in reversed(changes):  # the memory before the session that names it
            await place.put_in(change.session_id, change.after, instead_of=change.before)
            done.append(change)
    except BaseException:
        with anyio.CancelScope(shield=True):
            for change in done:
                await _take_back(place, change)
        raise


async def _take_back(place: Carrier, change: _Change) -> None:
    if change.before:
        await place.put_in(change.session_id, change.before, instead_of=change.after)
    else:
        await place.delete(change.session_id)


# Edits on the way -------------------------------------------------------------------------------------------

_Line = dict[str, Any]
_Edit = Callable[[_Line], _Line]


def moved(copies: Sequence[Copied], paths: Mapping[str, str]) -> list[Copied]:
    """The session with its directories remapped: each path at or below a key of *paths* is moved.

    Only the settings change (``cwd`` and additional directories). Messages are not changed.
    """

    def edit(line: _Line) -> _Line:
        if line.get("section") == ["config"] and isinstance(line.get("value"), dict):
            return {**line, "value": _moved_config(line["value"], paths)}
        if isinstance(line.get("meta"), dict):
            return {"meta": _moved_config(line["meta"], paths)}
        return line

    return _edited(copies, edit)


def _moved_config(config: _Line, paths: Mapping[str, str]) -> _Line:
    out = dict(config)
    for name in ("cwd", "working_dir"):  # the second is what version 1 calls it
        if isinstance(out.get(name), str):
            out[name] = _moved_path(out[name], paths)
    more = out.get("additional_directories")
    if isinstance(more, list):
        out["additional_directories"] = [_moved_path(p, paths) if isinstance(p, str) else p for p in more]
    return out


def _moved_path(path: str, paths: Mapping[str, str]) -> str:
    for old in sorted(paths, key=len, reverse=True):  # the closest one counts
        start = old.rstrip("/")
        if path == old or path.rstrip("/") == start or path.startswith(start + "/"):
            return paths[old].rstrip("/") + path.removeprefix(start) or "/"
    return path


def renamed(copies: Sequence[Copied], session_id: str) -> list[Copied]:
    """The session under another id; where it names the session that holds its memory, that has the new id, too."""
    before = copies[0].header.sid
    instead: dict[Any, str] = {before: session_id, memory_id(before): memory_id(session_id)}

    def edit(line: _Line) -> _Line:
        pin = line.get("value") if line.get("section") == ["metadata", "working_memory"] else None
        if isinstance(pin, dict):
            named = pin.get("session_id")
            return {**line, "value": {**pin, "session_id": instead.get(named, named)}}
        return line

    return [Copied(header._replace(sid=session_id), payload) for header, payload in _edited(copies, edit)]


def redacted(copies: Sequence[Copied]) -> tuple[list[Copied], RedactionReport]:
    """The session with secrets removed from all its snapshots, and a report of what was removed."""
    found: list[Redaction] = []

    def edit(line: _Line) -> _Line:
        if "section" in line:
            *group, name = line["section"]
            holder, report = redact({name: line["value"]} if "value" in line else {name: None})
            ((new_name, value),) = holder.items()
            clean = {"section": [*group, new_name], **({"value": value} if "value" in line else {})}
        else:
            clean, report = redact(line)
        found.extend(report.redactions)
        return clean

    return _edited(copies, edit), RedactionReport(redactions=tuple(found))


def _edited(copies: Sequence[Copied], edit: _Edit) -> list[Copied]:
    """The snapshots with every line changed by *edit*, and the roots that go with it."""
    # The base of each snapshot gets a new root, so the old roots no longer apply.
    changed = [Copied(header._replace(prev="", root=""), _edited_payload(each, edit)) for header, each in copies]
    return list(with_roots(changed, plain_digest))


def _edited_payload(payload: bytes, edit: _Edit) -> bytes:
    return b"\n".join([_edited_line(line, edit) for line in payload.split(b"\n")[:-1]] + [b""])


def _edited_line(line: bytes, edit: _Edit) -> bytes:
    try:
        before = parsed(line)
        after = edit(before)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, InvalidSnapshot):
            raise
        raise SnapshotCorrupted("a snapshot's content is not the JSON it should be") from error
    if after == before:
        return line
    if "value" in after:
        return section_line(after["section"], after["value"])
    return encoded_line(after)
