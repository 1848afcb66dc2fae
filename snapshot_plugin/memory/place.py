"""Find the project's directory, and keep its memory out of version control."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.memory.files import DIRECTORY

__all__ = ["ProjectPlace", "find_project", "ignore_in_git", "literal_project"]

_SAYS_SO: Final = frozenset({DIRECTORY + end for end in ("", "/", "/*", "/**")})


class ProjectPlace(NamedTuple):
    """A project's directory, and why it was chosen."""

    directory: Path
    why: str


def literal_project(directory: str | os.PathLike[str]) -> ProjectPlace:
    """Exactly this directory, as the user named it. Raises `InvalidInput` if it is not a directory."""
    path = Path(directory).resolve()
    if not path.is_dir():
        raise InvalidInput(f"{path} is not a directory", hint="name the project's directory")
    return ProjectPlace(path, "as given")


def find_project(
    start: str | os.PathLike[str] = ".", *, roots: Sequence[Path] = (), home: Path | None = None
) -> ProjectPlace:
    """The project of a session that did not name one.

    The first usable of *roots* (what the MCP client works on); else the nearest repository of this user at or above
    *start*; else *start*. The home directory and ``/`` are never chosen.

    Raises:
        InvalidInput: *start* is gone, or is the home directory or ``/``, and nothing else names the project.
    """
    home = home or _home()
    for root in roots:
        place = root.resolve()
        if place.is_dir() and not _is_too_wide(place, home) and _is_ours(place):
            return ProjectPlace(place, "the client's root")
    try:
        here = Path(start).resolve()
    except FileNotFoundError as error:
        raise InvalidInput(
            "the working directory is gone", hint="name the project: asnap mcp --project DIR"
        ) from error
    for place in (here, *here.parents):
        if _is_too_wide(place, home):
            break
        if _is_ours(place) and (_is_repository(place) or _has_memory(place)):
            return ProjectPlace(place, "the nearest repository" if _is_repository(place) else "it has a memory")
    if _is_too_wide(here, home) or not here.is_dir():
        raise InvalidInput(
            f"{here} is not a project, and no repository is above it", hint="name one: asnap mcp --project DIR"
        )
    return ProjectPlace(here, "the working directory")


def _home() -> Path | None:
    with contextlib.suppress(RuntimeError):
        return Path.home().resolve()
    return None


def _is_too_wide(place: Path, home: Path | None) -> bool:
    return place == home or place == Path(place.anchor)


def _is_ours(place: Path) -> bool:
    with contextlib.suppress(OSError):
        return place.stat().st_uid == os.geteuid()
    return False


def _is_repository(place: Path) -> bool:
    """Whether it has a git directory with a HEAD, a worktree file that names one, or another system's directory."""
    git = place / ".git"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if git.is_file() and git.stat().st_size < 4096:  # noqa: PLR2004 — one line
            named = git.read_text().removeprefix("gitdir:").strip()
            return (place / named / "HEAD").is_file()
        return (git / "HEAD").is_file() or any((place / other).is_dir() for other in (".hg", ".jj", ".svn"))
    return False


def _has_memory(place: Path) -> bool:
    memory = place / DIRECTORY
    with contextlib.suppress(OSError):
        return not memory.is_symlink() and _is_ours(memory) and (memory / "meta.json").is_file()
    return False


def ignore_in_git(project: Path) -> None:
    """Keep the memory out of version control, with a line in the project's ``.gitignore``.

    The line is added only if the file is a plain file of this user; it is never created or rewritten. May raise
    OSError.
    """
    try:
        fd = os.open(project / ".gitignore", os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return  # it is missing, a link, or not writable
    with os.fdopen(fd, "r+b", buffering=0) as stream:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
            return
        text = stream.readall().decode(errors="replace")
        if any(line.strip().removeprefix("**/").removeprefix("/") in _SAYS_SO for line in text.splitlines()):
            return
        gap = "" if not text or text.endswith("\n") else "\n"
        stream.write(f"{gap}{DIRECTORY}/\n".encode())
