"""``asnap forget``: remove sessions, or old snapshots by policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import Printed, yes_option
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.layout import options
from snapshot_plugin.cli.output import Column, Output
from snapshot_plugin.errors import InvalidPolicy
from snapshot_plugin.operations import references
from snapshot_plugin.operations.forget import Fate, ForgetJob, Forgotten
from snapshot_plugin.operations.moments import moment
from snapshot_plugin.operations.text import ago, plain, several, size

if TYPE_CHECKING:
    from snapshot_plugin.model.policy import RetentionPolicy

__all__ = ["command"]


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
        out.table((*what, Column("WHY", flexible=True)), (_row(fate) for fate in answer.sessions))


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


def _row(fate: Fate) -> tuple[str, ...]:
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
async def command(
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
