"""Nothing leaves the machine: no module of the package can open a connection to another one."""

from __future__ import annotations

import pytest

from tests.meta.package import Facts, facts, facts_of

CLIENTS = {"http.client", "urllib.request", "smtplib", "requests", "httpx", "aiohttp", "urllib3", "websockets"}
CALLS = {"connect_tcp", "create_connection", "open_connection", "urlopen"}


def connections(module: Facts) -> set[str]:
    return set((module.imports & CLIENTS) | (module.attributes & CALLS))


@pytest.mark.requirement("GASOLINE-P-PRIVACY-LOCAL")
def test_no_module_opens_connections_to_other_machines() -> None:
    assert len(facts()) > 100
    assert {name: found for name, module in facts().items() if (found := connections(module))} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import httpx",
        "from http import client",
        "def f():\n    from urllib.request import urlopen",
        "anyio.connect_tcp()",
    ],
)
def test_module_that_could_is_detected(source: str) -> None:
    assert connections(facts_of(source))
