"""Start Python programs of ours without paying for their imports: a process that has them forks for each start.

What runs is a real process with its own pid, pipes and end; only ``python -m module`` and its imports are saved.
`ForkServer.launch` takes the place of `subprocess.Popen` in `Client`, and falls back to it for other commands.
Only on Linux; elsewhere nothing is forked.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, Self

import pytest

from snapshot_plugin.testing.acp_client import Client

__all__ = ["ForkServer", "Forked", "fork", "forked_clients"]

_MESSAGE = 1 << 18


class Forked:
    """What a `Client` uses of `subprocess.Popen`, for a process that the server forked."""

    def __init__(self, status: int, pipes: Sequence[int]) -> None:
        self._status = status
        self.pid = int(os.read(status, 16))
        self.returncode: int | None = None
        self.stdin: BinaryIO = os.fdopen(pipes[0], "wb", buffering=0)
        self.stdout: BinaryIO = os.fdopen(pipes[1], "rb", buffering=0)
        self.stderr: BinaryIO = os.fdopen(pipes[2], "rb", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self.stdin, self.stdout, self.stderr):
            pipe.close()
        self.wait()

    def poll(self) -> int | None:
        """The exit status, if it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end."""
        if self.returncode is None:
            ready = select.poll()  # not select(): a test run may have over a thousand files open
            ready.register(self._status)
            if not ready.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired("forked", timeout or 0)
            self.returncode = os.waitstatus_to_exitcode(int(os.read(self._status, 16) or b"9"))
            os.close(self._status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """As `os.kill`, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """``kill -9``."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """A process that has imported *modules*; it ends with this one."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        root = str(Path(__file__).parent.parent)
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.forkserver", str(theirs.fileno()), *modules],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=root,
                env={**os.environ, "PYTHONPATH": root},
            )

    def launch(self, command: Sequence[str], **how: Any) -> Any:
        """`subprocess.Popen` with three pipes; forked if *command* is ``python -m module``."""
        if tuple(command[:2]) != (sys.executable, "-m"):
            return subprocess.Popen(command, **how)
        (stdin, to), (out, stdout), (err, stderr), (status, report) = (os.pipe() for _ in range(4))
        wish = {"argv": command[2:], "env": dict(how["env"]), "cwd": str(how["cwd"] or Path.cwd())}
        theirs = [stdin, stdout, stderr, report]
        socket.send_fds(self._ours, [json.dumps(wish).encode()], theirs)
        for fd in theirs:
            os.close(fd)
        return Forked(status, [to, out, err])

    def close(self) -> None:
        """End the server."""
        self._ours.close()
        self._server.wait(10)


@contextlib.contextmanager
def forked_clients(*modules: str) -> Iterator[None]:
    """Each `Client` forks what it starts from a process that has imported *modules*."""
    if sys.platform != "linux":
        yield
        return
    server = ForkServer(modules)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Client, "launch", staticmethod(server.launch))
        yield
    server.close()


# In the server --------------------------------------------------------------------------------------------


def serve(ours: socket.socket) -> None:
    """Fork for each message until the other end hangs up; report each child's pid, then its status."""
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker)
    reports: dict[int, int] = {}
    while True:
        ready = select.select([ours.fileno(), wake], [], [])[0]
        if wake in ready:
            os.read(wake, 1024)
            _reap(reports)
        if ours.fileno() in ready:
            data, fds, _, _ = socket.recv_fds(ours, _MESSAGE, 4)
            if not data:
                return
            pid = fork(json.loads(data), fds, [ours.fileno(), wake, waker, *reports.values()])
            os.write(fds[3], f"{pid:<16}".encode())
            reports[pid] = fds[3]
            for fd in fds[:3]:
                os.close(fd)


def fork(wish: Mapping[str, Any], fds: Sequence[int], foreign: Sequence[int] = ()) -> int:
    """Run ``python -m`` *wish* in a copy of this process, which must have no threads; returns its pid.

    Args:
        wish: ``argv`` (the module first), ``env`` and ``cwd``.
        fds: its stdin, stdout and stderr; more are closed.
        foreign: what else it must not keep open.
    """
    return os.fork() or _become(wish, fds, foreign)


def _reap(reports: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            report = reports.pop(ended[0])
            with contextlib.suppress(BrokenPipeError):
                os.write(report, f"{ended[1]:<16}".encode())
            os.close(report)


def _become(wish: Mapping[str, Any], fds: Sequence[int], foreign: Sequence[int]) -> NoReturn:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for at, fd in enumerate(fds[:3]):
        os.dup2(fd, at)
    for fd in {*fds, *foreign} - {0, 1, 2}:
        os.close(fd)
    os.environ.clear()
    os.environ.update(wish["env"])
    os.chdir(wish["cwd"])
    module, *sys.argv[1:] = wish["argv"]
    sys.modules.pop(module, None)  # it runs as __main__
    status: int | str | None = 1
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code
    except BaseException:  # noqa: BLE001 — as the interpreter does
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else int(bool(status)))


if __name__ == "__main__":
    for _name in sys.argv[2:]:
        importlib.import_module(_name)
    serve(socket.socket(fileno=int(sys.argv[1])))
