"""A session at one moment, as a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from snapshot_plugin.model.content import Block, Blocks, TextBlock
from snapshot_plugin.model.frozen import FrozenDict
from snapshot_plugin.model.meta import CURRENT_VERSION, LoadedFrom
from snapshot_plugin.model.tool_calls import CALL_ID_NAMES, read_tool_calls
from snapshot_plugin.model.value import MAX_NUMBER, JsonObject, Timestamp, Value
from snapshot_plugin.model.withheld import command_without_secrets, withheld_in, without_login, without_secrets

# Explicit signatures are for type checkers: fields accept more types than they hold, such as text for content.

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
    "upto_of",
    "with_origin",
    "with_upto",
]

_SPOOL = "spool"

Role = Literal["user", "assistant", "system", "tool"]


class Message(Value):
    """One message: its role, and its blocks in order. `content` may be given as plain text.

    The constructor also accepts ``tool_calls`` in the shapes of OpenAI, Anthropic, LangChain and ACP, which become
    blocks after the content, and the ``tool_call_id`` of a tool's result, which is stored in `metadata`.
    """

    _also_takes = frozenset({"tool_calls", *CALL_ID_NAMES})

    role: Role
    content: Blocks = ()
    """Blocks in order: text, thoughts, tool calls, images, …"""
    id: str | None = None
    timestamp: Timestamp | None = None
    token_count: int | None = None
    """Its tokens, as counted by the model's provider."""
    token_count_estimated: bool = False
    """True if `token_count` is an estimate from the length of the text."""
    metadata: JsonObject = FrozenDict()
    """Anything else, by the name of its owner."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            role: Role,
            content: str | Iterable[Block | Mapping[str, Any]] = (),
            id: str | None = None,  # noqa: A002 — the field's name
            timestamp: datetime | None = None,
            token_count: int | None = None,
            token_count_estimated: bool = False,
            metadata: Mapping[str, Any] = ...,
            tool_calls: Iterable[Any] | None = None,
            tool_call_id: str | None = None,
        ) -> None: ...

    else:

        def __init__(self, /, **data: Any) -> None:
            if data.keys() & self._also_takes:
                data = _taken_in(data)
            super().__init__(**data)

        __init__.__pydantic_base_init__ = True  # as in Value

    @property
    def is_opaque(self) -> bool:
        """Whether only a framework can read the message (see `frameworks.conversations`)."""
        return not self.content and any(
            type(kept) is FrozenDict and "raw" in kept for kept in self.metadata.values()
        )

    @property
    def text(self) -> str:
        """The text of the message, without thoughts and tool calls."""
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))


def _taken_in(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a message in the shape of another library, converted to ours."""
    own = {name: value for name, value in data.items() if name not in Message._also_takes}  # noqa: SLF001 — the class above
    calls = read_tool_calls(data.get("tool_calls") or ())
    answered = next((data[name] for name in CALL_ID_NAMES if data.get(name) is not None), None)
    if calls:
        content = own.get("content") or ()
        said = (TextBlock(text=content),) if isinstance(content, str) else tuple(content)
        own["content"] = (*said, *calls)
    if answered is not None:
        own["metadata"] = {**own.get("metadata", {}), "tool_call_id": answered}
    return own


