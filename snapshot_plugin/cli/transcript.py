"""Render a conversation for a terminal: messages by number, each tool call on one line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from snapshot_plugin.operations.text import clock_time, plain
from snapshot_plugin.operations.transcript import MessagePart, Said

__all__ = ["Styler", "lines_of"]

_COLOURS = {"user": "green", "assistant": "blue", "system": "magenta", "tool": "yellow"}
_MARKS = {"completed": "✓", "failed": "✗"}


class Styler(Protocol):
    """Colours text, if colours are wanted."""

    def __call__(self, text: str, **style: Any) -> str:
        """Return *text* in colour, or unchanged."""


def lines_of(said: Said, style: Styler) -> Iterator[str]:
    """Return a message as lines, with terminal control characters made inert."""
    when = f" · {clock_time(said.at)}" if said.at else ""
    yield style(f"── {said.number} · {said.role}{when} ──", fg=_COLOURS.get(said.role), bold=True)
    for piece in said.pieces:
        yield from _piece_lines(piece, style)
    yield ""


def _piece_lines(piece: MessagePart, style: Styler) -> Iterator[str]:
    if piece.kind == "text":
        yield from plain(piece.text, lines=True).split("\n")
    elif piece.kind == "thought":
        yield from (style(f"  │ {line}", dim=True) for line in plain(piece.text, lines=True).split("\n"))
    elif piece.kind == "tool":
        mark = _MARKS.get(piece.status or "", "…")
        yield style(f"  {mark} {plain(piece.text)}", fg="yellow")
        for line in plain(piece.detail, lines=True).split("\n") if piece.detail else ():
            yield style(f"      {line}", dim=True)
    else:
        yield style(f"  [{plain(piece.kind)} {plain(piece.text)}]".replace(" ]", "]"), dim=True)
