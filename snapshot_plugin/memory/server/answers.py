"""What the tools answer. Empty fields are left out."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from snapshot_plugin.memory.batch import Persistence
from snapshot_plugin.memory.context import MemoryStats
from snapshot_plugin.memory.names import API_SCHEMA, PERFORMANCE
from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.model.value import Timestamp

__all__ = [
    "Action",
    "Comparison",
    "MessageView",
    "Receipt",
    "ResumePlan",
    "SearchAnswer",
    "SearchHit",
    "SessionLine",
    "SessionList",
    "SessionStoreAnswer",
    "SessionView",
    "SnapshotTaken",
    "stats_answer",
]

Action = Literal["save", "load", "list", "delete", "stats"]


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)

    @model_serializer(mode="wrap")
    def _without_nothing(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialize(self).items() if value is not None}


class Receipt(_Answer):
    """What became of a record: what was understood, what was ignored and why, and what would be better."""

    understood: list[str] = []
    ignored: list[str] = []
    better: list[str] = []
    redacted: dict[str, int] | None = None
    trimmed: int | None = None
    persistence: Persistence = "disk"
    notices: list[str] = []


class SessionStoreAnswer(_Answer):
    """What `session_store` did. ``persistence`` says whether it lasts, ``notices`` why not."""

    action: Action
    namespace: str | None = None
    key: str | None = None
    data: Any = None
    start: int | None = None
    total: int | None = None
    keys: list[str] | None = None
    namespaces: dict[str, int] | None = None
    stats: dict[str, Any] | None = None
    bytes: int | None = None
    understood: list[str] | None = None
    ignored: list[str] | None = None
    better: list[str] | None = None
    evicted: list[str] | None = None
    trimmed: int | None = None
    redacted: dict[str, int] | None = None
    cleared: bool | None = None
    persistence: Persistence = "disk"
    notices: list[str] = []


class Comparison(_Answer):
    """How an observation differs from a baseline. New fields alone are no regression."""

    name: str
    same: bool
    is_regression: bool
    regressions: list[str] = []
    added: list[str] = []


def stats_answer(stats: MemoryStats) -> dict[str, Any]:
    """The statistics under the names the tool documents; endpoints are counted as endpoints."""
    counted = {API_SCHEMA: "endpoints", PERFORMANCE: "endpoints"}
    return {
        "project": stats.project,
        "total_size_bytes": stats.total_bytes,
        "limit_bytes": stats.limit_bytes,
        "other_projects_bytes": stats.other_projects_bytes,
        "namespaces": {
            name: {"size": of.bytes, counted.get(name, "entries"): of.entries}
            for name, of in stats.namespaces.items()
        },
        "oldest_data": None if stats.oldest is None else f"{stats.oldest:%Y-%m-%dT%H:%M:%SZ}",
        "sessions_recorded": stats.session_count,
    }


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
    """Stored sessions, last changed first. `hidden` counts those beyond the limit, and those of other projects."""

    sessions: list[SessionLine]
    hidden: int = 0
    notices: list[str] = []


class SearchHit(_Answer):
    """A message that contains the words."""

    session_id: str
    seq: int
    message_index: int
    role: str
    excerpt: str
    title: str | None = None


class SearchAnswer(_Answer):
    """Hits, newest session first; how many there are in all, and how many sessions were searched."""

    hits: list[SearchHit]
    total_hits: int = 0
    sessions_searched: int
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