class AgentInfo(Value):
    """Which agent ran the session. The command is kept, without values that may be secrets; see `withheld`."""

    name: str | None = None
    version: str | None = None
    command: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _without_secrets(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        kept = without_secrets({name: value for name, value in data.items() if name != "command"})[0]
        words = data.get("command")
        if isinstance(words, list | tuple) and all(isinstance(word, str) for word in words):
            words = command_without_secrets(words)
        return kept | ({"command": words} if "command" in data else {})

    @property
    def withheld(self) -> tuple[str, ...]:
        """The names of options and variables of the command whose values are not kept."""
        return withheld_in(self.command)


class McpServer(Value):
    """An MCP server by name. Its environment, headers and credentials are dropped on the way in."""

    _takes_unknown = True

    name: str
    type: str = "stdio"

    @model_validator(mode="before")
    @classmethod
    def _without_secrets(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        kept = {key: value for key, value in data.items() if key not in ("headers", "args")}
        if isinstance(kept.get("url"), str):
            kept["url"] = without_login(kept["url"])
        return without_secrets(kept)[0]


class SessionConfig(Value):
    """The settings of the session, which are applied again when it is restored.

    Values of environment variables, and options named like credentials, are never stored; `withheld` lists their
    names.
    """

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
    withheld: tuple[str, ...] = ()

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            cwd: str | None = None,
            additional_directories: Iterable[str] = (),
            mode: str | None = None,
            model: str | None = None,
            system_prompt: str | None = None,
            instructions: str | None = None,
            options: Mapping[str, Any] = ...,
            permissions: Mapping[str, Any] = ...,
            tools: Mapping[str, Any] = ...,
            mcp_servers: Iterable[McpServer | Mapping[str, Any]] = (),
            withheld: Iterable[str] = (),
        ) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _without_secrets(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        servers = {"mcp_servers": data["mcp_servers"]} if "mcp_servers" in data else {}  # validated by itself
        cleaned, taken = without_secrets({name: value for name, value in data.items() if name not in servers})
        if taken:
            cleaned["withheld"] = sorted({*taken, *cleaned.get("withheld", ())})
        return cleaned | servers


class PlanEntry(Value):
    """One step of the agent's plan."""

    content: str
    priority: str = "medium"
    status: str = "pending"


class Metrics(Value):
    """Turns, tokens and cost of the session so far."""

    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    estimated_tokens: int = 0
    """How many of `total_tokens` are estimates."""
    cost: float | None = None
    currency: str | None = None
    duration_seconds: float = 0.0


class Parent(Value):
    """The origin of a fork: the session, its snapshot, and how many of its messages were copied."""

    session_id: str
    seq: int
    message_index: int


@cache  # shared, and made on first use: building it takes 20 ms
def _no_config() -> SessionConfig:
    return SessionConfig()


@cache
def _no_metrics() -> Metrics:
    return Metrics()


class SessionSnapshot(Value):
    """A session at one moment. The value is frozen, comparable and complete.

    Unknown fields survive a round trip. `plugins`, `memory` and `metadata` are sections with named entries; each
    entry is stored separately, so an unchanged entry is not written again.
    """

    session_id: str
    created_at: Timestamp
    updated_at: Timestamp
    """When the session last changed; `append` sets it."""
    version: int = CURRENT_VERSION
    """The version of the data format; older versions are migrated on load."""
    provider_type: str = "custom"
    """The kind of agent: ``acp``, the name of a framework, ``custom``."""
    agent_session_id: str | None = None
    """The agent's own id of the session, if it differs."""
    agent: AgentInfo | None = None
    config: SessionConfig = Field(default_factory=_no_config)
    """Working directory, mode, model, prompt, tools."""
    messages: tuple[Message, ...] = ()
    current_task: str | None = None
    """What the agent is doing: the running entry of its plan, or what the caller sets."""
    plan: tuple[PlanEntry, ...] = ()
    metrics: Metrics = Field(default_factory=_no_metrics)
    """Turns, tokens and cost so far."""
    title: str | None = None
    tags: tuple[str, ...] = ()
    pinned: bool = False
    """Retention never removes a pinned session."""
    parent: Parent | None = None
    """Where the session was forked from."""
    plugins: JsonObject = FrozenDict()
    """States of the agent's plugins, by name."""
    memory: JsonObject = FrozenDict()
    """The agent's working memory."""
    metadata: JsonObject = FrozenDict()
    """Anything else, by the name of its owner."""
    _origin: LoadedFrom | None = PrivateAttr(default=None)

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            session_id: str,
            created_at: datetime,
            updated_at: datetime,
            version: int = CURRENT_VERSION,
            provider_type: str = "custom",
            agent_session_id: str | None = None,
            agent: AgentInfo | Mapping[str, Any] | None = None,
            config: SessionConfig | Mapping[str, Any] = ...,
            messages: Sequence[Message | Mapping[str, Any]] = (),
            current_task: str | None = None,
            plan: Iterable[PlanEntry | Mapping[str, Any]] = (),
            metrics: Metrics | Mapping[str, Any] = ...,
            title: str | None = None,
            tags: Iterable[str] = (),
            pinned: bool = False,
            parent: Parent | Mapping[str, Any] | None = None,
            plugins: Mapping[str, Any] = ...,
            memory: Mapping[str, Any] = ...,
            metadata: Mapping[str, Any] = ...,
        ) -> None: ...

    def append(self, *messages: Message, now: datetime | None = None, **changes: Any) -> SessionSnapshot:
        """A copy with *messages* added at the end, and other fields changed as in `evolve`.

        `updated_at` becomes *now* (default: the current time), and the token counts of the new messages are added
        to `metrics`, unless *changes* sets these fields. Earlier messages stay the same objects, so saving a long
        session is cheap.
        """
        added = self._checked("messages", messages)
        grown = self.model_copy(update={"messages": self.messages + added})
        if messages:
            stamps = {
                "updated_at": max(self.updated_at, now or datetime.now(UTC)),
                "metrics": self._counting(added),
            }
            changes = stamps | changes
        return grown.evolve(**changes) if changes else grown

    def _counting(self, added: Sequence[Message]) -> Metrics:
        counts = [(message.token_count or 0, message) for message in added]
        total = sum(count for count, _ in counts)
        if not total:
            return self.metrics
        said = sum(count for count, message in counts if message.role == "assistant")
        more = {
            "total_tokens": total,
            "input_tokens": total - said,
            "output_tokens": said,
            "estimated_tokens": sum(count for count, message in counts if message.token_count_estimated),
        }
        before = self.metrics
        return before.evolve(
            **{name: min(getattr(before, name) + count, MAX_NUMBER) for name, count in more.items()}
        )

    @property
    def notices(self) -> tuple[str, ...]:
        """The names of settings whose values are not stored."""
        command = self.agent.withheld if self.agent and self.agent.command else ()
        names = ", ".join((*self.config.withheld, *command))
        return (f"not kept, as they may be secrets: {names}",) if names else ()


def origin_of(snapshot: SessionSnapshot) -> LoadedFrom | None:
    """The frame that *snapshot* was loaded from, also after `append` and `evolve`; None for a new snapshot."""
    private = snapshot.__pydantic_private__  # every save looks here: `_origin` itself takes 20 times as long
    return private.get("_origin") if private else None


def with_origin(snapshot: SessionSnapshot, origin: LoadedFrom) -> SessionSnapshot:
    """Set the frame that *snapshot* was loaded from; returns the snapshot."""
    snapshot._origin = origin  # noqa: SLF001 — as above
    return snapshot


def upto_of(snapshot: SessionSnapshot | None) -> int:
    """The number of the newest spool record that *snapshot* contains; 0 if it contains none."""
    note = snapshot.metadata.get(_SPOOL) if snapshot else None
    upto = note.get("upto") if isinstance(note, dict) else None
    return upto if isinstance(upto, int) else 0


def with_upto(snapshot: SessionSnapshot, upto: int) -> SessionSnapshot:
    """A copy of *snapshot* that is marked as containing the spool records up to *upto*."""
    return snapshot.evolve(metadata={**snapshot.metadata, _SPOOL: {"upto": upto}})
