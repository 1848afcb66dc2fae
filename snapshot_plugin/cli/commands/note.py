"""``asnap note``: write a note on a session, or read it."""

from __future__ import annotations

import sys

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import Printed
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.labelled import show_label
from snapshot_plugin.cli.output import Output
from snapshot_plugin.operations.labels import Label, annotate, label_as_is, whole_session
from snapshot_plugin.operations.references import find
from snapshot_plugin.operations.text import plain

__all__ = ["command"]


def show_note(answer: Label, out: Output) -> None:
    """Print the note."""
    if answer.note:
        out.line(plain(answer.note, lines=True))
    else:
        out.note("there is no note on it")


@declare(
    "note",
    answer=Label,
    show=show_note,
    examples=(
        ("asnap note latest 'waits for the review'", "asnap show has it from now on"),
        ("asnap note latest", "read it"),
        ("git log -1 | asnap note 01jd7a -", "from a pipe; '' removes the note"),
    ),
    exits=(4, 5, 6, 7, 10),
)
@click.argument("ref")
@click.argument("text", required=False)
async def command(call: Call, *, ref: str, text: str | None) -> Printed:
    """Write a note on a session, or read it.

    It goes wherever the session goes: exports, forks, other machines. Without TEXT, the note is printed.
    """
    words = sys.stdin.read() if text == "-" else text
    async with call.store() as store:
        session_id = whole_session(await find(store, ref), "a note")
        if words is None:
            return Printed(label_as_is(await store.read(session_id)), show_note)
        return Printed(await annotate(call.work, store, session_id, words), show_label)
