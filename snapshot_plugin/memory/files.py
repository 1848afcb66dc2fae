"""The files of a memory: names of entries, and one JSON file for each, replaced atomically, private to the user.

Every directory and file is opened by component, relative to its parent, without following links, and only if it
belongs to this user. So nothing in a cloned repository can point the memory at files outside the project.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from snapshot_plugin.errors import (
    InvalidInput,
    InvalidSessionId,
    MemoryReadOnly,
    NotFound,
    SessionLocked,
    SnapshotCorrupted,
    StoreUnavailable,
)
from snapshot_plugin.memory.privacy import redacted
from snapshot_plugin.model.ids import dirname_of, new_id, session_id_of
from snapshot_plugin.system.files import disk_errors, locked, sync_all, write_all

__all__ = [
    "API_SCHEMA", "BASELINES", "DAMAGED", "DEFAULT", "DIRECTORY", "ERRORS", "GLOBAL", "NOISE",
    "PERFORMANCE", "SUFFIX", "MemoryEntry", "MemoryFiles", "Name", "Scan", "encoded", "name_in_file", "name_of",
    "namespace_of",
]  # fmt: skip

DIRECTORY: Final = ".asnap"
DAMAGED: Final = ".damaged"
SUFFIX: Final = ".json"
_LOCK: Final = ".lease"
_TEMPORARY: Final = ".tmp"
DEFAULT: Final = "default"
BASELINES: Final = "baselines"
NOISE: Final = "noise"
API_SCHEMA: Final = "api_schema"
ERRORS: Final = "errors"
PERFORMANCE: Final = "performance"
GLOBAL: Final = "global"
"""The user's preferences for all projects. They are stored outside the project."""

_SAME: Final = {
    "error_history": ERRORS, "baseline": BASELINES, "noise_config": NOISE, "performance_baselines": PERFORMANCE,
    "noise_rules": NOISE, "_global": GLOBAL, **dict.fromkeys(("api", "apis", "endpoints", "routes"), API_SCHEMA),
    **dict.fromkeys(("timing", "timings", "latency", "latencies"), PERFORMANCE),
}  # fmt: skip
"""Other names of the known namespaces. Data that is not understood there keeps its own key."""
_RESERVED: Final = frozenset({"meta.json", "*"})
_PRETTY: Final = 64 * 1024
_LARGEST: Final = 16 * 1024 * 1024
"""A larger file is not read into memory. No entry comes near this size."""


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
    """The namespace for *text*: ``default`` for None, ``errors`` for ``error_history``. Raises `InvalidInput`."""
    named = _checked("namespace", DEFAULT if text is None else text)
    return _SAME.get(named, named)


def name_of(namespace: str | None, key: str, *, any_length: bool = False) -> Name:
    """The name of an entry. Raises `InvalidInput` if a part cannot be a file name or holds a secret.

    With *any_length*, the key may be the name of an entry in a document, which can be too long for a file.
    """
    return Name(namespace_of(namespace), _checked("key", key, any_length=any_length))


def name_in_file(directory: str, file: str) -> Name | None:
    """The name of the entry in a file, even if a person named the file; None if the file is not an entry."""
    namespace, key = _decoded(directory), _decoded(file.removesuffix(SUFFIX))
    if not file.endswith(SUFFIX) or namespace is None or key is None:
        return None
    return Name(_SAME.get(namespace, namespace), key)


@lru_cache(maxsize=1024)
def _decoded(file: str) -> str | None:
    return session_id_of(file) or (
        file if file.isprintable() and file.strip() and not file.startswith(".") else None
    )


def _checked(what: str, name: str, *, any_length: bool = False) -> str:
    if name in _RESERVED:
        raise InvalidInput(f"the {what} {name!r} is reserved", hint="choose another name")
    try:
        if session_id_of(dirname_of(name)) != name and not any_length:
            raise InvalidInput(f"the {what} {name:.60}… is too long for a file name", hint="choose a shorter one")
    except InvalidSessionId as error:
        reason = error.message.partition(": ")[2]
        raise InvalidInput(f"the {what} {name!r:.60} cannot be a file name: {reason}", hint=error.hint) from None
    if redacted(name)[1]:
        raise InvalidInput(f"the {what} holds a secret, and names are stored as they are", hint="choose another")
    return name


class MemoryEntry(NamedTuple):
    """An entry on disk. `used_at` is when it was saved; of a baseline, when it was last saved, read or compared."""

    name: Name
    path: tuple[str, ...]
    size: int
    used_at: datetime


