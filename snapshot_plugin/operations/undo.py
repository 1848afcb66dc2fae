"""What commands changed, and how each change is undone: the operation log, and undo.

JSON lines: with the store where it can keep them (a database), else in the user's state directory. Each line is an
operation with its **steps**, plain data that describes how to undo it:

- ``{"do": "delete", "session_id", "seq"}``: a session made by import, fork or merge goes to the trash, if *seq* is
still its newest snapshot;
- ``{"do": "undelete", "token"}``: a deleted session is restored;
- ``{"do": "label", "session_id", "title", "tags", "pinned", "note"}``: labels are set back; only those given
change;
- ``{"do": "restore", "session_id", "token"}``: dropped snapshots are restored from the copy in the trash;
- ``{"do": "drop", "session_id", "seqs"}``: snapshots are dropped (again), with a copy in the trash;
- ``{"do": "revert", "session_id", "seq"}``: the session is reverted to that snapshot.

An undo is an operation too, so it can be undone. For an encrypted store each line is sealed, because names and
notes are content. Unreadable lines are skipped; the log is best-effort.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import anyio.to_thread
from pydantic import ValidationError

from snapshot_plugin.codec.keys import Random
from snapshot_plugin.errors import (
    Conflict,
    InvalidInput,
    SessionLocked,
    SnapshotError,
    SnapshotNotFound,
    StoreUnavailable,
)
from snapshot_plugin.live.label import LABELS
from snapshot_plugin.live.place import held_alone
from snapshot_plugin.live.recovery import upto_of, with_upto
from snapshot_plugin.manager.labels import TRIGGER, label
from snapshot_plugin.manager.ports import Clock, utc_now
from snapshot_plugin.model.ids import new_id, owner_of
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.model.value import JsonObject, Timestamp, Value
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.failures import PARTIAL
from snapshot_plugin.operations.references import short_ids
from snapshot_plugin.operations.text import several
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.store.engine import LogStore
from snapshot_plugin.system.files import (
    disk_errors,
    locked,
    make_private_dir,
    replace_file,
    sync_all,
    sync_dir,
    write_all,
)

if TYPE_CHECKING:
    from snapshot_plugin.codec.encrypt import SessionKeys
    from snapshot_plugin.operations.work import Work
    from snapshot_plugin.store.base import SnapshotStore

__all__ = [
    "FINAL",
    "MAX_BYTES",
    "Done",
    "LineFile",
    "Operation",
    "OperationLines",
    "OperationLog",
    "TakenBack",
    "Undone",
    "deletion",
    "is_purged",
    "log_path",
    "newest_to_undo",
    "operations",
    "record_undo",
    "take_back",
    "undo",
]

MAX_BYTES = 4 << 20
"""Above this size, the older half of the log is dropped."""

_PLACE = b"asnap operations"
_LOCK_TIMEOUT = 10.0
_UNWRITTEN = "undo does not know of it; restore what was forgotten by the ids that asnap purge -n lists"


async def deletion(store: SnapshotStore, session_id: str) -> dict[str, Any]:
    """The step that moves a session to the trash, unless it is changed after this call."""
    tip = await store.tip(session_id)
    return {"do": "delete", "session_id": session_id, "seq": tip.seq if tip else 0}


def log_path(state: Path, store: str) -> Path:
    """Return the log file for *store*. Its id or URL may hold any character; the file name does not."""
    return state / "operations" / f"{hashlib.sha256(store.encode()).hexdigest()[:32]}.jsonl"


class Operation(Value):
    """What a command did. `steps` undo it; `undoes` names the operation that this one has undone."""

    id: str
    at: Timestamp
    kind: str
    summary: str
    steps: tuple[JsonObject, ...] = ()
    undoes: str | None = None
    undone: bool = False
    """Whether it has been undone; derived from later operations, never stored."""


class OperationLog:
    """The operations on one store. Any number of processes may use it at once.

    Args:
        place: the file, or what keeps the lines elsewhere.
        keys: what seals each line; None for a store that is not encrypted.
    """

    def __init__(
        self,
        place: Path | OperationLines,
        *,
        keys: SessionKeys | None = None,
        clock: Clock = utc_now,
        random: Random = os.urandom,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._lines = LineFile(place) if isinstance(place, Path) else place
        self._keys = keys
        self._clock = clock
        self._random = random
        self._max_bytes = max_bytes

    async def record(
        self, *, kind: str, summary: str, steps: Sequence[Mapping[str, Any]], undoes: str | None = None
    ) -> Operation:
        """Log an operation; durable on return.

        Raises:
            StoreUnavailable: a disk error. The operation stays in effect, but cannot be undone.
        """
        done = Operation(
            id=new_id(), at=self._clock(), kind=kind, summary=summary, steps=tuple(map(dict, steps)), undoes=undoes
        )
        try:
            await anyio.to_thread.run_sync(self._append, done)
        except StoreUnavailable as error:
            raise StoreUnavailable(f"{summary}: that is done, but {error.message}", hint=_UNWRITTEN) from error
        return done

    async def read(self) -> tuple[Operation, ...]:
        """Every operation that is still known, newest first."""
        lines = await anyio.to_thread.run_sync(self._lines.read_lines)
        return _told(tuple(found for line in lines if (found := self._decoded(line))))[::-1]

    async def forget(self, gone: Callable[[Operation], bool]) -> int:
        """Permanently drop the operations for which *gone* returns true. Returns how many."""
        return await self.rewrite(lambda known: None if gone(known) else known)

    async def rewrite(self, edit: Callable[[Operation], Operation | None]) -> int:
        """Replace each operation by what *edit* returns, or drop it for None. Returns how many changed."""
        changed = 0

        def edited(lines: list[bytes]) -> Iterator[bytes]:
            nonlocal changed
            for line in lines:
                known = self._decoded(line)
                after = edit(known) if known else known
                changed += after is not known
                if after is known:
                    yield line
                elif after is not None:
                    yield self._encoded(after)

        await anyio.to_thread.run_sync(self._lines.change_lines, lambda lines: list(edited(lines)))
        return changed

    async def seal(self) -> None:
        """Seal the lines that were written before the store was encrypted."""
        in_the_clear = OperationLog(self._lines)

        def sealed(lines: list[bytes]) -> list[bytes]:
            return [self._encoded(found) if (found := in_the_clear._decoded(line)) else line for line in lines]

        if self._keys is not None:
            await anyio.to_thread.run_sync(self._lines.change_lines, sealed)

    def _append(self, done: Operation) -> None:
        if self._lines.append_line(self._encoded(done)) > self._max_bytes:
            self._lines.change_lines(self._shortened)

    def _shortened(self, lines: list[bytes]) -> list[bytes]:
        kept: list[bytes] = []
        room = self._max_bytes // 2
        for line in reversed(lines):
            room -= len(line) + 1
            if kept and room < 0:
                break
            kept.append(line)
        return kept[::-1]

    # Lines --------------------------------------------------------------------------------------------------------

    def _encoded(self, done: Operation) -> bytes:
        line = json.dumps(done.raw(), separators=(",", ":")).encode()
        if self._keys is None:
            return line
        return base64.b64encode(self._keys.seal_record(line, _PLACE, random=self._random))

    def _decoded(self, line: bytes) -> Operation | None:
        try:
            if self._keys:
                line = self._keys.open_record(base64.b64decode(line, validate=True), _PLACE)
            return Operation.model_validate_json(line)
        except (ValueError, ValidationError, SnapshotError):
            return None


def _told(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Return *operations*, oldest first, each with whether it is undone. Undoing an undo redoes the operation."""
    places = {each.id: place for place, each in enumerate(operations)}
    undone: dict[str, bool] = {}
    for place, each in enumerate(operations):
        before, target, is_undone = place, each.undoes, True
        while (
            target is not None and places.get(target, place) < before
        ):  # an undo refers only to earlier operations
            undone[target] = is_undone
            before = places[target]
            target, is_undone = operations[before].undoes, not is_undone
    return tuple(each.evolve(undone=undone.get(each.id, False)) for each in operations)


