"""What ``rename``, ``tag``, ``pin`` and ``note`` print."""

from __future__ import annotations

from snapshot_plugin.cli.output import Output
from snapshot_plugin.operations.labels import Label
from snapshot_plugin.operations.text import plain

__all__ = ["ToldLabel"]


class ToldLabel(Label):
    """A label, printed for a person."""

    def show(self, out: Output) -> None:
        """See `Document`."""
        if not self.changed:
            out.note(f"nothing to change: {plain(self.told)}")
            return
        out.note(plain(self.told))
        if self.live_pid:
            out.note(f"  the session is live: process {self.live_pid} uses it from now on")
        out.note(f"  undo: {out.run('asnap undo')}")
