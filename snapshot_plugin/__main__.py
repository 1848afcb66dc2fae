"""``asnap`` and ``python -m snapshot_plugin``.

Most commands live for less time than it takes to collect their garbage: they do not. Those that stay call
``gc.enable()`` first.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import NoReturn

_INTERRUPTS = signal.getsignal(signal.SIGINT)
if _INTERRUPTS is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C during the imports ends the process without a traceback
gc.disable()

from snapshot_plugin import cli  # noqa: E402 — importing makes no garbage, only walks to look for it

__all__ = ["main"]


def main() -> NoReturn:
    """Run a command and exit at once: tearing down the interpreter takes a tenth of a short command's time."""
    signal.signal(signal.SIGINT, _INTERRUPTS)
    sys.argv[0] = "asnap"  # also after ``python -m snapshot_plugin``: a lease names its owner by it
    try:
        cli.main()
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else 1)


if __name__ == "__main__":
    main()