def newest_to_undo(operations: Sequence[Operation]) -> Operation | None:
    """The operation that a plain ``undo`` reverts: the newest of *operations* that is not undone."""
    return next((each for each in operations if not each.undone and each.undoes is None), None)


# Where the lines are --------------------------------------------------------------------------------------


@runtime_checkable
class OperationLines(Protocol):
    """Lines in order. Any number of processes may use them at once."""

    def read_lines(self) -> list[bytes]:
        """All lines, oldest first."""

    def append_line(self, line: bytes) -> int:
        """Add a line; durable on return. Returns how many bytes there are."""

    def change_lines(self, change: Callable[[list[bytes]], Sequence[bytes]]) -> None:
        """Replace the lines by what *change* returns, while holding the lock."""


class LineFile:
    """Lines in a file. It and its directory are made, private, with the first line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read_lines(self) -> list[bytes]:
        """See `OperationLines`."""
        with disk_errors("reading what was done, for undo,"):
            try:
                return self.path.read_bytes().split(b"\n")[:-1]  # what does not end in a line end is torn
            except FileNotFoundError:
                return []

    def append_line(self, line: bytes) -> int:
        """See `OperationLines`."""
        with self._writing():
            fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                size = os.fstat(fd).st_size
                torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
                write_all(fd, (b"\n" if torn else b"") + line + b"\n")
                sync_all(fd)
            finally:
                os.close(fd)
            if not size:
                sync_dir(self.path.parent)
        return size + len(line) + 1

    def change_lines(self, change: Callable[[list[bytes]], Sequence[bytes]]) -> None:
        """See `OperationLines`."""
        if not self.path.exists():
            return
        with self._writing():
            before = self.read_lines()
            after = list(change(before))
            if after != before:
                replace_file(self.path, b"".join(line + b"\n" for line in after))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Keep other writers out."""
        with disk_errors("writing down what was done, for undo,"):
            make_private_dir(self.path.parent)
            guard = self.path.with_name(self.path.name + ".lock")
            with locked(guard, session_id="(operation log)", timeout=_LOCK_TIMEOUT):
                yield


