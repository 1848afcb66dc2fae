"""``asnap pin``: protect a session from retention policies."""

from __future__ import annotations

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.labelled import show_label
from snapshot_plugin.operations.labels import Label, pin, whole_session
from snapshot_plugin.operations.references import find

__all__ = ["command"]


@declare(
    "pin",
    answer=Label,
    show=show_label,
    examples=(
        ("asnap pin latest", "no policy drops a snapshot of it from now on"),
        ("asnap pin 'fix auth' --off", "retention policies apply to it again"),
        ("asnap pin 01jd7a -q", "in a script"),
    ),
    exits=(4, 5, 6, 7, 10),
)
@click.argument("ref")
@click.option("--off", is_flag=True, help="Unpin it.")
async def command(call: Call, *, ref: str, off: bool) -> Label:
    """Protect a session from every retention policy.

    No policy drops its snapshots, and asnap forget --keep-sessions skips it.
    """
    async with call.store() as store:
        session_id = whole_session(await find(store, ref), "a pin")
        return await pin(call.work, store, session_id, pinned=not off)
