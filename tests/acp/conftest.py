"""One connection through the proxy for the tests of the protocol's requirements."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acp.proxied import UNABLE, proxied
from tests.acp_client import Client


@pytest.fixture(scope="session", autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the proxy writes down for undo is not the developer's."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="module", params=[(), UNABLE], ids=["able", "unable"])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """One connection for all tests that leave it as it was; each has sessions of its own."""
    with proxied(tmp_path_factory.mktemp("store"), *request.param) as client:
        client.initialize()
        yield client


@pytest.fixture
def session_id(client: Client) -> str:
    return client.new_session()