# Undo ---------------------------------------------------------------------------------------------------------


_LIST = "asnap undo --list"


class Done(Part):
    """A logged operation."""

    id: str
    short_id: str
    at: datetime
    operation: str
    summary: str
    state: str
    """done, undone, or purged: it can no longer be undone."""


class UndoProblem(Part):
    """A step that could not be undone."""

    session_id: str | None
    code: str
    problem: str


class Undone(Document):
    """What was undone; with --list, what can be."""

    kind: ClassVar[str] = "undo"
    rows: ClassVar[str] = "operations"
    operations: tuple[Done, ...]
    """The operation that was undone; with --list, all of them, newest first."""
    told: tuple[str, ...] = ()
    """What was done, in words."""
    problems: tuple[UndoProblem, ...] = ()
    redo: str | None = None
    """The operation that redoes it."""
    as_of: datetime

    @property
    def exit_code(self) -> int:
        """3 if only part of it could be undone."""
        return PARTIAL if self.problems else 0


async def operations(work: Work, store: SnapshotStore) -> Undone:
    """List this user's operations on the store, newest first."""
    known = await work.operations(store).read()
    return Undone(operations=await _listed(store, known), as_of=work.now)


async def undo(work: Work, store: SnapshotStore, wanted: str | None = None) -> Undone:
    """Undo the operation whose id begins with *wanted*, restore a trash entry, or undo the newest operation."""
    log = work.operations(store)
    known = await log.read()
    chosen = await _trashed(store, known, wanted) or _chosen(known, wanted)
    return await _undo(work, store, log, known, chosen)


async def _trashed(store: SnapshotStore, known: Sequence[Operation], wanted: str | None) -> Operation | None:
    """Return the trash entry with that id if no operation has it: the forget may not have been logged."""
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
    if wanted is None:
        newest = newest_to_undo(known)
        if newest is None:
            raise SnapshotNotFound("there is nothing to undo", hint="", run=_LIST)
        return newest
    found = [each for each in known if each.id.startswith(wanted.lower())]
    if len(found) != 1:
        problem = "is not an operation" if not found else f"could be {len(found)} operations"
        raise SnapshotNotFound(f"{wanted!r} {problem}", hint="operations are not sessions; see the list", run=_LIST)
    if found[0].undone:
        again = next((each.id for each in known if each.undoes == found[0].id and not each.undone), None)
        hint = f"to do it again: asnap undo {again}" if again else ""
        raise InvalidInput(f"{found[0].kind} {found[0].id} was undone before", hint=hint, run=_LIST)
    return found[0]


