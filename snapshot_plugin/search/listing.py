"""The store's list, remembered: as long as no file of a session changed, it need not be read from the sessions.

The promise: a session that changed is always noticed. The mark of a store is made of the name, the size, the inode
and the time of last change of every file that holds frames. Frames are only ever appended, which makes a file
larger, or put into files of another name; so even a change within one tick of the clock, and one by a process whose
clock is wrong, leaves another mark.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from snapshot_plugin.model.meta import SnapshotMeta

__all__ = ["Look", "look", "recalled", "remember"]

_FRAMES = ".snap.gz"
_LEASE = ".lease"


class Look(NamedTuple):
    """A look at a store's files: their mark, and the directories of sessions that somebody has or had, and died."""

    mark: str
    leased: tuple[str, ...]


def look(root: str | os.PathLike[str]) -> Look | None:
    """A look at the store in the directory *root*; None: it cannot be had."""
    leased: list[str] = []
    try:
        with open(os.path.join(root, "STORE.json"), "rb") as marker:  # noqa: PTH118, PTH123 — no pathlib at start-up
            digest = hashlib.sha256(marker.read())
        for line in sorted(_files(os.path.join(root, "sessions"), leased)):  # noqa: PTH118 — as above
            digest.update(line.encode("utf-8", "surrogateescape"))
    except OSError:
        return None
    return Look(digest.hexdigest(), tuple(leased))


def _files(sessions: str, leased: list[str]) -> Iterator[str]:
    with os.scandir(sessions) as directories:
        for directory in directories:
            yield f"{directory.name}\n"
            if not directory.is_dir(follow_symlinks=False):
                continue
            with os.scandir(directory.path) as files:
                for file in files:
                    name = file.name
                    if name.endswith(_FRAMES):
                        about = file.stat(follow_symlinks=False)
                        changed = f"{about.st_size} {about.st_ctime_ns} {about.st_ino}"
                        yield f"{directory.name}/{name} {changed}\n"
                    elif name == _LEASE and file.stat(follow_symlinks=False).st_size:
                        leased.append(directory.name)


def recalled(connection: sqlite3.Connection, mark: str) -> list[SnapshotMeta] | None:
    """The list as it was when the files were as *mark* says; None if that is not known."""
    data = _remembered(connection, mark)
    try:
        return None if data is None else [SnapshotMeta.told(meta) for meta in json.loads(data)]
    except (ValueError, TypeError, AttributeError):
        return None


def _remembered(connection: sqlite3.Connection, mark: str) -> bytes | None:
    try:
        found = connection.execute("SELECT metas FROM listing WHERE mark = ?", (mark,)).fetchone()
    except sqlite3.DatabaseError:
        return None
    return found[0] if found else None


def remember(connection: sqlite3.Connection, mark: str, metas: Sequence[SnapshotMeta]) -> None:
    """Keep the list for the next time. *mark* was taken before the list was made, so it is never newer than it."""
    from pydantic_core import to_jsonable_python  # noqa: PLC0415 — mostly the list is known

    listed = json.dumps([to_jsonable_python(meta) for meta in metas]).encode()
    connection.execute("DELETE FROM listing")
    connection.execute("INSERT INTO listing (mark, metas) VALUES (?, ?)", (mark, listed))
