"""An agent that does what the prompt says and writes down what it is asked. For tests in one event loop."""

# mypy: disable-error-code="override, abstract"
# Written as the SDK's examples are: only the methods and parameters that are used.
from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from acp import PROTOCOL_VERSION, Agent
from acp.exceptions import RequestError
from acp.interfaces import Client
from acp.schema import (
    AvailableCommand,
    AvailableCommandsUpdate,
    CloseSessionResponse,
    Implementation,
    InitializeResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    SessionMode,
    SessionModeState,
    SetSessionModeResponse,
    ToolCallUpdate,
)

from snapshot_plugin import Message
from snapshot_plugin.acp.hosts.sdk_agent import Place, SnapshotAgentMixin
from tests.acp_sdk.agents.updates import agent_says, tool_begins, user_said

__all__ = ["RememberingAgent", "ScriptedAgent"]

_MODES = [SessionMode(id="ask", name="Ask"), SessionMode(id="code", name="Code")]


class ScriptedAgent(SnapshotAgentMixin, Agent):
    """Counts its sessions from 0, as agents do. It has no memory."""

    client: Client

    def __init__(self, store: Place, *, name: str = "scripted", version: int = PROTOCOL_VERSION) -> None:
        self.snapshot_store = store
        self.name, self.version = name, version
        self.asked: list[tuple[str, Any]] = []
        """What the author's code was asked: the method, and what it was about."""
        self.modes: dict[str, str] = {}
        self.refuses_sessions = self.ignores_cancel = self.has_modes = False
        self.greets = self.echoes = False
        self.prefix = ""
        self._cancelled = asyncio.Event()

    def on_connect(self, conn: Client) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **kwargs: Any) -> InitializeResponse:
        info = Implementation(name=self.name, version="1")
        return InitializeResponse(protocol_version=self.version, agent_info=info)

    async def new_session(self, cwd: str, **kwargs: Any) -> NewSessionResponse:
        if self.refuses_sessions:
            raise RequestError(-32000, "log in first")
        session_id = f"{self.prefix}{len(self.modes)}"
        self.asked.append(("new", session_id))
        self.modes[session_id] = "ask"
        if self.greets:
            await self._greet(session_id)
        modes = SessionModeState(current_mode_id="ask", available_modes=_MODES) if self.has_modes else None
        return NewSessionResponse(session_id=session_id, modes=modes)

    async def _greet(self, session_id: str) -> None:
        commands = [AvailableCommand(name="plan", description="Plan")]
        update = AvailableCommandsUpdate(session_update="available_commands_update", available_commands=commands)
        await self.client.session_update(session_id, update)
        await self._say(session_id, "welcome")

    async def set_session_mode(self, session_id: str, mode_id: str, **kwargs: Any) -> SetSessionModeResponse:
        self.modes[session_id] = mode_id
        return SetSessionModeResponse()

    async def close_session(self, session_id: str, **kwargs: Any) -> CloseSessionResponse:
        self.asked.append(("close", session_id))
        return CloseSessionResponse()

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        self.asked.append(("cancel", session_id))
        if not self.ignores_cancel:
            self._cancelled.set()

    async def prompt(self, session_id: str, prompt: list[Any], **kwargs: Any) -> PromptResponse:
        heard = [block.text for block in prompt]
        self.asked.append(("prompt", heard))
        if self.echoes:
            for text in heard:
                await self.client.session_update(session_id, user_said(text))
        return PromptResponse(stop_reason=await self._obey(session_id, heard[0]))

    async def _obey(self, session_id: str, text: str) -> Any:
        if text == "refuse":
            return "refusal"
        if text == "fail":
            raise RequestError(-32603, "it broke")
        if text == "use a tool":
            await self._use_tool(session_id)
        await self._say(session_id, f"heard {text}")
        if text == "wait":
            await self._cancelled.wait()
            return "cancelled"
        return "end_turn"

    async def _use_tool(self, session_id: str) -> None:
        await self.client.session_update(session_id, tool_begins("call", "Write", kind="edit"))
        options = [PermissionOption(option_id="yes", name="Yes", kind="allow_once")]
        asked = ToolCallUpdate(tool_call_id="call", title="Write")
        await self.client.request_permission(session_id=session_id, tool_call=asked, options=options)

    async def _say(self, session_id: str, text: str) -> None:
        await self.client.session_update(session_id, agent_says(text))

    def heard(self) -> list[list[str]]:
        """The prompts, as the author's code got them."""
        return [what for method, what in self.asked if method == "prompt"]


class RememberingAgent(ScriptedAgent):
    """One with a history object."""

    def __init__(self, store: Place, **options: Any) -> None:
        super().__init__(store, **options)
        self.memories: dict[str, Any] = {}
        self.given: list[tuple[str, Any, Sequence[Message]]] = []

    async def prompt(self, session_id: str, prompt: list[Any], **kwargs: Any) -> PromptResponse:
        self.memories.setdefault(session_id, {"heard": []})["heard"].append(prompt[0].text)
        return await super().prompt(session_id, prompt, **kwargs)

    async def history(self, session_id: str) -> Any:
        return self.memories[session_id]

    async def take_back(self, session_id: str, history: Any, transcript: Sequence[Message]) -> None:
        self.given.append((session_id, history, transcript))
        self.memories[session_id] = history
