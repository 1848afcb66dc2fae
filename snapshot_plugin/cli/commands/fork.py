"""``asnap fork``: branch a session at any message."""

from __future__ import annotations

from dataclasses import replace

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.output import Output
from snapshot_plugin.operations.branches import Forked, fork
from snapshot_plugin.operations.text import plain, several

__all__ = ["command"]


def show_fork(answer: Forked, out: Output) -> None:
    """Print the fork."""
    out.line(answer.session_id)
    came = (
        f"{several(answer.messages, 'message')} of {plain(answer.parent_session_id)}, snapshot {answer.parent_seq}"
    )
    out.note(f"forked {title}: {came}" if (title := plain(answer.title or "")) else f"forked {came}")
    out.note(f"  resume: {answer.resume}    undo: {out.run('asnap undo')}")


@declare(
    "fork",
    answer=Forked,
    show=show_fork,
    examples=(
        ("asnap fork latest", "a second session with the messages of the newest one"),
        ("asnap fork 01jd --messages 12", "one that ends with message 12 (see asnap show)"),
        ('asnap fork 01jd@5 --title "other way"', "as of snapshot 5, under its own name"),
        ('asnap resume "$(asnap fork latest -q)"', "fork, and continue in the fork"),
    ),
    exits=(4, 5, 7, 10),
)
@click.argument("ref", metavar="REF")
@click.option(
    "--messages", type=click.IntRange(min=0), metavar="N", help="Take the first N messages; all unless given."
)
@click.option("--at", type=click.IntRange(min=0), hidden=True, help="The old name of --messages.")
@click.option("--title", metavar="TITLE", help="The new session's name.")
async def command(call: Call, *, ref: str, messages: int | None, at: int | None, title: str | None) -> Forked:
    """Branch a session at any message: a new session with the messages up to there.

    The original is unchanged, and may be live. An agent's working memory is copied as of that snapshot. Prints the
    new session's id.
    """
    async with call.store() as store:
        done = await fork(call.work, store, ref, messages=at if messages is None else messages, title=title)
    if done.warning:
        call.out.warn(done.warning, fg="yellow")
    return replace(done, resume=call.out.run(done.resume))
