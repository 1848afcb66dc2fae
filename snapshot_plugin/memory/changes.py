"""A change to a memory, as plain data, so that it can be applied later; and its receipt."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pydantic import Field

from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.memory.entries import KINDS, Entry
from snapshot_plugin.memory.files import Name
from snapshot_plugin.model.value import Value

__all__ = ["MemoryChange", "Outcome", "Persistence", "Saved"]

Persistence = Literal["disk", "memory", "read-only"]
"""Where saves go: to disk; only to this process's memory; the same, because another process keeps the lock."""


class MemoryChange(NamedTuple):
    """One change to a memory. `session` and `at` say which session requested it, and when."""

    op: Literal["begin", "end", "save", "resolve", "delete", "clear"]
    namespace: str = ""
    key: str = ""
    data: Any = None
    session: int = 0
    at: str = ""

    @property
    def name(self) -> Name:
        """The entry it is about."""
        return Name(self.namespace, self.key)

    def meets(self, other: MemoryChange) -> bool:
        """Whether it matters which of the two is applied first."""
        if "" in (self.namespace, other.namespace):  # of a session, or of everything
            return "clear" in (self.op, other.op)
        is_one_file = self.namespace in KINDS or "" in (self.key, other.key) or self.key == other.key
        return self.namespace == other.namespace and is_one_file


class Saved(Value):
    """The receipt of a change.

    `understood` says what was counted, `ignored` what was not used and why, `better` how to write it so that it is
    counted. `evicted` names entries that had to go, `trimmed` counts entries that left a full document,
    `redacted` counts what was taken out by kind.
    """

    namespace: str = ""
    key: str = ""
    bytes: int = 0
    understood: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    better: tuple[str, ...] = ()
    evicted: tuple[str, ...] = ()
    trimmed: int = 0
    redacted: dict[str, int] = Field(default_factory=dict)


Outcome = Entry | SnapshotError
"""The result of a change: the fields of its receipt, or the error that refused it."""
