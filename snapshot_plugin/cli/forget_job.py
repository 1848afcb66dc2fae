"""Forgetting as the command does it: first decided and shown, then done, and written down for undo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from snapshot_plugin.cli import refs as references
from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.forgotten import Fate, Forgotten, ForgottenAsShown, SnapshotFate
from snapshot_plugin.cli.progress import progress
from snapshot_plugin.errors import InvalidInput, SnapshotError

if TYPE_CHECKING:
    from snapshot_plugin.manager.forgetting import SnapshotPlan
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.model.policy import RetentionPolicy
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["ForgetJob"]


class ForgetJob:
    """What is to go, decided first and then done. A session that cannot be touched costs the others nothing."""

    def __init__(self, call: Call, store: SnapshotStore, metas: Sequence[SnapshotMeta], *, single: bool) -> None:
        self._call, self._store, self._metas, self._single = call, store, metas, single
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
        """The sessions over a number."""
        from snapshot_plugin.manager.forgetting import surplus_sessions

        surplus = surplus_sessions(self._metas, keep)
        for meta in surplus:
            self._plan_session(meta.session_id, f"not among the {keep} that changed last")
        self._untouched = len(self._metas) - len(self._fates)

    async def plan_named(self, targets: Sequence[references.Target]) -> None:
        """Sessions, or single snapshots, that were named."""
        for target in targets:
            if target.seq is None:
                self._plan_session(target.session_id, "named")
            else:
                await self._plan_snapshot(target.session_id, target.seq)

    def _plan_session(self, session_id: str, why: str) -> None:
        from snapshot_plugin.manager.forgetting import companions

        for name in (session_id, *companions(session_id, self._by_id)):
            meta = self._by_id[name]
            self._plans.pop(name, None)
            if name != session_id:
                self._memory_of[name], why = session_id, f"the memory of {session_id}"
            self._fates[name] = Fate(
                session_id=name, title=meta.title, what="session", why=why, size_bytes=meta.size_bytes
            )

    async def _plan_snapshot(self, session_id: str, seq: int) -> None:
        from snapshot_plugin.manager.forgetting import plan_single

        if session_id not in self._fates or session_id in self._plans:  # else all of it goes anyway
            known = self._plans.get(session_id)
            self._take(await plan_single(self._store, session_id, seq, after=known))

    async def plan_settings(self, session_ids: Sequence[str]) -> None:
        """What the settings do not keep of these sessions, or of all: whole sessions first, then snapshots."""
        from snapshot_plugin.manager.retention import surplus_of

        config, named = self._call.config, frozenset(session_ids)
        for meta, why in surplus_of(self._metas, config, lambda: self._call.now):
            if not named or meta.session_id in named:
                self._plan_session(meta.session_id, why)
        rest = [each for each in session_ids or self._by_id if each not in self._fates]
        await self.plan_policy(rest, config.keep, keep_tagged=True)

    async def plan_policy(
        self, session_ids: Sequence[str], policy: RetentionPolicy, *, keep_tagged: bool = False
    ) -> None:
        """What a policy does not keep."""
        from snapshot_plugin.manager.forgetting import plan_snapshots

        with progress(self._call.out, "looking", len(session_ids)) as step:
            for session_id in dict.fromkeys(session_ids):
                step(session_id)
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
            SnapshotFate(
                snapshot=meta.seq,
                saved_at=meta.saved_at,
                size_bytes=meta.size_bytes,
                keep=decision.keep,
                reasons=decision.reasons,
            )
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

    async def run(self, *, dry_run: bool) -> Forgotten:
        """Ask, and do it. A single session that cannot be touched is an error."""
        if len(self._fates) == len(self._errors) == 1:
            raise self._errors[0]
        plan = self._answer(dry_run=True)
        if dry_run or plan.counted == "nothing":
            return plan if dry_run else self._answer(dry_run=False)
        asked = self._shown(plan)
        self._call.confirm(f"Forget {plan.counted}? (asnap undo takes it back, until asnap purge)")
        operation = await self._do(plan.counted)
        if len(self._fates) == len(self._errors) == 1:
            raise self._errors[0]
        done = self._answer(dry_run=False, operation=operation)
        return ForgottenAsShown(**vars(done)) if asked else done

    def _shown(self, plan: Forgotten) -> bool:
        """Show a person what will go before they are asked. Says whether it was shown."""
        if self._call.assume_yes or not self._call.may_ask or not self._call.out.is_text:
            return False
        plan.show_table(self._call.out)
        return True

    def _answer(self, *, dry_run: bool, operation: str | None = None) -> Forgotten:
        return Forgotten(
            sessions=tuple(self._fates.values()),
            untouched=self._untouched,
            single=self._single,
            dry_run=dry_run,
            operation=operation,
            as_of=self._call.now,
        )

    async def _do(self, counted: str) -> str | None:
        import anyio

        todo = [fate for fate in self._fates.values() if fate.what != "skipped"]
        try:
            with progress(self._call.out, "forgetting", len(todo)) as step:
                for fate in todo:
                    step(fate.session_id)
                    await self._forget(fate.session_id)
        finally:  # whoever interrupts this can still undo what was done
            with anyio.CancelScope(shield=True):
                operation = await self._record(counted)
        return operation

    async def _forget(self, session_id: str) -> None:
        from snapshot_plugin.manager.forgetting import drop_snapshots, forget_session

        plan, owner = self._plans.get(session_id), self._memory_of.get(session_id)
        if owner and self._fates[owner].what == "skipped":  # the memory stays where its session stays
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
        log = self._call.operations(self._store)
        return (await log.record(kind="forget", summary=f"{counted}: {named}", steps=self._steps)).id
