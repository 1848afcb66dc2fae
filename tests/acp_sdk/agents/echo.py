"""The smallest agent of the SDK: it says what it hears, word by word. Nothing is added but the mixin."""

# mypy: disable-error-code="override, abstract"
# Written as the SDK's examples are: only the methods and parameters that are used.
from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

from acp import PROTOCOL_VERSION, Agent, run_agent
from acp.interfaces import Client
from acp.schema import InitializeResponse, NewSessionResponse, PromptResponse

from snapshot_plugin.acp.hosts.sdk_agent import SnapshotAgentMixin
from tests.acp_sdk.agents.updates import agent_says


class EchoAgent(SnapshotAgentMixin, Agent):
    _client: Client

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **kwargs: Any) -> InitializeResponse:
        return InitializeResponse(protocol_version=PROTOCOL_VERSION)

    async def new_session(self, cwd: str, **kwargs: Any) -> NewSessionResponse:
        return NewSessionResponse(session_id=uuid4().hex)

    async def prompt(self, session_id: str, prompt: list[Any], **kwargs: Any) -> PromptResponse:
        for block in prompt:
            for word in getattr(block, "text", "").split(" "):
                if word == "(wait)" and block is prompt[0]:
                    await asyncio.Event().wait()
                await self._client.session_update(session_id, agent_says(f"{word} "))
        return PromptResponse(stop_reason="end_turn")


if __name__ == "__main__":
    asyncio.run(run_agent(EchoAgent()))
