"""``asnap note``: write a note on a session, or read it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.labelling import Label, label_as_is, relabel, whole_session
from snapshot_plugin.cli.output import Output
from snapshot_plugin.cli.refs import find
from snapshot_plugin.cli.text import plain

if TYPE_CHECKING:
    from snapshot_plugin.manager.labels import Labelled

__all__ = ["command"]


class _Read(Label):
    """The same, when the note was only asked for."""

    def show(self, out: Output) -> None:
        """See `Document`."""
        if self.note:
            out.line(plain(self.note, lines=True))
        else:
            out.note("there is no note on it")


@declare(
    "note",
    section="Change",
    answer=Label,
    examples=(
        ("asnap note latest 'waits for the review'", "asnap show has it from now on"),
        ("asnap note latest", "read it"),
        ("git log -1 | asnap note 01jd7a -", "from a pipe; '' takes the note away"),
    ),
    exits=(4, 5, 6, 7, 10),
)
@click.argument("ref")
@click.argument("text", required=False)
async def command(call: Call, *, ref: str, text: str | None) -> Label:
    """Write a note on a session, or read it.

    It goes wherever the session goes: exports, forks, other machines. Without TEXT, the note is printed.
    """
    from snapshot_plugin.manager.labels import checked_label

    words = sys.stdin.read() if text == "-" else text
    async with call.store() as store:
        session_id = whole_session(await find(store, ref), "a note")
        if words is None:
            return _Read(**vars(label_as_is(await store.read(session_id))))
        wanted = checked_label({"note": words})
        return await relabel(call, store, session_id, lambda _: wanted, kind="note", told=_told)


def _told(done: Labelled) -> str:
    if done.after["note"] is None:
        return f"there is no note on {done.session_id}" + (" any more" if done.changed else "")
    return f"{done.session_id} has {'a new' if done.changed else 'this'} note"
