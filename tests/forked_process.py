"""What `anyio.open_process` returns, forked: for clients that start the command of ours that a test names."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from tests import forkserver

__all__ = ["open_process"]


async def open_process(command: Sequence[str], **how: Any) -> Process:
    """As `anyio.open_process` with pipes for stdin and stdout."""
    pipe = subprocess.PIPE
    return _Forked(forkserver.Popen(command, stdin=pipe, stdout=pipe, bufsize=0, **how))


class _Pipe:
    """Our end of a pipe."""

    def __init__(self, end: Any) -> None:
        self._end, self._fd = end, end.fileno()
        os.set_blocking(self._fd, False)

    async def aclose(self) -> None:
        if not self._end.closed:
            anyio.notify_closing(self._fd)
            self._end.close()

    def _check(self) -> None:
        if self._end.closed:
            raise anyio.ClosedResourceError


class _Reader(_Pipe, ByteReceiveStream):
    async def receive(self, max_bytes: int = 65536) -> bytes:
        self._check()
        await anyio.wait_readable(self._fd)
        self._check()  # closed after it became readable: by now the number may be another file's
        data = os.read(self._fd, max_bytes)
        if not data:
            raise anyio.EndOfStream
        return data


class _Writer(_Pipe, ByteSendStream):
    async def send(self, item: bytes) -> None:
        self._check()
        while item:
            await anyio.wait_writable(self._fd)
            self._check()
            try:
                item = item[os.write(self._fd, item) :]
            except BrokenPipeError as error:
                raise anyio.BrokenResourceError from error


class _Forked(Process):
    def __init__(self, process: forkserver.Popen) -> None:
        self._popen = process
        self._stdin, self._stdout = _Writer(process.stdin), _Reader(process.stdout)

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._stdin.aclose()
            await self._stdout.aclose()
            self.kill()
            await self.wait()

    async def wait(self) -> int:
        return await anyio.to_thread.run_sync(self._popen.wait)

    def terminate(self) -> None:
        self._popen.terminate()

    def kill(self) -> None:
        self._popen.kill()

    def send_signal(self, signal: signal.Signals) -> None:
        self._popen.send_signal(signal)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        return self._popen.poll()

    @property
    def stdin(self) -> ByteSendStream:
        return self._stdin

    @property
    def stdout(self) -> ByteReceiveStream:
        return self._stdout

    @property
    def stderr(self) -> None:
        return None
