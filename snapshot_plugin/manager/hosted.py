"""Sessions that an ACP host records (`LiveSessions`), as sessions of a manager.

The manager lists, saves and finishes them together with its own sessions, and emits their events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import anyio

from snapshot_plugin.live.events import Event
from snapshot_plugin.live.outcome import Outcome
from snapshot_plugin.live.session import LiveSession
from snapshot_plugin.live.sessions import LiveSessions, MakeReducer
from snapshot_plugin.manager.managed import ManagerContext
from snapshot_plugin.store.hop import Abandoned, Deadline, in_thread

__all__ = ["HostedSessions"]


class HostedSessions:
    """The `LiveSessions` of a manager's hosts. *emit* gets their events, from any thread."""

    def __init__(self, context: ManagerContext, emit: Callable[[Event], object]) -> None:
        self._context, self._emit = context, emit
        self._all: list[LiveSessions] = []

    def __iter__(self) -> Iterator[LiveSession]:
        return iter([live for sessions in self._all for live in tuple(sessions.open.values())])

    def record(self, reducer: MakeReducer, *, control: str | None) -> LiveSessions:
        """The sessions of a host, which reports to the event loop of this call."""
        context = self._context
        sessions = LiveSessions(
            context.store,
            reducer,
            emit=self._emit,
            clock=context.live.clock,
            reducers=context.live.reducers,
            flush_interval=context.config.spool_flush_interval,
        )
        sessions.control = control
        self._all = [*(each for each in self._all if not each.is_stopped), sessions]
        return sessions

    def get(self, session_id: str) -> LiveSession | None:
        """The session with this id, if a host records it now."""
        return next((live for live in self if live.session_id == session_id), None)

    async def finish(self, session_id: str, *, save: bool, limit: float) -> Outcome:
        """Save the session a last time, if *save*, and release it, within *limit* seconds. Never raises.

        After that time the saving thread is abandoned, because a disk may never answer.
        """
        deadline = Deadline()
        for sessions in self._all:
            if session_id in sessions.open:
                with anyio.CancelScope(shield=True), deadline.applies(), suppress(Abandoned):
                    deadline.set(limit)
                    return await in_thread(partial(sessions.finish, session_id, save=save))
                return Outcome.timed_out(session_id, limit)
        return Outcome(session_id=session_id, status="not_live")

    def refuse(self, why: str) -> None:
        """Begin and resume no more sessions."""
        for sessions in self._all:
            sessions.refused = why

    def stop(self) -> None:
        """End the hosts' background threads."""
        for sessions in self._all:
            sessions.stop()
