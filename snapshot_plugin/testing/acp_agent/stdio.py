"""The agent's end of the connection: JSON-RPC, one message per line, on two file descriptors."""

from __future__ import annotations

import json
import os
import queue
import signal
import threading
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from snapshot_plugin.acp.endpoint import Endpoint
from snapshot_plugin.acp.messages import encode, success

__all__ = ["ClientRefused", "Peer", "die"]

Message = dict[str, Any]
_POLL = 0.02
PARSE_ERROR = -32700


class ClientRefused(Exception):
    """The client answered a request with an error, or the turn was cancelled before it answered."""


def die() -> NoReturn:
    """Kill this process with SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError  # the client has gone


class Peer:
    """The connection to the client. Every method may be called from any thread."""

    def __init__(self, source: Iterable[bytes], sink: int) -> None:
        self._source, self._sink = source, sink
        self._writing = threading.Lock()
        self._endpoint = Endpoint("agent-")
        self._asked: dict[str, queue.SimpleQueue[Message]] = {}

    def messages(self) -> Iterator[Message]:
        """The client's requests and notifications, until it hangs up. Responses go to the waiting request."""
        for data in self._source:
            for _, message in self._endpoint.feed(data):
                if message is None:
                    self.refuse(None, PARSE_ERROR, "this line is not a JSON object")
                elif "method" in message:
                    yield message

    def write(self, data: bytes) -> None:
        """Write bytes unchanged and without interleaving with other threads."""
        view = memoryview(data)
        with self._writing:
            try:
                while view:
                    view = view[os.write(self._sink, view) :]
            except OSError:
                os._exit(0)  # the client has gone

    def send(self, *messages: Message) -> None:
        """Send several messages in one write."""
        self.write(b"".join(encode({"jsonrpc": "2.0", **message}) for message in messages))

    def answer(self, request_id: Any, result: Any) -> None:
        """Answer a request."""
        self.send(success(request_id, result))

    def refuse(self, request_id: Any, code: int, text: str, data: Any = None) -> None:
        """Answer a request with an error."""
        error = {"code": code, "message": text}
        self.send({"id": request_id, "error": error if data is None else {**error, "data": data}})

    def begin(self, method: str, params: Message) -> str:
        """Send a request; `result` returns its answer."""
        request_id, answers = str(self._endpoint.new_id()), queue.SimpleQueue[Message]()
        self._asked[request_id] = answers
        self.write(self._endpoint.request(method, params, answers.put, request_id))
        return request_id

    def result(self, request_id: str, cancelled: threading.Event) -> Any:
        """The result of a request sent by `begin`.

        Raises:
            ClientRefused: the answer was an error, or *cancelled* was set first.
        """
        try:
            while True:
                try:
                    message = self._asked[request_id].get(timeout=_POLL)
                except queue.Empty:
                    if cancelled.is_set():
                        raise ClientRefused("the turn was cancelled") from None
                    continue
                if "error" in message:
                    raise ClientRefused(json.dumps(message["error"]))
                return message.get("result")
        finally:
            del self._asked[request_id]
