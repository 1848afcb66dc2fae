"""``asnap fork``: branch a session at any message."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, ClassVar

import click

from snapshot_plugin.cli.branching import free_title, save_new
from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.document import Document
from snapshot_plugin.cli.output import Output
from snapshot_plugin.cli.text import plain

if TYPE_CHECKING:
    from snapshot_plugin.model.snapshot import SessionSnapshot

__all__ = ["Forked", "command"]


class Forked(Document):
    """The new session, and where it came from."""

    kind: ClassVar[str] = "fork"
    session_id: str
    title: str | None
    messages: int
    parent_session_id: str
    parent_seq: int
    resume: str
    """The command that goes on with it."""

    def show(self, out: Output) -> None:
        """See `Document`."""
        out.line(self.session_id)
        came = f"{self.messages} message(s) of {plain(self.parent_session_id)}, snapshot {self.parent_seq}"
        out.note(f"forked {plain(self.title or '') or '(untitled)'}: {came}")
        out.note(f"  go on: {self.resume}    to take it back: {out.run('asnap undo')}")


@declare(
    "fork",
    section="Change",
    answer=Forked,
    examples=(
        ("asnap fork latest", "a second session that begins as the newest one is now"),
        ("asnap fork 01jd --messages 12", "one that ends with message 12 (see asnap show)"),
        ('asnap fork 01jd@5 --title "other way"', "as it was in snapshot 5, under a name of its own"),
        ('asnap resume "$(asnap fork latest -q)"', "fork, and go on with the fork"),
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
    """Branch a session at any message: a new session with what was said up to there.

    The session it comes from stays as it is, and may be live. An agent's working memory comes along, as it was in
    that snapshot. Prints the new session's id.
    """
    from snapshot_plugin.cli.refs import resolve
    from snapshot_plugin.manager.branches import branched
    from snapshot_plugin.model.ids import new_id

    taken = at if messages is None else messages
    async with call.store() as store:
        metas = await store.list()
        target = resolve(ref, metas)
        name = title or free_title(target.meta.title, "fork", {meta.title for meta in metas})
        new = await branched(
            store, target.session_id, as_id=new_id(), now=call.now, seq=target.seq, messages=taken, title=name
        )
        summary = f"forked {target.session_id} at message {len(new.messages)}"
        await save_new(call, store, new, kind="fork", summary=summary)
    return _forked(call.out, new, target.session_id)


def _forked(out: Output, new: SessionSnapshot, parent: str) -> Forked:
    return Forked(
        session_id=new.session_id,
        title=new.title,
        messages=len(new.messages),
        parent_session_id=parent,
        parent_seq=new.parent.seq if new.parent else 0,
        resume=out.run(f"asnap resume {shlex.quote(new.session_id)}"),
    )
