"""An agent's process as a transport of the SDK, with its environment, stderr and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio

from snapshot_plugin.acp.hosts.process import agent_environment, end_with_parent
from snapshot_plugin.acp.messages import Lines, encode, parse
from snapshot_plugin.errors import AgentUnavailable

__all__ = ["StdioAgent"]

_CHUNK = 1 << 20
_STDERR_LINES = 20
_PATIENCE = 2.0
_POLL = 0.01
log = logging.getLogger("snapshot_plugin.acp.agent")


class StdioAgent:
    """One run of an agent, as a transport of the SDK. Lines may have any length; non-ACP lines are skipped.

    The agent leads its own process group, so that its children end with it. Its stderr is logged, line by line,
    under ``snapshot_plugin.acp.agent``; the last lines are kept for `stderr_tail`.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._lines, self._ready = Lines(), deque[dict[str, Any]]()
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._reading_stderr = asyncio.create_task(self._read_stderr(), name="snapshot_plugin agent stderr")
        self._closing: asyncio.Task[None] | None = None
        self.pid = process.pid

    @classmethod
    async def start(
        cls, command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | Path | None = None
    ) -> StdioAgent:
        """Start *command*.

        Args:
            command: the program and its arguments.
            env: its whole environment; None: this process's own. The keys of a store are removed from either.
            cwd: where it runs; None: where this process does.

        Raises:
            AgentUnavailable: it cannot be started.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=agent_environment(env),
                cwd=cwd,
                start_new_session=True,
                preexec_fn=end_with_parent(),
            )
        except OSError as error:
            raise AgentUnavailable(
                f"the agent {list(command)!r} cannot be started in {cwd or Path.cwd()}: {error.strerror}",
                hint="check the command, the directory, and the PATH in env",
            ) from error
        return cls(process)

    async def send(self, message: dict[str, Any]) -> None:
        """Write one message; raises `ConnectionError` if the agent is gone."""
        assert self._process.stdin is not None  # noqa: S101 — it is a pipe
        self._process.stdin.write(encode(message))
        await self._process.stdin.drain()
        if self._process.stdin.is_closing():  # the write failed, which `drain` does not always report
            raise ConnectionResetError("the agent is gone")

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None once the agent is gone."""
        assert self._process.stdout is not None  # noqa: S101 — it is a pipe
        while not self._ready:
            data = await self._process.stdout.read(_CHUNK)
            if not data:
                return None
            for line in self._lines.feed(data):
                message = parse(line)
                if message is None:
                    log.warning("agent %d wrote %d bytes that are not ACP", self.pid, len(line))
                else:
                    self._ready.append(message)
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
        if self._process.stdin is not None:
            self._process.stdin.close()
        if not await self._ended_within(_PATIENCE):
            self._signal(signal.SIGTERM)
            await self._ended_within(_PATIENCE)
        self._signal(signal.SIGKILL)
        await self._ended_within(_PATIENCE)
        await self._stderr_ended()
        self._process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 — nothing public closes it

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
        assert self._process.stderr is not None  # noqa: S101 — it is a pipe
        lines = Lines()
        while data := await self._process.stderr.read(_CHUNK):
            for line in lines.feed(data):
                self._stderr.append(line.decode(errors="replace").rstrip())
                log.debug("agent %d: %s", self.pid, self._stderr[-1])

    async def _ended_within(self, seconds: float) -> bool:
        # Not Process.wait: it also waits for any process that holds our pipes, such as a surviving child.
        with anyio.move_on_after(seconds):
            while self._process.returncode is None:  # noqa: ASYNC110 — there is no event for it
                await anyio.sleep(_POLL)
        return self._process.returncode is not None

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