async def _undo(
    work: Work, store: SnapshotStore, log: OperationLog, known: Sequence[Operation], chosen: Operation
) -> Undone:
    if not chosen.steps:
        raise InvalidInput(f"{chosen.kind} {chosen.id} cannot be undone", hint=chosen.summary, run=_LIST)
    taken = await take_back(store, chosen)
    if not any(each.is_done for each in taken):
        raise _failure(chosen, taken)
    undo = await record_undo(log, chosen, taken)
    done = _row(chosen, short_ids([each.id for each in (*known, chosen)]), "undone")
    return Undone(
        operations=(done,),
        told=(f"undid {chosen.kind}: {chosen.summary}", *(f"  {each.told}" for each in taken if each.is_done)),
        problems=tuple(
            UndoProblem.from_fields(each, session_id=_session_of(each)) for each in taken if not each.is_done
        ),
        redo=undo.id if undo.steps else None,
        as_of=work.now,
    )


def _failure(chosen: Operation, taken: Sequence[TakenBack]) -> SnapshotError:
    first = taken[0]
    kinds: dict[str, type[SnapshotError]] = {k.code: k for k in (SnapshotNotFound, SessionLocked, StoreUnavailable)}
    told = f"{chosen.kind} {chosen.id} cannot be undone: {first.problem}"
    hint = f"it was: {chosen.summary}; to undo an earlier operation, give its id"
    return kinds.get(first.code, Conflict)(told, session_id=_session_of(first), hint=hint, run=_LIST)


def _session_of(each: TakenBack) -> str | None:
    found = each.step.get("session_id")
    return found if isinstance(found, str) else None


async def _listed(store: SnapshotStore, known: Sequence[Operation]) -> tuple[Done, ...]:
    tokens = [each.token for each in await store.trash()]
    short = short_ids([each.id for each in known])
    return tuple(
        _row(each, short, "undone" if each.undone else "purged" if is_purged(each, tokens) else "done")
        for each in known
    )


def _row(each: Operation, short: Mapping[str, str], state: str) -> Done:
    return Done.from_fields(each, short_id=short[each.id], operation=each.kind, state=state)


# Steps ----------------------------------------------------------------------------------------------------

FINAL = frozenset({"secrets"})
"""Kinds of operations whose undo cannot be undone: it would say that secrets are gone while they are not."""


class TakenBack(Value):
    """The result of one step: what was done and how to undo that, or why it failed."""

    step: JsonObject
    told: str = ""
    inverse: JsonObject | None = None
    code: str = ""
    problem: str = ""

    @property
    def is_done(self) -> bool:
        """Whether it was carried out."""
        return self.inverse is not None


async def take_back(store: SnapshotStore, operation: Operation, *, clock: Clock = utc_now) -> tuple[TakenBack, ...]:
    """Carry out every step of *operation* that still can be. Never raises for a step."""
    return tuple([await _try(_Undo(store, operation, clock), step) for step in operation.steps])


async def record_undo(log: OperationLog, operation: Operation, taken: Sequence[TakenBack]) -> Operation:
    """Log that *operation* was undone. Steps that failed are logged, so that they can be retried."""
    inverse = [each.inverse for each in reversed(taken) if each.inverse is not None]
    again = "redid" if operation.undoes else "undid"
    left = [each.step for each in taken if not each.is_done]
    if left:
        await log.record(kind=operation.kind, summary=f"the rest of: {operation.summary}", steps=left)
    return await log.record(
        kind="undo",
        summary=f"{again} {operation.kind}: {operation.summary}",
        steps=[] if operation.kind in FINAL else inverse,
        undoes=operation.id,
    )


def is_purged(operation: Operation, tokens: Sequence[str]) -> bool:
    """Whether a step needs a trash entry that is not among *tokens*."""
    return any("token" in step and step["token"] not in tokens for step in operation.steps)


async def _try(undo: _Undo, step: Mapping[str, Any]) -> TakenBack:
    ways = {
        "delete": undo.delete,
        "undelete": undo.undelete,
        "label": undo.label,
        "restore": undo.restore,
        "drop": undo.drop,
        "revert": undo.revert,
    }
    way = ways.get(str(step.get("do")))
    try:
        if way is None:
            raise InvalidInput(f"this release does not know how to {step.get('do')!r}")
        told, inverse = await way(step)
    except SnapshotError as error:
        return TakenBack(step=dict(step), code=error.code, problem=error.message)
    except (KeyError, TypeError, ValueError) as error:  # an unknown step
        return TakenBack(step=dict(step), code=InvalidInput.code, problem=f"the step is not whole: {error}")
    return TakenBack(step=dict(step), told=told, inverse=inverse)


_Done = tuple[str, dict[str, Any]]


