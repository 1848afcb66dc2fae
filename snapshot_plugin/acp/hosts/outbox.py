"""What is to be written to one side, in order, by whichever thread may block on it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

__all__ = ["Outbox", "QueuedWrite"]

_FULL = 8 << 20


class QueuedWrite:
    """A place in the order. Nothing behind it is written before it is released."""

    __slots__ = ("data", "is_ready")

    def __init__(self, data: bytes, *, is_ready: bool) -> None:
        self.data, self.is_ready = data, is_ready


class Outbox:
    """Adding never blocks; writing does, and happens in the thread that calls `drain`, or in one of its own.

    Two pumps that each wrote to the other's side while holding a lock could wait for each other for ever.

    Args:
        write: writes everything, and returns what it could not write.
        name: of the side, for threads.
    """

    def __init__(self, write: Callable[[bytes], bytes], name: str) -> None:
        self._write, self._name = write, name
        self._slots: deque[QueuedWrite] = deque()
        self._changed = threading.Condition()
        self._is_writing = self._is_started = self._is_over = False
        self._size, self._failed = 0, b""

    def add(self, data: bytes, *, is_ready: bool) -> QueuedWrite:
        """Put *data* behind what is there; to be written once it is ready."""
        slot = QueuedWrite(data, is_ready=is_ready)
        with self._changed:
            self._slots.append(slot)
            self._size += len(data)
        return slot

    def drain(self) -> None:
        """Write what is ready, unless another thread does so already. Blocks while the other side does not read."""
        while (batch := self._taken()) is not None:
            lost = b""
            try:
                lost = self._write(batch)
            finally:
                with self._changed:
                    self._failed += lost
                    self._is_writing = False
                    self._size -= len(batch)
                    self._changed.notify_all()

    def _taken(self) -> bytes | None:
        with self._changed:
            if self._is_writing or not self._slots or not self._slots[0].is_ready:
                return None
            self._is_writing = True
            batch = [self._slots.popleft().data]
            while self._slots and self._slots[0].is_ready:
                batch.append(self._slots.popleft().data)
            return b"".join(batch) if len(batch) > 1 else batch[0]

    def reclaim(self, seconds: float) -> bytes:
        """Take out what was not written; waits, bounded, for the write that is under way."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_writing, seconds)
            unwritten = b"".join(slot.data for slot in self._slots)
            self._slots.clear()
            self._size -= len(unwritten)
            failed, self._failed = self._failed, b""
            return failed + unwritten

    def drain_elsewhere(self) -> None:
        """Have a thread of its own write: the caller must not block."""
        with self._changed:
            if not self._is_started:
                self._is_started = True
                threading.Thread(target=self._run, daemon=True, name=f"asnap {self._name}").start()
            self._changed.notify_all()

    def wait_for_room(self) -> None:
        """Wait while much is unwritten: what comes in is then not read either."""
        if self._size > _FULL:
            with self._changed:
                self._changed.wait_for(lambda: self._size <= _FULL or self._is_over)

    def close(self) -> None:
        """Nobody writes any more."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _run(self) -> None:
        while not self._is_over:
            self.drain()
            with self._changed:
                self._changed.wait_for(
                    lambda: (
                        self._is_over or (bool(self._slots) and self._slots[0].is_ready and not self._is_writing)
                    )
                )
