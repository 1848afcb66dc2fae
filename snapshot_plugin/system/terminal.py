"""A terminal that does not show what is typed, for passphrases and for text that a prompt will show later."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from snapshot_plugin.errors import Unsupported

__all__ = ["silent"]


@contextmanager
def silent(terminal: int, *, by_key: bool = False) -> Iterator[None]:
    """Show nothing that is typed at *terminal*, a file descriptor.

    Text that was typed before is dropped. With *by_key* it is kept, and each key can be read at once, as it is.
    """
    try:
        import termios  # noqa: PLC0415 — not on every system
    except ImportError:
        raise Unsupported("a terminal can be silenced on POSIX systems only") from None
    before = termios.tcgetattr(terminal)
    quiet = list(before)
    quiet[3] &= ~termios.ECHO
    if by_key:
        quiet[0] &= ~termios.ICRNL
        quiet[3] &= ~termios.ICANON
    termios.tcsetattr(terminal, termios.TCSANOW if by_key else termios.TCSAFLUSH, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW if by_key else termios.TCSADRAIN, before)
