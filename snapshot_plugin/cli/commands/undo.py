"""``asnap undo``: undo what a command did."""

from __future__ import annotations

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.output import Column, Output
from snapshot_plugin.operations.text import ago, plain
from snapshot_plugin.operations.undo import Done, Undone, operations, undo

__all__ = ["command"]


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
async def command(call: Call, *, operation: str | None, only_list: bool) -> Undone:
    """Undo what a command did: forget, rename, tag, pin, note, import, fork, merge, secrets --fix.

    What asnap purge removed cannot be restored. Sessions changed since are left alone and reported.
    """
    async with call.store() as store:
        return await (operations(call.work, store) if only_list else undo(call.work, store, operation))
