"""An agent with a memory, and the mixin that keeps it: it answers with all it has heard."""

# mypy: disable-error-code="override, abstract"
# Written as the SDK's examples are: only the methods and parameters that are used.
from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from acp import PROTOCOL_VERSION, Agent, run_agent
from acp.interfaces import Client
from acp.schema import InitializeResponse, NewSessionResponse, PromptResponse

from snapshot_plugin import Message
from snapshot_plugin.acp.hosts.sdk_agent import SnapshotAgentMixin
from tests.acp_sdk.agents.updates import agent_says


class RememberingAgent(SnapshotAgentMixin, Agent):
    _client: Client

    def __init__(self) -> None:
        self._memories: dict[str, list[str]] = {}

    def history(self, session_id: str) -> dict[str, Any]:
        return {"heard": self._memories[session_id]}

    def take_back(self, session_id: str, history: Any, transcript: Sequence[Message]) -> None:
        self._memories[session_id] = history["heard"]

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **kwargs: Any) -> InitializeResponse:
        return InitializeResponse(protocol_version=PROTOCOL_VERSION)

    async def new_session(self, cwd: str, **kwargs: Any) -> NewSessionResponse:
        session_id = uuid4().hex
        self._memories[session_id] = []
        return NewSessionResponse(session_id=session_id)

    async def prompt(self, session_id: str, prompt: list[Any], **kwargs: Any) -> PromptResponse:
        memory = self._memories[session_id]
        told = [block.text for block in prompt]
        memory += told
        for text in memory:
            for word in text.split(" "):
                if word == "(wait)" and text is told[0]:  # not where a note quotes it
                    await asyncio.Event().wait()
                await self._client.session_update(session_id, agent_says(f"{word} "))
        return PromptResponse(stop_reason="end_turn")


if __name__ == "__main__":
    asyncio.run(run_agent(RememberingAgent()))
