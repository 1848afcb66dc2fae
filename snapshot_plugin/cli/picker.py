"""Pick a session or a snapshot on a terminal: type to search, with a preview. Drawn on stderr.

`Choices` is the state and knows no terminal; then the text that is drawn, from sizes and the time; then the screen.
"""

from __future__ import annotations

import functools
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import anyio
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import BufferControl, ConditionalContainer, FormattedTextControl, HSplit, Layout, VSplit
from prompt_toolkit.layout import Window as Pane
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output import ColorDepth, create_output
from prompt_toolkit.styles import Style

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.remembered import recall, remember
from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.model.ids import as_reference
from snapshot_plugin.operations.comparing import compare_snapshots
from snapshot_plugin.operations.document import Part
from snapshot_plugin.operations.sessions import Selection, SessionRow, here, marks, select, session_rows
from snapshot_plugin.operations.showing import SnapshotRow, snapshot_row
from snapshot_plugin.operations.text import ago, count, cut, long_ago, pad, plain, several, width

if TYPE_CHECKING:
    from snapshot_plugin.model.snapshot import SessionSnapshot
    from snapshot_plugin.operations.comparing import Compared
    from snapshot_plugin.store.base import SnapshotStore

__all__ = [
    "Choice",
    "Choices",
    "Fragment",
    "Glimpse",
    "change_of",
    "footer",
    "glimpse_of",
    "list_of",
    "past_of",
    "pick",
    "preview_of",
]

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


# What is drawn ------------------------------------------------------------------------------------------------


Fragment = tuple[str, str]
"""A style and a text."""

_ROOM_FOR_AGENT = 56
_AGENT = 12
_AGE = 4


