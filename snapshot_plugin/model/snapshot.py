"""A session at one moment, as a value."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from snapshot_plugin.model.content import Blocks, TextBlock
from snapshot_plugin.model.frozen import FrozenDict
from snapshot_plugin.model.meta import CURRENT_VERSION
from snapshot_plugin.model.origin import Origin
from snapshot_plugin.model.value import JsonObject, Timestamp, Value

__all__ = [
    "CURRENT_VERSION",
    "AgentInfo",
    "McpServer",
    "Message",
    "Metrics",
    "Parent",
    "PlanEntry",
    "Role",
    "SessionConfig",
    "SessionSnapshot",
    "origin_of",
    "with_origin",
]

Role = Literal["user", "assistant", "system", "tool"]


class Message(Value):
    """One message: who said it, and its blocks in order. `content` may be given as plain text."""

    role: Role
    content: Blocks = ()
    id: str | None = None
    timestamp: Timestamp | None = None
    token_count: int | None = None
    metadata: JsonObject = FrozenDict()

    @property
    def text(self) -> str:
        """The words of the message, without thoughts and tools."""
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))


class AgentInfo(Value):
    """Which agent ran the session. The command is kept; environment values never are."""

    name: str | None = None
    version: str | None = None
    command: tuple[str, ...] = ()


class McpServer(Value):
    """An MCP server by name. Its environment and headers hold secrets and are dropped on the way in."""

    name: str
    type: str = "stdio"

    @model_validator(mode="before")
    @classmethod
    def _without_secrets(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if key not in ("env", "headers", "args")}


class SessionConfig(Value):
    """How the session was set up: what has to be re-applied for it to behave as before."""

    cwd: str | None = None
    additional_directories: tuple[str, ...] = ()
    mode: str | None = None
    model: str | None = None
    system_prompt: str | None = None
    instructions: str | None = None
    options: JsonObject = FrozenDict()
    permissions: JsonObject = FrozenDict()
    tools: JsonObject = FrozenDict()
    mcp_servers: tuple[McpServer, ...] = ()


class PlanEntry(Value):
    """One step of the agent's plan."""

    content: str
    priority: str = "medium"
    status: str = "pending"


class Metrics(Value):
    """What the session has cost so far."""

    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cost: float | None = None
    currency: str | None = None
    duration_seconds: float = 0.0


class Parent(Value):
    """Where a fork came from: the session, its snapshot, and how many of its messages were taken along."""

    session_id: str
    seq: int
    message_index: int


@cache  # one object for all, made when the first one is needed: building it costs 20 ms of start-up
def _no_config() -> SessionConfig:
    return SessionConfig()


@cache
def _no_metrics() -> Metrics:
    return Metrics()


class SessionSnapshot(Value):
    """Everything a session is, at one moment. A value: frozen, comparable, and complete on its own.

    Unknown fields survive a round trip. `plugins`, `memory` and `metadata` are named sections contributed by
    others; each of their entries is stored by itself, so an entry that did not change is not written again.
    """

    session_id: str
    created_at: Timestamp
    updated_at: Timestamp
    version: int = CURRENT_VERSION
    provider_type: str = "custom"
    agent_session_id: str | None = None
    agent: AgentInfo | None = None
    config: SessionConfig = Field(default_factory=_no_config)
    messages: tuple[Message, ...] = ()
    current_task: str | None = None
    plan: tuple[PlanEntry, ...] = ()
    metrics: Metrics = Field(default_factory=_no_metrics)
    title: str | None = None
    tags: tuple[str, ...] = ()
    pinned: bool = False
    parent: Parent | None = None
    plugins: JsonObject = FrozenDict()
    memory: JsonObject = FrozenDict()
    metadata: JsonObject = FrozenDict()
    _origin: Origin | None = PrivateAttr(default=None)

    def append(self, *messages: Message, **changes: Any) -> SessionSnapshot:
        """A copy with *messages* added at the end, and other fields changed as in `evolve`.

        The messages that were there are the same objects, which is what makes saving a long session cheap.
        """
        added = self._checked("messages", messages)
        grown = self.model_copy(update={"messages": self.messages + added})
        return grown.evolve(**changes) if changes else grown


def origin_of(snapshot: SessionSnapshot) -> Origin | None:
    """What *snapshot*, or the one it was made from with `append` and `evolve`, was loaded from."""
    return snapshot._origin  # noqa: SLF001 — the class above


def with_origin(snapshot: SessionSnapshot, origin: Origin) -> SessionSnapshot:
    """Note where *snapshot* was loaded from; returns it."""
    snapshot._origin = origin  # noqa: SLF001 — as above
    return snapshot
