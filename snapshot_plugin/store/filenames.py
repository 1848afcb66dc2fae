"""The names of a session's files, and which of the files count (docs/reference/format.md §1)."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from snapshot_plugin.errors import InvalidSessionId
from snapshot_plugin.model.ids import dirname_of, session_id_of
from snapshot_plugin.store.log import SessionEntry, undisturbed

__all__ = [
    "LEASE",
    "LEASE_GATE",
    "SPOOL",
    "SPOOL_FILES",
    "SegmentFile",
    "called",
    "covers",
    "is_segment",
    "present",
    "session_at",
    "spool_has_records",
]

LEASE, LEASE_GATE, SPOOL = ".lease", ".lease.gate", "live"
SPOOL_FILES = (SPOOL, f"{SPOOL}.1")
"""The files of a live session; `snapshot_plugin.live` writes them."""
_SPOOL_NUMBERS = 20
"""The bytes before the line of JSON in the header of a spool (docs/reference/spool.md)."""

_NAME = re.compile(r"(\d{10,})(?:-(\d{10,})\.(\d+))?\.snap\.gz")


class SegmentFile(NamedTuple):
    """A parsed file name: the numbers the file holds, and how often they were rewritten."""

    name: str
    first: int
    last: int
    generation: int


def spool_has_records(directory: Path) -> bool:
    """Whether a session's spool was left with records, as far as its length tells: they may be torn, or dropped.

    One that was emptied and closed has numbers and one line of JSON. One that was not closed has a line more.
    """
    try:
        with (directory / SPOOL).open("rb") as file:
            file.seek(_SPOOL_NUMBERS)
            file.readline()
            return bool(file.read(1))
    except FileNotFoundError:
        return False


def is_segment(name: str) -> bool:
    """Whether a file with that name holds frames."""
    return _NAME.fullmatch(name) is not None


def present(names: Iterable[str]) -> list[SegmentFile]:
    """The files that count: those no rewritten range of a higher generation covers, in order."""
    files = [_parse(match) for name in names if (match := _NAME.fullmatch(name))]
    ranges = [file for file in files if file.generation]
    return sorted(
        (file for file in files if not any(covers(wide, file) for wide in ranges)), key=lambda file: file.first
    )


def _parse(match: re.Match[str]) -> SegmentFile:
    first, last, generation = match.groups()
    return SegmentFile(match[0], int(first), int(last or first), int(generation or 0))


def covers(wide: SegmentFile, file: SegmentFile) -> bool:
    """Whether *wide* replaced *file*, which is then ignored."""
    return wide.generation > file.generation and wide.first <= file.first <= wide.last


def session_at(entry: os.DirEntry[str]) -> SessionEntry | None:
    """The session of the directory *entry*; None for foreign and for empty directories."""
    if entry.name.startswith("."):  # system files such as .DS_Store; a session's directory never starts with a dot
        return None
    session_id = session_id_of(entry.name)
    if session_id is None or not entry.is_dir(follow_symlinks=False):
        return SessionEntry(session_id or entry.name, 0, "its name is not that of a session directory")
    size = undisturbed(session_id, lambda: _size_of(entry.path))
    return SessionEntry(session_id, size) if size else None


def _size_of(directory: str) -> int:
    """How many bytes a session's files hold. Raises `FileNotFoundError` if one of them is replaced meanwhile."""
    try:
        entries = os.scandir(directory)
    except FileNotFoundError:  # the session was deleted
        return 0
    with entries:
        return sum(entry.stat(follow_symlinks=False).st_size for entry in entries if is_segment(entry.name))


def called(session_id: str, entries: Iterable[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
    """The entries named after the session: its directory, or something else with its id as a name."""
    names = {session_id}
    with contextlib.suppress(InvalidSessionId):
        names.add(dirname_of(session_id))
    return (entry for entry in entries if entry.name in names)
