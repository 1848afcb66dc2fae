"""Shared fixtures, the environment every test runs in, and the count of proven promises at the end of a run."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis  # noqa: F401 — at its import it asks the collector about objects, which must not be frozen yet
import pytest

from snapshot_plugin.model import new_id
from snapshot_plugin.testing import LiveContract
from tests import forkserver
from tests.acp_client import Client
from tests.proofs import Proofs, claims_of
from tests.requirements import REQUIREMENTS, report

_STRICT = "ASNAP_PROVE_ALL"
_KEPT = ("ASNAP_ACP_SCHEMA", "ASNAP_AGENTS", "ASNAP_TEST_POSTGRES", _STRICT)
_MEMORY, _ROOM = "/dev/shm", 4 << 30
_proofs = Proofs(REQUIREMENTS)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def pytest_configure() -> None:
    """Let Ctrl-C reach the processes the tests start, let them keep their bytecode, and keep files in memory.

    A shell that starts the suite in the background makes it ignore SIGINT, and every child inherits that. Without
    bytecode each of the thousand commands that the tests start compiles the whole package again. Set ``TMPDIR`` to
    run the tests on a disk, as `.ci/run` does with those of the store.
    """
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "TMPDIR" not in os.environ and _has_room(_MEMORY):
        os.environ["TMPDIR"] = _MEMORY
        tempfile.tempdir = None  # it is looked up again


def _has_room(place: str) -> bool:
    """Whether temporary files may go there. Where each sync waits for a disk, the tests take twice as long."""
    if not os.access(place, os.W_OK):
        return False
    found = os.statvfs(place)
    return not found.f_flag & os.ST_NOEXEC and found.f_bavail * found.f_frsize > _ROOM


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Four workers for two cores: half of the time, tests wait for processes, servers and disks."""
    return (os.cpu_count() or 2) * 2


@pytest.fixture(scope="session", autouse=True)
def _own_environment(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give the tests a home directory of their own, and none of the user's settings.

    The search for a project stops at the home directory, so a repository above the temporary directory is not
    taken for the project of a test.
    """
    os.environ.setdefault("ASNAP_AGENTS", str(Path.home() / ".cache" / "asnap-agents"))
    os.environ["HOME"] = str(tmp_path_factory.getbasetemp())
    os.environ["PYTHONPATH"] = str(Path(__file__).parent.parent)  # hosts start `tests.acp_agent`
    for name in list(os.environ):
        if name.startswith(("ASNAP_", "XDG_")) and name not in _KEPT:
            del os.environ[name]


@pytest.fixture(scope="session", autouse=True)
def _fork_server() -> Iterator[None]:
    """ACP clients and live contracts fork what they start; the fork server of this worker ends with its tests."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Client, "launch", staticmethod(_forked_at_home))
        patched.setattr(LiveContract, "_launch", staticmethod(forkserver.python))
        yield
    forkserver.close()


def _forked_at_home(command: Sequence[str], *, cwd: Path | None, **how: Any) -> forkserver.Popen:
    """Fork *command* outside of this project, whose `pyproject.toml` each host would read for settings."""
    return forkserver.Popen(command, cwd=cwd or Path.home(), **how)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a running PostgreSQL server, shared by all workers of a run."""
    from tests.postgres_server import server_url  # noqa: PLC0415 — the driver is an extra; `.ci/lowest` has none

    with server_url() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of a store of the test's own: a schema that does not exist yet."""
    from tests.postgres_server import drop_schema  # noqa: PLC0415 — as above

    schema = f"test_{new_id()}"
    yield f"{postgres_server}&schema={schema}"
    drop_schema(postgres_server, schema)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Never look for garbage among what is collected: ten thousand tests and all they import stay.

    A look at all of it takes half a second, and a test that allocates much would cause many.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Write the promises a test claims to prove into its reports: under xdist, reports are all that travels."""
    for item in items:
        if claims := claims_of(item):
            item.user_properties.append(("requirements", claims))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _proofs.add(report)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Under xdist only the controller has a terminal, so this is printed once."""
    terminalreporter.write_line("")
    for line in (*report(REQUIREMENTS), *_proofs.report()):
        terminalreporter.write_line(line)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that was told to prove everything it claims (``ASNAP_PROVE_ALL=1``, as CI does) and did not."""
    if os.environ.get(_STRICT) and _proofs.unproven and not hasattr(session.config, "workerinput"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
