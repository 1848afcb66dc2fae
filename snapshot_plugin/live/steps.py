"""Store and file work, written once and run both in threads and in event loops.

Such work is a generator: it yields each blocking call and receives its result. `run` makes the calls in the calling
thread, with a synchronous store; `run_async` awaits the store and moves file work to a worker thread.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from snapshot_plugin.store.base import SnapshotStore
    from snapshot_plugin.store.sync import SyncStore

__all__ = ["Blocking", "Steps", "StoreCall", "run", "run_async"]

T = TypeVar("T")


class StoreCall(NamedTuple):
    """Call *method* of the store."""

    method: str
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = {}


class Blocking(NamedTuple):
    """Call *work*, which may block. *lost* gets the result if a cancellation prevents returning it."""

    work: Callable[..., Any]
    args: tuple[Any, ...] = ()
    lost: Callable[[Any], object] | None = None


Steps = Generator[StoreCall | Blocking, Any, T]


def run(steps: Steps[T], store: SyncStore | None) -> T:
    """Run *steps* in this thread. Returns or raises what they do."""

    def carry_out(step: StoreCall | Blocking) -> Any:
        if isinstance(step, StoreCall):
            return getattr(store, step.method)(*step.args, **step.options)
        return step.work(*step.args)

    try:
        step = next(steps)
        while True:
            try:
                result = carry_out(step)
            except BaseException as error:  # noqa: BLE001 — the steps handle it
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


async def run_async(steps: Steps[T], store: SnapshotStore) -> T:
    """Run *steps* from an event loop without blocking it. Returns or raises what they do."""
    from snapshot_plugin.store.hop import in_thread  # noqa: PLC0415 — imports asyncio, which lists do not need

    async def carry_out(step: StoreCall | Blocking) -> Any:
        if isinstance(step, StoreCall):
            return await getattr(store, step.method)(*step.args, **step.options)
        return await in_thread(step.work, *step.args, lost=step.lost)

    try:
        step = next(steps)
        while True:
            try:
                result = await carry_out(step)
            except BaseException as error:  # noqa: BLE001 — the steps handle it, cancellation too
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value
