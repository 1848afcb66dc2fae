"""The state of a picker: the sessions that match what was typed, and the cursor. Knows no terminal.

A session can be opened to choose one of its snapshots, each with what changed since the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from snapshot_plugin.operations.document import Part
from snapshot_plugin.operations.scope import Selection, select
from snapshot_plugin.operations.session_rows import SessionRow
from snapshot_plugin.operations.showing import SnapshotRow
from snapshot_plugin.operations.text import plain

if TYPE_CHECKING:
    from snapshot_plugin.model.snapshot import SessionSnapshot
    from snapshot_plugin.operations.comparing import Compared

__all__ = ["Choice", "Choices", "Glimpse", "change_of", "glimpse_of"]

_WORDS = 400


class Glimpse(Part):
    """What the picker keeps of a conversation, to show and search it: its first and last words."""

    first: str = ""
    last: str = ""
    problem: str = ""
    changed: str = ""
    """What happened since the snapshot before; of a snapshot only."""


class Choice(NamedTuple):
    """A session, or one of its snapshots."""

    session_id: str
    seq: int | None = None


def glimpse_of(snapshot: SessionSnapshot) -> Glimpse:
    """Return the first and last words of a conversation."""
    said = [message for message in snapshot.messages if message.role in ("user", "assistant")]
    first = next((message.text for message in said if message.text.strip()), "")
    last = next((message.text for message in reversed(said) if message.text.strip()), "")
    return Glimpse(first=plain(first[:_WORDS]), last=plain(last[-_WORDS:]))


def change_of(found: Compared) -> Glimpse:
    """Summarise what happened from one snapshot to the next, and what was said last."""
    words = [piece.text for said in found.added for piece in said.pieces if piece.kind == "text"]
    files = f"; {', '.join(found.files[:5])}" if found.files else ""
    return Glimpse(last=plain(words[-1][-_WORDS:]) if words else "", changed=plain(f"{found.summary}{files}"))


class Choices:
    """The sessions to choose from. The cursor stays on its session as long as that matches."""

    def __init__(self, rows: Sequence[SessionRow], below: str, *, everywhere: bool) -> None:
        self._rows = [row for row in rows if not row.is_memory]
        self._below = below
        self._glimpses: dict[Choice, Glimpse] = {}
        self._pasts: dict[str, Sequence[SnapshotRow]] = {}
        self._at: str | None = None
        self._seq: int | None = None
        self.everywhere = everywhere
        self.query = ""
        self.opened: SessionRow | None = None
        """The session whose snapshots are listed."""

    @property
    def total(self) -> int:
        """How many sessions there are, in this project and elsewhere."""
        return len(self._rows)

    @property
    def shown(self) -> Sequence[SessionRow]:
        """The sessions that match the scope and the query."""
        scope = Selection(below=None if self.everywhere else self._below)
        terms = self.query.casefold().split()
        return [row for row in select(self._rows, scope).shown if all(term in self._text(row) for term in terms)]

    def _text(self, row: SessionRow) -> str:
        glimpse = self._glimpses.get(Choice(row.session_id)) or Glimpse()
        parts = (row.session_id, row.title, row.opening, row.agent, row.cwd, *row.tags, *row.snapshot_tags)
        return " ".join(part for part in (*parts, glimpse.first, glimpse.last) if part).casefold()

    @property
    def position(self) -> int:
        """The cursor's position among the sessions shown."""
        return next((n for n, row in enumerate(self.shown) if row.session_id == self._at), 0)

    @property
    def chosen(self) -> SessionRow | None:
        """The session under the cursor, or the one that is open."""
        shown = self.shown
        return self.opened or (shown[self.position] if shown else None)

    def move(self, by: int) -> None:
        """Move the cursor; it stops at both ends."""
        if self.opened:
            past = self.past
            self._seq = past[max(0, min(len(past) - 1, self.past_position + by))].seq if past else None
        elif shown := self.shown:
            self._at = shown[max(0, min(len(shown) - 1, self.position + by))].session_id

    def type(self, query: str) -> None:
        """Set the query."""
        self.query, self.opened = query, None

    def toggle_scope(self) -> None:
        """Switch between the sessions of this project and all sessions."""
        self.everywhere, self.opened = not self.everywhere, None

    # Snapshots of a session --------------------------------------------------------------------------------

    def open(self) -> None:
        """List the snapshots of the session under the cursor."""
        if self.opened is None and (row := self.chosen):
            self._at, self._seq, self.opened = row.session_id, None, row

    def close(self) -> None:
        """List sessions again."""
        self.opened = None

    @property
    def past(self) -> Sequence[SnapshotRow]:
        """The snapshots of the open session, newest first; empty until they were read."""
        return self._pasts.get(self.opened.session_id, ()) if self.opened else ()

    @property
    def past_position(self) -> int:
        """The cursor's position among the snapshots."""
        return next((n for n, each in enumerate(self.past) if each.seq == self._seq), 0)

    @property
    def snapshot(self) -> SnapshotRow | None:
        """The snapshot under the cursor; None while sessions are listed."""
        return self.past[self.past_position] if self.past else None

    def learn_past(self, session_id: str, past: Sequence[SnapshotRow]) -> None:
        """Store a session's snapshots, newest first."""
        self._pasts[session_id] = past

    def before(self, place: Choice) -> int | None:
        """The number of the preceding snapshot; None for the first."""
        earlier = (each.seq for each in self._pasts.get(place.session_id, ()) if each.state == "ok")
        return next((seq for seq in earlier if place.seq is not None and seq < place.seq), None)

    # What they are about -----------------------------------------------------------------------------------

    @property
    def under_the_cursor(self) -> Choice | None:
        """What the preview shows."""
        row, snapshot = self.chosen, self.snapshot
        return Choice(row.session_id, snapshot.seq if snapshot else None) if row else None

    def glimpse(self, place: Choice) -> Glimpse | None:
        """What is known of a conversation."""
        return self._glimpses.get(place)

    def learn(self, place: Choice, glimpse: Glimpse) -> None:
        """Store the first and last words of a conversation; they are searched from now on."""
        self._glimpses[place] = glimpse

    def to_learn(self, limit: int) -> Choice | None:
        """What to read next: the entry under the cursor, then the newest *limit* sessions."""
        wanted = [place] if (place := self.under_the_cursor) else []
        wanted += [Choice(row.session_id) for row in self._rows[:limit]]
        return next((place for place in wanted if place not in self._glimpses), None)

    @property
    def unread(self) -> str | None:
        """The open session, if its snapshots were not read yet."""
        return self.opened.session_id if self.opened and self.opened.session_id not in self._pasts else None
