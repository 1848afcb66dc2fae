"""A real terminal: ``asnap`` in a pty, and a screen that shows what a person would see. Every wait is bounded."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyte
from wcwidth import wcwidth

from tests import forkserver

__all__ = ["PATIENCE", "Terminal"]

PATIENCE = 60.0
_SOON = 50
"""Milliseconds after which a condition that is not about the screen is looked at again."""


class _Screen(pyte.Screen):
    """Answers programs that ask where the cursor is, and renders only lines that have changed."""

    answer: Callable[[str], Any] = staticmethod(lambda _data: None)

    def __init__(self, columns: int, lines: int) -> None:
        self._shown: dict[int, str] = {}
        super().__init__(columns, lines)

    @property
    def display(self) -> list[str]:
        """As `pyte.Screen.display`, which renders each cell of the screen each time."""
        for number in self.dirty:
            self._shown[number] = self._rendered(self.buffer[number])
        self.dirty.clear()
        return [self._shown[number] for number in range(self.lines)]

    def _rendered(self, line: Mapping[int, Any]) -> str:
        shown, column = "", 0
        while column < self.columns:
            cell = line[column].data
            shown += cell
            column += 2 if wcwidth(cell[0]) == 2 else 1  # behind a wide character is a stub
        return shown

    def write_process_input(self, data: str) -> None:
        self.answer(data)


class Terminal:
    """One command in a terminal of its own."""

    def __init__(
        self,
        *words: str | Path,
        columns: int = 80,
        lines: int = 24,
        env: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self._patience = patience
        self.screen = _Screen(columns, lines)
        self._stream: Any = pyte.ByteStream(self.screen)
        self.received = b""
        self._end, theirs = pty.openpty()
        self._ready = select.poll()  # not select(): a test run may have over a thousand files open
        self._ready.register(self._end, select.POLLIN)
        self._set_size()
        self._child = forkserver.Popen(
            [sys.executable, "-m", "snapshot_plugin", *map(str, words)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm-256color", **(env or {})},
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(theirs)
        self.screen.answer = self.send

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        os.close(self._end)
        try:
            self._child.wait(self._patience)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait(self._patience)

    def send(self, keys: str) -> None:
        """Type."""
        os.write(self._end, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Make the window another size."""
        self.screen.resize(lines, columns)
        self._set_size()

    @property
    def lines(self) -> list[str]:
        """What is on the screen, line by line."""
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        """What is on the screen."""
        return "\n".join(self.lines)

    def wait_for(self, wanted: str | Callable[[], bool]) -> None:
        """Wait until a text is on the screen, or something holds of it."""
        holds = wanted if callable(wanted) else lambda: any(wanted in text for text in self._texts())
        deadline = time.monotonic() + self._patience
        while not holds():
            assert self._read(), f"ended without {wanted!r}:\n{self.text}"
            assert time.monotonic() < deadline, f"no {wanted!r}:\n{self.text}"

    def _texts(self) -> tuple[str, ...]:
        """What is on the screen; and the same with the lines joined, as a long path may wrap the text after it."""
        return self.text, " ".join(self.lines), "".join(self.lines)

    def end(self) -> int:
        """Wait for the command to end; its exit status."""
        deadline = time.monotonic() + self._patience
        while self._read():
            assert time.monotonic() < deadline, self.text
        return self._child.wait(self._patience)

    def colour_of(self, text: str) -> str:
        """The colour in which *text* is shown, where it first is."""
        for number, line in enumerate(self.screen.display):
            if (column := line.find(text)) >= 0:
                return str(self.screen.buffer[number][column].fg)
        raise AssertionError(f"no {text!r}:\n{self.text}")

    def _set_size(self) -> None:
        fcntl.ioctl(
            self._end, termios.TIOCSWINSZ, struct.pack("HHHH", self.screen.lines, self.screen.columns, 0, 0)
        )

    def _read(self) -> bool:
        """Show what the command writes next, if it does so soon; False when it has closed the terminal."""
        if not self._ready.poll(_SOON):
            return True
        try:
            data = os.read(self._end, 65536)
        except OSError:  # Linux says end of file in this way
            data = b""
        self.received += data
        self._stream.feed(data)
        return bool(data)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
