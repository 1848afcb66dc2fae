"""What streams by becomes safe from a power cut within a second, and whoever writes it ahead does not wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["INTERVAL", "Flusher"]

INTERVAL = 1.0
"""Seconds of an unfinished turn that a power cut may cost."""


class Flusher:
    """Calls *flush*, in a thread of its own, *interval* seconds after `wake`. It sleeps while nothing is new."""

    def __init__(self, flush: Callable[[], None], *, interval: float = INTERVAL) -> None:
        self._flush, self._interval = flush, interval
        self._news = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """There is something to flush. Costs next to nothing."""
        if not self._news.is_set():
            self._news.set()
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, daemon=True, name="asnap flush")
                    self._thread.start()

    def _run(self) -> None:
        while True:
            self._news.wait()
            time.sleep(self._interval)
            self._news.clear()  # first: what comes during the flush is flushed the next time
            self._flush()
