"""Keys while there is no prompt: Ctrl-C cancels, one key answers a question, others go to the next prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import anyio
from prompt_toolkit.application.current import get_app_session
from prompt_toolkit.keys import Keys

__all__ = ["TurnKeys"]


class TurnKeys:
    """What is typed while there is no prompt: before the first one, and during a turn."""

    def __init__(self) -> None:
        self.source = get_app_session().input
        """The terminal. The prompt reads from it, too, so that a paste may begin here and end there."""
        # Output above a prompt leaves raw mode for a moment, in which the kernel would take a Ctrl-D for itself.
        self.source.cooked_mode = self.source.raw_mode  # type: ignore[method-assign]
        self._cancel: Callable[[], None] = lambda: None
        self._choices: Mapping[str, str] = {}
        self._chosen: str | None = None
        self._answered = anyio.Event()
        self.ahead = ""
        """Text typed for the next prompt."""
        self.queued: list[str] = []
        """Prompts that were entered while the agent worked."""
        self.leaving = False
        """Whether Ctrl-D was pressed."""

    def take_typed(self) -> None:
        """Take what was typed before the first prompt. The kernel stores a Ctrl-D as NUL while it reads lines."""
        for press in self.source.read_keys():
            self._pressed(Keys.ControlD if press.key == Keys.ControlAt else press.key, press.data)

    @contextmanager
    def listening(self, cancel: Callable[[], None]) -> Iterator[None]:
        """Read keys from the terminal without echo; call *cancel* at each Ctrl-C."""
        self._cancel = cancel

        def ready() -> None:
            presses = self.source.read_keys()
            if self._choices:  # Esc is a key of its own there, not the beginning of another
                presses += self.source.flush_keys()
            for press in presses:
                self._pressed(press.key, press.data)

        with self.source.raw_mode(), self.source.attach(ready):
            try:
                yield
            finally:
                self._answer(None)  # the agent may have ended with a question open

    def _pressed(self, key: Keys | str, data: str) -> None:
        if self._choices and (chosen := self._choices.get(key.lower(), self._choices.get(key))) is not None:
            self._answer(chosen)
        elif key == Keys.ControlC:
            self._cancel()
            self._answer(None)
        elif self._choices:
            if key == Keys.Escape:
                self._answer(None)
        elif key == Keys.ControlD:
            self.leaving = True
        elif key == Keys.Enter and self.ahead.strip():
            self.queued.append(self.ahead)
            self.ahead = ""
        elif key == Keys.Backspace:
            self.ahead = self.ahead[:-1]
        elif key == Keys.ControlJ:  # as in the prompt, a line break
            self.ahead += "\n"
        elif key == Keys.BracketedPaste or (len(data) == 1 and data.isprintable()):
            self.ahead += data

    def _answer(self, chosen: str | None) -> None:
        if self._choices:
            self._choices, self._chosen = {}, chosen
            self._answered.set()

    async def choose(self, choices: Mapping[str, str]) -> str | None:
        """Wait for a key in *choices* and return its value; None for Esc and Ctrl-C."""
        self._choices, self._answered = choices, anyio.Event()
        await self._answered.wait()
        return self._chosen
