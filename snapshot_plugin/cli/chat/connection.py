"""A connection to an agent: an ``asnap run`` process, with JSON-RPC lines on its standard streams."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.abc

from snapshot_plugin.acp.endpoint import Endpoint
from snapshot_plugin.acp.messages import METHOD_NOT_FOUND, encode, failure, notification, success
from snapshot_plugin.errors import AgentUnavailable
from snapshot_plugin.system.lines import Lines

__all__ = ["Connection", "Refused"]

Json = dict[str, Any]


class Refused(Exception):
    """The agent answered a request with an error."""

    def __init__(self, error: Any) -> None:
        told = error if isinstance(error, dict) else {"message": str(error)}
        self.code = told.get("code")
        data = told.get("data")
        data = data if isinstance(data, dict) else {}
        text, detail = str(told.get("message", "refused")), data.get("details")
        self.is_interruption = "interrupted" in (data.get("asnap") or ())
        """Whether the recorder answered, because the agent had ended."""
        super().__init__(f"{text}: {detail}" if detail and detail != text else text)


class _AwaitedAnswer:
    def __init__(self) -> None:
        self.answered = anyio.Event()
        self.message: Json = {}

    def set(self, message: Json) -> None:
        self.message = message
        self.answered.set()


class Connection:
    """A connection to one agent. Updates are delivered in order, before the answer that follows them.

    Args:
        command: the process to start; it gets its own process group, so that it does not receive Ctrl-C.
        start_in: the directory that it starts in, by default the current one.
        environ: its environment.
        notified: called with the method and params of each notification.
        asked: answers a request of the agent.
        said: called with each line the process writes to stderr.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        start_in: str | None = None,
        environ: Mapping[str, str],
        notified: Callable[[str, Json], None],
        asked: Callable[[str, Json], Awaitable[Json]],
        said: Callable[[str], None],
    ) -> None:
        self._command, self._start_in, self._environ = list(command), start_in, environ
        self._notified, self._asked, self._said = notified, asked, said
        self._endpoint = Endpoint()
        self._stack = AsyncExitStack()
        self.ended, self._overheard = anyio.Event(), anyio.Event()

    async def __aenter__(self) -> Self:
        self._process = await self._stack.enter_async_context(
            await anyio.open_process(self._command, cwd=self._start_in, env=self._environ, start_new_session=True)
        )
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._tasks.start_soon(self._listen)
        self._tasks.start_soon(self._overhear)
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close the connection; the process saves and ends."""
        with anyio.CancelScope(shield=True):
            assert self._process.stdin  # noqa: S101 — a pipe
            await self._process.stdin.aclose()
            with anyio.move_on_after(10):
                await self._process.wait()
            if self._process.returncode is None:
                self._process.terminate()
            with anyio.move_on_after(1):  # its last words; an agent that outlives it may hold the pipe
                await self._overheard.wait()
        self._tasks.cancel_scope.cancel()
        await self._stack.aclose()

    async def request(self, method: str, params: Json) -> Json:
        """Send a request to the agent and return its result.

        Raises:
            Refused: it answered with an error.
            AgentUnavailable: its process has ended.
        """
        waiting = _AwaitedAnswer()
        await self._send(self._endpoint.request(method, params, waiting.set))
        await waiting.answered.wait()
        if "error" in waiting.message:
            raise Refused(waiting.message["error"])
        result = waiting.message.get("result")
        return result if isinstance(result, dict) else {}

    async def notify(self, method: str, params: Json) -> None:
        """Send a notification to the agent."""
        await self._send(encode(notification(method, params)))

    async def _send(self, line: bytes) -> None:
        assert self._process.stdin  # noqa: S101 — a pipe
        try:
            await self._process.stdin.send(line)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise self.gone() from None
        if self.ended.is_set():
            raise self.gone()

    @staticmethod
    def gone() -> AgentUnavailable:
        """The error for an agent whose process has ended."""
        return AgentUnavailable(
            "the agent is gone", hint="the conversation is saved; continue it with: asnap resume"
        )

    # Receiving ---------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        assert self._process.stdout  # noqa: S101 — a pipe
        async for chunk in self._process.stdout:
            self._heard(chunk)
        self.ended.set()
        self._endpoint.close("the agent is gone")

    def _heard(self, data: bytes) -> None:
        for _, message in self._endpoint.feed(data):
            if message is not None and "method" in message:
                self._handle(message)

    def _handle(self, message: Json) -> None:
        params = message.get("params")
        if "id" in message:
            self._tasks.start_soon(self._answer, message["id"], str(message["method"]), params or {})
        elif isinstance(params, dict):
            self._notified(str(message["method"]), params)

    async def _answer(self, number: Any, method: str, params: Json) -> None:
        try:
            answer = success(number, await self._asked(method, params))
        except NotImplementedError:
            answer = failure(number, METHOD_NOT_FOUND, f"{method} is not offered")
        await self._send(encode(answer))

    async def _overhear(self) -> None:
        lines = Lines()
        assert self._process.stderr  # noqa: S101 — a pipe
        async for chunk in self._process.stderr:
            for line in lines.feed(chunk):
                self._said(line.decode(errors="replace").removesuffix("\n"))
        self._overheard.set()
