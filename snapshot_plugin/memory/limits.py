"""How much a project's memory may hold."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from snapshot_plugin.errors import LimitExceeded

__all__ = ["Limits"]

_MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Sizes in bytes, and how many of each kind are kept.

    Names, messages and shapes are bounded so that a full document fits into one entry.
    """

    entry_bytes: int = _MIB
    project_bytes: int = 10 * _MIB
    all_projects_bytes: int = 100 * _MIB
    baselines: int = 50
    errors: int = 500
    error_age: timedelta = timedelta(days=30)
    endpoints: int = 200
    performance_age: timedelta = timedelta(days=30)
    timings: int = 1000
    noise_rules: int = 500
    name_bytes: int = 500
    message_bytes: int = 1000
    shape_bytes: int = 4096

    def check_entry(self, name: str, size: int) -> None:
        """Raise `LimitExceeded` for an entry that is too large."""
        if size > self.entry_bytes:
            raise LimitExceeded(
                f"{name} would have {size} bytes; an entry may have {self.entry_bytes}",
                hint="store less of it, or split it over several keys",
            )

    def check_total(self, name: str, project: int, elsewhere: int) -> None:
        """Raise `LimitExceeded` when this project, or all projects together, would hold too much with *name*."""
        if project > self.project_bytes:
            raise LimitExceeded(
                f"with {name} this project's memory would have {project} bytes; it may have {self.project_bytes}",
                hint="session_store(action='stats') shows what is large; delete what is not needed",
            )
        if project + elsewhere > self.all_projects_bytes:
            raise LimitExceeded(
                f"with {name} the memories of all projects would have {project + elsewhere} bytes; "
                f"they may have {self.all_projects_bytes}",
                hint="delete entries here, or the .asnap directory of a project you no longer need",
            )

    def check_name(self, name: str) -> None:
        """Raise `LimitExceeded` for the name of an error or endpoint that is too long."""
        if len(name.encode(errors="surrogatepass")) > self.name_bytes:
            raise LimitExceeded(f"{name[:60]!r}… has more than {self.name_bytes} bytes", hint="use a shorter name")

    def check_shape(self, name: str, size: int) -> None:
        """Raise `LimitExceeded` for the description of an endpoint that is too long."""
        if size > self.shape_bytes:
            raise LimitExceeded(
                f"the shape of {name} has {size} bytes; it may have {self.shape_bytes}",
                hint="describe names and types, not values",
            )

    def shortened(self, message: str) -> str:
        """*message*, cut with a mark where it is too long to be kept."""
        data = message.encode(errors="replace")
        if len(data) <= self.message_bytes:
            return message
        return f"{data[: self.message_bytes].decode(errors='ignore')}…"
