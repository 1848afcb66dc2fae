"""The two faces of a store, made from `StoreCore`: each operation has one signature, and it stands there.

`asynchronous` makes a method for event loops, `blocking` one for threads. Both are typed like the core's
method, so mypy, pyright and editors know its parameters. What each operation promises is in
`snapshot_plugin.store.base`.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from snapshot_plugin.model.ids import check_session_id
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.arguments import no_snapshot

if TYPE_CHECKING:
    from snapshot_plugin.store.core import StoreCore
    from snapshot_plugin.store.engine import LogStore

__all__ = ["asynchronous", "blocking", "in_turn"]

P = ParamSpec("P")
T = TypeVar("T")
_OF_THE_CORE = re.compile(r"^\w+\.(?=\w+\(\) )")


class BlockingFace(Protocol):
    """The synchronous face of a store."""

    @property
    def store(self) -> LogStore:
        """The store that it is a face of."""

    def run(self, method: str, session_id: str | None, work: Callable[[], T]) -> T:
        """Do the *work* of an operation; for a session, in its turn."""


def asynchronous(
    method: Callable[Concatenate[StoreCore, P], T], *, turn: bool = True
) -> Callable[Concatenate[LogStore, P], Coroutine[Any, Any, T]]:
    """*method* for event loops: it waits for the session's turn, and hops to a worker thread once."""
    name = method.__name__

    @functools.wraps(method)
    async def call(self: LogStore, /, *args: P.args, **options: P.kwargs) -> T:
        session_id = _session_id(name, args, options) if turn else None
        work: Callable[[], T] = functools.partial(getattr(self.core, name), *args, **options)
        try:
            return await self.run(session_id, work)
        except TypeError as error:
            raise _of_the_store(error, self) from error

    return call


def blocking(
    method: Callable[Concatenate[StoreCore, P], T], *, turn: bool = True
) -> Callable[Concatenate[BlockingFace, P], T]:
    """*method* for threads: it waits for the session's turn, and runs in the calling thread."""
    name = method.__name__

    @functools.wraps(method)
    def call(self: BlockingFace, /, *args: P.args, **options: P.kwargs) -> T:
        session_id = _session_id(name, args, options) if turn else None
        work: Callable[[], T] = functools.partial(getattr(self.store.core, name), *args, **options)
        try:
            return self.run(name, session_id, work)
        except TypeError as error:
            raise _of_the_store(error, self.store) from error

    return call


def in_turn(store: LogStore, session_id: str, work: Callable[[], T]) -> T:
    """Do *work* in this thread, once every earlier call for the session is done."""
    if event := store.turns.enter(session_id, threading.Event):
        try:
            event.wait()
        except BaseException:  # Ctrl-C
            store.turns.withdraw(session_id, event)
            raise
    try:
        return store.prepared(work, session_id)
    finally:
        store.turns.leave(session_id)


def _session_id(method: str, args: tuple[Any, ...], options: dict[str, Any]) -> str:
    if method != "save":
        given: Any = args[0] if args else options.get("session_id")
        return check_session_id(given)
    snapshot = args[0] if args else options.get("snapshot")
    if not isinstance(snapshot, SessionSnapshot):
        raise no_snapshot(snapshot)
    return check_session_id(snapshot.session_id)


def _of_the_store(error: TypeError, store: LogStore) -> TypeError:
    """*error*; if it is about the arguments of a method of the core, with the name of the store's class."""
    return TypeError(_OF_THE_CORE.sub(f"{type(store).__name__}.", str(error), count=1))
