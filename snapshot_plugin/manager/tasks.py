"""Task groups of a manager: end them, and wait for work in them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import anyio
from anyio.abc import TaskGroup

__all__ = ["end_tasks", "run_for"]


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