def list_of(choices: Choices, now: datetime, *, columns: int, lines: int) -> list[Fragment]:
    """Render the sessions around the cursor, one per line; lines are cut to fit, ids are not."""
    shown, position = choices.shown, choices.position
    if not shown:
        scope = "Tab shows all" if not choices.everywhere else "nothing fits"
        return [("class:dim", f"  no session here fits; {scope}" if choices.total else "  no sessions")]
    start = max(0, min(position - lines // 2, len(shown) - lines))
    visible = shown[start : start + max(1, lines)]
    widest = max(width(row.short_id) for row in visible)
    fragments: list[Fragment] = []
    for number, row in enumerate(visible, start):
        fragments += _line(row, now, columns, widest, is_at=number == position)
    return fragments


def _line(row: SessionRow, now: datetime, columns: int, widest: int, *, is_at: bool) -> Iterator[Fragment]:
    style = "class:at " if is_at else ""
    agent = pad(cut(plain(row.agent or ""), _AGENT), _AGENT) + " " if columns >= _ROOM_FOR_AGENT else ""
    mark = next((mark.split()[0] for mark in marks(row)), "")
    tail = f" {agent}{pad(ago(row.changed_at, now), _AGE, right=True)} {pad(mark, 9)}"
    room = columns - widest - width(tail) - 3
    yield style, "> " if is_at else "  "
    yield f"{style}class:id", pad(row.short_id, widest)
    yield style, " " + pad(cut(row.name, room), max(0, room))
    yield f"{style}class:dim", tail + "\n"


def past_of(choices: Choices, now: datetime, *, columns: int, lines: int) -> list[Fragment]:
    """Render the snapshots of the open session around the cursor, one per line."""
    past, position = choices.past, choices.past_position
    if not past:
        return [("class:dim", "  …")]
    start = max(0, min(position - lines // 2, len(past) - lines))
    fragments: list[Fragment] = []
    for number, each in enumerate(past[start : start + max(1, lines)], start):
        style = "class:at " if number == position else ""
        marks = ", ".join(
            (*each.tags, *([each.state] if each.state != "ok" else []), *(["newest"] if not number else []))
        )
        told = plain(f"{several(each.messages, 'message')}, {each.trigger}" + (f" · {marks}" if marks else ""))
        words = cut(f"{pad(ago(each.saved_at, now), _AGE, right=True)}  {told}", max(4, columns - 9))
        fragments += [
            (style, "> " if number == position else "  "),
            (f"{style}class:id", pad(f"@{each.seq}", 6)),
            (style, f" {words}\n"),
        ]
    return fragments


def preview_of(row: SessionRow | None, glimpse: Glimpse | None, now: datetime, *, columns: int) -> list[Fragment]:
    """Render the preview of the session under the cursor."""
    pieces = _about(row, now) + _words(glimpse) if row else []
    return [(style, "\n".join(textwrap.wrap(text, max(10, columns))) + "\n") for style, text in pieces]


def _about(row: SessionRow, now: datetime) -> list[Fragment]:
    facts = [
        plain(row.agent or ""),
        row.length,
        f"{count(row.tokens)} tokens" if row.tokens else "",
    ]
    return [
        ("bold", row.name),
        ("", " · ".join(fact for fact in (*facts, long_ago(row.changed_at, now)) if fact)),
        ("class:dim", plain(row.cwd or "")),
        ("class:bad" if row.state != "ok" else "", ", ".join(marks(row))),
    ]


def _words(glimpse: Glimpse | None) -> list[Fragment]:
    if glimpse is None:
        return [("class:dim", "…")]
    if glimpse.problem:
        return [("class:bad", glimpse.problem)]
    if glimpse.changed:
        return [("class:id", f"since the snapshot before: {glimpse.changed}"), ("", glimpse.last)]
    last = glimpse.last if glimpse.last != glimpse.first else ""
    return [("", glimpse.first), ("class:dim", "…" if last else ""), ("", last)]


def footer(choices: Choices, *, columns: int) -> list[Fragment]:
    """Render the counts and the keys."""
    if choices.opened:
        known = f"{len(choices.past)} snapshots"
        newest = choices.past_position == 0
        act = "Enter resume" if newest else "Enter branch here and resume"
        return [("class:dim", cut(f"{known} · ↑↓ move · {act} · ← sessions", columns))]
    scope, other = ("all", "here") if choices.everywhere else ("here", "all")
    known = f"{len(choices.shown)} of {choices.total} ({scope})"
    text = f"{known} · ↑↓ move · → snapshots · Tab {other} · Enter resume · Esc quit"
    if width(text) > columns:
        text = f"{len(choices.shown)}/{choices.total} Tab {other} Enter resume Esc quit"
    return [("class:dim", cut(text, columns))]


# The screen ---------------------------------------------------------------------------------------------------


_STYLE = Style.from_dict({"at": "reverse", "id": "ansicyan", "dim": "ansibrightblack", "bad": "ansired"})
_WIDE = 70
"""From this many columns on, the preview is beside the list; else it is below."""
_PREVIEW_LINES = 7
_LEARN = 300
"""How many conversations are read for their first and last words, besides the one under the cursor."""
_PAGE = 10
_FILE = "picker"


class _Picked(NamedTuple):
    """What the user chose: a session, or one of its older snapshots."""

    row: SessionRow
    seq: int | None = None


async def pick(call: Call, store: SnapshotStore, rows: Sequence[SessionRow]) -> SessionRow | None:
    """Let the user choose a session to resume; None if they cancel.

    An older snapshot is forked, because sessions resume from their newest one. `asnap undo` removes the fork.
    """
    picked = await _picked(call, store, rows)
    if picked is None or picked.seq is None:
        return picked.row if picked else None
    from snapshot_plugin.operations.organise import fork

    done = await fork(call.work, store, f"{as_reference(picked.row.session_id)}@{picked.seq}")
    call.out.note(f"branched {picked.row.name} at snapshot {picked.seq}; to undo: {call.out.run('asnap undo')}")
    return next(row for row in await session_rows(store) if row.session_id == done.session_id)


async def _picked(call: Call, store: SnapshotStore, rows: Sequence[SessionRow]) -> _Picked | None:
    """Run the picker. The scope is remembered."""
    choices = Choices(rows, here(), everywhere=recall(call, _FILE).get("everywhere") is True)
    if not choices.shown:
        choices.toggle_scope()
    picker = _Picker(choices, call.now, colour=call.out.notes_have_colour)
    async with anyio.create_task_group() as background:
        background.start_soon(_learn, store, picker)
        await picker.application.run_async()
        background.cancel_scope.cancel()
    remember(call, _FILE, {"everywhere": choices.everywhere})
    return picker.taken


async def _learn(store: SnapshotStore, picker: _Picker) -> None:
    """Read conversations one by one; when all needed ones are known, wait for the cursor to move."""
    choices = picker.choices
    while True:
        picker.moved = anyio.Event()
        if session_id := choices.unread:
            choices.learn_past(session_id, await _past(store, session_id))
        elif place := choices.to_learn(_LEARN):
            choices.learn(place, await _glimpse(store, choices, place))
        else:
            await picker.moved.wait()
            continue
        picker.application.invalidate()


async def _past(store: SnapshotStore, session_id: str) -> Sequence[SnapshotRow]:
    try:
        return [snapshot_row(meta) for meta in await store.history(session_id)]
    except SnapshotError:
        return ()


async def _glimpse(store: SnapshotStore, choices: Choices, place: Choice) -> Glimpse:
    before = choices.before(place)
    try:
        if place.seq is not None and before is not None:
            return change_of(await compare_snapshots(store, place.session_id, before, place.seq))
        return glimpse_of(await store.load(place.session_id, at=place.seq))
    except SnapshotError as error:
        return Glimpse(problem=plain(error.message))


class _Picker:
    """The screen: the input line, the sessions, a preview of the one under the cursor, and the keys."""

    def __init__(self, choices: Choices, now: datetime, *, colour: bool) -> None:
        self.choices, self._now = choices, now
        self.taken: _Picked | None = None
        self.moved = anyio.Event()
        self._output = create_output(stdout=sys.stderr)
        self.application: Application[None] = Application(
            layout=Layout(self._layout()),
            key_bindings=self._keys(),
            style=_STYLE,
            full_screen=True,
            min_redraw_interval=0.05,
            output=self._output,
            color_depth=None if colour else ColorDepth.DEPTH_1_BIT,
        )
        self.application.ttimeoutlen = 0.05  # how long to wait for the rest of an arrow key after Esc

    # What is seen ----------------------------------------------------------------------------------------

    def _layout(self) -> HSplit:
        is_wide = Condition(lambda: self._size.columns >= _WIDE)
        search = Buffer(on_text_changed=self._typed, multiline=False)
        field = Pane(BufferControl(search, input_processors=[BeforeInput("resume> ", "bold")]), height=1)
        listed = Pane(FormattedTextControl(self._list), width=lambda: self._list_columns)
        beside = VSplit([Pane(width=1, char="│", style="class:dim"), self._preview_pane()])
        below = HSplit([Pane(height=1, char="─", style="class:dim"), self._preview_pane(_PREVIEW_LINES)])
        return HSplit(
            [
                field,
                VSplit([listed, ConditionalContainer(beside, is_wide)]),
                ConditionalContainer(below, ~is_wide),
                Pane(FormattedTextControl(self._footer), height=1),
            ]
        )

    def _preview_pane(self, lines: int | None = None) -> Pane:
        return Pane(FormattedTextControl(self._preview), wrap_lines=True, height=lines)

    @property
    def _size(self) -> Size:
        return self._output.get_size()

    @property
    def _list_columns(self) -> int:
        columns = self._size.columns
        return columns * 3 // 5 if columns >= _WIDE else columns

    def _list(self) -> StyleAndTextTuples:
        taken = 2 if self._size.columns >= _WIDE else 3 + _PREVIEW_LINES
        lines = max(1, self._size.rows - taken)
        draw = past_of if self.choices.opened else list_of
        return [*draw(self.choices, self._now, columns=self._list_columns, lines=lines)]

    def _preview(self) -> StyleAndTextTuples:
        row, place = self.choices.chosen, self.choices.under_the_cursor
        glimpse = self.choices.glimpse(place) if place else None
        columns = self._size.columns - (self._list_columns + 1 if self._size.columns >= _WIDE else 0)
        return [*preview_of(row, glimpse, self._now, columns=columns)]

    def _footer(self) -> StyleAndTextTuples:
        return [*footer(self.choices, columns=self._size.columns)]

    # What is typed ---------------------------------------------------------------------------------------

    def _typed(self, buffer: Buffer) -> None:
        self.choices.type(buffer.text)
        self.moved.set()

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        moves = {"up": -1, "c-p": -1, "down": 1, "c-n": 1, "pageup": -_PAGE, "pagedown": _PAGE}
        for key, by in moves.items():
            self._bind(keys, key, functools.partial(self.choices.move, by))
        self._bind(keys, "tab", self.choices.toggle_scope)
        self._bind(keys, "enter", self._take)
        self._bind(keys, "right", self.choices.open)
        self._bind(keys, "left", self.choices.close)
        self._bind(keys, "escape", self._back)
        for key in ("c-c", "c-d"):
            self._bind(keys, key, self._leave)
        return keys

    def _bind(self, keys: KeyBindings, key: str, act: Callable[[], None]) -> None:
        @keys.add(key, eager=True)
        def _(_event: object) -> None:
            act()
            self.moved.set()

    def _back(self) -> None:
        if self.choices.opened:
            self.choices.close()
        else:
            self._leave()

    def _leave(self) -> None:
        self.application.exit()

    def _take(self) -> None:
        row, snapshot = self.choices.chosen, self.choices.snapshot
        if row:
            is_old = snapshot is not None and snapshot.seq != row.seq
            self.taken = _Picked(row, snapshot.seq if snapshot and is_old else None)
            self.application.exit()
