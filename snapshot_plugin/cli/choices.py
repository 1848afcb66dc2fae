"""What a picker knows: the sessions that fit what was typed, and which one the cursor is on. No terminal here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from snapshot_plugin.operations.document import Part
from snapshot_plugin.operations.scope import Selection, select
from snapshot_plugin.operations.session_rows import SessionRow
from snapshot_plugin.operations.text import plain

if TYPE_CHECKING:
    from snapshot_plugin.model.snapshot import SessionSnapshot

__all__ = ["Choices", "Glimpse", "glimpse_of"]

_WORDS = 400


class Glimpse(Part):
    """What is kept in memory of a conversation to show and find it: its first words and its last."""

    first: str = ""
    last: str = ""
    problem: str = ""


def glimpse_of(snapshot: SessionSnapshot) -> Glimpse:
    """The first and the last words of a conversation."""
    said = [message for message in snapshot.messages if message.role in ("user", "assistant")]
    first = next((message.text for message in said if message.text.strip()), "")
    last = next((message.text for message in reversed(said) if message.text.strip()), "")
    return Glimpse(first=plain(first[:_WORDS]), last=plain(last[-_WORDS:]))


class Choices:
    """Sessions to choose from. The cursor stays on its session while others come and go, if it still fits."""

    def __init__(self, rows: Sequence[SessionRow], below: str, *, everywhere: bool) -> None:
        self._rows = [row for row in rows if not row.is_memory]
        self._below = below
        self._glimpses: dict[str, Glimpse] = {}
        self._at: str | None = None
        self.everywhere = everywhere
        self.query = ""

    @property
    def total(self) -> int:
        """How many there are, here and elsewhere."""
        return len(self._rows)

    @property
    def shown(self) -> Sequence[SessionRow]:
        """Those that fit the scope and everything that was typed."""
        scope = Selection(below=None if self.everywhere else self._below)
        terms = self.query.casefold().split()
        return [row for row in select(self._rows, scope).shown if all(term in self._text(row) for term in terms)]

    def _text(self, row: SessionRow) -> str:
        glimpse = self._glimpses.get(row.session_id) or Glimpse()
        parts = (row.session_id, row.title, row.agent, row.cwd, *row.tags, *row.snapshot_tags)
        return " ".join(part for part in (*parts, glimpse.first, glimpse.last) if part).casefold()

    @property
    def position(self) -> int:
        """Where the cursor is among those shown."""
        return next((n for n, row in enumerate(self.shown) if row.session_id == self._at), 0)

    @property
    def chosen(self) -> SessionRow | None:
        """The session under the cursor."""
        shown = self.shown
        return shown[self.position] if shown else None

    def move(self, by: int) -> None:
        """Put the cursor further down, or up; it stops at the ends."""
        shown = self.shown
        if shown:
            self._at = shown[max(0, min(len(shown) - 1, self.position + by))].session_id

    def type(self, query: str) -> None:
        """Search for this from now on."""
        self.query = query

    def toggle_scope(self) -> None:
        """Show the sessions of this project, or all."""
        self.everywhere = not self.everywhere

    def glimpse(self, session_id: str) -> Glimpse | None:
        """What was learned of a conversation."""
        return self._glimpses.get(session_id)

    def learn(self, session_id: str, glimpse: Glimpse) -> None:
        """Take in a session's first and last words; from now on they are found too."""
        self._glimpses[session_id] = glimpse

    def to_learn(self, limit: int) -> str | None:
        """The session to look into next: the one under the cursor, then the newest *limit*."""
        wanted = [self.chosen.session_id] if self.chosen else []
        wanted += [row.session_id for row in self._rows[:limit]]
        return next((session_id for session_id in wanted if session_id not in self._glimpses), None)
