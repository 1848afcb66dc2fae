"""Reports leases that run out while their sessions are live, because the database does not answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import anyio

from snapshot_plugin.errors import StoreUnavailable
from snapshot_plugin.live.events import Reporter
from snapshot_plugin.live.session import LiveSession

__all__ = ["watch_leases"]

_CHECK = 0.5
"""Seconds between two looks, besides the one when the next lease ends: a machine that slept has missed that."""
_SHORTEST = 0.02


async def watch_leases(live: Callable[[], Iterable[LiveSession]], report: Reporter) -> None:
    """Report each lease when it has run out, once until it is renewed. Runs until it is cancelled."""
    over: set[str] = set()
    while True:
        left = {each.session_id: each.seconds_left for each in live()}
        was_over, over = over, {session_id for session_id, seconds in left.items() if seconds <= 0}
        for session_id in sorted(over - was_over):
            report.failed(session_id, "lease", _ran_out(session_id))
        soonest = min((seconds for seconds in left.values() if seconds > 0), default=_CHECK)
        await anyio.sleep(min(_CHECK, max(_SHORTEST, soonest)))


def _ran_out(session_id: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"the lease of session {session_id!r} has run out, because the database does not answer",
        session_id=session_id,
        hint="stop the agent: another machine may own the session now",
    )