class _Undo:
    """The ways to undo a step. Each returns what it did and the step that undoes it."""

    def __init__(self, store: SnapshotStore, operation: Operation, clock: Clock) -> None:
        self._store = store
        self._operation = operation
        self._clock = clock

    async def delete(self, step: Mapping[str, Any]) -> _Done:
        session_id = step["session_id"]
        async with held_alone(self._store, session_id, self._clock, to="undo again"):
            await self._check_untouched(session_id, step.get("seq"))
            if owner := owner_of(session_id):
                with contextlib.suppress(SnapshotNotFound):
                    await self._check_untouched(
                        owner, self._made_as(owner)
                    )  # a session that stays keeps its companions
            trashed = await self._store.delete(session_id)
        return f"{session_id} is in the trash", {"do": "undelete", "token": trashed.token}

    def _made_as(self, session_id: str) -> int | None:
        return next(
            (each.get("seq") for each in self._operation.steps if each.get("session_id") == session_id), None
        )

    async def _check_untouched(self, session_id: str, seq: int | None) -> None:
        """Raise `Conflict` if the session has snapshots after *seq*; releases before 0.2.0 recorded only a time."""
        since = [
            meta for meta in await self._store.history(session_id)
            if (meta.seq > seq if seq else meta.saved_at > self._operation.at) and meta.trigger != TRIGGER
        ]  # fmt: skip
        if since:
            raise Conflict(
                f"session {session_id} has changed since: {several(len(since), 'new snapshot')}",
                session_id=session_id,
            )

    async def undelete(self, step: Mapping[str, Any]) -> _Done:
        try:
            session_id = await self._store.undelete(step["token"])
        except SnapshotNotFound:
            raise _purged() from None
        return f"{session_id} is back", await deletion(self._store, session_id)

    async def label(self, step: Mapping[str, Any]) -> _Done:
        values = {name: step[name] for name in LABELS if name in step}
        after = step.get("tags_after")  # releases before 0.2.0 did not record it

        def earlier(snapshot: SessionSnapshot) -> Mapping[str, Any]:
            return values if after is None else {**values, "tags": _without(step["tags"], after, snapshot.tags)}

        done = await label(self._store, step["session_id"], earlier, clock=self._clock)
        names = ", ".join({"title": "name"}.get(name, name) for name in values)
        return f"{done.session_id} has its earlier {names} again", done.step

    async def restore(self, step: Mapping[str, Any]) -> _Done:
        session_id = step["session_id"]
        try:
            back = await self._copies().undrop(session_id, step["token"])
        except SnapshotNotFound as error:
            raise error if error.session_id else _purged() from None
        told = f"{session_id} has {several(len(back), 'dropped snapshot')} back"
        return told, {"do": "drop", "session_id": session_id, "seqs": list(back)}

    async def drop(self, step: Mapping[str, Any]) -> _Done:
        session_id, seqs = step["session_id"], step["seqs"]
        async with held_alone(self._store, session_id, self._clock, to="undo again"):
            trashed = await self._copies().drop(session_id, seqs)
        told = f"dropped {several(len(seqs), 'snapshot')} of {session_id}"
        return told, {"do": "restore", "session_id": session_id, "token": trashed.token}

    async def revert(self, step: Mapping[str, Any]) -> _Done:
        session_id, seq = step["session_id"], step["seq"]
        async with held_alone(self._store, session_id, self._clock, to="undo again"):
            head = await self._store.read(session_id, strict=True)
            then = await self._store.load(session_id, at=seq)
            if (upto := upto_of(head.snapshot)) > upto_of(then):
                then = with_upto(then, upto)  # later records continue from there and must be recoverable
            await self._store.save(then, trigger="undo", base=head.ref.seq)
        told = f"{session_id} is as it was in snapshot {seq}"
        return told, {"do": "revert", "session_id": session_id, "seq": head.ref.seq}

    def _copies(self) -> LogStore:
        if not isinstance(self._store, LogStore):
            raise InvalidInput("this store keeps no copies of dropped snapshots")
        return self._store


def _without(before: Sequence[str], after: Sequence[str], now: Sequence[str]) -> list[str]:
    """The tags *now*, without the change from *before* to *after*: later changes stay."""
    if list(now) == list(after):
        return list(before)
    kept = [tag for tag in now if tag in before or tag not in after]
    return [*kept, *(tag for tag in before if tag not in after and tag not in kept)]


def _purged() -> SnapshotNotFound:
    return SnapshotNotFound("it is not in the trash any more: it was purged, or restored before", hint="")
