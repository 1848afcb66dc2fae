"""A question to the user that typed text cannot answer.

People type ahead while an agent works, so a question may appear in the middle of a sentence. `Attention` tells an
answer from text; `Question` draws both, the text on a line of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.key_processor import KeyPressEvent
from prompt_toolkit.layout import BufferControl, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style

from snapshot_plugin.operations.text import plain

if TYPE_CHECKING:
    from prompt_toolkit.input import Input

__all__ = ["QUIET", "Attention", "Option", "Question"]

QUIET = 0.7
"""Seconds without a key after which keys can answer: longer than the pauses within typed text."""
_STYLE = Style.from_dict({"at": "reverse", "dim": "ansibrightblack", "prompt": "bold ansiblue"})
_TEXT_LINES = 5


class Option(NamedTuple):
    """A possible answer: the key that picks it, its name, and the value that is returned."""

    key: str
    name: str
    value: str


class Attention:
    """Decides which keys are an answer. Pure: *clock* gives the time.

    An answer picks an option, with an arrow key or with the option's own key, and confirms it with Enter. It begins
    after `QUIET` seconds without a key since the question appeared. A key that picks nothing ends it: that is text.
    """

    def __init__(
        self, options: int, *, picked: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options, self._clock = options, clock
        self.picked = picked
        """The option that Enter would choose."""
        self._has_begun = False
        self._last = clock()

    @property
    def is_open(self) -> bool:
        """Whether the next key can belong to an answer."""
        return self._has_begun or self._clock() - self._last >= QUIET

    def disturb(self) -> None:
        """The question has appeared, or a key was pressed that is no answer: wait for silence again."""
        self._has_begun, self._last = False, self._clock()

    def type(self) -> None:
        """Text was typed: nothing is picked now, so that its Enter chooses nothing."""
        self.picked = None
        self.disturb()

    def pick(self, option: int) -> None:
        """An option's own key was pressed. Call it only if `is_open`."""
        self.picked, self._has_begun = option, True

    def move(self, step: int) -> None:
        """An arrow key was pressed."""
        if not self.is_open or not self._options:
            self.disturb()
        elif self.picked is None:
            self.pick(0 if step > 0 else self._options - 1)
        else:
            self.pick((self.picked + step) % self._options)

    def confirm(self) -> int | None:
        """Enter was pressed: the option that is chosen, or None if the key is no answer."""
        if self.is_open and self.picked is not None:
            return self.picked
        self.disturb()
        return None