@dataclass
class Scan:
    """All entries, the bytes of other files, and the paths that cannot be used and why."""

    entries: dict[Name, MemoryEntry] = field(default_factory=dict)
    overhead: int = 0
    unusable: dict[tuple[str, ...], str] = field(default_factory=dict)
    damaged: list[tuple[str, ...]] = field(default_factory=list)
    unfinished: list[tuple[str, ...]] = field(default_factory=list)
    """The files that were set aside; those that killed writers left, to be removed under the lock."""

    def refuse(self, path: tuple[str, ...]) -> None:
        """Raise `StoreUnavailable` if *path* cannot be written: it, or its directory, is a link or not ours."""
        why = self.unusable.get(path[:1]) or self.unusable.get(path)
        if why:
            raise StoreUnavailable(f"{'/'.join(path)} cannot be written: {why}", hint="remove what is there")


def encoded(data: Any) -> bytes:
    """*data* as the bytes of a file, indented if that is cheap. Raises `InvalidInput`."""
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
        self.name = name

    def read(self, path: tuple[str, ...], *, used_at: datetime | None = None) -> Any:
        """The JSON in a file; with *used_at*, its time is set to that, if the disk allows.

        Raises `NotFound` if there is no such file, `SnapshotCorrupted` if it is damaged.
        """
        shown = "/".join(path)
        with disk_errors(f"reading {shown}"):
            try:
                with self._opened(*path[:-1]) as parent, os.fdopen(_open(parent, path[-1]), "rb") as stream:
                    raw = stream.read(_LARGEST + 1)
                    if used_at is not None:
                        with contextlib.suppress(OSError):
                            _set_time(stream.fileno(), used_at)
            except (FileNotFoundError, NotADirectoryError):
                raise NotFound(f"the project memory has no {shown}") from None
        if len(raw) > _LARGEST:
            raise SnapshotCorrupted(f"{shown} is damaged: it has more than {_LARGEST} bytes")
        try:
            return json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise SnapshotCorrupted(f"{shown} is damaged: {error}") from None

    def replace(self, files: Mapping[tuple[str, ...], bytes | None], at: datetime) -> None:
        """Replace *files*, or remove those without content, durably. *at* is the time of the new files.

        If the disk refuses one, none is changed. A crash leaves each file either old or new.
        """
        doing = disk_errors(f"writing {', '.join(map('/'.join, list(files)[:3]))}")
        with doing, contextlib.ExitStack() as opened, contextlib.ExitStack() as unfinished:
            parents: dict[tuple[str, ...], int] = {}
            for path, data in files.items():
                with contextlib.suppress(*([FileNotFoundError] if data is None else [])):
                    if path[:-1] not in parents:
                        directory = self._opened(*path[:-1], make=data is not None)
                        parents[path[:-1]] = opened.enter_context(directory)
                    if data is not None:
                        _write_temporary(parents[path[:-1]], path[-1], data, at, unfinished)
            unfinished.pop_all()
            for path, data in files.items():
                self._finish(parents.get(path[:-1]), path, is_removed=data is None)
            for parent in parents.values():
                sync_all(parent)

    def _finish(self, parent: int | None, path: tuple[str, ...], *, is_removed: bool) -> None:
        if not is_removed:
            os.rename(_temporary(path[-1]), path[-1], src_dir_fd=parent, dst_dir_fd=parent)
        elif parent is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path[-1], dir_fd=parent)
            with self._opened() as top, contextlib.suppress(OSError):  # it is not empty
                os.rmdir(path[0], dir_fd=top)

    def set_aside(self, path: tuple[str, ...]) -> str:
        """Move a damaged file to ``.damaged``, and return where it is now. Only under the lock."""
        with (
            disk_errors(f"setting {'/'.join(path)} aside"),
            self._opened(*path[:-1]) as parent,
            self._opened(DAMAGED, make=True) as aside,
        ):
            free = ".".join(path)
            if free in os.listdir(aside):  # noqa: PTH208 — of a descriptor
                free = f"{free}.{new_id()}"
            os.rename(path[-1], free, src_dir_fd=parent, dst_dir_fd=aside)
            sync_all(aside)
        return f"{self.name}/{DAMAGED}/{free}"

    def scan(self) -> Scan:
        """Find all entries without opening them. Links, files of other users and other files are only reported."""
        found = Scan()
        with disk_errors(f"looking through {self.name}"):
            for path, about in self._walk():
                if path[-1].endswith(_TEMPORARY):
                    found.unfinished.append(path)
                elif len(path) == 1:
                    self._scan_top(path[0], about, found)
                elif path[0] == DAMAGED:
                    found.damaged.append(path)
                    found.overhead += about.st_size
                elif not path[0].startswith("."):
                    self._scan_file(path, about, found)
        return found

    def _walk(self, *parts: str) -> Iterator[tuple[tuple[str, ...], os.stat_result]]:
        """Each file and directory, and its status; not what is removed meanwhile."""
        gone = contextlib.suppress(FileNotFoundError)
        with gone, self._opened(*parts) as fd, os.scandir(fd) as items:
            for item in items:
                with gone:
                    about = item.stat(follow_symlinks=False)
                    yield (*parts, item.name), about
                    if not parts and _unusable(about, stat.S_ISDIR) is None:
                        yield from self._walk(item.name)

    @staticmethod
    def _scan_top(name: str, about: os.stat_result, found: Scan) -> None:
        found.overhead += about.st_size if stat.S_ISREG(about.st_mode) else 0
        why = _unusable(about, stat.S_ISREG if name in _RESERVED else stat.S_ISDIR)
        if why and (name == DAMAGED or not name.startswith(".")):
            found.unusable[name,] = why

    def _scan_file(self, path: tuple[str, ...], about: os.stat_result, found: Scan) -> None:
        why, name = _unusable(about, stat.S_ISREG), name_in_file(*path)
        if why is None and name is None:
            why = "entries are files that end in .json, with a name that can be printed"
        elif name is not None and (name.namespace == GLOBAL) is (self.name == DIRECTORY):
            why = "the namespace global is kept for all projects, outside of them"
        if why or name is None:
            found.unusable[path] = str(why)
            return
        entry = MemoryEntry(name, path, about.st_size, datetime.fromtimestamp(about.st_mtime, UTC))
        other = found.entries.setdefault(name, entry)
        if other is not entry:  # prefer the file name that the memory itself uses
            kept, left = (entry, other) if path == name.path else (other, entry)
            found.entries[name] = kept
            found.unusable[left.path] = f"{kept.path[-1]} is the same entry"

    def problems(self, scan: Scan) -> tuple[str, ...]:
        """Messages about files that are not read; the first twenty."""
        found = (("/".join(map(ascii, path)), why) for path, why in scan.unusable.items())
        return tuple(f"{self.name}/{path} is not read: {why}" for path, why in itertools.islice(found, 20))

    def locked(self, timeout: float) -> locked:
        """Take the lock that every writer holds, until the end of ``with``. The kernel frees it if its holder dies.

        Raises:
            MemoryReadOnly: another process held it for all of *timeout* seconds.
        """
        with disk_errors(f"locking {self.name}"), self._opened(make=True):
            try:
                return locked(self.root / self.name / _LOCK, session_id="", timeout=timeout)
            except SessionLocked:
                raise MemoryReadOnly(f"another process is writing the memory of {self.root}") from None

    @contextlib.contextmanager
    def _opened(self, *parts: str, make: bool = False) -> Iterator[int]:
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in (self.name, *parts):
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=fd)
                        sync_all(fd)
                inner = _open(fd, part, is_directory=True)
                os.close(fd)
                fd = inner
                if make and stat.S_IMODE(os.fstat(fd).st_mode) != 0o700:  # noqa: PLR2004 — private
                    os.fchmod(fd, 0o700)
            yield fd
        finally:
            os.close(fd)


