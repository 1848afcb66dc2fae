"""The agent's process: started, fed, read, and ended; its stderr goes where ours goes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence

from snapshot_plugin.errors import AgentUnavailable

__all__ = ["AgentProcess"]

_CHUNK = 1 << 20


class AgentProcess:
    """One run of the agent, in a process group of its own so that its children end with it."""

    def __init__(self, command: Sequence[str]) -> None:
        try:
            self._process = subprocess.Popen(  # noqa: S603 — the command is what the user asked to run
                list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
            )
        except OSError as error:
            raise AgentUnavailable(
                f"the agent {command[0]!r} cannot be started: {error.strerror}", hint="check the command after --"
            ) from error
        assert self._process.stdin is not None  # noqa: S101 — both are pipes
        assert self._process.stdout is not None  # noqa: S101 — both are pipes
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        self.pid = self._process.pid

    def send(self, data: bytes) -> bool:
        """Write everything; False when the agent is not there any more."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._in, view) :]
        except OSError:
            return False
        return True

    def read(self) -> bytes:
        """What it has said since; empty once it is gone."""
        try:
            return os.read(self._out, _CHUNK)
        except OSError:
            return b""

    def signal(self, number: int) -> None:
        """Pass a signal on to the agent and its children."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def end(self, *, patience: float) -> int:
        """Close its input, wait, then insist. Returns its exit status."""
        with contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
        self.signal(signal.SIGKILL)
        status = self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        return status
