"""Move whole sessions, or snapshots by policy, to the trash. They stay there until a purge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from snapshot_plugin.errors import InvalidInput, SnapshotCorrupted, SnapshotNotFound
from snapshot_plugin.live.place import held_alone
from snapshot_plugin.manager.ports import Clock, utc_now
from snapshot_plugin.model.ids import is_companion
from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.model.policy import Decision, RetentionPolicy, keeping_tagged
from snapshot_plugin.store.base import SnapshotStore, Trashed
from snapshot_plugin.store.engine import LogStore

__all__ = [
    "SnapshotPlan",
    "countable_sessions",
    "drop_snapshots",
    "forget_session",
    "plan_single",
    "plan_snapshots",
    "surplus_sessions",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPlan:
    """What a policy decides about one session: each snapshot, newest first, with the decision and its reasons."""

    session_id: str
    decisions: tuple[tuple[SnapshotMeta, Decision], ...]

    @property
    def dropped(self) -> tuple[int, ...]:
        """The numbers of the snapshots that go, oldest first."""
        return tuple(sorted(decision.seq for _, decision in self.decisions if not decision.keep))


async def plan_snapshots(
    store: SnapshotStore, session_id: str, policy: RetentionPolicy, *, keep_tagged: bool = False
) -> SnapshotPlan:
    """Decide which snapshots to drop, and change nothing.

    Tagged snapshots are kept, unless *policy* names tags itself; with *keep_tagged*, always.

    Raises:
        SnapshotCorrupted: the session is damaged; damaged sessions are not thinned.
    """
    history = await store.history(session_id)
    if any(meta.state != "ok" for meta in history):
        raise SnapshotCorrupted(f"session {session_id} is damaged; it stays as it is", session_id=session_id)
    if keep_tagged or not policy.keep_tags:
        policy = keeping_tagged(policy, history)
    result = await store.forget(session_id, policy, dry_run=True)
    metas = {meta.seq: meta for meta in history}
    pairs = [(metas[each.seq], each) for each in reversed(result.decisions) if each.seq in metas]
    return SnapshotPlan(session_id=session_id, decisions=tuple(pairs))


async def plan_single(
    store: SnapshotStore, session_id: str, seq: int, *, after: SnapshotPlan | None = None
) -> SnapshotPlan:
    """The plan that drops just one snapshot; with *after*, besides those of that plan.

    Raises:
        SnapshotNotFound: there is no such snapshot.
        InvalidInput: it is the newest, which cannot be dropped.
    """
    history = await store.history(session_id)
    if seq not in {meta.seq for meta in history}:
        raise SnapshotNotFound(f"session {session_id} has no snapshot {seq}", session_id=session_id, hint="")
    if seq == history[0].seq:
        raise InvalidInput(
            f"snapshot {seq} is the newest of session {session_id}",
            session_id=session_id,
            hint="forget the whole session, or an older snapshot",
        )
    gone = {seq, *(after.dropped if after else ())}
    decisions = [
        Decision(seq=m.seq, keep=m.seq not in gone, reasons=() if m.seq in gone else ("not named",))
        for m in history
    ]
    return SnapshotPlan(session_id=session_id, decisions=tuple(zip(history, decisions, strict=True)))


async def drop_snapshots(store: SnapshotStore, plan: SnapshotPlan) -> dict[str, Any]:
    """Carry out a plan; returns the step that undoes it.

    Raises:
        SessionLocked: the session is live.
        InvalidInput: a snapshot is gone already, or the store keeps no copies.
    """
    if not isinstance(store, LogStore):
        raise InvalidInput("this store keeps no copies, so what it drops could not come back")
    async with held_alone(store, plan.session_id, utc_now, to="forget again"):
        trashed = await store.drop(plan.session_id, plan.dropped)
    return {"do": "restore", "session_id": plan.session_id, "token": trashed.token}


async def forget_session(store: SnapshotStore, session_id: str, *, clock: Clock = utc_now) -> Trashed:
    """Move a whole session to the trash.

    Raises:
        SessionLocked: the session is live.
    """
    async with held_alone(store, session_id, clock, to="forget it"):
        return await store.delete(session_id)


def surplus_sessions(metas: Sequence[SnapshotMeta], keep: int) -> tuple[SnapshotMeta, ...]:
    """The sessions beyond the *keep* that changed last, of those listed newest first; see `countable_sessions`."""
    if keep < 1:
        raise InvalidInput("at least one session is to be kept", hint="name sessions to forget them")
    return countable_sessions(metas)[keep:]


def countable_sessions(metas: Sequence[SnapshotMeta]) -> tuple[SnapshotMeta, ...]:
    """The sessions that limits apply to: neither pinned nor damaged, nor companions of another session."""
    return tuple(
        meta for meta in metas if not meta.pinned and meta.state == "ok" and not is_companion(meta.session_id)
    )
