"""Track which session each running chat is in, to find the sessions of chats that were killed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.remembered import recall, remember

__all__ = ["remembered", "unfinished"]

_FILE = "chat"


@contextmanager
def remembered(call: Call) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with each session that this process enters. The record is removed on exit."""
    number = str(os.getpid())
    try:
        yield lambda session_id: _change(call, number, session_id)
    finally:
        _change(call, number, None)


def _change(call: Call, number: str, session_id: str | None) -> None:
    place, known = call.config.storage_path, recall(call, _FILE)
    here = known.get(place)
    kept = {pid: name for pid, name in here.items() if pid != number} if isinstance(here, dict) else {}
    remember(call, _FILE, {**known, place: {**kept, **({number: session_id} if session_id else {})}})


def unfinished(call: Call) -> set[str]:
    """The sessions of chats that were killed. Each is returned once."""
    place, known = call.config.storage_path, recall(call, _FILE)
    here = known.get(place)
    entries = here if isinstance(here, dict) else {}
    gone = {pid: name for pid, name in entries.items() if not _is_alive(pid)}
    if gone:
        remember(call, _FILE, {**known, place: {pid: name for pid, name in entries.items() if pid not in gone}})
    return {str(name) for name in gone.values()}


def _is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
