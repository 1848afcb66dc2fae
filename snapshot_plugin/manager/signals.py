"""Save all sessions on SIGTERM and SIGINT, then let the signal take effect.

A signal is watched only if its handler is the interpreter's default. So an application's own handler is never
replaced, and under ``asyncio.run``, ``trio.run`` or ``anyio.run`` Ctrl-C is left alone: there
it unwinds the program, which closes the manager, which saves.

Also ends the tasks of a manager in bounded time.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
from anyio.abc import TaskGroup

__all__ = ["UNSAVED", "SaveOnSignal", "end_tasks", "run_for"]

UNSAVED = 3
"""The exit status of a process that SIGTERM ended before all its sessions were saved."""

_log = logging.getLogger(__name__)
_DEFAULTS: dict[signal.Signals, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}


class SaveOnSignal:
    """One manager's request to save before the process ends.

    With several managers, the first watches and calls all.

    Args:
        save: saves every session within its own time limit; returns False if not all are saved. Must not raise.
    """

    _waiting: list[SaveOnSignal] = []  # noqa: RUF012 — shared on purpose: signals belong to the process

    def __init__(self, save: Callable[[], Coroutine[Any, Any, bool | None]]) -> None:
        self._save = save
        self._left = anyio.Event()

    @classmethod
    def is_possible(cls) -> bool:
        """False outside the main thread, and if the application has its own handlers."""
        return threading.current_thread() is threading.main_thread() and bool(cls._waiting or _unhandled())

    async def run(self) -> None:
        """Watch until a signal comes, or until cancelled."""
        self._waiting.append(self)
        try:
            while (first := self._waiting[0]) is not self:
                await first._left.wait()  # noqa: SLF001 — of the same class
            await self._watch()
        finally:
            self._waiting.remove(self)
            self._left.set()

    async def _watch(self) -> None:
        signals = _unhandled()
        if not signals:
            return
        # A signal during the save is ignored: senders often repeat theirs.
        with anyio.open_signal_receiver(*signals) as received:
            async for number in received:
                _log.warning("%s: saving all sessions", signal.Signals(number).name)
                is_saved = False
                try:
                    is_saved = await self._save_all()
                finally:
                    if number == signal.SIGTERM and not is_saved:
                        os._exit(UNSAVED)  # as immediate as the signal itself
                    _deliver(number)

    async def _save_all(self) -> bool:
        saved: list[bool] = []

        async def save(waiting: SaveOnSignal) -> None:
            saved.append(await waiting._save() is not False)

        async with anyio.create_task_group() as tasks:
            for waiting in self._waiting:
                tasks.start_soon(save, waiting)
        return all(saved)


def _unhandled() -> tuple[signal.Signals, ...]:
    return tuple(number for number, default in _DEFAULTS.items() if signal.getsignal(number) is default)


def _deliver(number: signal.Signals) -> None:
    signal.signal(number, _DEFAULTS[number])
    os.kill(os.getpid(), number)


async def end_tasks(tasks: TaskGroup, error: BaseException | None) -> None:
    """Cancel *tasks* and wait for them. *error* is what ends the block they belong to."""
    tasks.cancel_scope.cancel()
    if isinstance(error, anyio.get_cancelled_exc_class()):
        await tasks.__aexit__(type(error), error, error.__traceback__)
    else:
        # The body's error must not be passed to the tasks: it would be wrapped in an exception group.
        await tasks.__aexit__(None, None, None)


async def run_for(within: float, tasks: TaskGroup, work: Callable[[], Coroutine[Any, Any, object]]) -> bool:
    """Run *work* in *tasks* and wait for it at most *within* seconds, even if it cannot be cancelled.

    Returns whether it has ended.
    """
    finished = anyio.Event()

    async def run() -> None:
        await work()
        finished.set()

    tasks.start_soon(run)
    with anyio.move_on_after(within):
        await finished.wait()
    return finished.is_set()
