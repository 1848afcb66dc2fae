"""Forget sessions and snapshots: decide and show the reasons first, then act, recorded for undo; and the trash."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from snapshot_plugin.errors import InvalidInput, SnapshotError
from snapshot_plugin.operations import references
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.failures import PARTIAL
from snapshot_plugin.operations.text import several

if TYPE_CHECKING:
    from snapshot_plugin.manager.forgetting import SnapshotPlan
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.model.policy import RetentionPolicy
    from snapshot_plugin.operations.work import Work
    from snapshot_plugin.store.base import SnapshotStore, Trashed

__all__ = ["Discarded", "Fate", "ForgetJob", "Forgotten", "Purged", "SnapshotFate", "discarded", "in_the_trash"]


class SnapshotFate(Part):
    """One snapshot: whether it stays, and why."""

    snapshot: int
    saved_at: datetime
    size_bytes: int
    keep: bool
    reasons: tuple[str, ...]
    """Why it stays; none if it goes."""


class Fate(Part):
    """What happens to one session: it goes, some of its snapshots go, or it is skipped."""

    session_id: str
    title: str | None
    what: Literal["session", "snapshots", "skipped"]
    why: str
    code: str | None = None
    """The code of the error because of which it was skipped."""
    size_bytes: int = 0
    snapshots: tuple[SnapshotFate, ...] = ()

    @property
    def dropped(self) -> int:
        """How many of its snapshots are dropped."""
        return sum(not each.keep for each in self.snapshots)


class Forgotten(Document):
    """What was forgotten, or would be."""

    kind: ClassVar[str] = "forget"
    rows: ClassVar[str] = "sessions"
    sessions: tuple[Fate, ...]
    """Those something happens to, and those that were skipped."""
    untouched: int = 0
    """How many sessions lose nothing."""
    single: bool
    """Whether exactly one session was named."""
    dry_run: bool
    operation: str | None = None
    """Its id for `asnap undo`."""
    as_of: datetime

    @property
    def exit_code(self) -> int:
        """3 if something was skipped."""
        return PARTIAL if any(fate.what == "skipped" for fate in self.sessions) else 0

    @property
    def counted(self) -> str:
        """How much is forgotten, in numbers."""
        whole = sum(fate.what == "session" for fate in self.sessions)
        thinned = [fate.dropped for fate in self.sessions if fate.what == "snapshots"]
        parts = [several(whole, "session")] if whole else []
        parts += [f"{several(sum(thinned), 'snapshot')} of {several(len(thinned), 'session')}"] if thinned else []
        return " and ".join(parts) or "nothing"


class ForgetJob:
    """A plan of what to forget, then carried out. A session that cannot be changed does not affect the others."""

    def __init__(self, work: Work, store: SnapshotStore, metas: Sequence[SnapshotMeta], *, single: bool) -> None:
        self._work, self._store, self._metas, self._single = work, store, metas, single
        self._by_id = {meta.session_id: meta for meta in metas}
        self._fates: dict[str, Fate] = {}
        self._plans: dict[str, SnapshotPlan] = {}
        self._memory_of: dict[str, str] = {}
        self._errors: list[SnapshotError] = []
        self._steps: list[dict[str, Any]] = []
        self._untouched = 0

    def session(self, ref: str) -> str:
        """The whole session that a reference means."""
        target = references.resolve(ref, self._metas)
        if target.seq is not None:
            raise InvalidInput(f"a policy is for a session, and {ref!r} is one snapshot", hint="leave out the @")
        return target.session_id

    # Planning --------------------------------------------------------------------------------------------

    def plan_surplus(self, keep: int) -> None:
        """Plan to forget the sessions beyond a number."""
        from snapshot_plugin.manager.forgetting import surplus_sessions

        surplus = surplus_sessions(self._metas, keep)
        for meta in surplus:
            self._plan_session(meta.session_id, f"not among the {keep} that changed last")
        self._untouched = len(self._metas) - len(self._fates)

    async def plan_named(self, targets: Sequence[references.Target]) -> None:
        """Plan to forget the named sessions or snapshots."""
        for target in targets:
            if target.seq is None:
                self._plan_session(target.session_id, "named")
            else:
                await self._plan_snapshot(target.session_id, target.seq)

    def _plan_session(self, session_id: str, why: str) -> None:
        from snapshot_plugin.model.ids import companions

        for name in (session_id, *companions(session_id, self._by_id)):
            meta = self._by_id[name]
            self._plans.pop(name, None)
            if name != session_id:
                self._memory_of[name], why = session_id, f"the memory of {session_id}"
            self._fates[name] = Fate.from_fields(meta, what="session", why=why, snapshots=())

    async def _plan_snapshot(self, session_id: str, seq: int) -> None:
        from snapshot_plugin.manager.forgetting import plan_single

        if session_id not in self._fates or session_id in self._plans:  # otherwise the whole session goes anyway
            known = self._plans.get(session_id)
            self._take(await plan_single(self._store, session_id, seq, after=known))

    async def plan_settings(self, session_ids: Sequence[str]) -> None:
        """Plan what the settings do not keep, of these sessions or of all: whole sessions first, then snapshots."""
        from snapshot_plugin.manager.retention import surplus_of

        config, named = self._work.config, frozenset(session_ids)
        for meta, why in surplus_of(self._metas, config, lambda: self._work.now):
            if not named or meta.session_id in named:
                self._plan_session(meta.session_id, why)
        rest = [each for each in session_ids or self._by_id if each not in self._fates]
        await self.plan_policy(rest, config.keep, keep_tagged=True)

    async def plan_policy(
        self, session_ids: Sequence[str], policy: RetentionPolicy, *, keep_tagged: bool = False
    ) -> None:
        """Plan to forget what a policy does not keep."""
        from snapshot_plugin.manager.forgetting import plan_snapshots
        from snapshot_plugin.model.ids import owner_of

        with self._work.progress("looking", len(session_ids)) as step:
            for session_id in dict.fromkeys(session_ids):
                step(session_id)
                owner = self._by_id.get(owner_of(session_id) or "")
                if owner and owner.pinned:
                    self._untouched += 1
                    continue
                try:
                    plan = await plan_snapshots(self._store, session_id, policy, keep_tagged=keep_tagged)
                    self._take(plan)
                except SnapshotError as error:
                    self._skip(session_id, error)

    def _take(self, plan: SnapshotPlan) -> None:
        if not plan.dropped:
            self._untouched += 1
            return
        self._plans[plan.session_id] = plan
        fates = tuple(
            SnapshotFate.from_fields(meta, snapshot=meta.seq, keep=decision.keep, reasons=decision.reasons)
            for meta, decision in plan.decisions
        )
        self._fates[plan.session_id] = Fate(
            session_id=plan.session_id,
            title=self._by_id[plan.session_id].title,
            what="snapshots",
            why="no rule keeps them",
            size_bytes=sum(fate.size_bytes for fate in fates if not fate.keep),
            snapshots=fates,
        )

    def _skip(self, session_id: str, error: SnapshotError) -> None:
        self._errors.append(error)
        title = self._by_id[session_id].title
        self._fates[session_id] = Fate(
            session_id=session_id, title=title, what="skipped", why=error.message, code=error.code
        )

    # Doing -----------------------------------------------------------------------------------------------

    def plan(self) -> Forgotten:
        """Return the plan with its reasons. Raises if the only session named cannot be changed."""
        if len(self._fates) == len(self._errors) == 1:
            raise self._errors[0]
        return self._answer(dry_run=True)

    async def carry_out(self) -> Forgotten:
        """Carry out the plan. Raises if the only session named cannot be changed."""
        counted = self.plan().counted
        operation = await self._do(counted) if counted != "nothing" else None
        if len(self._fates) == len(self._errors) == 1:
            raise self._errors[0]
        return self._answer(dry_run=False, operation=operation)

    def _answer(self, *, dry_run: bool, operation: str | None = None) -> Forgotten:
        return Forgotten(
            sessions=tuple(self._fates.values()),
            untouched=self._untouched,
            single=self._single,
            dry_run=dry_run,
            operation=operation,
            as_of=self._work.now,
        )

    async def _do(self, counted: str) -> str | None:
        import anyio

        todo = [fate for fate in self._fates.values() if fate.what != "skipped"]
        try:
            with self._work.progress("forgetting", len(todo)) as step:
                for fate in todo:
                    step(fate.session_id)
                    await self._forget(fate.session_id)
        finally:  # after an interruption, undo still covers what was done
            with anyio.CancelScope(shield=True):
                operation = await self._record(counted)
        return operation

    async def _forget(self, session_id: str) -> None:
        from snapshot_plugin.manager.forgetting import drop_snapshots, forget_session

        plan, owner = self._plans.get(session_id), self._memory_of.get(session_id)
        if owner and self._fates[owner].what == "skipped":  # a session that stays keeps its memory
            del self._fates[session_id]
            return
        try:
            if plan:
                self._steps.append(await drop_snapshots(self._store, plan))
            else:
                trashed = await forget_session(self._store, session_id)
                self._steps.append({"do": "undelete", "token": trashed.token})
        except SnapshotError as error:
            self._skip(session_id, error)

    async def _record(self, counted: str) -> str | None:
        if not self._steps:
            return None
        named = ", ".join(list(self._fates)[:3]) + (", …" if len(self._fates) > 3 else "")  # noqa: PLR2004 — fits a line
        log = self._work.operations(self._store)
        return (await log.record(kind="forget", summary=f"{counted}: {named}", steps=self._steps)).id


# The trash: until it is purged --------------------------------------------------------------------------------


class Discarded(Part):
    """One entry of the trash."""

    session_id: str
    token: str
    """Its id for `asnap undo`."""
    deleted_at: datetime
    size_bytes: int
    is_copy: bool
    """Whether the session still exists; then this is a copy from before snapshots were dropped."""


class Purged(Document):
    """What was removed permanently, or would be."""

    kind: ClassVar[str] = "purge"
    rows: ClassVar[str] = "removed"
    removed: tuple[Discarded, ...]
    size_bytes: int
    kept: int
    """How many are not old enough and are kept."""
    dry_run: bool
    as_of: datetime


async def in_the_trash(work: Work, store: SnapshotStore) -> Purged:
    """Return what a purge would remove permanently. Changes nothing."""
    trash = await store.trash()
    return await discarded(work, store, trash, kept=0, dry_run=True)


async def discarded(
    work: Work, store: SnapshotStore, entries: Sequence[Trashed], *, kept: int, dry_run: bool
) -> Purged:
    """Return *entries* of the trash as answers show them."""
    there = {meta.session_id for meta in await store.list()}
    return Purged(
        removed=tuple(Discarded.from_fields(each, is_copy=each.session_id in there) for each in entries),
        size_bytes=sum(each.size_bytes for each in entries),
        kept=kept,
        dry_run=dry_run,
        as_of=work.now,
    )
