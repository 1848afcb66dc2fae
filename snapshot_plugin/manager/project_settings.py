"""Which settings a project's file may change. A cloned project may ask for more safety, never for less."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["PROJECT_MAY", "taken_from_project"]

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

_WORDS: Final[Mapping[_Better, str]] = {
    _sooner: "sooner, from 1 s",
    _on: "on",
    _more: f"more, up to {_MOST_SNAPSHOTS}",
}
PROJECT_MAY: Final = {name: _WORDS[better] for name, better in _MAY_SET.items()}
"""In words, what a project's file may ask for; every other setting is the user's alone."""


def taken_from_project(name: str, asked: Any, own: Any) -> str | None:
    """None if the project's value holds in place of the user's *own*; otherwise why not."""
    better = _MAY_SET.get(name)
    if better is None:
        return f"{name!r} is not taken from a project file"
    if asked == own or better(asked, own):
        return None
    return f"{name} = {asked} is not taken from a project file: your own {own} holds"