def _open(parent: int, name: str, *, is_directory: bool = False) -> int:
    """Open a file or directory for reading. Raises `StoreUnavailable` if it is a link or another user's."""
    about = os.stat(name, dir_fd=parent, follow_symlinks=False)
    why = _unusable(about, stat.S_ISDIR if is_directory else stat.S_ISREG)
    if why:
        raise StoreUnavailable(f"{name} is not used: {why}", hint="remove it, or choose another project")
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_DIRECTORY if is_directory else 0)
    return os.open(name, flags, dir_fd=parent)


def _unusable(about: os.stat_result, is_right: Callable[[int], bool]) -> str | None:
    if stat.S_ISLNK(about.st_mode):
        return "it is a link, and links are not followed"
    if about.st_uid != os.geteuid():
        return "it belongs to another user"
    if not is_right(about.st_mode):
        return "it is not a plain file" if is_right is stat.S_ISREG else "it is not a directory"
    return None


def _temporary(file: str) -> str:
    return f"{file}.{os.getpid()}{_TEMPORARY}"


def _set_time(fd: int, at: datetime) -> None:
    os.utime(fd, (at.timestamp(), at.timestamp()))


def _write_temporary(parent: int, file: str, data: bytes, at: datetime, unfinished: contextlib.ExitStack) -> None:
    temporary = _temporary(file)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(temporary, flags, 0o600, dir_fd=parent)
    unfinished.callback(_remove, temporary, parent)
    try:
        write_all(fd, data)
        _set_time(fd, at)
        sync_all(fd)
    finally:
        os.close(fd)


def _remove(file: str, parent: int) -> None:
    with contextlib.suppress(OSError):
        os.unlink(file, dir_fd=parent)
