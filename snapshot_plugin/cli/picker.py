"""Pick a session or a snapshot on a terminal: type to search, with a preview. Drawn on stderr."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
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
from snapshot_plugin.cli.choices import Choice, Choices, Glimpse, change_of, glimpse_of
from snapshot_plugin.cli.picker_view import footer, list_of, past_of, preview_of
from snapshot_plugin.cli.remembered import recall, remember
from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.model.ids import as_reference
from snapshot_plugin.operations.comparing import compare_snapshots
from snapshot_plugin.operations.scope import here
from snapshot_plugin.operations.session_rows import SessionRow, session_rows
from snapshot_plugin.operations.showing import SnapshotRow, snapshot_row
from snapshot_plugin.operations.text import plain

if TYPE_CHECKING:
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["pick"]

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
    from snapshot_plugin.operations.branches import fork

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
