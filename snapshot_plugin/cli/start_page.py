"""The file that ``asnap ui`` opens in the browser: private, and it leads to the address with the token.

The address itself is never on a command line, where other users of the machine could read it.
"""

from __future__ import annotations

import html
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from snapshot_plugin.cli.call import Call
from snapshot_plugin.codec.sources import without_keys

__all__ = ["start_page"]

_OPEN = "import sys, webbrowser; sys.exit(not webbrowser.open(sys.argv[1]))"


@contextmanager
def start_page(call: Call, address: str) -> Iterator[None]:
    """Open *address* in the user's browser, and say so if there is none."""
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
