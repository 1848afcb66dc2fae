"""The sources of settings: environment, project file, user file. Each layer is a plain dict of raw values."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.inert import plain

__all__ = [
    "PROJECT_MAY",
    "Layer",
    "Origin",
    "environment_layer",
    "file_layer",
    "project_layer",
    "taken_from_project",
]

LayerName = Literal["code", "environment", "project", "user", "default"]

_VARIABLES = {"storage_path": "ASNAP_STORE"}
_DOTFILE = ".asnap.toml"
_PYPROJECT = "pyproject.toml"
_LARGEST = 1 << 18
_MOST_NOTICES = 5
_MOST_PARTS = 64
"""The parser takes quadratic time for keys of many parts."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The layer that a value came from, and the name of the variable or file."""

    layer: LayerName
    where: str = ""

    def __str__(self) -> str:
        return f"{self.layer} {self.where}".rstrip()


class Layer(NamedTuple):
    """The values of one source, and notices about ignored ones."""

    origin: dict[str, Origin]
    values: dict[str, Any]
    notices: tuple[str, ...] = ()


def environment_layer(names: Collection[str], environ: Mapping[str, str]) -> Layer:
    """``ASNAP_SNAPSHOT_INTERVAL`` and so on; the store's place is ``ASNAP_STORE``."""
    variables = {name: _VARIABLES.get(name, f"ASNAP_{name.upper()}") for name in names}
    found = {name: variable for name, variable in variables.items() if variable in environ}
    return Layer(
        origin={name: Origin(layer="environment", where=variable) for name, variable in found.items()},
        values={name: environ[variable] for name, variable in found.items()},
    )


def file_layer(names: Collection[str], path: Path) -> Layer:
    """The settings of the user's own file; empty if there is no file."""
    return _layer("user", names, path, _read(path))


def project_layer(names: Collection[str], directory: Path | None) -> Layer:
    """The nearest ``.asnap.toml``, or ``[tool.asnap]`` of a ``pyproject.toml``, at or above *directory*.

    The search ends at the repository's root. Projects may be cloned from strangers: only a regular file of bounded
    size is read, and a fault in it becomes a notice, never an error. `taken_from_project` says what it may set.
    """
    for place in () if directory is None else _upwards(directory):
        for path, table in ((place / _DOTFILE, ()), (place / _PYPROJECT, ("tool", "asnap"))):
            try:
                raw = _inside(_parsed(_read_untrusted(path)), table, path)
            except _Unusable as error:
                return Layer({}, {}, (plain(f"{path} is not used: {error}"),))
            if raw:
                return _layer("project", names, path, raw)
    return Layer({}, {})


def _upwards(directory: Path) -> Iterator[Path]:
    try:
        start = directory.resolve()
    except FileNotFoundError:  # the current directory was removed
        return
    for place in (start, *start.parents):
        yield place
        if (place / ".git").exists():
            return


def _read(path: Path) -> dict[str, Any]:
    """The user's own file, which may be a link."""
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error
    try:
        return _parsed(text)
    except _Unusable as error:
        raise _unreadable(path, error) from error


class _Unusable(Exception):
    """Why a settings file is not used."""


def _read_untrusted(path: Path) -> str:
    """The text of a project's file; empty if it is missing or has no settings of ours.

    Does not follow links, and does not wait for pipes and devices: ``/dev/stdin`` may belong to our client.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise _Unusable(reason) from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise _Unusable("it is not a plain file")
        data = os.read(fd, _LARGEST + 1)
    finally:
        os.close(fd)
    if path.name == _PYPROJECT and b"asnap" not in data:
        return ""  # any fault becomes a notice
    if len(data) > _LARGEST:
        raise _Unusable(f"it is larger than {_LARGEST} bytes")
    if status.st_uid not in (os.getuid(), 0):
        raise _Unusable("it belongs to another user")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _Unusable("it is not UTF-8 text") from None


def _parsed(text: str) -> dict[str, Any]:
    if not text:
        return {}

    import tomllib  # noqa: PLC0415 — most directories have no settings

    if any(part.count(".") > _MOST_PARTS for part in re.split(r"[=\n]", text)):
        raise _Unusable("it has a key of too many parts")
    try:
        return tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, or a number of too many digits
        raise _Unusable(f"it is not TOML: {error}") from None
    except RecursionError:
        raise _Unusable("it is nested too deeply") from None


def _unreadable(path: Path, error: Exception) -> InvalidInput:
    return InvalidInput(f"the settings file {path} cannot be read: {error}", hint="fix or remove it")


def _inside(raw: Any, table: tuple[str, ...], path: Path) -> dict[str, Any]:
    for key in table:
        raw = raw.get(key, {}) if isinstance(raw, dict) else {}
    if not isinstance(raw, dict):
        raise _Unusable(f"[{'.'.join(table)}] of {path.name} is not a table")
    return raw


def _layer(layer: LayerName, names: Collection[str], path: Path, raw: dict[str, Any]) -> Layer:
    known = {name: value for name, value in raw.items() if name in names}
    origin = Origin(layer=layer, where=str(path))
    unknown = [name for name in raw if name not in names]
    notices = [plain(f"{path}: {name!r} is not a setting{_meant(name, names)}") for name in unknown[:_MOST_NOTICES]]
    if len(unknown) > _MOST_NOTICES:
        notices.append(plain(f"{path}: {len(unknown) - _MOST_NOTICES} more names are not settings"))
    return Layer(origin=dict.fromkeys(known, origin), values=known, notices=tuple(notices))


def _meant(name: str, names: Collection[str]) -> str:
    import difflib  # noqa: PLC0415 — for typos only

    close = difflib.get_close_matches(name[:80], names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


# What a project may set: more safety, never less ----------------------------------------------------

_Better = Callable[[Any, Any], bool]


def _sooner(asked: float, own: float) -> bool:
    return _SHORTEST <= asked < own


def _more(asked: int, own: int) -> bool:
    return own < asked <= _MOST_SNAPSHOTS


def _on(asked: bool, own: bool) -> bool:
    return asked and not own


_SHORTEST: Final = 1.0
"""The shortest interval, in seconds, that a project may set: saving more often is not worth its cost."""
_MOST_SNAPSHOTS: Final = 1000
_MAY_SET: Final[Mapping[str, _Better]] = {
    "snapshot_interval": _sooner,
    "event_debounce": _sooner,
    "spool_flush_interval": _sooner,
    "snapshot_on_exit": _on,
    "snapshot_on_signal": _on,
    "max_snapshots_per_session": _more,
}
_WORDS: Final[Mapping[_Better, str]] = {
    _sooner: "sooner, from 1 s",
    _on: "on",
    _more: f"more, up to {_MOST_SNAPSHOTS}",
}
PROJECT_MAY: Final = {name: _WORDS[better] for name, better in _MAY_SET.items()}
"""What a project's file may set, in words. Every other setting is reserved to the user."""


def taken_from_project(name: str, asked: Any, own: Any) -> str | None:
    """None if the project's value overrides the user's *own* value; otherwise the reason why not."""
    better = _MAY_SET.get(name)
    if better is None:
        return f"{name!r} is not taken from a project file"
    if asked == own or better(asked, own):
        return None
    return f"{name} = {asked} is not taken from a project file: your own {own} holds"
