"""What the tools answer. Fields that say nothing are left out."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from snapshot_plugin.memory.summary import MemoryStats, Persistence
from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.model.value import Timestamp

__all__ = [
    "Action",
    "MessageView",
    "ResumePlan",
    "SearchAnswer",
    "SearchHit",
    "SessionLine",
    "SessionList",
    "SessionStoreAnswer",
    "SessionView",
    "SnapshotTaken",
]

Action = Literal["save", "load", "list", "delete", "stats"]


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)

    @model_serializer(mode="wrap")
    def _without_nothing(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialize(self).items() if value is not None}


class SessionStoreAnswer(_Answer):
    """What `session_store` did. ``persistence`` says whether it lasts, ``notices`` why not."""

    action: Action
    namespace: str | None = None
    key: str | None = None
    data: Any = None
    keys: list[str] | None = None
    namespaces: dict[str, int] | None = None
    stats: MemoryStats | None = None
    bytes: int | None = None
    evicted: list[str] | None = None
    trimmed: int | None = None
    redacted: dict[str, int] | None = None
    cleared: bool | None = None
    persistence: Persistence = "disk"
    notices: list[str] = []


class SessionLine(_Answer):
    """One stored session, by its newest snapshot."""

    session_id: str
    seq: int
    state: str
    saved_at: Timestamp
    updated_at: Timestamp | None = None
    title: str | None = None
    agent: str | None = None
    cwd: str | None = None
    tags: list[str] = []
    messages: int = 0
    turns: int = 0
    tokens: int = 0
    problem: str | None = None
    live: bool = False

    @classmethod
    def of(cls, meta: SnapshotMeta, *, live: bool) -> SessionLine:
        """A line of a listing."""
        shared = {name: getattr(meta, name) for name in cls.model_fields if name not in ("tags", "live")}
        return cls(**shared, tags=list(meta.tags), live=live)


class SessionList(_Answer):
    """Stored sessions, last changed first. `hidden` are there too, and were not asked for."""

    sessions: list[SessionLine]
    hidden: int = 0
    notices: list[str] = []


class SearchHit(_Answer):
    """A message that holds the words that were looked for."""

    session_id: str
    seq: int
    message_index: int
    role: str
    excerpt: str
    title: str | None = None


class SearchAnswer(_Answer):
    """Hits, newest session first, and how much was looked through."""

    hits: list[SearchHit]
    sessions_searched: int
    sessions_left: int = 0
    notices: list[str] = []


class MessageView(_Answer):
    """One message as text; tools are named in brackets."""

    index: int
    role: str
    text: str
    timestamp: Timestamp | None = None
    shortened: bool = False


class SessionView(_Answer):
    """A stored session: what it is, and a stretch of its messages."""

    session: SessionLine
    trigger: str
    plan: list[str] = []
    current_task: str | None = None
    messages: list[MessageView]
    first_index: int
    total_messages: int
    notices: list[str] = []


class SnapshotTaken(_Answer):
    """The session as it was is durable under this number."""

    session_id: str
    seq: int
    tag: str
    owner_pid: int


class ResumePlan(_Answer):
    """What bringing a session back would do. Nothing was done."""

    session_id: str
    seq: int
    age_seconds: float
    messages: int
    turns: int
    tokens: int
    agent: str | None = None
    agent_command: list[str] = []
    cwd: str | None = None
    mode: str | None = None
    model: str | None = None
    mcp_servers: list[str] = []
    live: bool = False
    repairs: list[str] = []
    steps: list[str]
    command: str | None = None
    notices: list[str] = []
