"""``asnap rename``: give a session a name."""

from __future__ import annotations

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.labelled import show_label
from snapshot_plugin.operations.labels import Label, rename, whole_session
from snapshot_plugin.operations.references import resolve
from snapshot_plugin.operations.text import several

__all__ = ["command"]


@declare(
    "rename",
    answer=Label,
    show=show_label,
    examples=(
        ("asnap rename latest 'fix auth'", "so that asnap resume 'fix auth' finds it"),
        ("asnap rename 01jd7a parser", "by the beginning of its id"),
        ("asnap rename parser ''", "remove the name"),
    ),
    exits=(4, 5, 6, 7, 10),
)
@click.argument("ref")
@click.argument("name")
async def command(call: Call, *, ref: str, name: str) -> Label:
    """Give a session a name.

    Every command takes it in place of an id. A live session is renamed by its owner.
    """
    async with call.store() as store:
        metas = await store.list()
        session_id = whole_session(resolve(ref, metas), "a name")
        others = [meta.session_id for meta in metas if meta.title == name.strip() and meta.session_id != session_id]
        done = await rename(call.work, store, session_id, name)
    if others and done.title:
        found = several(len(others), "other session")
        call.out.note(f"{found} with this name, so use ids: {', '.join(others[:3])}")
    return done
