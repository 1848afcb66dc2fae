"""Saying which sessions could not be looked into."""

from __future__ import annotations

from collections.abc import Sequence

from snapshot_plugin.cli.call import Call
from snapshot_plugin.operations.text import cut, plain

__all__ = ["tell_unreadable"]

_NAMED = 3


def tell_unreadable(call: Call, unreadable: Sequence[str]) -> None:
    """Name the sessions that could not be read, on stderr."""
    if unreadable:
        names = ", ".join(cut(plain(name), 40) for name in unreadable[:_NAMED])
        more = " …" if len(unreadable) > _NAMED else ""
        call.out.warn(f"{len(unreadable)} cannot be read: {names}{more}; see asnap check", fg="yellow")
