"""``asnap ui``: look at sessions, compare and manage them in the browser."""

from __future__ import annotations

import gc
import html
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.extras import needs_extra
from snapshot_plugin.system.processes import without_keys

if TYPE_CHECKING:
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["command"]

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
async def command(call: Call, *, ref: str | None, port: int, read_only: bool, no_open: bool) -> None:
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
