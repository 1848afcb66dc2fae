"""One call at a time for each session, in the order in which the calls were made.

Works across threads and event loops. A session takes memory here only while a call of it is under way.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable

__all__ = ["Turns"]

Wake = Callable[[], object]


class Turns:
    """Serialises calls per session: one call at a time for each."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: dict[str, deque[Wake]] = {}

    def enter(self, session_id: str, wake: Wake) -> bool:
        """Take the session's turn if it is free. Otherwise queue; *wake* is called once the turn is ours."""
        with self._guard:
            queue = self._waiting.get(session_id)
            if queue is None:
                self._waiting[session_id] = deque()
                return True
            queue.append(wake)
            return False

    def leave(self, session_id: str) -> None:
        """Give the turn to the next in the queue. One whose event loop is closed is skipped."""
        while True:
            with self._guard:
                queue = self._waiting[session_id]
                if not queue:
                    del self._waiting[session_id]
                    return
                wake = queue.popleft()
            with contextlib.suppress(RuntimeError):
                wake()
                return

    def withdraw(self, session_id: str, wake: Wake) -> None:
        """Leave the queue; if the turn came meanwhile, pass it on."""
        with self._guard:
            queue = self._waiting[session_id]
            if wake in queue:
                queue.remove(wake)
                return
        self.leave(session_id)
