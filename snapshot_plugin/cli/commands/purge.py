"""``asnap purge``: empty the trash permanently."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.command import yes_option
from snapshot_plugin.cli.output import Column, Output
from snapshot_plugin.operations.moments import moment
from snapshot_plugin.operations.searching import forget_index
from snapshot_plugin.operations.text import ago, size
from snapshot_plugin.operations.trash import Discarded, Purged, discarded

if TYPE_CHECKING:
    from snapshot_plugin.operations.log import Operation
    from snapshot_plugin.store.base import SnapshotStore, Trashed

__all__ = ["command"]


def show_purged(answer: Purged, out: Output) -> None:
    """Print what was removed permanently, or would be."""
    right = (Column("AGE", right=True), Column("SIZE", right=True))
    columns = (Column("SESSION"), Column("WHAT"), *right, Column("ID"))
    out.table(columns, [_row(answer, each) for each in answer.removed])
    if answer.kept:
        out.note(f"{answer.kept} in the trash are younger and were kept")
    if not answer.removed:
        out.note("nothing to remove")
    elif answer.dry_run:
        out.note(f"would free {size(answer.size_bytes)}; nothing was changed")
    else:
        out.note(f"removed permanently: {len(answer.removed)}; freed {size(answer.size_bytes)}")


def _row(answer: Purged, each: Discarded) -> tuple[str, ...]:
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
async def command(call: Call, *, older_than: str, dry_run: bool) -> Purged:
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
