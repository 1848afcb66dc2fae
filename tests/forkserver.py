"""Start Python programs of ours without paying for their imports: a process that has them forks for each start.

What runs is a real process with its own pid, pipes and end; only the start of the interpreter and the imports are
saved. `Popen` and `run` take the place of those of `subprocess`, and fork only ``python -m`` and one of `PROGRAMS`,
and only on Linux. A test of what an interpreter loads, or from where, starts one of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["Popen", "close", "command_for_shells", "fork", "python", "run"]

PROGRAMS = ("snapshot_plugin", "tests.")
"""How the modules begin that are forked."""
_WARM = "tests.warm"
_MESSAGE = 1 << 18
_LARGE_PAGE, _MADV_COLLAPSE = 1 << 21, 25


_COMMAND = """\
#!{python} -IS
import json, os, socket, sys
ended, report = os.pipe()
wish = {{"argv": ["snapshot_plugin", *sys.argv[1:]], "env": dict(os.environ), "cwd": os.getcwd()}}
socket.send_fds(socket.socket(fileno={server}), [json.dumps(wish).encode()], [0, 1, 2, report])
os.close(report)
os.read(ended, 16)
sys.exit(os.waitstatus_to_exitcode(int(os.read(ended, 16) or b"9")))
"""


class Popen(subprocess.Popen[Any]):
    """A process that the fork server of this worker forks, if it can; else one as `subprocess` starts it."""

    _status = -1
    """Where the server says how the process ended; -1 if it was not forked."""

    def _execute_child(self, args: Any, *others: Any) -> None:
        """Overrides the step of `subprocess.Popen` that forks; streams and waiting are as it does them."""
        names = ("executable", "preexec_fn", "close_fds", "pass_fds", "cwd", "env", "startupinfo", "creationflags")
        pipes = ("shell", "p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        ids = ("restore_signals", "gid", "gids", "uid", "umask", "start_new_session", "process_group")
        how = dict(zip((*names, *pipes, *ids), others, strict=True))
        if not _is_ours(args):
            super()._execute_child(args, *others)  # type: ignore[misc] # typeshed knows no private names
            return
        wish = {
            "argv": list(map(str, args[2:])),
            "env": dict(os.environ if how["env"] is None else how["env"]),
            "cwd": str(how["cwd"] or Path.cwd()),
            "session": how["start_new_session"],
        }
        wanted = (how["p2cread"], how["c2pwrite"], how["errwrite"])
        try:
            self._status, self.pid = _server().launch(
                wish, [own if fd < 0 else fd for own, fd in enumerate(wanted)]
            )
            self._child_created = True
        finally:
            self._close_pipe_fds(*(how[name] for name in pipes[1:]))  # type: ignore[attr-defined] # as above

    def _internal_poll(self, *args: Any, **options: Any) -> int | None:
        if self._status < 0:
            return super()._internal_poll(*args, **options)  # type: ignore[misc,no-any-return] # as above
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._wait(0)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self._status < 0:
            return super()._wait(timeout)  # type: ignore[misc,no-any-return] # as above
        if self.returncode is None:
            ready = select.poll()  # not select(): a test run may have over a thousand files open
            ready.register(self._status)
            if not ready.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self._ended()
        return int(self.returncode)

    def _ended(self) -> None:
        with self._waitpid_lock:  # type: ignore[attr-defined] # as above
            if self.returncode is None:
                self.returncode = os.waitstatus_to_exitcode(int(os.read(self._status, 16) or b"9"))
                os.close(self._status)


def command_for_shells(directory: Path) -> list[int]:
    """Write ``asnap`` into *directory*: a command that is forked. Returns what its shell has to inherit."""
    if sys.platform != "linux":
        return []  # then the shell finds the installed one
    server = _server().number
    command = directory / "asnap"
    command.write_text(_COMMAND.format(python=sys.executable, server=server))
    command.chmod(0o700)
    return [server]


def python(command: Sequence[str], **how: Any) -> Popen:
    """Fork ``python -c CODE ARGUMENTS...``."""
    return Popen([command[0], "-m", "tests.run_code", *command[2:]], **how)


def run(
    command: Sequence[str],
    *,
    input: Any = None,  # noqa: A002 — named as in `subprocess`
    timeout: float,
    check: bool = False,
    **how: Any,
) -> subprocess.CompletedProcess[Any]:
    """As `subprocess.run` with both outputs captured; without *input*, stdin is empty."""
    pipe = subprocess.PIPE
    with Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, **how) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def _is_ours(command: Any) -> bool:
    if sys.platform != "linux" or not isinstance(command, list | tuple):
        return False
    return tuple(command[:2]) == (sys.executable, "-m") and str(command[2]).startswith(PROGRAMS)


class _Server:
    """A process that has imported `_WARM`; it ends with this one."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        root = str(Path(__file__).parent.parent)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forkserver", str(theirs.fileno()), _WARM],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=root,
                env={**os.environ, "PYTHONPATH": root},
            )

    def launch(self, wish: Mapping[str, Any], streams: Sequence[int]) -> tuple[int, int]:
        """Fork with these three *streams*; returns where the end is reported, and the pid."""
        status, report = os.pipe()
        try:
            socket.send_fds(self._ours, [json.dumps(wish).encode()], [*streams, report])
        finally:
            os.close(report)
        return status, int(os.read(status, 16))

    @property
    def number(self) -> int:
        """The descriptor of the socket that takes wishes."""
        return self._ours.fileno()

    def close(self) -> None:
        """End the server."""
        self._ours.close()
        self._process.wait(10)


