"""The agent's end of the connection: JSON-RPC, one message per line, on two file descriptors."""

from __future__ import annotations

import itertools
import json
import os
import queue
import signal
import threading
from collections.abc import Iterator
from typing import IO, Any, NoReturn

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

    def __init__(self, source: IO[bytes], sink: int) -> None:
        self._source, self._sink = source, sink
        self._writing = threading.Lock()
        self._numbers = itertools.count(1)
        self._asked: dict[str, queue.SimpleQueue[Message]] = {}

    def messages(self) -> Iterator[Message]:
        """The client's requests and notifications, until it hangs up. Responses go to the waiting request."""
        for line in self._source:
            message = self._parsed(line)
            if "method" in message:
                yield message
            elif message.get("id") in self._asked:
                self._asked[message["id"]].put(message)

    def _parsed(self, line: bytes) -> Message:
        try:
            message = json.loads(line)
        except ValueError:
            self.refuse(None, PARSE_ERROR, "this line is not JSON")
            return {}
        return message if isinstance(message, dict) else {}

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
        lines = (json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")) for message in messages)
        self.write("".join(f"{line}\n" for line in lines).encode())

    def answer(self, request_id: Any, result: Any) -> None:
        """Answer a request."""
        self.send({"id": request_id, "result": result})

    def refuse(self, request_id: Any, code: int, text: str, data: Any = None) -> None:
        """Answer a request with an error."""
        error = {"code": code, "message": text}
        self.send({"id": request_id, "error": error if data is None else {**error, "data": data}})

    def begin(self, method: str, params: Message) -> str:
        """Send a request; `result` returns its answer."""
        request_id = f"agent-{next(self._numbers)}"
        self._asked[request_id] = queue.SimpleQueue()
        self.send({"id": request_id, "method": method, "params": params})
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
