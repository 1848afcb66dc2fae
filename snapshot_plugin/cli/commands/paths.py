"""``asnap paths``: where everything is stored."""

from __future__ import annotations

from typing import ClassVar

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.output import Column, Output
from snapshot_plugin.operations.document import Document, Part

__all__ = ["Paths", "command"]


class PathEntry(Part):
    """One place: its purpose, its path, and whether it exists."""

    name: str
    path: str
    exists: bool
    purpose: str


class Paths(Document):
    """Every place this installation uses for this user."""

    kind: ClassVar[str] = "paths"
    rows: ClassVar[str] = "places"
    places: tuple[PathEntry, ...]


def show_paths(answer: Paths, out: Output) -> None:
    """Print every place this installation uses for this user."""
    columns = (Column("PLACE"), Column("PATH"), Column("", flexible=True))
    out.table(columns, [(place.name, place.path, place.purpose) for place in answer.places])


@declare(
    "paths",
    answer=Paths,
    show=show_paths,
    examples=(
        ("asnap paths", "where the store, the settings and the index are"),
        ("asnap paths --json", "the same for a script"),
        ('du -sh "$(asnap paths | grep ^store | cut -f2)"', "how large the store is"),
    ),
    exits=(),
)
def command(call: Call) -> Paths:
    """Show where everything is stored.

    Each place can be moved with an XDG variable; the store also with --store or ASNAP_STORE.
    """
    from pathlib import Path

    from snapshot_plugin.manager import places

    found = (
        ("store", call.config.storage_path, "sessions; back this up"),
        ("config", str(places.user_config_file(call.environ)), "settings"),
        ("cache", str(places.user_cache_dir(call.environ)), "search index; delete freely"),
        ("state", str(places.user_state_dir(call.environ)), "operation log, for undo"),
    )
    return Paths(
        places=tuple(PathEntry(name=n, path=p, exists=Path(p).exists(), purpose=purpose) for n, p, purpose in found)
    )
