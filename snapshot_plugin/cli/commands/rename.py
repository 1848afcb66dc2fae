"""``asnap rename``: give a session a name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.labelling import Label, relabel, whole_session
from snapshot_plugin.cli.refs import resolve
from snapshot_plugin.errors import InvalidInput

if TYPE_CHECKING:
    from snapshot_plugin.manager.labels import Labelled

__all__ = ["command"]

_TAKEN = re.compile(r"latest(~\d+)?\Z|tag:|.*@\d+\Z", re.DOTALL)
"""What means something else wherever a session is named."""


@declare(
    "rename",
    section="Change",
    answer=Label,
    examples=(
        ("asnap rename latest 'fix auth'", "so that asnap resume 'fix auth' finds it"),
        ("asnap rename 01jd7a parser", "by the beginning of its id"),
        ("asnap rename parser ''", "take the name away"),
    ),
    exits=(4, 5, 6, 7, 10),
)
@click.argument("ref")
@click.argument("name")
async def command(call: Call, *, ref: str, name: str) -> Label:
    """Give a session a name.

    Every command takes it in place of an id. A session that is live is renamed by the process that has it.
    """
    from snapshot_plugin.manager.labels import checked_label

    wanted = checked_label({"title": name})
    if _TAKEN.match(name.strip()):
        raise InvalidInput(f"{name!r} cannot be a name: it means something else", hint="see asnap help refs")
    async with call.store() as store:
        metas = await store.list()
        session_id = whole_session(resolve(ref, metas), "a name")
        others = [meta.session_id for meta in metas if meta.title == name.strip() and meta.session_id != session_id]
        done = await relabel(call, store, session_id, lambda _: wanted, kind="rename", told=_told)
    if others and done.title:
        call.out.note(
            f"{len(others)} other session(s) have this name, so use ids for them: {', '.join(others[:3])}"
        )
    return done


def _told(done: Labelled) -> str:
    before, after = done.before["title"], done.after["title"]
    if after is None:
        return f"{done.session_id} has no name any more; it was {before!r}" if before else "it has no name"
    return f"{done.session_id} is called {after!r}" + (
        f"; it was {before!r}" if before not in (None, after) else ""
    )
