"""How ``forget`` says what goes: each session with its fate and why, each snapshot with its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from snapshot_plugin.cli.output import Column, Output
from snapshot_plugin.operations.forget import Fate, Forgotten
from snapshot_plugin.operations.text import ago, plain, size

__all__ = ["ToldForgotten", "ToldForgottenAsShown"]


class ToldForgotten(Forgotten):
    """What was forgotten, or would be, as a person sees it."""

    def show(self, out: Output) -> None:
        """See `Document`."""
        self.show_table(out)
        self.show_end(out)

    def show_table(self, out: Output) -> None:
        """What goes and why: snapshot by snapshot if one session was named, else a line for each session."""
        if self.single and self.sessions and self.sessions[0].what == "snapshots":
            columns = (Column("SNAPSHOT", right=True), Column("AGE", right=True), Column("FATE"), Column("WHY"))
            out.table(columns, _snapshots(self.sessions[0], self.as_of))
        elif self.sessions:
            columns = (
                Column("SESSION"),
                Column("TITLE", flexible=True, rank=1),
                Column("FATE"),
                Column("WHY", flexible=True),
            )
            out.table(columns, (_row(fate) for fate in self.sessions))

    def show_end(self, out: Output) -> None:
        """What was done, and how to take it back."""
        if self.untouched:
            out.note(f"{self.untouched} session(s) lose nothing")
        if self.dry_run:
            out.note(f"would forget {self.counted}; nothing was changed")
        elif self.operation:
            out.note(f"forgot {self.counted}; undo: {out.run('asnap undo')}")
            out.note(f"  it lies in the trash, and takes up room, until {out.run('asnap purge')}")
        else:
            out.note("nothing was forgotten")


class ToldForgottenAsShown(ToldForgotten):
    """The same after it was shown to be confirmed: only the end is left to say."""

    def show(self, out: Output) -> None:
        """See `Document`."""
        if self.exit_code:
            self.show_table(out)
        self.show_end(out)


def _snapshots(fate: Fate, now: datetime) -> Iterator[tuple[str, ...]]:
    for each in fate.snapshots:
        why = ", ".join(map(_said, each.reasons)) if each.keep else "no rule keeps it"
        yield str(each.snapshot), ago(each.saved_at, now), "keep" if each.keep else "drop", plain(why)


def _said(reason: str) -> str:
    return {"head": "newest"}.get(reason, reason)


def _row(fate: Fate) -> tuple[str, ...]:
    title = plain(fate.title or "")
    if fate.what != "snapshots":
        told = {"session": f"trash, {size(fate.size_bytes)}", "skipped": "skipped"}[fate.what]
        return fate.session_id, title, told, plain(fate.why)
    kept = Counter(_said(each.reasons[0]).split()[0] for each in fate.snapshots if each.keep and each.reasons)
    why = ", ".join(f"{count} {reason}" for reason, count in kept.most_common())
    return (
        fate.session_id,
        title,
        f"drop {fate.dropped} of {len(fate.snapshots)}",
        plain(f"keeps {why}" if why else fate.why),
    )
