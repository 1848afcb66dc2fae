"""Default directories: store, settings, cache, state."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import platformdirs

__all__ = ["default_storage_path", "user_cache_dir", "user_config_file", "user_state_dir"]

_APP = "asnap"


def default_storage_path(environ: Mapping[str, str]) -> Path:
    """The user's own store, in the data directory."""
    data = _xdg(environ, "XDG_DATA_HOME") or platformdirs.user_data_path(_APP, appauthor=False)
    return data / "store"


def user_config_file(environ: Mapping[str, str]) -> Path:
    """The user's own settings."""
    config = _xdg(environ, "XDG_CONFIG_HOME") or platformdirs.user_config_path(_APP, appauthor=False)
    return config / "config.toml"


def user_cache_dir(environ: Mapping[str, str]) -> Path:
    """The directory for data that can be rebuilt, such as the search index. It may be deleted at any time."""
    return _xdg(environ, "XDG_CACHE_HOME") or platformdirs.user_cache_path(_APP, appauthor=False)


def user_state_dir(environ: Mapping[str, str]) -> Path:
    """The directory for state between commands that is not user data: the operation log."""
    return _xdg(environ, "XDG_STATE_HOME") or platformdirs.user_state_path(_APP, appauthor=False)


def _xdg(environ: Mapping[str, str], name: str) -> Path | None:
    # platformdirs reads these on Linux only; here they apply on macOS too. Relative paths are invalid.
    place = environ.get(name, "")
    return Path(place) / _APP if Path(place).is_absolute() else None
