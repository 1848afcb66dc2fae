"""One end of a JSON-RPC connection. No I/O: chat, demo, hosts and tests read and write in their own ways."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from snapshot_plugin.acp.messages import INTERNAL_ERROR, Message, encode, failure, key_of, parse, request
from snapshot_plugin.system.lines import Lines

__all__ = ["Endpoint", "Received"]

Answered = Callable[[Message], object]


class Received(NamedTuple):
    """One line that was read."""

    line: bytes
    message: Message | None
    """None if the line is not a JSON object."""


class Endpoint:
    """Numbers our requests and finds their answers in what is read. Threads may send while another one reads.

    Args:
        prefix: begins the ids of our requests; without one they are numbers.
        lines: splits what is read.
    """

    def __init__(self, prefix: str = "", lines: Lines | None = None) -> None:
        self._prefix, self._lines = prefix, lines or Lines()
        self._numbers = itertools.count(1)
        self._unanswered: dict[str, tuple[Any, Answered]] = {}

    def new_id(self) -> int | str:
        """Return an id for a request of ours."""
        number = next(self._numbers)
        return f"{self._prefix}{number}" if self._prefix else number

    def request(self, method: str, params: Message, answered: Answered, request_id: Any = None) -> bytes:
        """Return the line of a request. *answered* is called with the whole answer: a result or an error."""
        request_id = self.new_id() if request_id is None else request_id
        self._unanswered[key_of(request_id)] = request_id, answered
        return encode(request(request_id, method, params))

    def feed(self, data: bytes) -> Iterator[Received]:
        """Yield the lines that *data* completes, in order. An answer to a request of ours is handed over first."""
        for line in self._lines.feed(data):
            yield self._received(line)

    def rest(self) -> Iterator[Received]:
        """Yield what came after the last newline, at the end of the stream."""
        if line := self._lines.rest():
            yield self._received(line)

    def _received(self, line: bytes) -> Received:
        message = parse(line)
        if message is not None:
            self.take(message)
        return Received(line, message)

    def take(self, message: Message) -> bool:
        """Hand an answer over to the request of ours that it is for. Returns whether there is one."""
        if "method" in message:
            return False
        _, answered = self._unanswered.pop(key_of(message.get("id")), (None, None))
        if answered is not None:
            answered(message)
        return answered is not None

    def close(self, why: str) -> None:
        """Answer every open request of ours with an error: the other side is gone."""
        unanswered, self._unanswered = self._unanswered, {}
        for request_id, answered in unanswered.values():
            answered(failure(request_id, INTERNAL_ERROR, why))
