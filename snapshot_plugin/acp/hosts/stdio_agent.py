"""An agent's process as a transport of the SDK: its environment, its stderr, its end."""

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
_LAST_WORDS = 20
_PATIENCE = 2.0
_GLANCE = 0.01
log = logging.getLogger("snapshot_plugin.acp.agent")


class StdioAgent:
    """One run of an agent, as a transport of the SDK's. Lines may have any length; other output is logged.

    The agent leads a process group of its own, so that its children end with it. What it writes to stderr is
    logged, line by line, under ``snapshot_plugin.acp.agent``, and the last of it is kept for `last_words`.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._lines, self._ready = Lines(), deque[dict[str, Any]]()
        self._stderr: deque[str] = deque(maxlen=_LAST_WORDS)
        self._overhearing = asyncio.create_task(self._overhear(), name="snapshot_plugin agent stderr")
        self._closed = False
        self.pid = process.pid

    @classmethod
    async def start(
        cls, command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | Path | None = None
    ) -> StdioAgent:
        """Start *command*.

        Args:
            command: the program and its arguments.
            env: its whole environment; None: that of this process. The keys of a store are left out of either.
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
        """Write one message; `ConnectionError` when the agent is not there any more."""
        assert self._process.stdin is not None  # noqa: S101 — it is a pipe
        self._process.stdin.write(encode(message))
        await self._process.stdin.drain()
        if self._process.stdin.is_closing():  # the write failed, which `drain` does not always know yet
            raise ConnectionResetError("the agent is gone")

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None once the agent is gone."""
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
        """End it: its input is closed, it is asked, it is killed; each after a moment. Its children end with it.

        Happens even when cancelled; it takes a few seconds at most. Doing it twice is fine.
        """
        if self._closed:  # its number may be another's by now
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            if self._process.stdin is not None:
                self._process.stdin.close()
            if not await self._ended_within(_PATIENCE):
                self._signal(signal.SIGTERM)
                await self._ended_within(_PATIENCE)
            self._signal(signal.SIGKILL)
            await self._ended_within(_PATIENCE)
            await self._heard_out()
            self._process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 — nothing public closes it

    async def last_words(self) -> str:
        """The end of what it wrote to stderr, once it has ended."""
        await self._heard_out()
        return "\n".join(self._stderr)

    async def _heard_out(self) -> None:
        # Bounded: a child in another process group may hold the pipe open for ever.
        await asyncio.wait({self._overhearing}, timeout=0.5)
        self._overhearing.cancel()

    async def _overhear(self) -> None:
        """Read stderr, or the agent would stop when the pipe is full."""
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
                await anyio.sleep(_GLANCE)
        return self._process.returncode is not None

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
