"""A client's connection, tapped: every message in both directions, raw, before anybody gets it.

The SDK's own observers are told of a sent message after it went out, its typed models drop what they do not know,
and nothing waits for either. Its transports carry whole messages, one at a time, for stdio, HTTP and WebSocket
alike; so that is where we listen.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, Protocol

import anyio

from snapshot_plugin.acp.messages import Message
from snapshot_plugin.errors import InvalidInput, MissingExtra

__all__ = ["Listener", "Tap", "Transport", "tap_connection"]


class Transport(Protocol):
    """What the SDK's connections read messages from and write them to; None is the end."""

    async def send(self, message: dict[str, Any]) -> None:
        """Send one message."""

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None once the other side is gone."""

    async def close(self) -> None:
        """Let go of the other side."""


class Listener(Protocol):
    """Who is shown every message before it goes on, and may change it."""

    async def outgoing(self, message: Message) -> Message:
        """What the agent gets for a message of the client."""

    def unsent(self, message: Message) -> None:
        """A message that was shown to `outgoing` could not be sent."""

    async def incoming(self, message: Message) -> Message | None:
        """What the client gets for a message of the agent; None: nothing."""

    async def ended(self) -> None:
        """The agent is gone."""

    async def finish(self) -> None:
        """The client closes the connection; the agent is still there."""


class Tap:
    """A transport in front of another. Messages keep their order, however long the listener takes over one."""

    def __init__(self, inner: Transport, listener: Listener) -> None:
        self._inner, self._listener = inner, listener
        self._sending = asyncio.Lock()
        self._closed = False

    async def send(self, message: dict[str, Any]) -> None:
        """Show it to the listener, then send it. Whoever gives up waiting does not tear the two apart."""
        await asyncio.shield(asyncio.ensure_future(self._send(message)))

    async def _send(self, message: Message) -> None:
        async with self._sending:  # a cancellation must not overtake the prompt it is for
            passed = await self._listener.outgoing(message)
            try:
                await self._inner.send(passed)
            except BaseException:
                self._listener.unsent(message)
                raise

    async def send_unseen(self, message: Message) -> None:
        """Send a message the listener made itself."""
        async with self._sending:
            await self._inner.send(message)

    async def receive(self) -> dict[str, Any] | None:
        """The next message the client is to get."""
        while (message := await self._inner.receive()) is not None:
            passed = await self._listener.incoming(message)
            if passed is not None:
                return passed
        await self._listener.ended()
        return None

    async def close(self) -> None:
        """Have the listener finish, then close the transport, whatever became of that; even when cancelled."""
        if self._closed:
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            try:
                await self._listener.finish()
            finally:
                await self._inner.close()


def tap_connection(connection: Any, listener: Listener) -> Tap:
    """Put a tap into a connection the SDK has made. From then on the listener is shown every message.

    Raises:
        InvalidInput: it is no client's connection, or has a tap already.
        MissingExtra: the SDK is one without message transports.
    """
    inside: Any = getattr(connection, "_conn", None)
    if not hasattr(inside, "send_request"):
        raise InvalidInput(f"a {type(connection).__name__} is no connection of the SDK's to an agent")
    inner = getattr(inside, "_transport", None)
    if inner is None or not hasattr(inside, "_recv_task"):
        raise MissingExtra(
            "this release of agent-client-protocol has no message transports that we know",
            hint="pip install 'snapshot-plugin[acp]'",
        )
    if isinstance(inner, Tap):
        raise InvalidInput("this connection is recorded already")
    tap = Tap(inner, listener)
    inside._transport = tap  # noqa: SLF001 — the SDK has no other way in
    _read_through_the_tap(inside)
    return tap


def _read_through_the_tap(inside: Any) -> None:
    """A connection that already waits for a message waits behind the tap: have it begin again, through the tap."""
    waiting: asyncio.Task[None] | None = inside._recv_task  # noqa: SLF001 — as above
    if waiting is None or inspect.getcoroutinestate(_coroutine(waiting)) == inspect.CORO_CREATED:
        return
    waiting.cancel()
    inside._recv_task = inside._tasks.create(  # noqa: SLF001 — as above
        inside._receive_loop(),  # noqa: SLF001 — as above
        name="acp.Connection.receive",
        on_error=inside._on_receive_error,  # noqa: SLF001 — as above
    )


def _coroutine(task: asyncio.Task[None]) -> Any:
    return task.get_coro()
