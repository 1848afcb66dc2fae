"""Recovery: turn the records of sessions that ended without a proper stop into a snapshot, exactly once.

The invariant: a snapshot says in ``metadata.spool.upto`` which records it contains, and is durable before they are
dropped. So recovery is idempotent and may be killed at any point: no record is lost, none is applied twice.
Sessions with a living owner are skipped. A session that cannot be recovered does not stop the others.

`KNOWN` names the function for each provider type. It is imported on demand, so recovery imports no adapters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from snapshot_plugin.errors import Damaged, InvalidSnapshot, SessionLocked, SnapshotError, SnapshotNotFound
from snapshot_plugin.live.blocking import blocking_store, in_thread_with
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.live.place import place_of
from snapshot_plugin.live.ports import Hold, LivePlace, Record, Reduce
from snapshot_plugin.live.spool import unsaved
from snapshot_plugin.model.content import TextBlock
from snapshot_plugin.model.meta import SnapshotRef
from snapshot_plugin.model.snapshot import Message, SessionSnapshot, upto_of, with_upto
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.store.hop import in_thread

if TYPE_CHECKING:
    from snapshot_plugin.store.sync import SyncStore

__all__ = [
    "KNOWN",
    "Head",
    "Recovered",
    "Spooled",
    "recover",
    "recover_hold",
    "recover_if_abandoned",
    "reduce_messages",
    "reduced",
    "upto_of",
    "with_spool",
    "with_upto",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The result for one session that ended without a clean stop.

    `ref` is the snapshot made of `records` records; without it, `problem` says why there is none, or there was
    nothing to recover. With both, something was recovered and something could not be. `previous_owner` is the
    process that died, where it left its name.
    """

    session_id: str
    records: int = 0
    ref: SnapshotRef | None = None
    problem: str | None = None
    previous_owner: Owner | None = None


async def recover(
    store: SnapshotStore, *, reducers: Mapping[str, Reduce] | None = None, now: datetime
) -> list[Recovered]:
    """Recover every session of *store* that has records beyond its head and no living owner.

    Sessions that died with nothing to recover are reported too, once. Records that cannot be recovered are reported
    each time and stay in the spool. A store without a place for live sessions has nothing to recover.

    Args:
        store: the store to scan.
        reducers: how to apply records, by provider type, beyond those the package knows (`KNOWN`).
        now: the timestamp of the recovered snapshots.
    """
    place = place_of(store)
    found = [
        await recover_if_abandoned(store, session_id, reducers or {}, now)
        for session_id in (await in_thread(place.abandoned) if place else ())
    ]
    return [recovered for recovered in found if recovered is not None]


async def recover_if_abandoned(
    store: SnapshotStore, session_id: str, reducers: Mapping[str, Reduce], now: datetime
) -> Recovered | None:
    """Recover one session if it has no owner; None if it has one, or if it was stopped properly.

    A session that could not be locked in time is reported, with a problem.
    """
    place, calls = place_of(store), blocking_store(store)
    if place is None:
        return None
    return await in_thread_with(calls, _recover_if_abandoned, calls, place, session_id, reducers, now)


def _recover_if_abandoned(
    store: SyncStore, place: LivePlace, session_id: str, reducers: Mapping[str, Reduce], now: datetime
) -> Recovered | None:
    try:
        if not place.is_abandoned(session_id):
            return None
        return _recover_abandoned(store, place, session_id, reducers, now)
    except SessionLocked as error:
        # Usually another process took it just now. If not, nobody else recovers it.
        if not place.is_abandoned(session_id):
            return None
        return Recovered(session_id=session_id, problem=error.message)
    except SnapshotError as error:
        return Recovered(session_id=session_id, problem=error.message)


def _recover_abandoned(
    store: SyncStore, place: LivePlace, session_id: str, reducers: Mapping[str, Reduce], now: datetime
) -> Recovered | None:
    hold = place.take(session_id, Owner.this_process(since=now))
    try:
        recovered, _ = _recovered(store, _head(store, session_id), hold, reducers, now)
    except SnapshotError as error:
        hold.hand_back()
        return Recovered(session_id=session_id, problem=error.message, previous_owner=hold.previous)
    except BaseException:
        hold.hand_back()
        raise
    hold.release()
    return recovered


class Head(NamedTuple):
    """The newest undamaged snapshot of a session and its receipt, if there is one."""

    session_id: str
    snapshot: SessionSnapshot | None = None
    ref: SnapshotRef | None = None
    base: int | None = 0
    """What a save on top of it must pass."""


