"""Progress of long work: a bar on a terminal, a line every ten seconds elsewhere, nothing with ``-q``."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from snapshot_plugin.cli.output import Output
from snapshot_plugin.operations.text import cut, plain

__all__ = ["progress"]

_BAR = 24
_REDRAW = 0.1
_SAY = 10.0


@contextmanager
def progress(
    out: Output, what: str, total: int, *, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[str], None]]:
    """Yield a function to call before each of *total* steps with a description."""
    gc.enable()  # long work produces garbage (see __main__)
    if out.quiet or total < 2:  # noqa: PLR2004 — one step needs no bar
        yield lambda _step: None
        return
    on_terminal = out.can_draw
    done, last = 0, clock() - (_REDRAW if on_terminal else 0)

    def step(name: str) -> None:
        nonlocal done, last
        if clock() - last >= (_REDRAW if on_terminal else _SAY):
            last = clock()
            _draw(out, what, done, total, name) if on_terminal else out.note(f"{what}: {done} of {total}")
        done += 1

    try:
        yield step
    finally:
        if on_terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _draw(out: Output, what: str, done: int, total: int, name: str) -> None:
    filled = _BAR * done // total
    bar = "█" * filled + "░" * (_BAR - filled)
    line = cut(f"{what} {bar} {done}/{total} {plain(name)}", out.columns - 1)
    sys.stderr.write(f"\r\x1b[K{line}")
    sys.stderr.flush()
