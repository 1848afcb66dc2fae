"""The input prompt: several lines with Alt-Enter, long pastes folded, the status below."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.key_processor import KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style

__all__ = ["prompt_session"]

_STYLE = Style.from_dict({"bottom-toolbar": "noreverse ansibrightblack", "prompt": "bold ansiblue"})
_LONG = 20
_FOLDED = re.compile(r"\[pasted text (\d+): \d+ lines\]")


class _Session(PromptSession[str]):
    """A prompt that shows long pastes as a placeholder and returns them in full."""

    def __init__(self, **settings: Any) -> None:
        self._pasted: list[str] = []
        super().__init__(**settings)

    def fold(self, text: str) -> str:
        """The placeholder for a long paste."""
        self._pasted.append(text)
        return f"[pasted text {len(self._pasted)}: {text.count(chr(10)) + 1} lines]"

    async def prompt_async(self, *arguments: Any, **settings: Any) -> str:
        """See `PromptSession`."""
        self._pasted.clear()
        typed: str = await super().prompt_async(*arguments, **settings)

        def whole(found: re.Match[str]) -> str:
            number = int(found[1]) - 1
            return self._pasted[number] if 0 <= number < len(self._pasted) else found[0]

        return _FOLDED.sub(whole, typed)


def prompt_session(status: Callable[[], str], *, colour: bool) -> PromptSession[str]:
    """The session that reads the next prompt. Enter sends it."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add(Keys.BracketedPaste)
    def _(event: KeyPressEvent) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        event.current_buffer.insert_text(session.fold(text) if text.count("\n") >= _LONG else text)

    session = _Session(
        message=[("class:prompt", "> ")],
        multiline=True,
        prompt_continuation="  ",
        key_bindings=keys,
        bottom_toolbar=lambda: [("class:bottom-toolbar", f" {status()}")],
        style=_STYLE,
        color_depth=None if colour and sys.stdout.isatty() else ColorDepth.DEPTH_1_BIT,
    )
    return session
