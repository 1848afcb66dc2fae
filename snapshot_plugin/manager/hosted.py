"""Sessions that an ACP host records (`LiveSessions`), as sessions of a manager.

The manager lists, touches, saves and finishes them with its own; what happens to them becomes its events.
At the end are the ways in which a manager ends its tasks and waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup, TaskStatus
from anyio.from_thread import BlockingPortal

from snapshot_plugin.live.outcome import Outcome
from snapshot_plugin.live.ports import LiveContext
from snapshot_plugin.live.session import LiveSession
from snapshot_plugin.live.sessions import LiveSessions, MakeReducer
from snapshot_plugin.live.steps import has_sync_face
from snapshot_plugin.manager.managed import ManagerContext

__all__ = ["HostedSessions", "ReportsInLoop", "end_tasks", "run_for"]


class HostedSessions:
    """The `LiveSessions` of a manager's hosts."""

    def __init__(self, context: ManagerContext) -> None:
        self._context = context
        self._portal: BlockingPortal | None = None
        self._all: list[LiveSessions] = []

    def __iter__(self) -> Iterator[LiveSession]:
        return iter([live for sessions in self._all for live in tuple(sessions.open.values())])

    async def open(self, tasks: TaskGroup) -> None:
        """Make the event loop reachable for threads, where the store can only be used from there."""
        if not has_sync_face(self._context.store):
            self._portal = await tasks.start(_run_portal)

    def record(
        self,
        reducer: MakeReducer,
        live: LiveContext,
        *,
        control: str | None,
        program: str | None,
    ) -> LiveSessions:
        """Sessions that a host records, in the event loop of this call."""
        sessions = LiveSessions(
            self._context.store,
            reducer,
            portal=self._portal,
            reports=ReportsInLoop(self._context.report),
            clock=live.clock,
            program=program,
            reducers=live.reducers,
            flush_interval=self._context.config.spool_flush_interval,
        )
        sessions.control = control
        self._all.append(sessions)
        return sessions

    def get(self, session_id: str) -> LiveSession | None:
        """The session with this id, if a host records it now."""
        return next((live for live in self if live.session_id == session_id), None)

    async def finish(self, session_id: str, *, save: bool) -> Outcome:
        """Save the session for the last time, if *save*, and give it up, within ``exit_timeout``. Never raises."""
        limit = self._context.config.exit_timeout
        for sessions in self._all:
            if session_id in sessions.open:
                return await _bounded(partial(sessions.finish, session_id, save=save), session_id, limit)
        return Outcome(session_id=session_id, status="not_live")

    async def finish_all(self, *, save: bool) -> Sequence[Outcome]:
        """Finish every session concurrently, and end the hosts' background threads."""
        outcomes: list[Outcome] = []

        async def finish(session_id: str) -> None:
            outcomes.append(await self.finish(session_id, save=save))

        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as finishing:
                for live in self:
                    finishing.start_soon(finish, live.session_id)
        for sessions in self._all:
            sessions.stop()
        return outcomes


async def _run_portal(*, task_status: TaskStatus[BlockingPortal]) -> None:
    async with BlockingPortal() as portal:
        task_status.started(portal)
        await anyio.sleep_forever()


async def _bounded(finish: Callable[[], Outcome], session_id: str, within: float) -> Outcome:
    """Run *finish* in a worker thread. After the time limit the thread is abandoned: a disk may never answer."""
    with anyio.CancelScope(shield=True), anyio.move_on_after(within):
        return await anyio.to_thread.run_sync(finish, abandon_on_cancel=True)
    return Outcome.timed_out(session_id, within)


class ReportsInLoop:
    """Passes the reports of any thread on to *report*, in the event loop that made this. Never waits."""

    def __init__(self, report: object) -> None:
        self._report = report
        self._soon = _soon()

    def __getattr__(self, name: str) -> Callable[..., None]:
        method = getattr(self._report, name)

        def tell(*args: Any, **about: Any) -> None:
            with suppress(RuntimeError):  # the loop has ended: no subscriber is left
                self._soon(partial(method, *args, **about))

        return tell


def _soon() -> Callable[[Callable[[], Any]], Any]:
    """Calls a function soon in this event loop, from any thread."""
    try:
        return asyncio.get_running_loop().call_soon_threadsafe
    except RuntimeError:
        import trio.lowlevel  # noqa: PLC0415 — only where trio runs

        return trio.lowlevel.current_trio_token().run_sync_soon


async def end_tasks(tasks: TaskGroup, error: BaseException | None) -> None:
    """Cancel *tasks* and wait for them. *error* is what ends the block they belong to."""
    tasks.cancel_scope.cancel()
    if isinstance(error, anyio.get_cancelled_exc_class()):
        await tasks.__aexit__(type(error), error, error.__traceback__)
    else:
        # The body's own error is not the tasks': given to them, it would come out wrapped in a group.
        await tasks.__aexit__(None, None, None)


async def run_for(within: float, tasks: TaskGroup, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Run *work* in *tasks* and wait for it at most *within* seconds, even if it cannot be cancelled."""
    finished = anyio.Event()

    async def run() -> None:
        await work()
        finished.set()

    tasks.start_soon(run)
    with anyio.move_on_after(within):
        await finished.wait()
