"""What the caller should know with every answer: whether things last, and what was found damaged."""

from __future__ import annotations

from collections import deque
from typing import Final

from snapshot_plugin.memory.summary import Persistence
from snapshot_plugin.errors import MemoryReadOnly, StoreUnavailable

__all__ = ["Standing"]

_MAX_REPORTS: Final = 20


class Standing:
    """How the memory stands right now."""

    def __init__(self) -> None:
        self.persistence: Persistence = "disk"
        self._why = ""
        self._reports: deque[str] = deque(maxlen=_MAX_REPORTS)

    @property
    def notices(self) -> tuple[str, ...]:
        """All there is to tell, the gravest first."""
        return ((self._why,) if self._why else ()) + tuple(self._reports)

    def well(self) -> None:
        """The disk takes what it is given."""
        self.persistence, self._why = "disk", ""

    def reading_only(self, error: MemoryReadOnly) -> None:
        """Somebody else writes."""
        self.persistence, self._why = "read-only", f"this session only reads: {error.message}"

    def refused(self, error: StoreUnavailable) -> None:
        """The disk does not take what it is given."""
        self.persistence = "memory"
        self._why = f"nothing is stored, all is kept in memory only: {error.message}"

    def report(self, text: str) -> None:
        """Tell it with every answer from now on."""
        if text not in self._reports:
            self._reports.append(text)

    def forget_reports(self) -> None:
        """Nothing of what was reported is there any more."""
        self._reports.clear()
