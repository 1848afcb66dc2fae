"""The files of a memory: what entries are called, and one JSON file for each, replaced whole, private to the user.

Every directory and file is opened by component, relative to its parent, without following links, and only if it
belongs to this user. So nothing in a cloned repository can point the memory at files outside the project.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from snapshot_plugin.errors import InvalidInput, InvalidSessionId, NotFound, SnapshotCorrupted, StoreUnavailable
from snapshot_plugin.model.ids import dirname_of, session_id_of
from snapshot_plugin.model.redact import redact
from snapshot_plugin.store.files import disk_errors, sync_all, write_all

__all__ = [
    "API_SCHEMA", "BASELINES", "DEFAULT", "DIRECTORY", "ERRORS", "GLOBAL", "NOISE", "PERFORMANCE", "SUFFIX",
    "MemoryEntry", "MemoryFiles", "Name", "Scan", "encoded", "name_in_file", "name_of", "namespace_of",
]  # fmt: skip

DIRECTORY: Final = ".asnap"
DAMAGED: Final = ".damaged"
SUFFIX: Final = ".json"
DEFAULT: Final = "default"
BASELINES: Final = "baselines"
NOISE: Final = "noise"
API_SCHEMA: Final = "api_schema"
ERRORS: Final = "errors"
PERFORMANCE: Final = "performance"
GLOBAL: Final = "global"
"""Preferences of the user that hold in every project. They are stored outside the project."""

_SAME: Final = {
    "error_history": ERRORS, "baseline": BASELINES, "noise_config": NOISE, "performance_baselines": PERFORMANCE,
    "_global": GLOBAL,
}  # fmt: skip
_RESERVED: Final = frozenset({"meta.json", "*"})
_PRETTY: Final = 64 * 1024
_LARGEST: Final = 16 * 1024 * 1024
"""No entry comes near this size; a larger file that somebody put there is not read into memory."""
_UNFINISHED: Final = 3600.0
"""So many seconds after a file was begun, no process is still writing it."""
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Name(NamedTuple):
    """An entry's namespace and key, as `name_of` checks them."""

    namespace: str
    key: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.key}"

    @property
    def path(self) -> tuple[str, str]:
        """The directory and the file a new entry gets, below the memory's directory."""
        return dirname_of(self.namespace), f"{dirname_of(self.key)}{SUFFIX}"


def namespace_of(text: str | None) -> str:
    """The namespace that *text* means: ``default`` for None, ``errors`` for ``error_history``; `InvalidInput`."""
    named = _checked("namespace", DEFAULT if text is None else text)
    return _SAME.get(named, named)


def name_of(namespace: str | None, key: str) -> Name:
    """The entry *key* of *namespace*; `InvalidInput` if one cannot be a file name or holds a secret."""
    return Name(namespace_of(namespace), _checked("key", key))


def name_in_file(directory: str, file: str) -> Name | None:
    """The entry a file is, also when a person named it; None for a file that is no entry."""
    namespace, key = _decoded(directory), _decoded(file.removesuffix(SUFFIX))
    if not file.endswith(SUFFIX) or namespace is None or key is None:
        return None
    return Name(_SAME.get(namespace, namespace), key)


def _decoded(file: str) -> str | None:
    return session_id_of(file) or (
        file if file.isprintable() and file.strip() and not file.startswith(".") else None
    )


def _checked(what: str, name: str) -> str:
    if name in _RESERVED:
        raise InvalidInput(f"the {what} {name!r} is reserved", hint="choose another name")
    try:
        if session_id_of(dirname_of(name)) != name:
            raise InvalidInput(f"the {what} {name:.60}… is too long for a file name", hint="choose a shorter one")
    except InvalidSessionId as error:
        reason = error.message.partition(": ")[2]
        raise InvalidInput(f"the {what} {name!r:.60} cannot be a file name: {reason}", hint=error.hint) from None
    if not redact(name)[1].is_empty:
        raise InvalidInput(f"the {what} holds a secret, and names are stored as they are", hint="choose another")
    return name


class MemoryEntry(NamedTuple):
    """An entry on disk: where it is, and what eviction has to know about it."""

    name: Name
    path: tuple[str, ...]
    size: int
    saved_at: datetime


class Scan(NamedTuple):
    """Every entry, the bytes that are no entries, and what is there but not read."""

    entries: dict[Name, MemoryEntry]
    overhead: int = 0
    problems: tuple[str, ...] = ()


def encoded(data: Any) -> bytes:
    """*data* as the bytes of a file, indented for people where that is cheap; `InvalidInput`."""
    try:
        compact = _dumped(data)
        pretty = _dumped(data, indent=2) if len(compact) <= _PRETTY else b""
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"the data is not JSON: {error}", hint="use JSON values, and flatten deep ones"
        ) from None
    return pretty if 0 < len(pretty) <= 2 * len(compact) + 64 else compact


