"""``serve``, ``mcp`` and ``ui``: answer other programs until they hang up."""

from __future__ import annotations

import functools
import gc
import html
import os
import secrets
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import quote

import anyio
import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.layout import process
from snapshot_plugin.errors import InvalidInput, StoreUnavailable
from snapshot_plugin.extras import needs_extra
from snapshot_plugin.system.processes import without_keys

if TYPE_CHECKING:
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["mcp_command", "serve_command", "ui_command"]

# asnap serve --------------------------------------------------------------------------------------------------


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
async def serve_command(call: Call, *, stdio: bool) -> None:
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


# asnap mcp ----------------------------------------------------------------------------------------------------


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
def mcp_command(*, store: str | None, project: Path | None, all_projects: bool, port: int | None) -> None:
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
    from snapshot_plugin.inert import say
    from snapshot_plugin.memory.place import literal_project
    from snapshot_plugin.memory.server.tools import ServedProject
    from snapshot_plugin.operations.work import Work

    call = Call.of_process(store)
    work = Work(call.config, call.environ, call.now)  # without its progress bar: standard output is the client's
    served = ServedProject(
        literal_project(project) if project else None,
        call.opened(background=True),
        work,
        all_projects=all_projects,
        asks_roots=port is None,
        say=functools.partial(say, who="asnap mcp"),
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


# asnap ui -----------------------------------------------------------------------------------------------------


_OPEN = "import sys, webbrowser; sys.exit(not webbrowser.open(sys.argv[1]))"


@declare(
    "ui",
    examples=(
        ("asnap ui", "open the browser on all sessions"),
        ("asnap ui latest", "on the newest one"),
        ("asnap ui --read-only --no-open --port 8765", "print the address only; nothing can be changed"),
    ),
    exits=(4, 7, 10, 130),
)
@click.argument("ref", metavar="[REF]", required=False)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port; any free one unless given.")
@click.option("--read-only", is_flag=True, help="Refuse every change.")
@click.option("--no-open", is_flag=True, help="Do not start a browser.")
async def ui_command(call: Call, *, ref: str | None, port: int, read_only: bool, no_open: bool) -> None:
    """Browse sessions: read, search, compare, rename, tag, fork, forget and undo.

    Serves on 127.0.0.1 only, until Ctrl-C. The first line on stdout is the address; anyone who has it can read the
    sessions, so keep it private. Keys and passphrases are asked for here, never in the page.
    """
    gc.enable()  # it may run for days (see __main__)
    with needs_extra("ui", "asnap ui needs the packages starlette and uvicorn"):
        from snapshot_plugin.web.server import application, listening, new_token, serve
        from snapshot_plugin.web.site import Site

    async with call.opened() if read_only else call.store() as store:
        path = await _path(store, ref)
        opened, token = listening(port), new_token()
        number = opened.getsockname()[1]
        site = Site(store, call.config, environ=call.environ, place=call.place, read_only=read_only)
        address = f"http://127.0.0.1:{number}{path}#token={token}"
        call.out.line(address)
        call.out.note("Ctrl-C ends it")
        with nullcontext() if no_open else _start_page(call, address):
            await serve(application(site, port=number, token=token), opened)


async def _path(store: SnapshotStore, ref: str | None) -> str:
    if ref is None:
        await store.list()  # report a missing store or a wrong key before serving
        return "/"
    from snapshot_plugin.operations.references import find

    target = await find(store, ref)
    at = f"?at={target.seq}" if target.seq is not None else ""
    return f"/s/{quote(quote(target.session_id, safe=''), safe='')}{at}"


@contextmanager
def _start_page(call: Call, address: str) -> Iterator[None]:
    """Open the browser on a private file that redirects to *address*: other users can read command lines."""
    with TemporaryDirectory(prefix="asnap-ui-") as directory:  # 0700
        page = Path(directory) / "open.html"
        target = html.escape(address, quote=True)
        page.write_text(f'<meta http-equiv="refresh" content="0;url={target}"><title>asnap</title>', "utf-8")
        threading.Thread(target=_open, args=(call, page.as_uri()), daemon=True).start()
        yield


def _open(call: Call, address: str) -> None:
    import subprocess

    # Another process, because `webbrowser` gives the browser our environment, and the store's key is in it.
    line = [sys.executable, "-P", "-c", _OPEN, address]
    done = subprocess.run(line, env=without_keys(os.environ), check=False)  # noqa: S603 — ourselves
    if done.returncode and sys.stderr.isatty():
        call.out.note("no browser was found here: open the address yourself")
