"""Keys while there is no prompt: Ctrl-C cancels the turn, others go to the next prompt. Questions of the agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import anyio
from prompt_toolkit.application.current import get_app_session
from prompt_toolkit.input.typeahead import get_typeahead
from prompt_toolkit.keys import Keys
from prompt_toolkit.patch_stdout import patch_stdout

from snapshot_plugin.cli.chat.question import Option, Question

__all__ = ["TurnKeys"]


class TurnKeys:
    """What is typed while there is no prompt: before the first one, and during a turn."""

    def __init__(self) -> None:
        self.source = get_app_session().input
        """The terminal. The prompt reads from it, too, so that a paste may begin here and end there."""
        # Output above a prompt leaves raw mode for a moment, in which the kernel would take a Ctrl-D for itself.
        self.source.cooked_mode = self.source.raw_mode  # type: ignore[method-assign]
        self._cancel: Callable[[], None] = lambda: None
        self._was_escape = False  # Alt-Enter arrives as Esc and Enter
        self._output = get_app_session().output
        self._is_listening = False
        self._question: Question | None = None
        self.keyboard = anyio.Lock()
        """Held by what reads keys with a screen of its own: the prompt, or one question."""
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
        """Read keys from the terminal without echo during a turn; call *cancel* at each Ctrl-C."""
        self._cancel, self._is_listening = cancel, True

        def ready() -> None:
            for press in self.source.read_keys():
                self._pressed(press.key, press.data)

        with self.source.raw_mode(), self.source.attach(ready):
            self._continue()
            try:
                yield
            finally:
                self._is_listening = False
                if self._question:  # the agent may have ended with a question open
                    self._question.withdraw()
                self._output.disable_bracketed_paste()
                self._output.flush()

    def _continue(self) -> None:
        """Read keys again after a prompt or a question, beginning with those that it has read and not used."""
        for press in get_typeahead(self.source):
            self._pressed(press.key, press.data)
        if self._is_listening:  # prompts and questions turn it off at their end
            self._output.enable_bracketed_paste()
            self._output.flush()

    def _pressed(self, key: Keys | str, data: str) -> None:
        is_alt, self._was_escape = self._was_escape, key == Keys.Escape
        if key == Keys.ControlC:
            self._cancel()
        elif key == Keys.ControlD:
            self.leaving = True
        elif key == Keys.ControlJ or (key == Keys.Enter and is_alt):  # as in the prompt, a line break
            self.ahead += "\n"
        elif key == Keys.Enter and self.ahead.strip():
            self.queued.append(self.ahead)
            self.ahead = ""
        elif key == Keys.Backspace:
            self.ahead = self.ahead[:-1]
        elif key == Keys.BracketedPaste:
            self.ahead += data.replace("\r\n", "\n").replace("\r", "\n")
        elif len(data) == 1 and data.isprintable():
            self.ahead += data

    async def ask(
        self,
        options: Sequence[Option],
        *,
        otherwise: str,
        default: int | None = None,
        colour: bool,
        about: Callable[[], None] = lambda: None,
    ) -> str | None:
        """Let the user choose one of *options*; None for Esc, Ctrl-C and Ctrl-D.

        Call it while `listening`: outside, and when that ends first, the answer is None.
        Other questions and the prompt wait meanwhile. *about* prints what this one is about, when it is shown.
        """
        async with self.keyboard:
            about()
            if not self._is_listening:
                return None
            self._question = question = Question(
                options,
                otherwise=otherwise,
                interrupt=self._cancel,
                text=self.ahead,
                queued=self.queued,
                default=default,
                colour=colour,
            )
            with patch_stdout(raw=True):  # output appears above the question
                chosen = await question.ask(self.source)
            self._question, self.ahead = None, question.text
            self.leaving |= question.is_leaving
        self._continue()
        return chosen
