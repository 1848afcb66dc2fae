"""The same sessions over the SDK's WebSocket and streamable HTTP, each connection with an agent of its own."""

# mypy: disable-error-code="abstract"
# The SDK's agents leave methods out.
from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from acp.http.asgi import create_asgi_app

from tests.acp_sdk.agents.scripted import RememberingAgent
from tests.acp_sdk.asgi import App, HttpTransport, WebSocketTransport
from tests.acp_sdk.connected import Peer, words

pytestmark = pytest.mark.anyio
Kind = type[HttpTransport] | type[WebSocketTransport]
ONE = [("user", "one"), ("agent", "heard one")]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # the SDK knows no other


@pytest.fixture(params=[WebSocketTransport, HttpTransport])
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture
def agents() -> list[RememberingAgent]:
    return []


@pytest.fixture
def app(tmp_path: Path, agents: list[RememberingAgent]) -> App:
    def factory(_connection: object) -> RememberingAgent:
        agents.append(RememberingAgent(tmp_path))
        return agents[-1]

    return create_asgi_app(factory)


@contextlib.asynccontextmanager
async def dialled(app: App, kind: Kind) -> AsyncIterator[Peer]:
    transport = kind(app)
    peer = Peer(transport)
    reading = asyncio.create_task(peer.read())
    try:
        await peer.initialize()
        yield peer
    finally:
        await transport.close()
        await reading


async def test_session_continues_over_another_connection(
    app: App, kind: Kind, agents: list[RememberingAgent]
) -> None:
    async with dialled(app, kind) as peer:
        session_id = await peer.new_session()
        assert await peer.prompt(session_id, "one") == "heard one"
    async with dialled(app, kind) as peer:
        _, updates = await peer.load(session_id)
        assert words(updates) == ONE
        assert await peer.prompt(session_id, "two") == "heard two"
        assert agents[-1].memories["0"] == {"heard": ["one", "two"]}


async def test_second_load_also_replays_before_the_response(app: App, kind: Kind) -> None:
    async with dialled(app, kind) as peer:
        session_id = await peer.new_session()
        await peer.prompt(session_id, "one")
        assert words((await peer.load(session_id))[1]) == ONE
    async with dialled(app, kind) as peer:
        assert words((await peer.load(session_id))[1]) == ONE
        await peer.prompt(session_id, "two")
        assert words((await peer.load(session_id))[1]) == [*ONE, ("user", "two"), ("agent", "heard two")]


async def test_load_over_http_arrives_on_one_stream(app: App) -> None:
    async with dialled(app, HttpTransport) as peer:
        session_id = await peer.new_session()
        await peer.prompt(session_id, "one")
    async with dialled(app, HttpTransport) as peer:
        transport = peer.transport
        assert isinstance(transport, HttpTransport)
        await peer.load(session_id)
        assert transport.came_by == [None] * 3
        await peer.load(session_id)
        assert transport.came_by[3:] in ([session_id] * 3, [None] * 3)
        await peer.about("session/close", session_id)
        await peer.load(session_id)
        assert transport.came_by[7:] in ([session_id] * 3, [None] * 3)


async def test_connection_lost_in_mid_turn_releases_the_session(
    app: App, kind: Kind, agents: list[RememberingAgent]
) -> None:
    async with dialled(app, kind) as peer:
        session_id = await peer.new_session()
        await peer.begin_prompt(session_id, "wait")
        await peer.wait_for(lambda message: "heard wait" in str(message))
    async with dialled(app, kind) as peer:
        _, updates = await peer.load(session_id)
        assert words(updates) == [("user", "wait"), ("agent", "heard wait")]
        await peer.prompt(session_id, "two")
        assert "heard wait" in agents[-1].heard()[0][-1]


@pytest.mark.parametrize(
    "method", ["session/list", "session/fork", "session/resume", "session/close", "session/delete"]
)
async def test_every_method_is_reachable_over_every_transport(app: App, kind: Kind, method: str) -> None:
    async with dialled(app, kind) as peer:
        session_id = await peer.new_session()
        assert isinstance(await peer.about(method, session_id), dict)