def _dumped(data: Any, **style: Any) -> bytes:
    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False, **style).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair is JSON, but not UTF-8
        return json.dumps(data, allow_nan=False, **style).encode() + b"\n"


class MemoryFiles:
    """The directory *name* below *root*. Every method may raise `StoreUnavailable`."""

    def __init__(self, root: Path, name: str = DIRECTORY) -> None:
        self.root = root
        self._name = name

    def read(self, path: tuple[str, ...]) -> Any:
        """The JSON in a file; `NotFound` if there is none, `SnapshotCorrupted` if it is damaged."""
        shown = "/".join(path)
        with disk_errors(f"reading {shown}"):
            try:
                with self._opened(*path[:-1]) as parent:
                    raw = _content(parent, path[-1], shown)
            except (FileNotFoundError, NotADirectoryError):
                raise NotFound(f"the project memory has no {shown}") from None
        if len(raw) > _LARGEST:
            raise SnapshotCorrupted(f"{shown} is damaged: it has more than {_LARGEST} bytes")
        try:
            return json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise SnapshotCorrupted(f"{shown} is damaged: {error}") from None

    def write(self, path: tuple[str, ...], data: bytes) -> None:
        """Replace a file, durably: a crash leaves the old content or the new."""
        with disk_errors(f"writing {'/'.join(path)}"), self._opened(*path[:-1], make=True) as parent:
            temporary = f"{path[-1]}.{os.getpid()}.tmp"
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=parent)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(temporary, flags, 0o600, dir_fd=parent)
            try:
                write_all(fd, data)
                sync_all(fd)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=parent)
                raise
            finally:
                os.close(fd)
            os.rename(temporary, path[-1], src_dir_fd=parent, dst_dir_fd=parent)
            sync_all(parent)

    def delete(self, path: tuple[str, ...]) -> None:
        """Remove a file, durably; one that is not there is fine."""
        with (
            disk_errors(f"deleting {'/'.join(path)}"),
            contextlib.suppress(FileNotFoundError),
            self._opened(*path[:-1]) as parent,
        ):
            os.unlink(path[-1], dir_fd=parent)
            sync_all(parent)

    def set_aside(self, path: tuple[str, ...]) -> str:
        """Move a damaged file to ``.damaged``, and return where it is now."""
        with (
            disk_errors(f"setting {'/'.join(path)} aside"),
            self._opened(*path[:-1]) as parent,
            self._opened(DAMAGED, make=True) as aside,
        ):
            taken, number = set(os.listdir(aside)), 1  # noqa: PTH208 — of a descriptor
            free = name = ".".join(path)
            while free in taken:
                number += 1
                free = f"{name}.{number}"
            os.rename(path[-1], free, src_dir_fd=parent, dst_dir_fd=aside)
            sync_all(aside)
        return f"{self._name}/{DAMAGED}/{free}"

    def clear(self, entries: dict[Name, MemoryEntry]) -> None:
        """Remove entries, damaged files, and directories that are then empty."""
        for path in [*(entry.path for entry in entries.values()), *((DAMAGED, n) for n in self.names(DAMAGED))]:
            self.delete(path)
        directories = {entry.path[0] for entry in entries.values()} | {DAMAGED}
        with disk_errors(f"clearing {self._name}"), self._opened() as top:
            for directory in directories:
                with contextlib.suppress(OSError):  # not empty: it holds files that are no entries
                    os.rmdir(directory, dir_fd=top)

    def names(self, directory: str = "") -> list[str]:
        """The files in one directory (``""``: the top), in order; none if there is no such directory."""
        with disk_errors(f"looking into {directory}"):
            try:
                with self._opened(*filter(None, [directory])) as fd:
                    return sorted(os.listdir(fd))  # noqa: PTH208 — of a descriptor
            except FileNotFoundError:
                return []

    def scan(self) -> Scan:
        """Look at every entry without opening it. Links, foreign files and other files are reported, not read."""
        entries: dict[Name, MemoryEntry] = {}
        problems: list[str] = []
        overhead = 0
        with disk_errors(f"looking through {self._name}"), contextlib.suppress(FileNotFoundError):
            with self._opened() as top, os.scandir(top) as found:
                for item in found:
                    about = item.stat(follow_symlinks=False)
                    if stat.S_ISREG(about.st_mode):
                        overhead += about.st_size
                    elif not item.name.startswith("."):
                        problems += self._scan_namespace(item.name, about, entries)
            with self._opened(DAMAGED) as aside:
                overhead += sum(item.stat(follow_symlinks=False).st_size for item in os.scandir(aside))
        return Scan(entries, overhead, tuple(problems[:20]))

    def sweep(self) -> None:
        """Remove what killed writers left behind. Only the writer may call it.

        Other processes write to directories that begin with a dot: there, only what is old goes.
        """
        with disk_errors(f"opening {self._name}"), self._opened(make=True) as top:
            directories = [item.name for item in os.scandir(top) if item.is_dir(follow_symlinks=False)]
            for directory in ("", *directories):
                newest = time.time() - (_UNFINISHED if directory.startswith(".") else 0)
                with contextlib.suppress(StoreUnavailable), self._opened(*filter(None, [directory])) as fd:
                    for item in os.scandir(fd):
                        if item.name.endswith(".tmp") and item.stat(follow_symlinks=False).st_mtime <= newest:
                            os.unlink(item.name, dir_fd=fd)

    def opened_file(self, name: str) -> int:
        """A descriptor of a file of our own in the directory, created if need be."""
        with disk_errors(f"opening {name}"), self._opened(make=True) as top:
            return os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=top)

    def is_same_file(self, name: str, fd: int) -> bool:
        """Whether *fd* is still the file *name* of the directory."""
        with contextlib.suppress(OSError), self._opened() as top:
            return os.path.samestat(os.fstat(fd), os.stat(name, dir_fd=top, follow_symlinks=False))
        return False

    def _scan_namespace(
        self, directory: str, about: os.stat_result, entries: dict[Name, MemoryEntry]
    ) -> Iterator[str]:
        why = _unusable(about)
        if why or not stat.S_ISDIR(about.st_mode):
            yield f"{self._name}/{directory!a} is not read: {why or 'it is neither a file nor a directory'}"
            return
        with self._opened(directory) as fd, os.scandir(fd) as found:
            for item in found:
                file, why = self._scan_file(directory, item, entries)
                if why:
                    yield f"{self._name}/{directory!a}/{file!a} is not read: {why}"

    def _scan_file(
        self, directory: str, item: os.DirEntry[str], entries: dict[Name, MemoryEntry]
    ) -> tuple[str, str | None]:
        """Add one file to *entries*; or say which file is not read, and why."""
        if item.name.endswith(".tmp"):
            return item.name, None
        about = item.stat(follow_symlinks=False)
        why = _unusable(about) or (None if stat.S_ISREG(about.st_mode) else "it is not a plain file")
        name = name_in_file(directory, item.name)
        if why or name is None:
            return item.name, why or "entries are files that end in .json, with a name that can be printed"
        if (name.namespace == GLOBAL) is (self._name == DIRECTORY):
            return item.name, "the namespace global is kept for all projects, outside of them"
        saved_at = datetime.fromtimestamp(about.st_mtime, UTC)
        other, entry = entries.get(name), MemoryEntry(name, (directory, item.name), about.st_size, saved_at)
        if other is None or entry.path == name.path:  # the name the memory itself would give wins
            entries[name], entry = entry, other or entry
        return entry.path[-1], f"{entries[name].path[-1]} is the same entry" if other else None

    @contextlib.contextmanager
    def _opened(self, *parts: str, make: bool = False) -> Iterator[int]:
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in (self._name, *parts):
                inner = _open_directory(fd, part, make=make)
                os.close(fd)
                fd = inner
            yield fd
        finally:
            os.close(fd)


def _open_directory(parent: int, name: str, *, make: bool) -> int:
    """A descriptor of the directory *name*: not a symlink, owned by this user, and private; `StoreUnavailable`."""
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
            sync_all(parent)
    about = os.stat(name, dir_fd=parent, follow_symlinks=False)
    why = _unusable(about)
    if why:
        raise StoreUnavailable(f"{name} is not used: {why}", hint="remove it, or choose another project")
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=parent)
    if make and about.st_mode & 0o077:
        os.fchmod(fd, 0o700)
    return fd


def _unusable(about: os.stat_result) -> str | None:
    if stat.S_ISLNK(about.st_mode):
        return "it is a link, and links are not followed"
    return "it belongs to another user" if about.st_uid != os.geteuid() else None


def _content(parent: int, file: str, shown: str) -> bytes:
    about = os.stat(file, dir_fd=parent, follow_symlinks=False)
    why = _unusable(about) or (None if stat.S_ISREG(about.st_mode) else "it is not a plain file")
    if why:
        raise StoreUnavailable(f"{shown} is not read: {why}", hint="remove it")
    with os.fdopen(os.open(file, _READ, dir_fd=parent), "rb") as stream:
        return stream.read(_LARGEST + 1)
