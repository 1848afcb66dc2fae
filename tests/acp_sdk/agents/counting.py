"""An agent of the SDK that counts its sessions from 0 and knows nothing of us."""

# mypy: disable-error-code="override, abstract"
# Written as the SDK's examples are: only the methods and parameters that are used.
from __future__ import annotations

import asyncio
from typing import Any

from acp import Agent, run_agent
from acp.interfaces import Client
from acp.schema import InitializeResponse, NewSessionResponse, PromptResponse

from tests.acp_sdk.agents.updates import agent_says


class CountingAgent(Agent):
    _client: Client
    _sessions = 0

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **kwargs: Any) -> InitializeResponse:
        return InitializeResponse(protocol_version=1)

    async def new_session(self, cwd: str, **kwargs: Any) -> NewSessionResponse:
        self._sessions += 1
        return NewSessionResponse(session_id=str(self._sessions - 1))

    async def prompt(self, session_id: str, prompt: list[Any], **kwargs: Any) -> PromptResponse:
        await self._client.session_update(session_id, agent_says(f"in {session_id}"))
        return PromptResponse(stop_reason="end_turn")


if __name__ == "__main__":
    asyncio.run(run_agent(CountingAgent()))
