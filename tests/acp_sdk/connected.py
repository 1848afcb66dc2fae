"""A raw client and an SDK agent in one event loop, joined by the SDK's own transports."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import anyio
from acp import Agent
from acp._transport import Transport, memory_transport_pair
from acp.agent.connection import AgentSideConnection

__all__ = ["Json", "Peer", "Refused", "connected", "words"]

Json = dict[str, Any]
Handler = Callable[[Json], Awaitable[Json]]
PATIENCE = 60.0


class Refused(Exception):
    def __init__(self, error: Json) -> None:
        super().__init__(str(error))
        self.code: int = error["code"]
        self.data: Any = error.get("data")


class Peer:
    """The client's end. Everything received is kept in order; waits are bounded."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._numbers = itertools.count(1)
        self._changed = asyncio.Condition()
        self.received: list[Json] = []
        self.answers: dict[str, Handler] = {}
        """By method: how requests of the agent are answered; those not named stay open."""

    async def read(self) -> None:
        while (message := await self.transport.receive()) is not None:
            async with self._changed:
                self.received.append(message)
                self._changed.notify_all()
            if "method" in message and message["method"] in self.answers:
                result = await self.answers[message["method"]](message["params"])
                await self.transport.send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    async def send(self, message: Json) -> None:
        await self.transport.send({"jsonrpc": "2.0", **message})

    async def notify(self, method: str, params: Json) -> None:
        await self.send({"method": method, "params": params})

    async def begin(self, method: str, params: Json) -> int:
        number = next(self._numbers)
        await self.send({"id": number, "method": method, "params": params})
        return number

    async def answer_to(self, number: int | str) -> Json:
        return await self.wait_for(lambda message: "method" not in message and message.get("id") == number)

    async def wait_for(self, fits: Callable[[Json], bool]) -> Json:
        with anyio.fail_after(PATIENCE):
            async with self._changed:
                while True:
                    for message in self.received:
                        if fits(message):
                            return message
                    await self._changed.wait()

    async def request(self, method: str, params: Json | None = None) -> Json:
        answer = await self.answer_to(await self.begin(method, params or {}))
        if "error" in answer:
            raise Refused(answer["error"])
        result: Json = answer["result"]
        return result

    # The usual conversation -------------------------------------------------------------------------------

    async def initialize(self, **capabilities: Any) -> Json:
        return await self.request("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities})

    async def new_session(self, cwd: str = "/", **params: Any) -> str:
        result = await self.request("session/new", {"cwd": cwd, "mcpServers": [], **params})
        return str(result["sessionId"])

    async def begin_prompt(self, session_id: str, text: str) -> int:
        prompt = [{"type": "text", "text": text}]
        return await self.begin("session/prompt", {"sessionId": session_id, "prompt": prompt})

    async def prompt(self, session_id: str, text: str) -> str:
        """A whole turn; what the agent said in it."""
        before = len(self.received)
        answer = await self.answer_to(await self.begin_prompt(session_id, text))
        if "error" in answer:
            raise Refused(answer["error"])
        said = [words for role, words in words(self.updates(session_id, since=before)) if role == "agent"]
        return "".join(said)

    async def about(self, method: str, session_id: str, **params: Any) -> Json:
        return await self.request(method, {"sessionId": session_id, "cwd": "/", "mcpServers": [], **params})

    async def load(self, session_id: str) -> tuple[Json, list[Json]]:
        """The answer, and the updates that came before it."""
        before = len(self.received)
        result = await self.about("session/load", session_id)
        return result, self.updates(session_id, since=before)

    def updates(self, session_id: str, *, since: int = 0) -> list[Json]:
        found = [
            message["params"] for message in self.received[since:] if message.get("method") == "session/update"
        ]
        return [params["update"] for params in found if params["sessionId"] == session_id]


def words(updates: list[Json]) -> list[tuple[str, str]]:
    """Who said what, chunk by chunk."""
    said = [
        update for update in updates if update["sessionUpdate"] in ("user_message_chunk", "agent_message_chunk")
    ]
    return [(update["sessionUpdate"].split("_")[0], update["content"]["text"]) for update in said]


@contextlib.asynccontextmanager
async def connected(
    agent: Agent, *, through: Callable[[Transport], Transport] = lambda transport: transport, **options: Any
) -> AsyncIterator[Peer]:
    """*agent* on a connection of its own; *through* may put something between it and the client."""
    ours, theirs = memory_transport_pair()
    connection = AgentSideConnection(agent, through(theirs), **options)
    peer = Peer(ours)
    reading = asyncio.create_task(peer.read())
    try:
        yield peer
    finally:
        await ours.close()
        await connection.close()
        with anyio.fail_after(PATIENCE):
            await reading


def allow(params: Mapping[str, Any]) -> Json:
    """Answer a permission request with the first option."""
    return {"outcome": {"outcome": "selected", "optionId": params["options"][0]["optionId"]}}
