"""The SDK's remote transports: what the installed release offers works, and we notice what it offers."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import socket
from collections.abc import AsyncIterator
from typing import Any

import acp
import pytest
from acp import schema
from acp._transport import memory_transport_pair

from snapshot_plugin import SnapshotManager
from snapshot_plugin.acp.hosts.sdk_client import record
from snapshot_plugin.acp.hosts.sdk_provider import resume_over
from tests.acp_sdk.agents.updates import text_block
from tests.acp_sdk.orchestrator import Orchestrator, connected, new_session, prompt, said

pytestmark = pytest.mark.anyio


class Parrot(acp.Agent):
    """An agent in the manner of the SDK's examples. It has no load."""

    connection: Any
    heard: list[str]

    def on_connect(self, conn: Any) -> None:
        self.connection, self.heard = conn, []

    async def initialize(self, *_arguments: Any, **_kwargs: Any) -> schema.InitializeResponse:
        return schema.InitializeResponse(protocol_version=1)

    async def new_session(self, *_arguments: Any, **_kwargs: Any) -> schema.NewSessionResponse:
        return schema.NewSessionResponse(session_id=f"parrot-{id(self)}")

    async def prompt(self, session_id: str, prompt: list[Any], **_kwargs: Any) -> schema.PromptResponse:
        self.heard += [block.text for block in prompt]
        said_it = text_block(f"You said: {prompt[0].text}")
        update = schema.AgentMessageChunk(session_update="agent_message_chunk", content=said_it)
        await self.connection.session_update(session_id=session_id, update=update)
        return schema.PromptResponse(stop_reason="end_turn")


def parrot(_connection: Any = None) -> Any:
    return Parrot()  # type: ignore[abstract]


@contextlib.asynccontextmanager
async def in_memory() -> AsyncIterator[Any]:
    ours, theirs = memory_transport_pair()
    agent = asyncio.ensure_future(acp.run_agent(parrot(), theirs))
    yield ours
    await ours.close()
    await asyncio.wait_for(agent, 10)


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[int]:
    """The parrot behind the SDK's own server, on a port of this machine."""
    uvicorn = pytest.importorskip("uvicorn")
    from acp.http.asgi import create_asgi_app  # noqa: PLC0415 — not in every environment

    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(create_asgi_app(parrot), log_level="error", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    while not server.started:  # noqa: ASYNC110 — uvicorn has no event for it
        await asyncio.sleep(0.01)
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        await asyncio.wait_for(serving, 60)
        listening.close()


@contextlib.asynccontextmanager
async def over_websocket() -> AsyncIterator[Any]:
    pytest.importorskip("websockets")
    from acp.ws import create_websocket_stream  # noqa: PLC0415 — not in every environment

    async with served() as port:
        transport = await create_websocket_stream(f"ws://127.0.0.1:{port}/acp")
        yield transport
        await transport.close()


@contextlib.asynccontextmanager
async def over_http() -> AsyncIterator[Any]:
    client = _http_client()
    from acp.http import create_http_stream  # noqa: PLC0415 — not in every environment

    async with served() as port:
        transport = create_http_stream(f"http://127.0.0.1:{port}/acp", client=client)
        yield transport
        await transport.close()
        await client.aclose()


def _http_client() -> Any:
    """One without HTTP/2, which the server of this test does not speak."""
    name = "httpx2" if importlib.util.find_spec("acp._protocol_adapters") else "httpx"
    httpx = pytest.importorskip(name)
    pytest.importorskip("websockets")
    return httpx.AsyncClient(timeout=httpx.Timeout(None))


TRANSPORTS = [in_memory, over_websocket, over_http]


@pytest.mark.parametrize("transport", TRANSPORTS, ids=lambda transport: transport.__name__)
async def test_a_connection_is_recorded_and_resumed_over_every_transport(
    manager: SnapshotManager, transport: Any
) -> None:
    async with transport() as line:
        connection = connected(Orchestrator(), line)
        record(connection, manager)
        await connection.initialize(protocol_version=1)
        session_id = await new_session(connection)
        await prompt(connection, session_id, "hello")
        await connection.close()
    told = [("user", "hello"), ("assistant", "You said: hello")]
    assert said(await manager.store.load(session_id)) == told
    async with transport() as line:
        client = Orchestrator()
        async with resume_over(line, session_id, manager, client=client) as (connection, report):
            assert report.grade == "context"
            await prompt(connection, session_id, "and again")
            assert client.heard == "You said: and again"
    assert said(await manager.store.load(session_id))[:2] == told


def test_remote_transports_are_found_in_the_installed_sdk() -> None:
    """When this fails, the SDK has moved them: look at `docs/how-to/resume-from-your-orchestrator.md` too."""
    assert importlib.util.find_spec("acp.http.client") is not None
    assert importlib.util.find_spec("acp.ws.client") is not None
