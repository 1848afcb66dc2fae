"""``asnap serve``: serve sessions to a front end in another language."""

from __future__ import annotations

import gc

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.errors import InvalidInput, StoreUnavailable

__all__ = ["command"]


@declare(
    "serve",
    examples=(
        ("asnap serve --stdio", "started by a front end, which writes requests and reads answers"),
        ("asnap serve --stdio --store ./sessions", "with a store of its own"),
        ('echo \'{"type":"session_list"}\' | asnap serve --stdio', "one question, one answer"),
    ),
    exits=(7,),
)
@click.option("--stdio", is_flag=True, help="Speak on standard input and output, as JSON lines.")
async def command(call: Call, *, stdio: bool) -> None:
    """Store sessions for a front end in any language, over JSON lines.

    Each request is a line on standard input, each answer a line on standard output; docs/reference/ipc.md has them
    all. Answered requests are durable.
    """
    gc.enable()  # it may run for days (see __main__)
    if not stdio:
        raise InvalidInput(
            "there is nothing to serve on", hint="run asnap serve --stdio: it uses standard input and output"
        )
    from dataclasses import replace

    from snapshot_plugin.ipc.bridge import Bridge
    from snapshot_plugin.ipc.serve import chunks_of, serve
    from snapshot_plugin.manager.manager import SnapshotManager

    if call.may_ask:
        call.out.note("asnap serve speaks JSON lines here; Ctrl-D ends it")
    async with call.store(create=True, background=True) as store:  # compresses what has grown
        settings = replace(call.config, enable_persistence=True)
        async with SnapshotManager(store, settings) as manager:
            bridge = Bridge(manager, deleted=lambda trashed: call.work.record_deletion(store, trashed))
            await serve(bridge, chunks_of(0), call.out.raw)
        if manager.unsaved:
            raise StoreUnavailable("; ".join(map(str, manager.unsaved)))
