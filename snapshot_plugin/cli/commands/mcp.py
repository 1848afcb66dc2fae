"""``asnap mcp``: the project memory as an MCP server."""

from __future__ import annotations

import functools
import gc
import os
import secrets
import signal
import sys
from pathlib import Path

import anyio
import click

from snapshot_plugin.cli.layout import process
from snapshot_plugin.extras import needs_extra

__all__ = ["command"]


@process(
    "mcp",
    examples=(
        ("asnap mcp", "serve the memory of this project on stdin and stdout"),
        (
            "asnap mcp --project ~/code/shop --store ./sessions",
            "serve exactly this project, and a store of sessions",
        ),
        ("ASNAP_MCP_TOKEN=… asnap mcp --http 8765", "over HTTP, on this machine only"),
    ),
    exits=(7, 10),
)
@click.option("--store", metavar="PLACE", help="The session store: a directory or a URL.")
@click.option(
    "--project",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The project's directory, taken as it is; default: the client's root, or the repository here.",
)
@click.option("--all-projects", is_flag=True, help="Let the agent see stored sessions of all projects.")
@click.option(
    "--http", "port", metavar="PORT", type=click.IntRange(0, 65535), help="Serve HTTP on loopback instead."
)
def command(*, store: str | None, project: Path | None, all_projects: bool, port: int | None) -> None:
    """Give an agent a memory that survives restarts, over MCP.

    Speaks MCP on standard input and output: add it to any MCP client's configuration. With --http it listens on
    127.0.0.1 and asks for a token: ASNAP_MCP_TOKEN, or a new one that is shown.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing to write before it serves; the server has its own
    gc.disable()  # importing makes no garbage
    with needs_extra("mcp", "asnap mcp needs the package mcp"):
        from snapshot_plugin.memory.server.serve import MemoryServer, serve_http, serve_stdio
    from snapshot_plugin.cli.call import Call
    from snapshot_plugin.cli.output import Output
    from snapshot_plugin.memory.place import literal_project
    from snapshot_plugin.memory.server.tools import ServedProject
    from snapshot_plugin.operations.work import Work

    call = Call(out=Output(), place=store, no_input=True)
    work = Work(call.config, call.environ, call.now)  # without its progress bar: standard output is the client's
    served = ServedProject(
        literal_project(project) if project else None,
        call.opened(background=True),
        work,
        all_projects=all_projects,
        asks_roots=port is None,
        say=lambda line: click.echo(f"asnap mcp: {line}", err=True),
    )
    server = MemoryServer(served)
    gc.freeze()  # classes stay: a collection that walks them takes 70 ms
    gc.enable()
    if port is None:
        if sys.stdin.isatty():
            click.echo(
                "asnap mcp speaks MCP here; add it to an MCP client's configuration. Ctrl-C ends it.", err=True
            )
        anyio.run(serve_stdio, server)
        return
    token = os.environ.get("ASNAP_MCP_TOKEN") or _new_token()  # never an option: others see command lines
    anyio.run(functools.partial(serve_http, server, port=port, token=token, ready=_say))


def _new_token() -> str:
    token = secrets.token_urlsafe(32)
    click.echo(f"token: {token}", err=True)
    return token


def _say(address: str) -> None:
    click.echo(f"listening on {address}", err=True)
