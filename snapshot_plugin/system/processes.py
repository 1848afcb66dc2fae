"""The agent's process (environment, start, end), and the memory of our own process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import signal
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from snapshot_plugin.errors import AgentUnavailable, Unsupported

__all__ = ["READ_BYTES", "AgentProcess", "agent_environment", "return_large_blocks", "without_keys"]

READ_BYTES = 1 << 16
"""The size of a pipe. Each read allocates this much; glibc would map and unmap a larger block at every read."""
# SIGTERM first: an agent may still save its state.
_END_GROUP = 'read -r _ || { kill -TERM -"$0"; sleep 1; kill -KILL -"$0"; }'
_M_MMAP_THRESHOLD = -3
_WITH_PASSWORD = re.compile(r"[a-z0-9+]+://(?:[^/@]*:[^@]+@|.*[?&]password=)", re.IGNORECASE)


def without_keys(environ: Mapping[str, str]) -> dict[str, str]:
    """*environ* for a child process, without the variables that hold or locate a store's key.

    ``ASNAP_STORE`` is removed if it contains a password.
    """
    secret = ("ASNAP_KEY", "ASNAP_PASSPHRASE")
    kept = {name: value for name, value in environ.items() if not name.startswith(secret)}
    if _WITH_PASSWORD.match(kept.get("ASNAP_STORE", "")):
        del kept["ASNAP_STORE"]
    return kept


def agent_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for an agent: *environment*, or this process's own, without the keys of the store."""
    return without_keys(os.environ if environment is None else environment)


def _guarded(group: int) -> subprocess.Popen[bytes] | None:
    """Start a shell that ends the process group when this process dies; None without a shell.

    A parent-death signal would reach only the agent itself, and many agents are started by a wrapper.
    """
    with contextlib.suppress(OSError):
        return subprocess.Popen(  # noqa: S603 — the script is ours, and a number
            ["/bin/sh", "-c", _END_GROUP, str(group)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": os.defpath},
            start_new_session=True,
        )
    return None


def return_large_blocks() -> None:
    """Make glibc return freed blocks of 256 KB and more to the system; by default it keeps those of long turns."""
    if sys.platform.startswith("linux") and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, 256 << 10)


def _end_of(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except OSError:  # the kernel is too old
        return None


def _close(output: IO[bytes], end_fd: int | None) -> None:
    output.close()
    if end_fd is not None:
        os.close(end_fd)


class AgentProcess:
    """One run of the agent, in its own process group so that its children end with it, also if this process dies.

    Args:
        command: the program and its arguments.
        env: its whole environment; None: this process's own. The keys of the store are removed from either.
        cwd: where it runs; None: where this process does.
        stderr: where its stderr goes, as for `subprocess.Popen`; None: to ours.

    Raises:
        AgentUnavailable: it cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        stderr: int | None = None,
    ) -> None:
        if not hasattr(os, "killpg"):
            raise Unsupported("an agent is run in a process group, which this system does not have")
        try:
            process = subprocess.Popen(  # noqa: S603 — the command is what the user asked to run
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=0,
                cwd=cwd,
                start_new_session=True,
                env=agent_environment(env),
            )
        except OSError as error:
            where = f" in {cwd}" if cwd else ""
            raise AgentUnavailable(
                f"the agent {command[0]!r} cannot be started{where}: {error.strerror}",
                hint="check the command after --",
            ) from error
        assert process.stdin is not None  # noqa: S101 — both are pipes
        assert process.stdout is not None  # noqa: S101 — both are pipes
        self._process, self.pid = process, process.pid
        self._guard = _guarded(process.pid)
        self.stdin, self.stdout, self.stderr = process.stdin, process.stdout, process.stderr
        self._in, self._out = process.stdin.fileno(), process.stdout.fileno()
        self.end_fd = _end_of(process.pid)
        """A file descriptor that is readable once the process has ended; None if the system has none."""
        self.close = weakref.finalize(self, _close, process.stdout, self.end_fd)
        """Closes its output and `end_fd`. Call it once no thread can read them: the system reuses their numbers."""
        self._ready = select.poll()
        for fd in (self._out, self.end_fd):
            if fd is not None:
                self._ready.register(fd, select.POLLIN)

    def send(self, data: bytes) -> bytes:
        """Write everything. Returns the lines that were not fully written because the agent is gone."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._in, view) :]
        except OSError:
            written = len(data) - len(view)
            if self._process.poll() is None:  # it closed its input, so it can never be asked again
                self.signal(signal.SIGKILL)
            return data[data.rfind(b"\n", 0, written) + 1 :]
        return b""

    def read(self) -> bytes:
        """Read its output; blocks. Empty once it is gone, even if a child of it keeps its output open."""
        with contextlib.suppress(OSError):
            return b"" if self.is_over() else os.read(self._out, READ_BYTES)
        return b""

    def is_over(self, milliseconds: int | None = None) -> bool:
        """Wait for its output or its end. Returns whether it has ended and all its output was read."""
        ready = dict(self._ready.poll(milliseconds))
        return bool(ready) and self._out not in ready

    def signal(self, number: int) -> None:
        """Pass a signal on to the agent and its children."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def end(self, *, patience: float) -> int:
        """Close its input, and `stop` it. Returns its exit status."""
        with contextlib.suppress(OSError):
            self.stdin.close()
        return self.stop(patience=patience)

    def stop(self, *, patience: float) -> int:
        """Wait for its end, then send SIGTERM, wait, and send SIGKILL. Returns its exit status."""
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
        self.signal(signal.SIGKILL)
        guard, self._guard = self._guard, None  # a restart and the end of the host may both stop it
        if guard is not None:
            guard.communicate(b"\n")
        return self._process.wait()