def recover_hold(
    store: SyncStore, session_id: str, hold: Hold, reducers: Mapping[str, Reduce], now: datetime
) -> tuple[Recovered | None, Head]:
    """Recover the session of *hold*, which the caller is about to record. None if there was nothing to do.

    The session is read once. The head that is returned contains every record of the spool, and numbers continue
    after it. If records cannot be applied, the whole spool is set aside, and `Recovered.problem` says where.

    Raises:
        SnapshotError: a failure that a retry may fix (disk, key, newer release); the spool is unchanged.
    """
    head, damaged = Head(session_id), None
    try:
        head = _head(store, session_id)
    except Damaged as error:
        damaged = error
    if hold.previous is None and hold.damage is None and hold.last == upto_of(head.snapshot):
        return None, head
    try:
        if damaged is not None:
            raise damaged
        return _recovered(store, head, hold, reducers, now)
    except (InvalidSnapshot, Damaged) as error:
        problem = f"{error.message}; the spool is kept as {hold.set_aside(upto_of(head.snapshot))}"
        return Recovered(session_id=session_id, problem=problem, previous_owner=hold.previous), head


def _recovered(
    store: SyncStore, head: Head, hold: Hold, reducers: Mapping[str, Reduce], now: datetime
) -> tuple[Recovered | None, Head]:
    session_id, records = head.session_id, hold.unsaved(upto_of(head.snapshot))
    ref: SnapshotRef | None = None
    if records:
        begun = hold.previous.since if hold.previous else now
        start = head.snapshot or SessionSnapshot(session_id=session_id, created_at=begun, updated_at=now)
        snapshot = _snapshot_of(start, records, reducers, now)
        ref = store.save(snapshot, trigger="recovered", base=head.base)
        head = Head(session_id, snapshot, ref, ref.seq)
    problem = _drop(hold, upto_of(head.snapshot))
    recovered = Recovered(
        session_id=session_id,
        records=len(records),
        ref=ref,
        problem=hold.damage or problem,
        previous_owner=hold.previous,
    )
    return (recovered if recovered != Recovered(session_id=session_id) else None), head


def _head(store: SyncStore, session_id: str) -> Head:
    try:
        found = store.read(session_id)
    except SnapshotNotFound:
        return Head(session_id)
    return Head(session_id, found.snapshot, found.ref, None if found.skipped else found.ref.seq)


def _snapshot_of(
    start: SessionSnapshot, records: Sequence[Record], reducers: Mapping[str, Reduce], now: datetime
) -> SessionSnapshot:
    snapshot = reduced(start, records, reducers)
    if snapshot.updated_at == start.updated_at:
        snapshot = snapshot.evolve(updated_at=now)
    return with_upto(snapshot, records[-1].n)


def _drop(hold: Hold, upto: int) -> str | None:
    """Truncate the spool. The snapshot already contains the records, so a failure is only reported."""
    try:
        hold.truncate(upto)
    except SnapshotError as error:
        return f"the spool could not be emptied: {error.message}"
    return None


class Spooled(NamedTuple):
    """A session with the records in its spool, as its owner has it."""

    snapshot: SessionSnapshot
    seq: int
    """The newest snapshot that is stored; 0 if there is none yet."""
    saved: int
    """How many of its messages that snapshot holds."""
    records: int
    """How many records are only in the spool."""


def with_spool(
    store: SyncStore, place: LivePlace | None, session_id: str, *, now: datetime, more: Mapping[str, Reduce]
) -> Spooled:
    """Read a session, whoever owns it: its newest snapshot with the records in its spool. Changes nothing.

    Args:
        store: where its snapshots are kept.
        place: where its spool is kept; None if there is no such place.
        session_id: the session.
        now: the time of a session that has no snapshot yet.
        more: how to apply records, by provider type, beyond those the package knows (`KNOWN`).

    Raises:
        SnapshotNotFound: it has neither snapshot nor records.
        SnapshotError: its snapshot or its spool cannot be read, or the records cannot be applied.
    """
    # The records first: a snapshot is durable before its records are dropped, so none can be missing in between.
    spooled = place.records(session_id) if place else ()
    try:
        stored = store.read(session_id)
        head, seq, saved = stored.snapshot, stored.ref.seq, len(stored.snapshot.messages)
    except SnapshotNotFound:
        if not spooled:
            raise
        head, seq, saved = SessionSnapshot(session_id=session_id, created_at=now, updated_at=now), 0, 0
    new = unsaved(spooled, upto_of(head), session_id)
    return Spooled(reduced(head, new, more) if new else head, seq, saved, len(new))


_KINDS = ("message", "append", "state")


