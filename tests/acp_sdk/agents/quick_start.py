"""An agent in the manner of the SDK's quick start: it counts its sessions, uses a tool, asks, and has modes.

It also has a ``load_session`` that answers "loaded" and loads nothing, as the SDK's examples do. Nothing is added
but the mixin.
"""

# mypy: disable-error-code="override, abstract"
# Written as the SDK's examples are: only the methods and parameters that are used.
from __future__ import annotations

import asyncio
from typing import Any

from acp import PROTOCOL_VERSION, Agent, run_agent
from acp.exceptions import RequestError
from acp.interfaces import Client
from acp.schema import (
    AgentCapabilities,
    Implementation,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    SessionMode,
    SessionModeState,
    SetSessionModeResponse,
    ToolCallUpdate,
)

from snapshot_plugin.acp.hosts.sdk_agent import SnapshotAgentMixin
from tests.acp_sdk.agents.updates import agent_says, tool_begins, tool_goes_on

_MODES = [SessionMode(id="ask", name="Ask"), SessionMode(id="code", name="Code")]


class QuickStartAgent(SnapshotAgentMixin, Agent):
    _client: Client

    def __init__(self) -> None:
        self._next_session_id = 0
        self._modes: dict[str, str] = {}
        self._calls = 0

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **kwargs: Any) -> InitializeResponse:
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(),
            agent_info=Implementation(name="quick-start", title="Quick start", version="0.1.0"),
        )

    async def new_session(self, cwd: str, **kwargs: Any) -> NewSessionResponse:
        session_id = str(self._next_session_id)
        self._next_session_id += 1
        self._modes[session_id] = "ask"
        modes = SessionModeState(current_mode_id="ask", available_modes=_MODES)
        return NewSessionResponse(session_id=session_id, modes=modes)

    async def load_session(self, session_id: str, **kwargs: Any) -> LoadSessionResponse:
        self._modes[session_id] = "ask"
        return LoadSessionResponse()

    async def set_session_mode(self, mode_id: str, session_id: str, **kwargs: Any) -> SetSessionModeResponse:
        self._modes[session_id] = mode_id
        return SetSessionModeResponse()

    async def prompt(self, session_id: str, prompt: list[Any], **kwargs: Any) -> PromptResponse:
        if session_id not in self._modes:
            raise RequestError.invalid_params({"session": "not one of mine"})
        for block in prompt:
            await self._answer(session_id, getattr(block, "text", ""))
        return PromptResponse(stop_reason="end_turn")

    async def _answer(self, session_id: str, text: str) -> None:
        await self._say(session_id, f"[{self._modes[session_id]}] you said: ")
        await self._say(session_id, text)
        if text == "use a tool":
            await self._use_tool(session_id)

    async def _use_tool(self, session_id: str) -> None:
        self._calls += 1
        call = f"call-{self._calls}"
        await self._client.session_update(session_id, tool_begins(call, "Write a file", kind="edit"))
        options = [PermissionOption(option_id="yes", name="Yes", kind="allow_once")]
        asked = ToolCallUpdate(tool_call_id=call, title="Write a file")
        await self._client.request_permission(session_id=session_id, tool_call=asked, options=options)
        await self._client.session_update(session_id, tool_goes_on(call, status="in_progress"))
        await asyncio.sleep(0)
        await self._client.session_update(session_id, tool_goes_on(call, status="completed"))
        await self._say(session_id, "done")

    async def _say(self, session_id: str, text: str) -> None:
        await self._client.session_update(session_id, agent_says(text))


if __name__ == "__main__":
    asyncio.run(run_agent(QuickStartAgent()))
