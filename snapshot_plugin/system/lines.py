"""Lines of bytes: split a stream at newlines, with a limit for the length of a line."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Lines"]

_HEAD, _TAIL = 4096, 256


class Lines:
    """Splits a byte stream at newlines. The cost is linear in the length of a line.

    Args:
        limit: the length in bytes of the longest line that is kept; None: lines may have any length.
        too_long: returns what stands for a longer line, given its beginning and its end: another line, or nothing.
    """

    def __init__(
        self, limit: int | None = None, too_long: Callable[[bytes, bytes], bytes] = lambda _head, _tail: b""
    ) -> None:
        self._limit, self._too_long = limit, too_long
        self._parts: list[bytes] = []
        self._size = 0
        self._head: bytes | None = None
        """The beginning of a line that is too long, while the rest of it is dropped."""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that *data* completes, each with its newline."""
        if self._limit is not None and self._size + len(data) > self._limit:
            pieces = data.split(b"\n")
            fed = [*(piece + b"\n" for piece in pieces[:-1]), pieces[-1]]
            return [line for piece in fed if (line := self._fed(piece, self._limit))]
        end = data.rfind(b"\n") + 1
        if not end:
            self._parts.append(data)
            self._size += len(data)
            return []
        whole = b"".join([*self._parts, data[:end]])
        self._parts = [data[end:]] if end < len(data) else []
        self._size = len(data) - end
        return whole.splitlines(keepends=True) if b"\r" not in whole else _at_newlines(whole)

    def _fed(self, piece: bytes, limit: int) -> bytes:
        """Return the line that *piece* of one line completes; empty if it does not, or nothing stands for it."""
        self._parts.append(piece)
        self._size += len(piece)
        if self._size > limit:
            if self._head is None:
                self._head = b"".join(part[:_HEAD] for part in self._parts[:_HEAD])[:_HEAD]
            self._parts = [b"".join(self._parts[-2:])[-_TAIL:]]
        if not piece.endswith(b"\n"):
            return b""
        line, head = b"".join(self._parts), self._head
        self._parts, self._size, self._head = [], 0, None
        return line if head is None else self._too_long(head, line)

    def rest(self) -> bytes:
        """Return the bytes after the last newline, or what stands for them."""
        rest = b"".join(self._parts)
        return rest if self._head is None else self._too_long(self._head, rest)


def _at_newlines(whole: bytes) -> list[bytes]:
    # splitlines would also split at a lone carriage return
    return [line + b"\n" for line in whole.split(b"\n")[:-1]]
