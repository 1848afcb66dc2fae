"""Shared fixtures: every async test runs on asyncio and on trio. At the end: which promises are still open."""

from __future__ import annotations

import pytest

from tests.requirements import REQUIREMENTS, report


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Under xdist only the controller has a terminal, so this is printed once."""
    terminalreporter.write_line("")
    for line in report(REQUIREMENTS):
        terminalreporter.write_line(line)
