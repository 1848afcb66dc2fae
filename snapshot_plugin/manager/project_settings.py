"""What a project's file may set. People clone projects: one may ask for more safety, never for less."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["taken_from_project"]

_Better = Callable[[Any, Any], bool]


def _sooner(asked: float, own: float) -> bool:
    return _SHORTEST <= asked < own


def _more(asked: int, own: int) -> bool:
    return own < asked <= _MOST_SNAPSHOTS


def _on(asked: bool, own: bool) -> bool:
    return asked and not own


_SHORTEST: Final = 1.0
"""Saving more often than this would cost more than it is worth."""
_MOST_SNAPSHOTS: Final = 1000
_MAY_SET: Final[Mapping[str, _Better]] = {
    "snapshot_interval": _sooner,
    "event_debounce": _sooner,
    "spool_flush_interval": _sooner,
    "snapshot_on_exit": _on,
    "snapshot_on_signal": _on,
    "max_snapshots_per_session": _more,
}


def taken_from_project(name: str, asked: Any, own: Any) -> str | None:
    """None if the project's value holds in place of the user's *own*; otherwise why not."""
    better = _MAY_SET.get(name)
    if better is None:
        return f"{name!r} is not taken from a project file"
    if asked == own or better(asked, own):
        return None
    return f"{name} = {asked} is not taken from a project file: your own {own} holds"
