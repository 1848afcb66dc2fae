"""Where a project's memory lies: ``.asnap`` at the project's root, out of version control."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["DIRECTORY", "ignore_in_git", "project_root"]

DIRECTORY: Final = ".asnap"
_SAYS_SO: Final = frozenset({DIRECTORY + end for end in ("", "/", "/*", "/**")})


def project_root(start: Path, *, home: Path | None = None) -> Path:
    """The nearest directory at or above *start* that has a memory or a repository; else *start* itself.

    The search does not go above *home*, nor take it: a whole home directory is no project.
    """
    start = start.resolve()
    for place in (start, *start.parents):
        if place == home:
            break
        if (place / DIRECTORY).is_dir() or (place / ".git").exists():
            return place
    return start


def ignore_in_git(root: Path) -> bool:
    """Add the memory to the project's ``.gitignore`` unless it is there; True if it was. May raise OSError."""
    path = root / ".gitignore"
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        text = ""
    if any(line.strip().removeprefix("**/").removeprefix("/") in _SAYS_SO for line in text.splitlines()):
        return False
    gap = "\n" if text and not text.endswith("\n") else ""
    # One append: a file that people edit is never rewritten, so nothing of theirs can be lost.
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, f"{gap}{DIRECTORY}/\n".encode())
    finally:
        os.close(fd)
    return True
