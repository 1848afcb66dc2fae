"""State kept between commands in the state directory, and the sessions that ended unexpectedly.

Losing the state does no harm. A session whose process died is known by its lease; once recovered, by the trigger of
its newest snapshot. Both describe one crash, so it is reported once, at the next ``asnap list`` or ``resume`` on a
terminal.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from snapshot_plugin.cli.call import Call
from snapshot_plugin.operations.sessions import SessionRow
from snapshot_plugin.operations.text import cut, long_ago, plain

__all__ = ["UNRECORDED", "News", "news_of", "recall", "remember", "tell_unexpected"]

UNRECORDED = "unrecorded"
"""Connections that ``asnap run`` could not record, by the agent's command: why, and when; for ``asnap doctor``."""


def recall(call: Call, name: str) -> dict[str, Any]:
    """Return what was stored under *name*; empty if it cannot be read."""
    try:
        known = json.loads(_file(call, name).read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def remember(call: Call, name: str, known: Mapping[str, Any]) -> None:
    """Store *known* under *name* for the next command. A disk error is ignored."""
    from snapshot_plugin.system.files import make_private_dir, replace_file

    file = _file(call, name)
    with contextlib.suppress(OSError):
        make_private_dir(file.parent)
        replace_file(file, json.dumps(known).encode())


def _file(call: Call, name: str) -> Path:
    from snapshot_plugin.manager.places import user_state_dir

    return user_state_dir(call.environ) / f"{name}.json"


# Sessions that ended unexpectedly -----------------------------------------------------------------------------


_RECENT = timedelta(days=7)
_AT_MOST = 3
_NAME = 32
_FILE = "ended"

Told = Mapping[str, Any]
"""By session: when its end was told, and the number of the recovered snapshot, if it was recovered by then."""


class News(NamedTuple):
    """The sessions to report, and what has been reported after that."""

    rows: tuple[SessionRow, ...]
    told: Told


def tell_unexpected(call: Call, rows: Sequence[SessionRow]) -> None:
    """Report sessions that ended unexpectedly since the last time. Only on a terminal."""
    if call.out.quiet or not call.out.is_text or not (sys.stdout.isatty() and sys.stderr.isatty()):
        return
    place, known = call.config.storage_path, recall(call, _FILE)
    before = known.get(place)
    news = news_of(rows, before if isinstance(before, dict) else {}, call.now)
    for row in news.rows[:_AT_MOST]:
        call.out.note(f"{_sentence(row, call.now)} — {call.out.run(f'asnap resume {row.short_id}')}", fg="yellow")
    if more := news.rows[_AT_MOST:]:
        call.out.note(f"and {len(more)} more: {call.out.run('asnap list --all')}", fg="yellow")
    if news.told != (before or {}):
        remember(call, _FILE, {**known, place: news.told})


def news_of(rows: Sequence[SessionRow], told: Told, now: datetime) -> News:
    """Return the crashes of the last days that were not reported yet. Pure."""
    fresh: list[SessionRow] = []
    after: dict[str, Any] = {}
    for row in rows:
        if row.is_memory or not (row.ended_unexpectedly or row.recovered):
            continue
        told_at, seq = _entry(told.get(row.session_id))
        is_new = told_at is None or _is_new(row, told_at, seq)
        if is_new and now - (row.last_sign or row.changed_at) < _RECENT:
            fresh.append(row)
        at = now if is_new or told_at is None else told_at
        after[row.session_id] = [at.isoformat(), None if row.ended_unexpectedly else row.seq]
    return News(tuple(fresh), after)


def _is_new(row: SessionRow, told_at: datetime, seq: int | None) -> bool:
    if row.ended_unexpectedly:  # new if the dead owner wrote after the last report
        return row.last_sign is not None and row.last_sign > told_at
    return seq not in (None, row.seq)


def _entry(entry: Any) -> tuple[datetime | None, int | None]:
    """Parse a stored entry; (None, None) if it is malformed."""
    try:
        at, seq = entry
        moment = datetime.fromisoformat(at)
    except (ValueError, TypeError):
        return None, None
    return (moment if moment.tzinfo else None), (seq if isinstance(seq, int) else None)


def _sentence(row: SessionRow, now: datetime) -> str:
    name = cut(plain(row.title or ""), _NAME) or row.short_id
    when = long_ago(row.last_sign or row.changed_at, now)
    turn = f" at turn {row.turns}" if row.turns else ""
    return f"session {name} ended unexpectedly {when}{turn}"