def reduce_messages(snapshot: SessionSnapshot, records: Sequence[Record]) -> SessionSnapshot:
    """Apply records of three kinds, in order, to *snapshot*.

    ``{"message": {…}}`` adds a message, or replaces the one that has its id. ``{"append": {"text": …}}`` continues
    the assistant's message, or begins one. ``{"state": {…}}`` sets fields of the snapshot.

    Raises:
        InvalidSnapshot: a record is of another kind, or its content is invalid.
    """
    for kind, values in _runs(records):
        if kind == "append":
            snapshot = _grown(snapshot, "".join(_text(value) for value in values))
        else:
            for value in values:
                snapshot = _with_message(snapshot, value) if kind == "message" else snapshot.with_stored(value)
    return snapshot


def _runs(records: Sequence[Record]) -> Iterator[tuple[str, list[Any]]]:
    """Group consecutive records of one kind, so that thousands of small appends are applied as one."""
    pairs = (pair for record in records if (pair := _kind_and_value(record)))
    for kind, run in groupby(pairs, key=lambda pair: pair[0]):
        yield kind, [value for _, value in run]


def _kind_and_value(record: Record) -> tuple[str, Any] | None:
    kinds = [kind for kind in _KINDS if kind in record.data]
    if not kinds and "provider_type" in record.data:
        return None
    if len(kinds) != 1 or not isinstance(record.data[kinds[0]], dict):
        raise InvalidSnapshot(f"spool record {record.n} is not a message, an append or a state")
    return kinds[0], record.data[kinds[0]]


def _text(value: dict[str, Any]) -> str:
    text = value.get("text")
    if not isinstance(text, str):
        raise InvalidSnapshot("an append has no text")
    return text


def _grown(snapshot: SessionSnapshot, text: str) -> SessionSnapshot:
    last = snapshot.messages[-1] if snapshot.messages else None
    if last is None or last.role != "assistant":
        return _added(snapshot, Message(role="assistant", content=(TextBlock(text=text),)))
    end = last.content[-1] if last.content else None
    if isinstance(end, TextBlock):
        blocks = (*last.content[:-1], end.evolve(text=end.text + text))
    else:
        blocks = (*last.content, TextBlock(text=text))
    return _replaced(snapshot, len(snapshot.messages) - 1, last.evolve(content=blocks))


def _with_message(snapshot: SessionSnapshot, value: dict[str, Any]) -> SessionSnapshot:
    message = Message.model_validate(value)
    ids = [known.id for known in snapshot.messages]
    if message.id is None or message.id not in ids:
        return _added(snapshot, message)
    return _replaced(snapshot, ids.index(message.id), message)


def _added(snapshot: SessionSnapshot, message: Message) -> SessionSnapshot:
    return snapshot.append(message, now=snapshot.updated_at)  # no clock: the result depends only on the records


def _replaced(snapshot: SessionSnapshot, at: int, message: Message) -> SessionSnapshot:
    return snapshot.evolve(messages=(*snapshot.messages[:at], message, *snapshot.messages[at + 1 :]))


KNOWN: Final = {
    "messages": "snapshot_plugin.live.recovery:reduce_messages",
    "acp": "snapshot_plugin.acp.reducer:reduce_spool",
}
"""Provider type to ``module:function``."""

_DEFAULT: Final = "messages"


def reduced(
    start: SessionSnapshot, records: Sequence[Record], more: Mapping[str, Reduce] | None = None
) -> SessionSnapshot:
    """*start* with *records* applied, by the function in *more* or in `KNOWN` for their provider type.

    Raises:
        InvalidSnapshot: there is no function for them, or it raised, or it returned another session.
    """
    reduce = _reduce_for(start, records, more or {})
    try:
        snapshot = reduce(start, records)
    except Exception as error:
        raise InvalidSnapshot(f"the spool could not be applied: {type(error).__name__}: {error}") from error
    if getattr(snapshot, "session_id", None) != start.session_id:
        raise InvalidSnapshot(f"the spool turned into something that is not session {start.session_id!r}")
    return snapshot


def _reduce_for(start: SessionSnapshot, records: Sequence[Record], more: Mapping[str, Reduce]) -> Reduce:
    """Choose by the provider type in the first record, else by the session's if it is known, else ``messages``."""
    named = records[0].data.get("provider_type")
    if named is None:
        named = start.provider_type if start.provider_type in {*more, *KNOWN} else _DEFAULT
    if not isinstance(named, str) or (named not in more and named not in KNOWN):
        raise InvalidSnapshot(f"no reducer is known for records of provider type {named!r}")
    return more[named] if named in more else _imported(KNOWN[named])


def _imported(name: str) -> Reduce:
    module, _, function = name.partition(":")
    found: Reduce = getattr(import_module(module), function)
    return found
