"""A link of a proxy chain: the agent is not our child process but the conductor's next component.

A conductor starts the proxy without an agent and begins with ``proxy/initialize`` (also ``_proxy/initialize``).
Messages to and from our successor go through the conductor in a ``_proxy/successor`` envelope. `ChainLink` has the
interface of `process.AgentProcess`, so the proxy treats both the same.
"""

from __future__ import annotations

import queue
from collections.abc import Callable

from snapshot_plugin.acp.endpoint import Endpoint
from snapshot_plugin.acp.messages import Message, as_object, encode, notification, parse
from snapshot_plugin.system.lines import Lines

__all__ = ["ChainLink"]

_INITIALIZE = ("proxy/initialize", "_proxy/initialize")
_SUCCESSOR = ("proxy/successor", "_proxy/successor")


class ChainLink:
    """The successor, reached through the conductor that we also talk to as our client."""

    pid = 0

    def __init__(self) -> None:
        self.to_conductor: Callable[[bytes], None] = lambda _data: None
        self._prefix = "_proxy/"
        self._said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._lines = Lines()
        self._endpoint = Endpoint("asnap-link-")

    # What the proxy sends to "the agent" ------------------------------------------------------------------

    def send(self, data: bytes) -> bytes:
        """Pass lines on to the successor, each in an envelope; answers to its requests are not wrapped.

        Never blocks: `to_conductor` only adds to the client's outbox.
        """
        for line in self._lines.feed(data):
            message = parse(line)
            if message is not None:
                self.to_conductor(self._wrapped(message))
        return b""

    def _wrapped(self, message: Message) -> bytes:
        if "method" not in message:
            return encode(message)
        method = f"{self._prefix}successor"
        inner = {"method": message["method"], "params": message.get("params") or {}}
        if "id" not in message:
            return encode(notification(method, inner))
        return self._endpoint.request(
            method, inner, lambda answer: self._said.put(encode({**answer, "id": message["id"]}))
        )

    # What the conductor sends us --------------------------------------------------------------------------

    def unwrapped(self, message: Message) -> Message | None:
        """Return the predecessor's message as plain ACP; None if it was the successor's."""
        method = message.get("method")
        if method in _INITIALIZE:
            self._prefix = method.removesuffix("initialize")
            return {**message, "method": "initialize"}
        if method in _SUCCESSOR:
            params = as_object(message.get("params"))
            inner: Message = {key: params[key] for key in ("method", "params") if key in params}
            self._said.put(encode({**{k: v for k, v in message.items() if k not in ("method", "params")}, **inner}))
            return None
        return None if self._endpoint.take(message) else message

    def read(self) -> bytes:
        """Return the successor's next message; blocks. Empty after `end`."""
        return self._said.get()

    def signal(self, number: int) -> None:
        """Do nothing: the conductor handles signals."""

    def end(self, *, patience: float) -> int:
        """Make `read` return empty. Returns 0."""
        _ = patience
        self._said.put(b"")
        return 0
