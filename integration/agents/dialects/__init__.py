"""Model APIs the agents speak: how each writes a request and wants its answer. Pure: requests in, events out.

A dialect is a module with the four functions of `Dialect`. `DIALECTS` holds them all; `dialect_of` finds the one
for a path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from integration.agents.dialects import anthropic, chat, gemini, responses
from integration.agents.dialects.turns import Call, Tool, Turn

__all__ = ["DIALECTS", "Call", "Dialect", "Tool", "Turn", "dialect_of"]

Json = dict[str, Any]


class Dialect(Protocol):
    """What a module of this package offers."""

    def speaks(self, path: str) -> bool:
        """Whether a request to *path* is written in this dialect."""
        ...

    def turn(self, body: Json) -> Turn:
        """Read a request."""
        ...

    def events(self, pieces: Iterable[str], call: Call | None, tokens: int) -> Iterator[str]:
        """The answer as a stream of server-sent events; the request had *tokens*."""
        ...

    def whole(self, pieces: Iterable[str], call: Call | None, tokens: int) -> Json:
        """The answer in one piece."""
        ...


DIALECTS: tuple[Dialect, ...] = (chat, responses, anthropic, gemini)


def dialect_of(path: str) -> Dialect | None:
    """The dialect that a request to *path* is written in, or None."""
    return next((dialect for dialect in DIALECTS if dialect.speaks(path)), None)
