"""How much a project's memory may hold."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from snapshot_plugin.errors import LimitExceeded

__all__ = ["Limits"]

_MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Sizes in bytes, and how many of each kind are kept."""

    entry_bytes: int = _MIB
    project_bytes: int = 10 * _MIB
    all_projects_bytes: int = 100 * _MIB
    baselines: int = 50
    errors: int = 500
    error_age: timedelta = timedelta(days=30)
    endpoints: int = 200
    performance_age: timedelta = timedelta(days=30)

    def check_entry(self, name: str, size: int) -> None:
        """Raise `LimitExceeded` for an entry that is too large."""
        if size > self.entry_bytes:
            raise LimitExceeded(
                f"{name} would have {size} bytes; an entry may have {self.entry_bytes}",
                hint="store less of it, or split it over several keys",
            )

    def check_project(self, name: str, total: int) -> None:
        """Raise `LimitExceeded` when the project's memory would hold *total* bytes with *name* in it."""
        if total > self.project_bytes:
            raise LimitExceeded(
                f"with {name} this project's memory would have {total} bytes; it may have {self.project_bytes}",
                hint="session_store(action='stats') shows what is large; delete what is not needed",
            )

    def check_all_projects(self, name: str, total: int) -> None:
        """Raise `LimitExceeded` when the memories of all projects would hold *total* bytes together."""
        if total > self.all_projects_bytes:
            raise LimitExceeded(
                f"with {name} the memories of all projects would have {total} bytes; "
                f"they may have {self.all_projects_bytes}",
                hint="delete entries here, or the .asnap directory of a project you no longer need",
            )
