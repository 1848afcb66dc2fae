"""The directory of an oneringai agent, ``~/.oneringai/agents/<id>/``, as the one document that `oneringai` reads.

``session.json`` is the session; ``memory.json``, ``plugins/*.json`` and ``custom_instructions.md`` are added where
the session does not have them itself.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from snapshot_plugin.errors import InvalidInput, LimitExceeded, NotFound
from snapshot_plugin.exchange.foreign.lines import parse_json

__all__ = ["read_directory"]

_SESSION, _MEMORY, _PLUGINS, _INSTRUCTIONS = "session.json", "memory.json", "plugins", "custom_instructions.md"


def read_directory(place: str | os.PathLike[str], *, limit: int) -> bytes:
    """The session of an agent's directory and its companion files, as JSON.

    Symlinks are not followed, so an imported directory cannot pull in outside files.

    Raises:
        NotFound: it has no session.
        InvalidInput: a file in it is not JSON, or the session is not an object.
        LimitExceeded: its files have more than *limit* bytes together.
    """
    files = _Files(Path(place), limit)
    document = files.json(_SESSION)
    if document is None:
        raise NotFound(f"{place} is a directory without a {_SESSION}", hint="name a file, or an agent's directory")
    if not isinstance(document, dict):
        raise InvalidInput(f"{_SESSION} in {place} is not an object")
    if not document.get("memory") and (memory := files.json(_MEMORY)) is not None:
        document["memory"] = memory if isinstance(memory, dict) else {"entries": memory}
    states = {path.stem: files.json(f"{_PLUGINS}/{path.name}") for path in files.inside(_PLUGINS)}
    if states:
        document["plugins"] = {**states, **(document.get("plugins") or {})}
    if (words := files.text(_INSTRUCTIONS)) is not None:
        _core(document).setdefault("instructions", words)
    return json.dumps(document).encode()


def _core(document: dict[str, Any]) -> dict[str, Any]:
    context = document.setdefault("context", {})
    core = context.setdefault("core", {}) if isinstance(context, dict) else None
    if not isinstance(core, dict):
        raise InvalidInput(f"context.core in {_SESSION} is not an object")
    return core


class _Files:
    """The regular files of a directory, up to a number of bytes together."""

    def __init__(self, place: Path, limit: int) -> None:
        self._place, self._limit, self._left = place, limit, limit

    def inside(self, name: str) -> list[Path]:
        """The JSON files of a directory in it, by name."""
        directory = self._place / name
        is_own = directory.is_dir() and not directory.is_symlink()
        return sorted(each for each in directory.glob("*.json") if _is_regular(each)) if is_own else []

    def text(self, name: str) -> str | None:
        """The text of a file; None if there is no such file."""
        path = self._place / name
        if not _is_regular(path):
            return None
        self._left -= path.stat().st_size
        if self._left < 0:
            raise LimitExceeded(f"{self._place} is larger than {self._limit} bytes", hint="nothing was imported")
        try:
            return path.read_text("utf-8-sig")
        except UnicodeDecodeError:
            raise InvalidInput(f"{path} is not text") from None

    def json(self, name: str) -> Any:
        """The value in a file of JSON; None if there is no such file."""
        text = self.text(name)
        try:
            return None if text is None else parse_json(text)
        except ValueError as error:
            raise InvalidInput(f"{self._place / name} cannot be read: {error}") from error


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
