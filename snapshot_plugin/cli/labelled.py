"""What ``rename``, ``tag``, ``pin`` and ``note`` print."""

from __future__ import annotations

from snapshot_plugin.cli.output import Output
from snapshot_plugin.operations.labels import Label
from snapshot_plugin.operations.text import plain

__all__ = ["show_label"]


def show_label(answer: Label, out: Output) -> None:
    """Print what was changed, and how to undo it."""
    if not answer.changed:
        out.note(f"nothing to change: {plain(answer.told)}")
        return
    out.note(plain(answer.told))
    if answer.live_pid:
        out.note(f"  the session is live: process {answer.live_pid} uses it from now on")
    out.note(f"  undo: {out.run('asnap undo')}")
