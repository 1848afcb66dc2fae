"""The agent's process: its environment, its start, its end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

from snapshot_plugin.codec.sources import without_keys
from snapshot_plugin.errors import AgentUnavailable

__all__ = ["AgentProcess", "agent_environment", "end_with_parent", "return_large_blocks"]

_CHUNK = 1 << 20
_PR_SET_PDEATHSIG = 1
_M_MMAP_THRESHOLD = -3


def agent_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of an agent: *environment*, or this process's own, without the keys of the store."""
    return without_keys(os.environ if environment is None else environment)


def end_with_parent() -> Callable[[], None] | None:
    """A ``preexec_fn`` that ends the child when the thread that started it does; None where the system cannot."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl

    def demand() -> None:
        # SIGTERM, not SIGKILL: an agent may still save its state.
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

    return demand


def return_large_blocks() -> None:
    """Have freed blocks of 256 KB and more given back to the system. By default glibc keeps those of long turns."""
    if sys.platform.startswith("linux") and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, 256 << 10)


class AgentProcess:
    """One run of the agent, in a process group of its own so that its children end with it.

    Start it in a thread that lives as long as this process: the system ends the agent with that thread.
    """

    def __init__(self, command: Sequence[str]) -> None:
        try:
            self._process = subprocess.Popen(  # noqa: S603 — the command is what the user asked to run
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                env=agent_environment(),
                preexec_fn=end_with_parent(),  # noqa: PLW1509 — one system call, nothing is allocated
            )
        except OSError as error:
            raise AgentUnavailable(
                f"the agent {command[0]!r} cannot be started: {error.strerror}", hint="check the command after --"
            ) from error
        assert self._process.stdin is not None  # noqa: S101 — both are pipes
        assert self._process.stdout is not None  # noqa: S101 — both are pipes
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        self.pid = self._process.pid

    def send(self, data: bytes) -> bytes:
        """Write everything; returns the lines that did not reach an agent that is gone."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._in, view) :]
        except OSError:
            written = len(data) - len(view)
            return data[data.rfind(b"\n", 0, written) + 1 :]
        return b""

    def read(self) -> bytes:
        """What it has said; empty once it is gone."""
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
