# ruff: noqa: S101 — it is part of a test suite
"""A small ACP client for a real process over stdio. It sees every byte, and every wait is bounded."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import snapshot_plugin
from snapshot_plugin.acp.endpoint import Endpoint, Received
from snapshot_plugin.acp.messages import METHOD_NOT_FOUND, encode

__all__ = ["AGENT", "PATIENCE", "Client", "RpcError", "allow", "reject"]

PATIENCE = 60.0
_CHUNK = 1 << 16
AGENT = (sys.executable, "-m", "snapshot_plugin.testing.acp_agent")
"""The command of the scripted agent; append flags to it."""

Json = dict[str, Any]
Handler = Callable[[Json], Json | None]
_ROOT = Path(snapshot_plugin.__file__).parent.parent


class RpcError(Exception):
    """The other side answered with an error."""

    def __init__(self, error: Json) -> None:
        super().__init__(json.dumps(error))
        self.code = error.get("code")
        self.data: Any = error.get("data")


def allow(params: Json) -> Json:
    """Answer a permission request with the first option."""
    return {"outcome": {"outcome": "selected", "optionId": params["options"][0]["optionId"]}}


def reject(params: Json) -> Json:
    """Answer a permission request with the last option."""
    return {"outcome": {"outcome": "selected", "optionId": params["options"][-1]["optionId"]}}


class Client:
    """A client of *command*, which runs until the ``with`` block ends.

    `answers` maps each method the agent may request to a function from params to the result. A function that
    returns None leaves the request open, to be answered with `respond`. Methods not named get ``-32601``.
    """

    launch: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen
    """Starts the process."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        answers: Mapping[str, Handler] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.answers: dict[str, Handler] = {"session/request_permission": allow, **(answers or {})}
        self.received: list[Received] = []
        """Everything, in order."""
        self.asked: list[Json] = []
        """Requests the agent made of us, in order."""
        self._lines_of_stderr: list[str] = []
        self._endpoint = Endpoint()
        self._marks: dict[int | str, int] = {}
        self._writing = threading.Lock()
        self._changed = threading.Condition()
        self._ended = False
        self.process = self.launch(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(_ROOT), **(env or {})},
        )
        self._readers = [threading.Thread(target=work, daemon=True) for work in (self._listen, self._overhear)]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.hang_up()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
        for reader in self._readers:
            reader.join(PATIENCE)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe and not any(reader.is_alive() for reader in self._readers):
                pipe.close()

    # Sending ----------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Write bytes unchanged."""
        assert self.process.stdin is not None
        view = memoryview(data)
        with self._writing:
            while view:
                view = view[self.process.stdin.write(view) or 0 :]

    def send(self, message: Json) -> None:
        """Send a message."""
        self.write(encode({"jsonrpc": "2.0", **message}))

    def notify(self, method: str, params: Json) -> None:
        """Send a notification."""
        self.send({"method": method, "params": params})

    def begin(self, method: str, params: Json, *, request_id: int | str | None = None) -> int | str:
        """Send a request; `answer_to` waits for its answer."""
        request_id = self._endpoint.new_id() if request_id is None else request_id
        self._marks[request_id] = len(self.received)
        self.send({"id": request_id, "method": method, "params": params})
        return request_id

    def answer_to(self, request_id: int | str, *, timeout: float = PATIENCE) -> Json:
        """The whole answer: a result or an error."""
        return self.wait_for(
            lambda message: "method" not in message and message.get("id") == request_id,
            since=self._marks[request_id],
            timeout=timeout,
        )

    def request(self, method: str, params: Json, *, timeout: float = PATIENCE) -> Any:
        """Send a request and return its result. Raises `RpcError` if the answer is an error."""
        answer = self.answer_to(self.begin(method, params), timeout=timeout)
        if "error" in answer:
            raise RpcError(answer["error"])
        return answer["result"]

    def respond(self, request: Json, result: Json) -> None:
        """Answer a request of the agent that was left open."""
        self.send({"id": request["id"], "result": result})

    # The usual conversation -------------------------------------------------------------------------------

    def initialize(self, **capabilities: Any) -> Json:
        """Send ``initialize`` and return the result."""
        params = {"protocolVersion": 1, "clientCapabilities": capabilities}
        result: Json = self.request("initialize", params)
        return result

    def new_session(self, cwd: Path | str = "/") -> str:
        """Begin a session and return its id."""
        return str(self.request("session/new", {"cwd": str(cwd), "mcpServers": []})["sessionId"])

    def begin_prompt(self, session_id: str, text: str) -> int | str:
        """Send a prompt of one text block."""
        return self.begin("session/prompt", {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]})

    def prompt(self, session_id: str, text: str, *, timeout: float = PATIENCE) -> str:
        """Run a whole turn; returns the text of the agent's message."""
        mark = len(self.received)
        answer = self.answer_to(self.begin_prompt(session_id, text), timeout=timeout)
        if "error" in answer:
            raise RpcError(answer["error"])
        return self.said(session_id, since=mark)

    # What was received ------------------------------------------------------------------------------------

    def updates(self, session_id: str | None = None, *, since: int = 0) -> list[Json]:
        """The updates of a session (default: of all), in order, starting with the received message *since*."""
        found = [
            message["params"]
            for _, message in self.received[since:]
            if message and message.get("method") == "session/update"
        ]
        return [params["update"] for params in found if session_id in (None, params["sessionId"])]

    def said(self, session_id: str | None = None, *, since: int = 0, kind: str = "agent_message_chunk") -> str:
        """The text of the chunks of one kind, joined."""
        updates = self.updates(session_id, since=since)
        return "".join(update["content"]["text"] for update in updates if update["sessionUpdate"] == kind)

    def wait_for(self, predicate: Callable[[Json], bool], *, since: int = 0, timeout: float = PATIENCE) -> Json:
        """The first received message that matches; waits for it."""
        seen, deadline = since, time.monotonic() + timeout
        with self._changed:
            while True:
                for _, message in self.received[seen:]:
                    if message is not None and predicate(message):
                        return message
                seen = len(self.received)
                if self._ended or not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    raise AssertionError(self._last_words())

    def _last_words(self) -> str:
        why = "the process ended" if self._ended else "nothing came in time"
        last = [received.line[:300] for received in self.received[-3:]]
        return f"{why}; last received: {last}; stderr: {self.stderr[-2000:]}"

    def wait_for_update(self, kind: str, *, since: int = 0, timeout: float = PATIENCE, **fields: Any) -> Json:
        """The first update of a kind whose fields have these values."""
        update: Json = self.wait_for(
            lambda message: _is_update(message, {"sessionUpdate": kind, **fields}), since=since, timeout=timeout
        )["params"]["update"]
        return update

    def wait_for_text(self, text: str, *, since: int = 0, timeout: float = PATIENCE) -> None:
        """Wait until a chunk of the agent's message contains *text*."""
        self.wait_for(lambda message: text in _chunk(message), since=since, timeout=timeout)

    def wait_for_request(self, method: str, *, since: int = 0, timeout: float = PATIENCE) -> Json:
        """The first request with this method from the agent; waits for it."""
        return self.wait_for(lambda message: message.get("method") == method, since=since, timeout=timeout)

    @property
    def stderr(self) -> str:
        """What the process has written to stderr so far."""
        return "".join(self._lines_of_stderr)

    def wait_for_stderr(self, text: str, *, timeout: float = PATIENCE) -> None:
        """Wait until the process has written *text* to stderr."""
        with self._changed:
            assert self._changed.wait_for(lambda: text in self.stderr, timeout), self.stderr

    # Ends -------------------------------------------------------------------------------------------------

    def hang_up(self) -> None:
        """Close the process's stdin."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def kill(self) -> None:
        """``kill -9``."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def exit_status(self, *, timeout: float = PATIENCE) -> int:
        """Wait for the process to exit on its own, and read the rest of its output."""
        status = self.process.wait(timeout)
        for reader in self._readers:
            reader.join(timeout)
        return status

    # Reading ----------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        assert self.process.stdout is not None
        while data := os.read(self.process.stdout.fileno(), _CHUNK):
            for received in self._endpoint.feed(data):
                self._take(received)
        for received in self._endpoint.rest():
            self._take(received)
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _take(self, received: Received) -> None:
        message = received.message or {}
        is_request = "method" in message and "id" in message
        with self._changed:
            self.received.append(received)
            if is_request:
                self.asked.append(message)
            self._changed.notify_all()
        if is_request:
            with contextlib.suppress(OSError, ValueError):  # the process ended, or we closed its stdin
                self._reply(message)

    def _reply(self, message: Json) -> None:
        handler = self.answers.get(str(message["method"]))
        if handler is None:
            self.send({"id": message["id"], "error": {"code": METHOD_NOT_FOUND, "message": "no such method"}})
            return
        result = handler(message["params"])
        if result is not None:
            self.respond(message, result)

    def _overhear(self) -> None:
        assert self.process.stderr is not None
        with open(self.process.stderr.fileno(), encoding="utf-8", errors="replace", closefd=False) as lines:
            for line in lines:
                with self._changed:
                    self._lines_of_stderr.append(line)
                    self._changed.notify_all()


def _is_update(message: Json, fields: Json) -> bool:
    update = message.get("params", {}).get("update", {}) if message.get("method") == "session/update" else {}
    return all(update.get(name) == value for name, value in fields.items())


def _chunk(message: Json) -> str:
    if not _is_update(message, {"sessionUpdate": "agent_message_chunk"}):
        return ""
    return str(message["params"]["update"]["content"].get("text", ""))
