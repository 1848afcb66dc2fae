"""The store's list, remembered: as long as no file of a session changed, it need not be read from the sessions."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from snapshot_plugin.model.meta import SnapshotMeta

__all__ = ["directory_mark", "recalled", "remember"]

_METAS = TypeAdapter(list[SnapshotMeta])
_FRAMES = ".snap.gz"


def directory_mark(sessions: Path) -> str | None:
    """A digest of which files hold frames, how large they are, and when they were written. None: it cannot be told.

    Frames are only ever appended, or put into new files: a session cannot change and leave this as it was.
    """
    digest = hashlib.sha256()
    try:
        for line in sorted(_files(sessions)):
            digest.update(line.encode("utf-8", "surrogateescape") + b"\n")
    except OSError:
        return None
    return digest.hexdigest()


def _files(sessions: Path) -> Iterator[str]:
    with os.scandir(sessions) as directories:
        for directory in directories:
            yield directory.name
            if not directory.is_dir(follow_symlinks=False):
                continue
            with os.scandir(directory.path) as files:
                for file in files:
                    if file.name.endswith(_FRAMES):
                        about = file.stat(follow_symlinks=False)
                        yield f"{directory.name}/{file.name} {about.st_size} {about.st_mtime_ns} {about.st_ino}"


def recalled(connection: sqlite3.Connection, mark: str) -> list[SnapshotMeta] | None:
    """The list as it was when the files were as *mark* says; None if that is not known."""
    try:
        found = connection.execute("SELECT metas FROM listing WHERE mark = ?", (mark,)).fetchone()
        return _METAS.validate_json(found[0]) if found else None
    except (sqlite3.DatabaseError, ValidationError):
        return None


def remember(connection: sqlite3.Connection, mark: str, metas: Sequence[SnapshotMeta]) -> None:
    """Keep the list for the next time. *mark* was taken before the list was made, so it is never newer than it."""
    connection.execute("DELETE FROM listing")
    connection.execute("INSERT INTO listing (mark, metas) VALUES (?, ?)", (mark, _METAS.dump_json(list(metas))))
