"""The names of a session's files, and which of the files count (docs/reference/format.md §1)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["SegmentFile", "covers", "is_segment", "present"]

_NAME = re.compile(r"(\d{10,})(?:-(\d{10,})\.(\d+))?\.snap\.gz")


class SegmentFile(NamedTuple):
    """What a file's name says: the numbers it holds, and how often they were rewritten."""

    name: str
    first: int
    last: int
    generation: int


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
    """Whether *wide* took the place of *file*, which then counts no more."""
    return wide.generation > file.generation and wide.first <= file.first <= wide.last
