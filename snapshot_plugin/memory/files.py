"""The files of a project's memory: one readable JSON file per entry, replaced whole, private to its owner."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from snapshot_plugin.memory.evict import Stored
from snapshot_plugin.memory.names import Name, name_from_file, namespace_of
from snapshot_plugin.errors import InvalidInput, NotFound, SnapshotCorrupted, StoreUnavailable
from snapshot_plugin.store.files import disk_errors, make_private_dir, replace_file, sync_dir

__all__ = ["ASIDE", "MemoryFiles", "encoded"]

ASIDE: Final = ".damaged"
"""Where damaged files are kept: no namespace has a name that begins with a dot."""

_NOTHING: Final = (FileNotFoundError, NotADirectoryError)
_PRETTY: Final = 64 * 1024
_LARGEST: Final = 16 * 1024 * 1024
"""Nothing we write comes near; a file that somebody put there is not read into memory beyond this."""


def encoded(data: Any) -> tuple[bytes, int]:
    """*data* as the bytes of a file, indented for people where that is cheap, and its size without indentation."""
    try:
        compact = _dumped(data)
        pretty = _dumped(data, indent=2) if len(compact) <= _PRETTY else b""
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"the data is not JSON: {error}", hint="use JSON values, and flatten deep ones"
        ) from None
    return (pretty if 0 < len(pretty) <= 2 * len(compact) + 64 else compact), len(compact)


def _dumped(data: Any, **style: Any) -> bytes:
    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False, **style).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair is JSON, but not UTF-8
        return json.dumps(data, allow_nan=False, **style).encode() + b"\n"


class MemoryFiles:
    """A directory with one file per entry. Every method may raise `StoreUnavailable`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def prepare(self) -> None:
        """Make the directory, and make sure that only its owner can enter it."""
        with disk_errors(f"opening the project memory {self.directory}"):
            if self.directory.is_symlink():
                raise StoreUnavailable(f"{self.directory} is a link, and is not followed", hint="remove the link")
            make_private_dir(self.directory)
            if self.directory.stat().st_mode & 0o077:
                self.directory.chmod(0o700)

    def sweep(self) -> None:
        """Remove what killed writers left behind. Only for the one writer: a live one needs its files."""
        with disk_errors(f"opening the project memory {self.directory}"):
            for leftover in (*self.directory.glob("*.tmp"), *self.directory.glob("*/*.tmp")):
                leftover.unlink(missing_ok=True)

    def scan(self, used: Mapping[str, datetime]) -> dict[Name, Stored]:
        """Every entry there is, without opening any. *used* says when an entry was last read."""
        found: dict[Name, Stored] = {}
        with disk_errors(f"looking through {self.directory}"), contextlib.suppress(*_NOTHING):
            for namespace, directory in self._namespaces():
                for entry in os.scandir(directory):
                    name = name_from_file(namespace, entry.name)
                    if name is not None and entry.is_file(follow_symlinks=False):
                        found[name] = _stored(name, entry, used)
        return found

    def overhead(self) -> int:
        """The bytes that are no entries: what is kept aside, and our own notes."""
        with disk_errors(f"looking through {self.directory}"):
            aside = self.directory / ASIDE
            files = [*self.directory.glob("*"), *aside.glob("*")]
            return sum(file.lstat().st_size for file in files if file.is_file())

    def _namespaces(self) -> Iterator[tuple[str, str]]:
        for entry in os.scandir(self.directory):
            namespace = namespace_of(entry.name) if entry.is_dir(follow_symlinks=False) else None
            if namespace is not None:
                yield namespace, entry.path

    def read(self, file: str) -> Any:
        """The JSON in a file below the directory; `NotFound` if there is none, `SnapshotCorrupted` if broken."""
        with disk_errors(f"reading {file}"):
            try:
                fd = os.open(self.directory / file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except _NOTHING:
                raise NotFound(f"the project memory has no {file}") from None
            with os.fdopen(fd, "rb") as stream:
                raw = stream.read(_LARGEST + 1)
        try:
            return json.loads(raw) if len(raw) <= _LARGEST else _too_large(file)
        except (ValueError, RecursionError) as error:
            raise SnapshotCorrupted(f"{file} is damaged: {error}") from None

    def write(self, file: str, data: bytes) -> None:
        """Put *data* in the place of a file, durably and at once: a crash leaves the old or the new."""
        path = self.directory / file
        with disk_errors(f"writing {file}"):
            if path.parent.is_symlink():
                raise StoreUnavailable(f"{path.parent} is a link, and is not followed", hint="remove the link")
            make_private_dir(path.parent)
            replace_file(path, data)

    def delete(self, file: str) -> None:
        """Remove a file, durably; `NotFound` if there is none."""
        path = self.directory / file
        with disk_errors(f"deleting {file}"):
            try:
                path.unlink()
            except _NOTHING:
                raise NotFound(f"the project memory has no {file}") from None
            sync_dir(path.parent)

    def set_aside(self, file: str) -> str:
        """Keep a damaged file where it does no harm, and say where."""
        aside = self.directory / ASIDE
        with disk_errors(f"setting {file} aside"):
            make_private_dir(aside)
            place = _unused(aside / file.replace("/", "."))
            (self.directory / file).rename(place)
            sync_dir(aside)
        return str(place.relative_to(self.directory))

    def clear(self) -> None:
        """Remove every entry, and what is kept aside."""
        with disk_errors(f"clearing {self.directory}"):
            for _, directory in [*self._namespaces(), (ASIDE, str(self.directory / ASIDE))]:
                shutil.rmtree(directory, ignore_errors=directory.endswith(ASIDE))
            sync_dir(self.directory)


def _stored(name: Name, entry: os.DirEntry[str], used: Mapping[str, datetime]) -> Stored:
    about = entry.stat(follow_symlinks=False)
    saved_at = datetime.fromtimestamp(about.st_mtime, UTC)
    return Stored(name, about.st_size, saved_at, max(saved_at, used.get(str(name), saved_at)))


def _too_large(file: str) -> Any:
    raise ValueError(f"{file} has more than {_LARGEST} bytes")


def _unused(path: Path) -> Path:
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}.{number}")
    return free
