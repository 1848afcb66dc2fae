"""``forget``, ``undo``, ``purge``, ``why``, ``check`` and ``migrate``: what is kept, and whether it is intact."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import Printed, yes_option
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.layout import options
from snapshot_plugin.cli.output import Column, Output
from snapshot_plugin.cli.progress import progress
from snapshot_plugin.errors import Conflict, InvalidInput, InvalidPolicy, SessionLocked, SnapshotNotFound
from snapshot_plugin.inert import readable_json
from snapshot_plugin.operations import references
from snapshot_plugin.operations import references as refs
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.failures import PARTIAL
from snapshot_plugin.operations.forget import Discarded, Fate, ForgetJob, Forgotten, Purged, discarded
from snapshot_plugin.operations.references import Target, find
from snapshot_plugin.operations.searching import forget_index
from snapshot_plugin.operations.text import ago, clock_time, long_ago, moment, plain, several, size
from snapshot_plugin.operations.undo import Done, Undone, operations, undo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.model.policy import RetentionPolicy
    from snapshot_plugin.operations.undo import Operation
    from snapshot_plugin.store.base import Finding, SnapshotStore, Trashed

__all__ = [
    "Checked",
    "Migrated",
    "Why",
    "check_command",
    "forget_command",
    "migrate_command",
    "purge_command",
    "undo_command",
    "why_command",
]

# asnap forget -------------------------------------------------------------------------------------------------


def _rules() -> Callable[[Any], Any]:
    told = {"last": "the newest N snapshots"} | {
        name: f"the newest snapshot of each of the last N {period}s that have one"
        for name, period in (("hourly", "hour"), ("daily", "day"), ("weekly", "week"), ("monthly", "month"))
    }
    tags = click.option(
        "--keep-tag",
        multiple=True,
        metavar="TAG",
        help="Keep snapshots with this tag. Without it, every tag keeps.",
    )
    within = click.option("--keep-within", metavar="SPAN", help="Keep snapshots younger than this: 12h, 7d, 4w.")
    count = click.IntRange(min=0)
    counts = (click.option(f"--keep-{each}", type=count, metavar="N", help=f"Keep {told[each]}.") for each in told)
    return options(*counts, within, tags)


def show_forgotten(answer: Forgotten, out: Output) -> None:
    """Print what was forgotten, or would be."""
    show_table(answer, out)
    show_end(answer, out)


def show_table(answer: Forgotten, out: Output) -> None:
    """Print what goes and why: each snapshot if one session was named, otherwise a line per session."""
    if answer.single and answer.sessions and answer.sessions[0].what == "snapshots":
        columns = (Column("SNAPSHOT", right=True), Column("AGE", right=True), Column("FATE"), Column("WHY"))
        out.table(columns, _snapshots(answer.sessions[0], answer.as_of))
    else:
        what = (Column("SESSION"), Column("TITLE", flexible=True, rank=1), Column("FATE"))
        out.table((*what, Column("WHY", flexible=True)), (_forget_row(fate) for fate in answer.sessions))


def show_end(answer: Forgotten, out: Output) -> None:
    """Print what was done, and how to undo it."""
    if answer.untouched:
        out.note(f"nothing to forget in {several(answer.untouched, 'session')}")
    if answer.dry_run:
        out.note(f"would forget {answer.counted}; nothing was changed")
    elif answer.operation:
        out.note(f"forgot {answer.counted}; undo: {out.run('asnap undo')}")
        out.note(f"  it stays in the trash, and takes up space, until {out.run('asnap purge')}")
    else:
        out.note("nothing was forgotten")


def show_end_of_forget(answer: Forgotten, out: Output) -> None:
    """Print what was forgotten, if the table was already printed for the confirmation."""
    if answer.exit_code:  # something was skipped, so it is not as it was shown
        show_table(answer, out)
    show_end(answer, out)


def _snapshots(fate: Fate, now: datetime) -> Iterator[tuple[str, ...]]:
    for each in fate.snapshots:
        why = ", ".join(map(_said, each.reasons)) if each.keep else "no rule keeps it"
        yield str(each.snapshot), ago(each.saved_at, now), "keep" if each.keep else "drop", plain(why)


def _said(reason: str) -> str:
    return {"head": "newest"}.get(reason, reason)


def _forget_row(fate: Fate) -> tuple[str, ...]:
    title = plain(fate.title or "")
    if fate.what != "snapshots":
        told = {"session": f"trash, {size(fate.size_bytes)}", "skipped": "skipped"}[fate.what]
        return fate.session_id, title, told, plain(fate.why)
    kept = Counter(_said(each.reasons[0]).split()[0] for each in fate.snapshots if each.keep and each.reasons)
    why = ", ".join(f"{count} {reason}" for reason, count in kept.most_common())
    return (
        fate.session_id,
        title,
        f"drop {fate.dropped} of {len(fate.snapshots)}",
        plain(f"keeps {why}" if why else fate.why),
    )


@declare(
    "forget",
    answer=Forgotten,
    show=show_forgotten,
    examples=(
        ("asnap forget 01jd7a 'old try'", "move two sessions to the trash"),
        ("asnap forget --all --keep-last 5 --keep-daily 30 -n", "what this policy would drop, and why"),
        ("asnap forget --all --policy", "the snapshots that the settings do not keep; asnap why explains each"),
        ("asnap forget --all --keep-sessions 1000 --yes", "in cron: only the 1000 that changed last stay"),
        ("asnap forget 'fix auth'@12", "one snapshot"),
    ),
    exits=(3, 4, 5, 6, 7, 10),
)
@click.argument("refs", nargs=-1, metavar="[REF]...")
@click.option("--all", "everything", is_flag=True, help="Look at every session; needs a rule.")
@_rules()
@click.option(
    "--keep-sessions",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --all: keep the N sessions that changed last.",
)
@click.option("--policy", "configured", is_flag=True, help="Apply the retention of the settings; see asnap why.")
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be forgotten and why; change nothing.")
@yes_option
async def forget_command(
    call: Call,
    *,
    refs: tuple[str, ...],
    everything: bool,
    keep_sessions: int | None,
    configured: bool,
    dry_run: bool,
    **rules: Any,
) -> Printed:
    """Remove sessions, or old snapshots by policy.

    REF alone moves whole sessions to the trash; with --keep rules or --policy, the snapshots that no rule keeps are
    dropped.
    The newest snapshot, pinned sessions and live sessions stay. Everything can be undone until asnap purge.
    """
    policy = _policy(rules, call)
    if configured and (policy or keep_sessions):
        raise click.UsageError("--policy goes with no other rule.")
    _check(refs, call.config.keep if configured else policy, everything=everything, keep_sessions=keep_sessions)
    async with call.store() as store:
        metas = await store.list()
        job = ForgetJob(call.work, store, metas, single=len(refs) == 1)
        if keep_sessions:
            job.plan_surplus(keep_sessions)
        elif configured:
            await job.plan_settings([job.session(ref) for ref in refs])
        elif policy:
            await job.plan_policy([job.session(ref) for ref in refs] or [m.session_id for m in metas], policy)
        else:
            await job.plan_named([references.resolve(ref, metas) for ref in refs])
        plan = job.plan()
        if dry_run:
            return Printed(plan, show_forgotten)
        is_shown = _confirmed(call, plan)
        done = await job.carry_out()
    return Printed(done, show_end_of_forget if is_shown else show_forgotten)


def _confirmed(call: Call, plan: Forgotten) -> bool:
    """Show what will go, then ask. Returns whether it was shown."""
    if plan.counted == "nothing":
        return False
    is_shown = call.may_ask and call.out.is_text and not call.assume_yes
    if is_shown:
        show_table(plan, call.out)
    call.confirm(f"Forget {plan.counted}? (asnap undo restores it, until asnap purge)")
    return is_shown


def _policy(rules: dict[str, Any], call: Call) -> RetentionPolicy | None:
    """Return the policy that the options name, if any."""
    from snapshot_plugin.model.policy import RetentionPolicy

    given = {name: value for name, value in rules.items() if value not in (None, ())}
    if not given:
        return None
    if not any(given.values()):
        raise InvalidPolicy("these rules would keep nothing", hint="give --keep-last N or another rule")
    within, tags = given.pop("keep_within", None), given.pop("keep_tag", ())
    span: timedelta | None = call.now - moment(within, call.now) if within else None
    return RetentionPolicy(**given, keep_within=span, keep_tags=tags)


def _check(
    refs: Sequence[str], policy: RetentionPolicy | None, *, everything: bool, keep_sessions: int | None
) -> None:
    if not refs and not everything:
        raise click.UsageError("Say what to forget: REF, or --all with a rule.")
    if refs and everything:
        raise click.UsageError("REF and --all contradict each other.")
    if keep_sessions and (policy or not everything):
        raise click.UsageError("--keep-sessions goes with --all, and with no other rule.")
    if everything and not policy and not keep_sessions:
        raise InvalidPolicy("--all without a rule would keep nothing", hint="give --keep-last N or another rule")


# asnap undo ---------------------------------------------------------------------------------------------------


def show_undone(answer: Undone, out: Output) -> None:
    """Print what was undone, or could be."""
    if not answer.told:
        _show_list(answer, out)
        return
    for line in answer.told:
        out.note(plain(line))
    for each in answer.problems:
        out.warn(f"not undone: {plain(each.problem)}", fg="yellow")
    if answer.redo:
        out.note(f"  to do it again: {out.run(f'asnap undo {answer.redo}')}")


def _show_list(answer: Undone, out: Output) -> None:
    if not answer.operations:
        out.note("there is nothing to undo")
        return
    done = (Column("ID"), Column("AGE", right=True, rank=1), Column("DONE"), Column("WHAT", flexible=True))
    out.table((*done, Column("STATE")), [_cells(answer, each) for each in answer.operations])


def _cells(answer: Undone, each: Done) -> tuple[str, ...]:
    state = "" if each.state == "done" else each.state
    return each.short_id, ago(each.at, answer.as_of), plain(each.operation), plain(each.summary), state


@declare(
    "undo",
    answer=Undone,
    show=show_undone,
    examples=(
        ("asnap undo", "undo the last forget, rename, tag, import, …"),
        ("asnap undo --list", "list operations, newest first"),
        ("asnap undo 01jd7a", "undo that operation, even an undo; or restore an id listed by purge -n"),
    ),
    exits=(3, 4, 6, 7, 10),
)
@click.argument("operation", metavar="[ID]", required=False)
@click.option("--list", "only_list", is_flag=True, help="Only list operations.")
async def undo_command(call: Call, *, operation: str | None, only_list: bool) -> Undone:
    """Undo what a command did: forget, rename, tag, pin, note, import, fork, merge, secrets --fix.

    What asnap purge removed cannot be restored. Sessions changed since are left alone and reported.
    """
    async with call.store() as store:
        return await (operations(call.work, store) if only_list else undo(call.work, store, operation))


# asnap purge --------------------------------------------------------------------------------------------------


def show_purged(answer: Purged, out: Output) -> None:
    """Print what was removed permanently, or would be."""
    right = (Column("AGE", right=True), Column("SIZE", right=True))
    columns = (Column("SESSION"), Column("WHAT"), *right, Column("ID"))
    out.table(columns, [_purge_row(answer, each) for each in answer.removed])
    if answer.kept:
        out.note(f"{answer.kept} in the trash are younger and were kept")
    if not answer.removed:
        out.note("nothing to remove")
    elif answer.dry_run:
        out.note(f"would free {size(answer.size_bytes)}; nothing was changed")
    else:
        out.note(f"removed permanently: {len(answer.removed)}; freed {size(answer.size_bytes)}")


def _purge_row(answer: Purged, each: Discarded) -> tuple[str, ...]:
    what = "dropped snapshots" if each.is_copy else "session"
    return each.session_id, what, ago(each.deleted_at, answer.as_of), size(each.size_bytes), each.token


@declare(
    "purge",
    answer=Purged,
    show=show_purged,
    examples=(
        ("asnap purge", "remove everything in the trash permanently, after a question"),
        ("asnap purge --older-than 30d --yes", "in cron: keep a month to change your mind"),
        ("asnap purge -n", "the contents of the trash, their sizes, and their ids for asnap undo"),
    ),
    exits=(7, 10),
)
@click.option(
    "--older-than", metavar="SPAN", default="0s", help="Only what was forgotten longer ago than this: 12h, 30d, 4w."
)
@click.option("-n", "--dry-run", is_flag=True, help="Show what would be removed; remove nothing.")
@yes_option
async def purge_command(call: Call, *, older_than: str, dry_run: bool) -> Purged:
    """Empty the trash permanently.

    It holds what asnap forget and asnap secrets scan --fix removed. Afterwards asnap undo cannot restore it.
    """
    grace = max(timedelta(0), call.now - moment(older_than, call.now))
    async with call.store() as store:
        trash = await store.trash()
        old = [each for each in trash if call.now - each.deleted_at >= grace]
        freed = sum(each.size_bytes for each in old)
        if old and not dry_run:
            call.confirm(f"Remove {len(old)} from the trash permanently ({size(freed)})?")
            old = list(await store.purge(older_than=grace, now=call.now))
            await _forget_operations(call, store, old)
            await forget_index(call.work, store)
        return await discarded(call.work, store, old, kept=len(trash) - len(old), dry_run=dry_run)


async def _forget_operations(call: Call, store: SnapshotStore, purged: Sequence[Trashed]) -> None:
    """Drop operations that can no longer be undone, and with them the names of purged sessions."""
    tokens = {each.token for each in purged}
    gone = {each.session_id for each in purged} - {meta.session_id for meta in await store.list()}

    def is_void(done: Operation) -> bool:
        steps = done.steps
        return bool(steps) and all(s.get("token") in tokens or s.get("session_id") in gone for s in steps)

    await call.work.operations(store).forget(is_void)


# asnap why ----------------------------------------------------------------------------------------------------


_TRIGGERS = {
    "manual": "requested by a person or a program",
    "event": "a turn ended, or something else worth keeping happened",
    "auto": "the session had changed, and the interval had passed",
    "exit": "the session was stopped",
    "signal": "the process was told to end",
    "recovered": "recovered after its process was killed",
    "snapshot_all": "all live sessions were saved together, for example before a deploy",
    "fallback": "the state before a fresh start, because the agent could not load the session",
    "fork": "the session was branched",
    "label": "its title, tags, pin or note were changed",
    "import": "it was imported",
    "migrate": "it was upgraded to the current version",
    "memory": "the agent's working memory changed",
    "merge": "two branches were merged",
}
_REASONS = {
    "head": "it is the newest",
    "last": "it is one of the last {keep_last}",
    "within": "it is younger than {keep_within}",
    "hourly": "it is the newest of its hour ({keep_hourly} are kept)",
    "daily": "it is the newest of its day ({keep_daily} are kept)",
    "weekly": "it is the newest of its week ({keep_weekly} are kept)",
    "monthly": "it is the newest of its month ({keep_monthly} are kept)",
    "pinned": "its session is pinned",
    "fallback": "it is one of the last {keep_fallbacks} from before a fresh start",
    "damaged": "it cannot be read, and what cannot be read is never dropped",
    "encrypted": "it cannot be read, and what cannot be read is never dropped",
    "too_new": "it cannot be read, and what cannot be read is never dropped",
}


class ForkOrigin(Part):
    """The session and snapshot a fork came from."""

    session_id: str
    snapshot: int
    messages: int


class Why(Document):
    """One snapshot: its trigger and base, and whether it is kept."""

    kind: ClassVar[str] = "why"
    session_id: str
    title: str | None
    snapshot: int
    newest: int
    saved_at: datetime
    state: str
    problem: str | None
    trigger: str
    because: str
    """The trigger in words."""
    tags: tuple[str, ...]
    based_on: int | None
    """The snapshot before it; null for the first one, or if those before it were dropped."""
    added_messages: int
    """How many messages it has more than that one."""
    fork_of: ForkOrigin | None
    size_bytes: int
    keep: bool
    reasons: tuple[str, ...]
    """Why the policy keeps it; none if it drops it."""
    session_goes: str | None
    """Why the settings do not keep the session at all; null if they do."""
    policy: dict[str, Any]
    policy_from: str
    """Where the policy was set."""
    as_of: datetime


def show_why(answer: Why, out: Output) -> None:
    """Print one snapshot: its trigger and base, and whether it is kept."""
    out.line(f"snapshot {answer.snapshot} of {plain(answer.title or '') or answer.session_id}", bold=True)
    when = f"{clock_time(answer.saved_at)} ({long_ago(answer.saved_at, answer.as_of)})"
    out.line(f"saved     {when}, {size(answer.size_bytes)}")
    out.line(f"because   {plain(answer.because)} ({plain(answer.trigger)})")
    out.line(f"based on  {_base(answer)}")
    if answer.tags:
        out.line(f"tags      {plain(', '.join(answer.tags))}")
    if answer.state != "ok":
        out.line(f"{answer.state:<10}{plain(answer.problem or '')}", fg="red")
    verdict, colour = ("kept", "green") if answer.keep else ("dropped", "yellow")
    again = out.run("asnap forget --policy")
    going = answer.session_goes or f"no rule keeps it; a manager drops it at the next save, as does {again}"
    why = "; ".join(map(plain, answer.reasons)) or going
    out.line(f"{out.style(f'{verdict:<10}', fg=colour)}{why}")
    rules = ", ".join(f"{name} = {value}" for name, value in answer.policy.items())
    out.line(f"policy    {plain(rules)} ({plain(answer.policy_from)})")


def _base(answer: Why) -> str:
    if answer.based_on is not None:
        return f"snapshot {answer.based_on}, with {answer.added_messages:+} messages"
    if fork := answer.fork_of:
        return f"session {fork.session_id}@{fork.snapshot}, its first {fork.messages} messages"
    return "nothing that is still there" if answer.snapshot > 1 else "nothing: it is the first"


@declare(
    "why",
    answer=Why,
    show=show_why,
    examples=(
        ("asnap why latest", "the newest snapshot of the newest session"),
        ("asnap why 01jd@5", "snapshot 5: what triggered it, and whether it stays"),
        ("asnap why 'fix auth' --json | jq .reasons", "why the policy keeps it"),
    ),
    exits=(4, 7, 10),
)
@click.argument("ref", metavar="REF[@N]")
async def why_command(call: Call, *, ref: str) -> Why:
    """Explain why a snapshot exists: its trigger and its base.

    And whether it is kept: by which retention rules, and where they were set.
    """
    from snapshot_plugin.manager.retention import policy_for, surplus_of
    from snapshot_plugin.model.ids import owner_of

    async with call.store() as store:
        target = await find(store, ref)
        history = await store.history(target.session_id)
        metas = await store.list()
    meta, before = _found(target, history)
    policy = policy_for(history, call.config)
    owner = next((each for each in metas if each.session_id == owner_of(meta.session_id)), target.meta)
    surplus = surplus_of(metas, call.config, lambda: call.now)
    goes = next((why for each, why in surplus if each.session_id == owner.session_id), None)
    reasons = () if goes else _reasons(history, meta.seq, policy, call.now)
    if owner is not target.meta and owner.pinned:
        reasons = (_REASONS["pinned"], *reasons)
    rules = policy.raw()
    return Why.from_fields(
        meta,
        title=target.meta.title,
        snapshot=meta.seq,
        newest=history[0].seq,
        because=_TRIGGERS.get(meta.trigger, "the program that saved it gave this reason"),
        tags=meta.snapshot_tags,
        based_on=before.seq if before else None,
        added_messages=meta.messages - (before.messages if before else 0),
        fork_of=_origin(meta),
        keep=bool(reasons),
        reasons=reasons,
        session_goes=goes,
        policy=rules,
        policy_from=_origin_of_policy(call),
        as_of=call.now,
    )


def _found(target: Target, history: Sequence[SnapshotMeta]) -> tuple[SnapshotMeta, SnapshotMeta | None]:
    """Return the requested snapshot and the one before it."""
    wanted = target.seq or history[0].seq
    for number, meta in enumerate(history):
        if meta.seq == wanted:
            return meta, next(iter(history[number + 1 :]), None)
    known = ", ".join(str(meta.seq) for meta in history[:8])
    raise SnapshotNotFound(
        f"session {target.session_id} has no snapshot {wanted}",
        session_id=target.session_id,
        hint=f"it has {known}",
    )


def _origin(meta: SnapshotMeta) -> ForkOrigin | None:
    if meta.parent is None:
        return None
    return ForkOrigin(
        session_id=meta.parent.session_id, snapshot=meta.parent.seq, messages=meta.parent.message_index
    )


def _reasons(history: Sequence[SnapshotMeta], seq: int, policy: RetentionPolicy, now: datetime) -> tuple[str, ...]:
    """Return why ``asnap forget --policy`` keeps the snapshot; empty if it drops it."""
    from snapshot_plugin.model.policy import plan

    decision = next(each for each in plan(history, policy, now) if each.seq == seq)
    if not decision.keep and any(meta.state != "ok" for meta in history):
        return ("its session is damaged, and damaged sessions are not thinned",)
    return tuple(_in_words(reason, policy) for reason in decision.reasons)


def _in_words(reason: str, policy: RetentionPolicy) -> str:
    if reason.startswith("tag "):
        return f"it is tagged {reason.removeprefix('tag ')}"
    if reason.startswith("oldest "):
        return f"it is the oldest, and the {reason.removeprefix('oldest ')} rule is not full yet"
    return _REASONS.get(reason, reason).format(**dict(policy))


def _origin_of_policy(call: Call) -> str:
    setting = "max_snapshots_per_session" if call.config.retention is None else "retention"
    return f"{setting}, from {call.config.origin(setting)}"


# asnap check --------------------------------------------------------------------------------------------------


_EXPLAINED = {
    "corrupted": "the bytes are not the ones that were written: a failing disk, or an edit by hand",
    "tampered": "well-formed, but not made with this store's key for this place",
    "chain": "it builds on a snapshot that is damaged or missing",
    "version_unsupported": "written by a newer release; upgrade to read it",
    "wrong_key": "encrypted with a key this store does not have",
    "misplaced": "a file of another session or another place: move it out of the store by hand",
    "unreadable": "the disk cannot read it",
    "unfinished": "a save that was cut off before it was acknowledged; harmless",
    "leftover": "a temporary file of a killed process; harmless",
    "quarantine": "kept until you remove it; asnap check --salvage reads it where nothing else is left",
}


class FoundProblem(Part):
    """One problem."""

    session_id: str
    kind: str
    seq: int | None
    file: str | None
    offset: int | None
    detail: str
    explanation: str
    is_damage: bool


class Checked(Document):
    """What was verified, and the problems."""

    kind: ClassVar[str] = "check"
    rows: ClassVar[str] = "findings"
    sessions: int
    snapshots: int
    bytes_read: int
    findings: tuple[FoundProblem, ...]
    repaired: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """5 if acknowledged data is damaged and was not set aside."""
        return 5 if any(found.is_damage for found in self.findings) and not self.repaired else 0


def show_check(answer: Checked, out: Output) -> None:
    """Print what was verified, and the problems."""
    for found in answer.findings:
        where = f"{found.session_id}@{found.seq}" if found.seq else found.session_id
        out.line(f"{found.kind}  {plain(where)}  {plain(found.detail)}", fg="red" if found.is_damage else "yellow")
        out.line(f"    {found.explanation}" + (f" ({plain(found.file)})" if found.file else ""))
    for line in answer.repaired:
        out.line(f"repaired  {plain(line)}", fg="green")
    out.line(
        f"{several(answer.sessions, 'session')}, {several(answer.snapshots, 'snapshot')}, "
        f"{size(answer.bytes_read)} verified: "
        + ("damage found" if any(found.is_damage for found in answer.findings) else "no damage")
    )
    if answer.exit_code:
        repair = out.run("asnap check --repair")
        out.note(f"  next: {repair}   (copies damaged files to quarantine, keeps intact snapshots)")


@declare(
    "check",
    answer=Checked,
    show=show_check,
    examples=(
        ("asnap check", "read and verify everything"),
        ("asnap check fix-auth", "one session"),
        ("asnap check --subset 1/7", "a seventh of the sessions: one each day of the week"),
        ("asnap check --salvage fix-auth", "rebuild a damaged session from its intact parts"),
        ("asnap check --repair", "set damaged files aside and keep every intact snapshot"),
    ),
    exits=(4, 5, 7, 10),
)
@click.argument("ref", required=False)
@click.option("--subset", metavar="N/T", help="Only the N-th of T parts of the sessions.")
@click.option("--repair", is_flag=True, help="Copy damaged files to quarantine, and rewrite the intact snapshots.")
@click.option(
    "--salvage", is_flag=True, help="Save the intact parts of a damaged session as a new snapshot, gaps marked."
)
@yes_option
async def check_command(call: Call, *, ref: str | None, subset: str | None, repair: bool, salvage: bool) -> Checked:
    """Verify the store: every checksum, every digest, every chain.

    Nothing is changed unless --repair or --salvage is given, and even then nothing is deleted. --salvage only adds
    a snapshot; --repair does the same if intact snapshots follow the damage, then moves damaged files to
    quarantine.
    """
    part = _part(subset)
    async with call.opened() as store:  # as it is: nothing is recovered first
        aside = await store.quarantined()
        names = [await _named(store, ref, aside)] if ref else await _all(store, part)
        if repair:
            call.confirm("Move damaged files to quarantine and rewrite the affected sessions?")
        reports, salvaged = [], []
        with progress(call.out, "checking", len(names)) as step:
            for name in names:
                step(name)
                if salvage and (saved := await store.salvage(name)):
                    salvaged.append(f"{name}: the intact parts were saved as snapshot {saved.seq}")
                reports.append(await store.check(name, repair=repair))
    shown = [finding for finding in aside if not ref or finding.session_id in names]
    findings = [
        FoundProblem.from_fields(finding, explanation=_EXPLAINED.get(finding.kind, ""))
        for finding in (*(each for report in reports for each in report.findings), *shown)
    ]
    return Checked(
        sessions=len(names),
        snapshots=sum(report.snapshots for report in reports),
        bytes_read=sum(report.bytes_read for report in reports),
        findings=tuple(findings),
        repaired=(*salvaged, *(line for report in reports for line in report.repaired)),
    )


async def _named(store: SnapshotStore, ref: str, aside: Sequence[Finding]) -> str:
    """Return the session of *ref*, also if only quarantine holds anything of it."""
    if ref in {finding.session_id for finding in aside}:
        return ref
    return (await refs.find(store, ref)).session_id


def _part(subset: str | None) -> tuple[int, int]:
    if subset is None:
        return 1, 1
    match = re.fullmatch(r"(\d+)/(\d+)", subset)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise click.BadParameter(
            f"{subset!r} is not a part: write 1/7 for the first of seven", param_hint="--subset"
        )
    return int(match[1]), int(match[2])


async def _all(store: SnapshotStore, part: tuple[int, int]) -> list[str]:
    names = sorted(meta.session_id for meta in await store.list())
    return names[part[0] - 1 :: part[1]]


# asnap migrate ------------------------------------------------------------------------------------------------


class Moved(Part):
    """One file or session: the steps it needs, and where the result is."""

    what: str
    steps: tuple[str, ...]
    written: str | None
    problem: str | None = None
    """Why it was left unchanged, for example because it is live."""


class Migrated(Document):
    """What was old, and the result for each."""

    kind: ClassVar[str] = "migrate"
    rows: ClassVar[str] = "moved"
    current_version: int
    looked_at: int
    moved: tuple[Moved, ...]
    dry_run: bool

    @property
    def exit_code(self) -> int:
        """3 if some were left unchanged."""
        return PARTIAL if any(each.problem for each in self.moved) else 0


def show_migrated(answer: Migrated, out: Output) -> None:
    """Print what was old, and the result for each."""
    for each in answer.moved:
        out.line(plain(each.what) + (f" → {plain(each.written)}" if each.written else ""))
        for step in each.steps:
            out.line(f"    {step}")
    left = [each for each in answer.moved if each.problem]
    for each in left:
        out.note(f"not migrated: {plain(each.problem or '')}")
    would = "would be" if answer.dry_run else "were"
    done = f"{len(answer.moved) - len(left)} {would} upgraded to version {answer.current_version}"
    out.note(f"{answer.looked_at} checked; {done}")


@declare(
    "migrate",
    answer=Migrated,
    show=show_migrated,
    examples=(
        ("asnap migrate --dry-run", "which sessions of the store are of an older version"),
        ("asnap migrate", "save them in the current version; their old snapshots stay"),
        ("asnap migrate old/*.json", "write old/NAME.v2.json beside each; the originals are not touched"),
    ),
    exits=(2, 3, 5, 7, 8, 10),
)
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be done.")
async def migrate_command(call: Call, *, files: tuple[Path, ...], dry_run: bool) -> Migrated:
    """Rewrite the files of older releases in the current version.

    Reading never needs this: old versions are always upgraded when read. Originals are kept.
    """
    from snapshot_plugin.model.snapshot import CURRENT_VERSION

    if files:
        moved = [each for path in files if (each := _file(path, dry_run=dry_run))]
        looked_at = len(files)
    else:
        async with call.store() as store:
            looked_at, moved = await _sessions(call, store, dry_run=dry_run)
    return Migrated(current_version=CURRENT_VERSION, looked_at=looked_at, moved=tuple(moved), dry_run=dry_run)


def _file(path: Path, *, dry_run: bool) -> Moved | None:
    from snapshot_plugin.exchange.foreign import as_document, shape_of
    from snapshot_plugin.migrate import load_document, plan_migration
    from snapshot_plugin.system.files import replace_file

    found = _read(path)
    raw = as_document(found)
    steps = tuple(f"{step.from_version} → {step.to_version}: {step.description}" for step in plan_migration(raw))
    if raw is not found:
        steps = (f"{shape_of(found)} → 1: read another tool's session", *steps)
    if not steps:
        return None
    snapshot = load_document(raw)
    target = path.with_suffix(f".v{snapshot.version}.json")
    if dry_run:
        return Moved(what=str(path), steps=steps, written=None)
    if target.exists():
        raise InvalidInput(f"{target} exists already", hint="move it away first")
    replace_file(target, readable_json(snapshot.raw() | {"version": snapshot.version}, indent=None).encode())
    if load_document(_read(target)) != snapshot:
        target.unlink()
        raise InvalidInput(f"{path} does not read back as it was written", hint="please report this file's shape")
    return Moved(what=str(path), steps=steps, written=str(target))


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"{path} is not a JSON document: {error}", hint="asnap import reads other shapes"
        ) from error


async def _sessions(call: Call, store: SnapshotStore, *, dry_run: bool) -> tuple[int, list[Moved]]:
    from snapshot_plugin.model.snapshot import CURRENT_VERSION

    metas = [meta for meta in await store.list() if meta.state == "ok"]
    old = [meta for meta in metas if meta.version < CURRENT_VERSION]
    moved = []
    with progress(call.out, "migrating", len(old)) as step:
        for meta in old:
            step(meta.session_id)
            written = problem = None
            if not dry_run:
                try:
                    written = await _saved_anew(store, meta.session_id)
                except (SessionLocked, Conflict) as error:
                    problem = error.message
            steps = (f"{meta.version} → {CURRENT_VERSION}",)
            moved.append(Moved(what=f"{meta.session_id}@{meta.seq}", steps=steps, written=written, problem=problem))
    return len(metas), moved


async def _saved_anew(store: SnapshotStore, session_id: str) -> str:
    """Save the session in the current version. `SessionLocked` if it is live: its owner saves it so itself."""
    from snapshot_plugin.live.place import held_alone, must_be_recovered
    from snapshot_plugin.manager.ports import utc_now

    async with held_alone(store, session_id, utc_now, to="migrate"):
        await must_be_recovered(store, session_id)
        stored = await store.read(session_id, strict=True)
        ref = await store.save(stored.snapshot, trigger="migrate", tags=("migrated",), base=stored.ref.seq)
    return f"{session_id}@{ref.seq}"