_server = functools.cache(_Server)


def close() -> None:
    """End the server of this process, if it ever needed one."""
    if _server.cache_info().currsize:
        _server().close()
        _server.cache_clear()


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
        wish: ``argv`` (the module first), ``env``, ``cwd``, and ``session`` if it leads a session of its own, whose
            terminal is its stdin.
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
    if wish.get("session"):
        os.setsid()
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(wish["env"])
    places = wish["env"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [place for place in places if place and place not in sys.path]
    os.chdir(wish["cwd"])
    _open_streams()
    module, *sys.argv[1:] = wish["argv"]
    sys.modules.pop(module, None)  # it runs as __main__
    os._exit(_status_of(module))


def _open_streams() -> None:
    """Give this process the text streams that an interpreter with its files would have."""
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 — a descriptor, open to the end
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 — as above
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115 — as above


def _status_of(module: str) -> int:
    """Run *module* as ``__main__`` to its end, with all that an interpreter does at its end."""
    status: Any = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code or 0
    except BaseException as end:  # noqa: BLE001 — as the interpreter does
        traceback.print_exc()
        status = -signal.SIGINT if isinstance(end, KeyboardInterrupt) else 1
    threading._shutdown()  # type: ignore[attr-defined] # typeshed knows no private names
    atexit._run_exitfuncs()
    if not isinstance(status, int):
        sys.stderr.write(f"{status}\n")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BrokenPipeError, ValueError):
            stream.flush()
    if status == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return status & 0xFF if isinstance(status, int) else 1


def _use_large_pages() -> None:
    """Make each fork copy half as many page tables. Other systems, and a kernel before 6.1, cannot."""
    if not sys.platform.startswith("linux"):
        return
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for area, access, *_, file in map(str.split, Path("/proc/self/maps").read_text().splitlines()):
        start, end = (int(at, 16) for at in area.split("-"))
        start, end = -(-start // _LARGE_PAGE) * _LARGE_PAGE, end // _LARGE_PAGE * _LARGE_PAGE
        if access == "rw-p" and file in ("0", "[heap]") and end > start:  # 0: an inode, where no file is named
            advise(start, end - start, _MADV_COLLAPSE)


if __name__ == "__main__":
    for _name in sys.argv[2:]:
        importlib.import_module(_name)
    gc.freeze()
    _use_large_pages()
    serve(socket.socket(fileno=int(sys.argv[1])))
