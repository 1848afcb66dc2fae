"""Save all sessions on SIGTERM and SIGINT, then let the signal take effect.

A signal is watched only if its handler is the interpreter's default. So an application's own handler is never
replaced, and under ``asyncio.run``, ``trio.run`` or ``anyio.run`` Ctrl-C is left alone: there
it unwinds the program, which closes the manager, which saves.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import anyio

__all__ = ["LastGasp"]

_log = logging.getLogger(__name__)
_DEFAULTS: dict[signal.Signals, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}


class LastGasp:
    """One manager's request to save before the process ends.

    With several managers, the first watches and calls all.

    Args:
        save: saves every session within its own time limit; must not raise.
    """

    _waiting: list[LastGasp] = []  # noqa: RUF012 — shared on purpose: signals belong to the process

    def __init__(self, save: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._save = save
        self._left = anyio.Event()

    @classmethod
    def is_possible(cls) -> bool:
        """False outside the main thread, and where an author's own handlers are in place."""
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
        # Signals that come while saving are taken as the same one: senders often repeat themselves.
        with anyio.open_signal_receiver(*signals) as received:
            async for number in received:
                _log.warning("%s: saving all sessions", signal.Signals(number).name)
                try:
                    await self._save_all()
                finally:
                    _deliver(number)

    async def _save_all(self) -> None:
        async with anyio.create_task_group() as tasks:
            for waiting in self._waiting:
                tasks.start_soon(waiting._save)  # noqa: SLF001 — of the same class


def _unhandled() -> tuple[signal.Signals, ...]:
    return tuple(number for number, default in _DEFAULTS.items() if signal.getsignal(number) is default)


def _deliver(number: signal.Signals) -> None:
    signal.signal(number, _DEFAULTS[number])
    os.kill(os.getpid(), number)
