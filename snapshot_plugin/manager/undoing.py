"""Undo an operation: carry out its steps, and record how to redo it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from snapshot_plugin.errors import Conflict, InvalidInput, SnapshotError, SnapshotNotFound
from snapshot_plugin.live.exclusive import held_alone
from snapshot_plugin.live.recovery import upto_of, with_upto
from snapshot_plugin.manager.labels import LABELS, TRIGGER, label
from snapshot_plugin.manager.operations import Operation, OperationLog
from snapshot_plugin.manager.ports import Clock, utc_now
from snapshot_plugin.manager.working_memory import owner_of
from snapshot_plugin.model.value import JsonObject, Value
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.store.engine import LogStore

__all__ = ["FINAL", "TakenBack", "is_purged", "record_undo", "take_back"]

FINAL = frozenset({"secrets"})
"""Kinds of operations whose undo cannot be undone: it would say that secrets are gone while they are not."""


class TakenBack(Value):
    """One step: what was done and how to undo it, or why it failed."""

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
    """Carry out every step of *operation* that can still be carried out. Never raises for a step."""
    return tuple([await _try(_Undo(store, operation, clock), step) for step in operation.steps])


async def record_undo(log: OperationLog, operation: Operation, taken: Sequence[TakenBack]) -> Operation:
    """Write down that *operation* was taken back. What could not be taken back stays there to be tried again."""
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
            await self._check_untouched(session_id)
            if owner := owner_of(session_id):
                with contextlib.suppress(SnapshotNotFound):
                    await self._check_untouched(owner)  # a session that stays keeps its memory
            trashed = await self._store.delete(session_id)
        return f"{session_id} is in the trash", {"do": "undelete", "token": trashed.token}

    async def _check_untouched(self, session_id: str) -> None:
        since = [
            meta for meta in await self._store.history(session_id)
            if meta.saved_at > self._operation.at and meta.trigger != TRIGGER
        ]  # fmt: skip
        if since:
            raise Conflict(
                f"session {session_id} was worked with since: {len(since)} new snapshot(s)", session_id=session_id
            )

    async def undelete(self, step: Mapping[str, Any]) -> _Done:
        try:
            session_id = await self._store.undelete(step["token"])
        except SnapshotNotFound:
            raise _purged() from None
        return f"{session_id} is back", {"do": "delete", "session_id": session_id}

    async def label(self, step: Mapping[str, Any]) -> _Done:
        values = {name: step[name] for name in LABELS if name in step}
        done = await label(self._store, step["session_id"], lambda _: values, clock=self._clock)
        names = ", ".join({"title": "name"}.get(name, name) for name in values)
        return f"{done.session_id} has its {names} of before", done.step

    async def restore(self, step: Mapping[str, Any]) -> _Done:
        session_id = step["session_id"]
        try:
            back = await self._copies().undrop(session_id, step["token"])
        except SnapshotNotFound as error:
            raise error if error.session_id else _purged() from None
        told = f"{session_id} has {len(back)} dropped snapshot(s) back"
        return told, {"do": "drop", "session_id": session_id, "seqs": list(back)}

    async def drop(self, step: Mapping[str, Any]) -> _Done:
        session_id, seqs = step["session_id"], step["seqs"]
        async with held_alone(self._store, session_id, self._clock, to="undo again"):
            trashed = await self._copies().drop(session_id, seqs)
        told = f"{len(seqs)} snapshot(s) of {session_id} are dropped"
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


def _purged() -> SnapshotNotFound:
    return SnapshotNotFound("it is not in the trash any more: it was purged, or brought back before", hint="")
