"""The sources of settings: the environment, the user's file. Each layer is a plain dict of raw values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.inert import plain

__all__ = ["Layer", "Origin", "environment_layer", "file_layer"]

LayerName = Literal["code", "environment", "user", "default"]

_VARIABLES = {"storage_path": "ASNAP_STORE"}
_MOST_NOTICES = 5


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


def _read(path: Path) -> dict[str, Any]:
    """The user's own file, which may be a link."""
    import tomllib  # noqa: PLC0415 — most users have no file

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, RecursionError) as error:  # not TOML, not UTF-8, a number of too many digits
        raise InvalidInput(f"the settings file {path} cannot be read: {error}", hint="fix or remove it") from error


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
