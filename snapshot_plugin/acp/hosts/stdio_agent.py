"""An agent's process as a transport of the SDK: its messages and its stderr, in an asyncio event loop."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import anyio
import anyio.to_thread

from snapshot_plugin.acp.endpoint import Endpoint
from snapshot_plugin.acp.messages import LINE_BYTES, ForeignLines, LongLine, encode, long_line_text
from snapshot_plugin.errors import AgentUnavailable
from snapshot_plugin.system.lines import Lines
from snapshot_plugin.system.processes import AgentProcess

__all__ = ["StdioAgent"]

_CHUNK = 1 << 20
_STDERR_LINES = 20
_PATIENCE = 2.0
_LATE = 0.05
log = logging.getLogger("snapshot_plugin.acp.agent")


class StdioAgent:
    """One run of an agent, as a transport of the SDK; see `start`.

    Lines that are not ACP are skipped. Its stderr is logged, line by line, under ``snapshot_plugin.acp.agent``; the
    last lines are kept for `stderr_tail`.
    """

    def __init__(self, process: AgentProcess, line_bytes: int = LINE_BYTES) -> None:
        self._process, self.pid = process, process.pid
        self._out, self._err = (asyncio.StreamReader(limit=_CHUNK) for _ in range(2))
        self._pipes: list[asyncio.ReadTransport] = []
        self._in: asyncio.StreamWriter | None = None
        self._line_bytes = line_bytes
        self._endpoint = Endpoint(lines=Lines(line_bytes, self._said_too_much))  # the SDK numbers the requests
        self._foreign = ForeignLines()
        self._ready = deque[dict[str, Any]]()
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._reading_stderr = asyncio.create_task(self._read_stderr(), name="snapshot_plugin agent stderr")
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        line_bytes: int = LINE_BYTES,
    ) -> Self:
        """Start *command*; see `AgentProcess` for the arguments.

        A message of more than *line_bytes* is left out: what stands for it says so.

        Raises:
            AgentUnavailable: it cannot be started.
        """
        try:
            agent = cls(AgentProcess(command, env=env, cwd=cwd, stderr=subprocess.PIPE), line_bytes)
        except AgentUnavailable as error:
            error.hint = "check the command, the directory, and the PATH in env"
            raise
        try:
            await agent._connect()
        except BaseException:
            await agent.close()
            raise
        return agent

    async def _connect(self) -> None:
        loop, process = asyncio.get_running_loop(), self._process
        for reader, pipe in ((self._out, process.stdout), (self._err, process.stderr)):
            made, _ = await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, reader), pipe)
            self._pipes.append(made)
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        transport, _ = await loop.connect_write_pipe(lambda: protocol, process.stdin)
        self._in = asyncio.StreamWriter(transport, protocol, None, loop)
        if process.end_fd is not None:
            loop.add_reader(process.end_fd, self._process_ended)

    def _said_too_much(self, head: bytes, tail: bytes) -> bytes:
        text = long_line_text("agent", self._line_bytes)
        log.warning("agent %d: %s", self.pid, text)
        return LongLine.of(head, tail).stand_in(text)

    def _process_ended(self) -> None:
        """Close the agent's output once it is read: a child of the agent may keep it open."""
        if self._closing is not None:  # its file descriptors may be others' by now
            return
        self._unwatch()
        if self._process.is_over(0):
            self._pipes[0].close()
        elif not self._pipes[0].is_closing():
            asyncio.get_running_loop().call_later(_LATE, self._process_ended)

    def _unwatch(self) -> None:
        if self._process.end_fd is not None:
            asyncio.get_running_loop().remove_reader(self._process.end_fd)

    async def send(self, message: dict[str, Any]) -> None:
        """Write one message; raises `ConnectionError` if the agent is gone."""
        assert self._in is not None  # noqa: S101 — connected in `start`
        self._in.write(encode(message))
        try:
            await self._in.drain()
            if self._in.is_closing():  # the write failed, which `drain` does not always report
                raise ConnectionResetError("the agent is gone")
        except OSError:
            self._process.signal(signal.SIGKILL)  # it may have closed its input and run on
            raise

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None once the agent is gone."""
        while not self._ready:
            data = await self._out.read(_CHUNK)
            if not data:
                return None
            for _, message in self._endpoint.feed(data):
                if message is not None:
                    self._ready.append(message)
                elif self._foreign.add():
                    log.warning("agent %d wrote something that is not ACP (line %d)", self.pid, self._foreign.count)
        return self._ready.popleft()

    async def close(self) -> None:
        """End the agent and its children: close its input, send SIGTERM, then SIGKILL, each after a short wait.

        Runs to its end even when cancelled; takes a few seconds at most. Idempotent.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="snapshot_plugin agent close")
        cancelled: asyncio.CancelledError | None = None
        with anyio.CancelScope(shield=True):
            while not self._closing.done():
                try:
                    await asyncio.shield(self._closing)
                except asyncio.CancelledError as error:  # asyncio's own cancellation ignores the scope
                    cancelled = error
        if cancelled is not None:
            raise cancelled

    async def _close(self) -> None:
        self._unwatch()
        (self._in or self._process.stdin).close()
        # In a thread of its own: many stubborn agents must not use up the threads that the store needs.
        stop = partial(self._process.stop, patience=_PATIENCE)
        await anyio.to_thread.run_sync(stop, limiter=anyio.CapacityLimiter(1))
        await self._stderr_ended()
        # A start that was cancelled has connected only some of the pipes.
        for pipe in (*self._pipes, self._process, self._process.stderr):
            if pipe is not None:
                pipe.close()

    async def stderr_tail(self) -> str:
        """Return the last lines of its stderr; call it once the agent has ended."""
        await self._stderr_ended()
        return "\n".join(self._stderr)

    async def _stderr_ended(self) -> None:
        # With a timeout: a child in another process group may keep the pipe open forever.
        await asyncio.wait({self._reading_stderr}, timeout=0.5)
        self._reading_stderr.cancel()

    async def _read_stderr(self) -> None:
        """Read stderr: the agent would block on a full pipe."""
        lines = Lines()
        while data := await self._err.read(_CHUNK):
            for line in lines.feed(data):
                self._stderr.append(line.decode(errors="replace").rstrip())
                log.debug("agent %d: %s", self.pid, self._stderr[-1])
