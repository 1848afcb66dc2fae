"""How much a project's memory may hold."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from snapshot_plugin.errors import LimitExceeded

__all__ = ["MemoryLimits"]

_MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class MemoryLimits:
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
        _refuse(size, self.entry_bytes, f"{name} would have", "store less of it, or split it over several keys")

    def check_total(self, name: str, project: int, elsewhere: int) -> None:
        """Raise `LimitExceeded` if, with *name*, this project or all projects together would hold too much."""
        _refuse(
            project, self.project_bytes, f"with {name} this project's memory would have",
            "session_store(action='stats') shows what is large; delete what is not needed",
        )  # fmt: skip
        _refuse(
            project + elsewhere, self.all_projects_bytes, f"with {name} the memories of all projects would have",
            "delete entries here, or the .asnap directory of a project you no longer need",
        )  # fmt: skip

    def check_name(self, name: str) -> None:
        """Raise `LimitExceeded` for the name of an error or endpoint that is too long."""
        size = len(name.encode(errors="surrogatepass"))
        _refuse(size, self.name_bytes, f"the name {name[:60]!r}… has", "use a shorter name")

    def check_shape(self, name: str, size: int) -> None:
        """Raise `LimitExceeded` for the description of an endpoint that is too long."""
        _refuse(size, self.shape_bytes, f"the shape of {name} has", "describe names and types, not values")

    def shortened(self, message: str) -> str:
        """*message*, truncated with a mark if it is too long."""
        data = message.encode(errors="replace")
        if len(data) <= self.message_bytes:
            return message
        return f"{data[: self.message_bytes].decode(errors='ignore')}…"


def _refuse(size: int, most: int, what: str, hint: str) -> None:
    if size > most:
        raise LimitExceeded(f"{what} {size} bytes, of at most {most}", hint=hint)
