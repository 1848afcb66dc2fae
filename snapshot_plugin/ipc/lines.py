"""Lines of bytes with a size limit: a line that is too long is reported and dropped, never buffered."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["MAX_LINE", "BoundedLines", "TooLong"]

MAX_LINE = 64 << 20
"""The longest accepted line, in bytes."""


class TooLong:
    """Placeholder for a line over the size limit."""


class BoundedLines:
    """Splits a stream at newlines; buffers at most *limit* bytes and one chunk."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[bytes | TooLong]:
        """The lines that *data* completes, without their ends."""
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._add(piece)
            yield self._take()
        self._add(rest)

    def rest(self) -> bytes | TooLong:
        """What came after the last newline."""
        return self._take()

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            self._skipping = True
            self._parts.clear()
        elif piece:
            self._parts.append(piece)

    def _take(self) -> bytes | TooLong:
        line = TooLong() if self._skipping else b"".join(self._parts)
        self._parts, self._size, self._skipping = [], 0, False
        return line
