"""A look at a store on disk without opening it: its id, and a mark that changes whenever a session does.

The mark is made of the name, the size, the inode and the time of last change of every file that holds frames.
Frames are only ever appended, which makes a file larger, or put into files of another name; so even a change within
one tick of the clock, and one by a process whose clock is wrong, changes the mark.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Look", "look"]

_FRAMES = ".snap.gz"
_LEASE = ".lease"


class Look(NamedTuple):
    """What a look found: the store's id, its mark, and the directories of sessions that have or had an owner."""

    store_id: str
    mark: str
    leased: tuple[str, ...]


def look(root: str | os.PathLike[str]) -> Look | None:
    """A look at the store in the directory *root*; None if there is none, or it cannot be read."""
    leased: list[str] = []
    try:
        with open(os.path.join(root, "STORE.json"), "rb") as file:  # noqa: PTH118, PTH123 — no pathlib at start-up
            marker = file.read()
        digest, store_id = hashlib.sha256(marker), str(json.loads(marker)["id"])
        for line in sorted(_files(os.path.join(root, "sessions"), leased)):  # noqa: PTH118 — as above
            digest.update(line.encode("utf-8", "surrogateescape"))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return Look(store_id, digest.hexdigest(), tuple(leased))


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
