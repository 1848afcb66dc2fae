"""``asnap pin``: keep a session whatever the policy says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.labelling import Label, relabel, whole_session
from snapshot_plugin.cli.refs import find

if TYPE_CHECKING:
    from snapshot_plugin.manager.labels import Labelled

__all__ = ["command"]


@declare(
    "pin",
    section="Change",
    answer=Label,
    examples=(
        ("asnap pin latest", "no policy drops a snapshot of it from now on"),
        ("asnap pin 'fix auth' --off", "policies hold for it again"),
        ("asnap pin 01jd7a -q", "in a script"),
    ),
    exits=(4, 5, 6, 7, 10),
)
@click.argument("ref")
@click.option("--off", is_flag=True, help="Unpin it.")
async def command(call: Call, *, ref: str, off: bool) -> Label:
    """Keep a session whatever the policy says.

    Policies drop none of its snapshots, and asnap forget by number of sessions leaves it alone.
    """
    async with call.store() as store:
        session_id = whole_session(await find(store, ref), "a pin")
        return await relabel(call, store, session_id, lambda _: {"pinned": not off}, kind="pin", told=_told)


def _told(done: Labelled) -> str:
    return f"{done.session_id} is {'pinned' if done.after['pinned'] else 'not pinned'}"
