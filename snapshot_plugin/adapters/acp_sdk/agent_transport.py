"""A transport with somebody in the middle, who takes messages out, changes them, and asks questions of his own."""

from __future__ import annotations

import asyncio
import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from snapshot_plugin.adapters.acp.ladder import AgentRefused
from snapshot_plugin.acp.messages import Pending
from snapshot_plugin.acp.messages import INTERNAL_ERROR, Message, failure, request

__all__ = ["Answer", "TappedTransport", "Transport"]

_PATIENCE = 60.0
log = logging.getLogger("snapshot_plugin.acp")

Answer = Callable[[Pending], Awaitable[Message]]
"""Answers a request with the whole response."""


class Transport(Protocol):
    """What the SDK reads messages from and writes them to; None is the end."""

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message."""

    async def receive(self) -> Any:
        """The next message."""

    async def close(self) -> None:
        """Stop sending."""


class TappedTransport(ABC):
    """Stands between the SDK's connection (behind it: the author's code) and *inner* (behind it: the client).

    `client_says` is called with each message of the client, one at a time and in order; `author_says` with each of
    the author's code, of whose tasks several may talk at once.
    """

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._inbox: asyncio.Queue[dict[str, Any] | BaseException | None] = asyncio.Queue()
        self._pump: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)
        self._waiters: dict[str, asyncio.Future[Message]] = {}
        self._closed = False

    @abstractmethod
    async def client_says(self, message: Message) -> Message | None:
        """What the author's code gets of a message; None for nothing."""

    @abstractmethod
    async def author_says(self, message: Message) -> None:
        """Pass a message on to the client, or do not."""

    @abstractmethod
    async def ending(self) -> None:
        """The connection is about to be closed."""

    # The transport, as the SDK sees it --------------------------------------------------------------------

    async def receive(self) -> dict[str, Any] | None:
        """The next message for the author's code."""
        if self._pump is None:
            self._pump = asyncio.create_task(self._read(), name="snapshot_plugin.wire")
        message = await self._inbox.get()
        if isinstance(message, BaseException):
            raise message
        return message

    async def send(self, message: dict[str, Any]) -> None:
        """Take what the author's code says."""
        if self._closed:
            await self._inner.send(message)
        elif not self._is_for_us(message):
            await self.author_says(message)

    async def close(self) -> None:
        """Finish what we do, then close the transport."""
        if self._closed:
            return
        self._closed = True
        for task in [*self._tasks, *([self._pump] if self._pump else [])]:
            task.cancel()
        try:
            await self.ending()
        finally:
            await self._inner.close()

    async def _read(self) -> None:
        try:
            while (message := await self._inner.receive()) is not None:
                passed = await self.client_says(message) if isinstance(message, dict) else message
                if passed is not None:
                    self.tell_author(passed)
            self._inbox.put_nowait(None)
        except Exception as error:  # noqa: BLE001 — the SDK's loop gets what its transport raised
            self._inbox.put_nowait(error)

    # What is ours -----------------------------------------------------------------------------------------

    async def tell_client(self, message: Message) -> None:
        """Send the client a message."""
        await self._inner.send(message)

    def tell_author(self, message: Message) -> None:
        """Give the author's code a message, as if the client had sent it."""
        self._inbox.put_nowait(message)

    async def ask(self, method: str, params: Message) -> Message:
        """Ask the author's code, as a client would.

        Raises:
            AgentRefused: it answered with an error, or not in time.
        """
        number = f"asnap-{next(self._numbers)}"
        waiter = self._waiters[number] = asyncio.get_running_loop().create_future()
        self.tell_author(request(number, method, params))
        try:
            async with asyncio.timeout(_PATIENCE):
                answer = await waiter
        except TimeoutError:
            raise AgentRefused(f"no answer to {method} in {_PATIENCE:g} s") from None
        finally:
            self._waiters.pop(number, None)
        if (error := answer.get("error")) is not None:
            raise AgentRefused(str(error.get("message")), error)
        result = answer.get("result")
        return result if isinstance(result, dict) else {}

    def _is_for_us(self, message: Message) -> bool:
        number = message.get("id")
        waiter = self._waiters.get(number) if "method" not in message and isinstance(number, str) else None
        if waiter is not None and not waiter.done():
            waiter.set_result(message)
        return waiter is not None

    def answer_ourselves(self, answer: Answer, pending: Pending) -> None:
        """Answer a request of the client's, while the rest of the traffic goes on."""

        async def work() -> None:
            try:
                response = await answer(pending)
            except Exception as error:
                log.exception("%s failed", pending.method)
                response = failure(pending.id, INTERNAL_ERROR, str(error), {"sessionId": pending.session_id})
            await self._inner.send(response)

        task = asyncio.create_task(work(), name=f"snapshot_plugin {pending.method}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