class Question:
    """One question on the screen, and the text that the user types meanwhile.

    Args:
        options: the possible answers.
        otherwise: what Esc means.
        interrupt: called at Ctrl-C, before the question ends.
        text: what was typed for the next prompt before the question.
        queued: prompts that were entered already; those entered now are added.
        default: the option that Enter chooses if the user picks no other and types nothing.
        colour: whether to style it.
        clock: the time in seconds.
    """

    def __init__(
        self,
        options: Sequence[Option],
        *,
        otherwise: str,
        interrupt: Callable[[], None],
        text: str = "",
        queued: list[str] | None = None,
        default: int | None = None,
        colour: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options, self._otherwise, self._colour = options, otherwise, colour
        self._interrupt = interrupt
        self._attention = Attention(len(options), picked=default, clock=clock)
        self._buffer = Buffer(multiline=True)
        self._buffer.insert_text(text)
        self._buffer.on_text_changed += lambda _: self._typed()
        self._buffer.on_cursor_position_changed += lambda _: self._typed()
        self._has_only_key = False  # the text is the key that picked an option, and nothing else
        self._queued = queued if queued is not None else []
        self._application: Application[str | None] | None = None
        self.is_leaving = False
        """Whether Ctrl-D ended it."""

    async def ask(self, source: Input) -> str | None:
        """Show the question until it is answered: the value of an option, or None for Esc, Ctrl-C and Ctrl-D."""
        self._application = application = Application[str | None](
            layout=Layout(self._layout()),
            key_bindings=self._bindings(),
            style=_STYLE,
            color_depth=None if self._colour else ColorDepth.DEPTH_1_BIT,
            input=source,
            erase_when_done=True,
        )
        application.ttimeoutlen = application.timeoutlen = 0.1  # Esc is a key of its own, too
        application.after_render += self._appeared
        return await application.run_async(handle_sigint=False)

    def withdraw(self) -> None:
        """End the question without an answer: nobody waits for it any more."""
        if self._application and self._application.is_running and not self._application.is_done:
            self._application.exit(result=None)

    @property
    def text(self) -> str:
        """What was typed for the next prompt."""
        return "" if self._has_only_key else self._buffer.text

    # Keys ---------------------------------------------------------------------------------------------------

    def _bindings(self) -> KeyBindings:
        keys = KeyBindings()
        keys.add("up")(lambda _: self._move(-1))
        keys.add("down")(lambda _: self._move(1))
        for at, option in enumerate(self._options):
            for key in {option.key, option.key.upper()} - {""}:
                keys.add(key)(partial(self._press, at))
        keys.add("enter")(self._enter)
        keys.add("escape")(self._escape)
        keys.add("escape", "enter")(lambda _: self._buffer.insert_text("\n"))
        keys.add("c-j")(lambda _: self._buffer.insert_text("\n"))
        keys.add("c-c")(self._cancel)
        keys.add("c-d", filter=Condition(lambda: not self._buffer.text))(self._leave)
        return keys

    def _press(self, at: int, event: KeyPressEvent) -> None:
        """The key of an option. It stays in the text until Enter: it may be the beginning of a sentence."""
        is_answer = self._attention.is_open and not self._buffer.text
        self._buffer.insert_text(event.data)
        if is_answer:
            self._attention.pick(at)
            self._has_only_key = True

    def _typed(self) -> None:
        """The text was edited, by typing or pasting."""
        self._has_only_key = False
        self._attention.type()
        self._redraw_when_quiet()

    def _move(self, step: int) -> None:
        if self._has_only_key:
            self._has_only_key = False
            self._buffer.reset()
        self._attention.move(step)
        self._redraw_when_quiet()

    def _enter(self, event: KeyPressEvent) -> None:
        chosen = self._attention.confirm()
        if chosen is not None:
            event.app.exit(result=self._options[chosen].value)
        elif self._buffer.text.strip():
            self._queued.append(self._buffer.text)
            self._buffer.reset()
        self._redraw_when_quiet()

    def _escape(self, event: KeyPressEvent) -> None:
        if self._attention.is_open:
            event.app.exit(result=None)
        else:
            self._attention.disturb()
            self._redraw_when_quiet()

    def _cancel(self, event: KeyPressEvent) -> None:
        self._interrupt()  # at any time: it approves nothing
        event.app.exit(result=None)

    def _leave(self, event: KeyPressEvent) -> None:
        self.is_leaving = True
        event.app.exit(result=None)

    # The screen -------------------------------------------------------------------------------------------------

    def _layout(self) -> HSplit:
        typed = BufferControl(self._buffer, input_processors=[BeforeInput("> ", style="class:prompt")])
        return HSplit(
            [
                Window(FormattedTextControl(self._lines), dont_extend_height=True, wrap_lines=True),
                Window(typed, height=Dimension(min=1, max=_TEXT_LINES), dont_extend_height=True, wrap_lines=True),
            ]
        )

    def _lines(self) -> StyleAndTextTuples:
        is_open = self._attention.is_open
        shown: StyleAndTextTuples = []
        for at, option in enumerate(self._options):
            is_picked = at == self._attention.picked
            style = "class:at" if is_picked else "" if is_open else "class:dim"
            shown += [("", "▸ " if is_picked else "  "), (style, f"{option.key or ' '}  {option.name}"), ("", "\n")]
        how = "↑ ↓ or the key of an answer, then Enter" if is_open else "to answer, stop typing for a moment"
        shown.append(("class:dim", f"  Esc  {self._otherwise}\n  {how}"))
        shown += [("class:dim", f"\n  next: {plain(text)}") for text in self._queued]
        return shown

    def _appeared(self, application: Application[str | None]) -> None:
        application.after_render -= self._appeared
        self._attention.disturb()  # only now can it be read
        self._redraw_when_quiet()

    def _redraw_when_quiet(self) -> None:
        if self._application:
            asyncio.get_running_loop().call_later(QUIET, self._application.invalidate)
