"""Where settings come from: environment, project file, user file. Each layer is a plain dict of raw values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from snapshot_plugin.errors import InvalidInput

__all__ = ["NOT_FROM_A_PROJECT", "Layer", "Origin", "environment_layer", "file_layer", "project_layer"]

LayerName = Literal["code", "environment", "project", "user", "default"]

NOT_FROM_A_PROJECT = frozenset({"storage_path", "encryption"})
"""A project is something people clone: it must not decide where sessions go, nor whether they are encrypted."""

_VARIABLES = {"storage_path": "ASNAP_STORE"}
_DOTFILE = ".asnap.toml"
_PYPROJECT = "pyproject.toml"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Which layer a value came from, and where exactly: the variable's name or the file."""

    layer: LayerName
    where: str = ""

    def __str__(self) -> str:
        return f"{self.layer} {self.where}".rstrip()


class Layer(NamedTuple):
    """The values one place sets, and what it says that was not taken."""

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
    """The user's own file: everything in it counts. No file is no settings."""
    return _layer("user", names, path, _read(path))


def project_layer(names: Collection[str], directory: Path | None) -> Layer:
    """The nearest ``.asnap.toml``, or ``[tool.asnap]`` of a ``pyproject.toml``, at or above *directory*.

    The search ends at the repository's root. What a project may not decide is left out and said.
    """
    for place in () if directory is None else _upwards(directory):
        for path, table in ((place / _DOTFILE, ()), (place / _PYPROJECT, ("tool", "asnap"))):
            raw = _inside(_read(path), table)
            if raw:
                return _restricted(_layer("project", names, path, raw), path)
    return Layer({}, {})


def _upwards(directory: Path) -> Iterator[Path]:
    try:
        start = directory.resolve()
    except FileNotFoundError:  # the current directory was removed under our feet
        return
    for place in (start, *start.parents):
        yield place
        if (place / ".git").exists():
            return


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error

    import tomllib  # noqa: PLC0415 — most directories have no settings

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> InvalidInput:
    return InvalidInput(f"the settings file {path} cannot be read: {error}", hint="fix or remove it")


def _inside(raw: dict[str, Any], table: tuple[str, ...]) -> dict[str, Any]:
    for key in table:
        raw = raw.get(key, {})
    return raw


def _layer(layer: LayerName, names: Collection[str], path: Path, raw: dict[str, Any]) -> Layer:
    known = {name: value for name, value in raw.items() if name in names}
    origin = Origin(layer=layer, where=str(path))
    unknown = tuple(f"{path}: {name!r} is no setting{_meant(name, names)}" for name in raw if name not in names)
    return Layer(origin=dict.fromkeys(known, origin), values=known, notices=unknown)


def _meant(name: str, names: Collection[str]) -> str:
    import difflib  # noqa: PLC0415 — for typos only

    close = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _restricted(layer: Layer, path: Path) -> Layer:
    refused = sorted(NOT_FROM_A_PROJECT & layer.values.keys())
    notices = tuple(f"{path}: {name!r} is not taken from a project file" for name in refused)
    values = {name: value for name, value in layer.values.items() if name not in refused}
    return Layer(origin=layer.origin, values=values, notices=layer.notices + notices)
