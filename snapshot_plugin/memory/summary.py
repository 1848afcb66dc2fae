"""What a new session is told about the earlier ones. Pure: documents in, summaries out."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import ClassVar, Literal

from pydantic import ConfigDict, Field

from snapshot_plugin.memory.records import (
    ApiSchema,
    EndpointTiming,
    ErrorHistory,
    ErrorRecord,
    NoiseConfig,
    Timings,
)
from snapshot_plugin.model.value import Timestamp, Value

__all__ = [
    "ApiSchemaSummary",
    "Applied",
    "BaselineSummary",
    "Degraded",
    "ErrorSummary",
    "KnownError",
    "MemoryStats",
    "NamespaceStats",
    "NoiseSummary",
    "PerformanceSummary",
    "Persistence",
    "SessionContext",
    "summarised_errors",
    "summarised_noise",
    "summarised_performance",
    "summarised_schema",
    "told",
]

Persistence = Literal["disk", "memory", "read-only"]
"""Whether what is saved lasts: it does; only as long as this process; another process writes, this one reads."""

RECENTLY = timedelta(days=7)
RECENT_SESSIONS = 3
DEGRADED_FACTOR = 1.5
"""An endpoint that takes this many times as long as before is worth telling; less than that is weather."""


class _Summary(Value):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")


class BaselineSummary(_Summary):
    """The baselines there are; `last_validated` is when one was last saved or read."""

    count: int = 0
    names: tuple[str, ...] = ()
    last_validated: Timestamp | None = None


class ApiSchemaSummary(_Summary):
    """How much of the API is known, and how much of that was seen in the last three sessions."""

    endpoints_known: int = 0
    last_updated: Timestamp | None = None
    seen_recently: int = 0


class NoiseSummary(_Summary):
    """The noise rules, and how much they have kept out so far."""

    rules_count: int = 0
    auto_detected: int = 0
    manual: int = 0
    entries_filtered_lifetime: int = 0


class KnownError(_Summary):
    """One error from earlier sessions."""

    fingerprint: str
    first_seen: Timestamp
    last_seen: Timestamp
    occurrences: int
    message: str | None = None
    resolved_at: Timestamp | None = None
    sessions_to_fix: int | None = None


class ErrorSummary(_Summary):
    """Errors that are not resolved, newest first, and those resolved within the last seven days."""

    unresolved: tuple[KnownError, ...] = ()
    resolved_recently: tuple[KnownError, ...] = ()


class Degraded(_Summary):
    """An endpoint that has become slow."""

    endpoint: str
    was_ms: float
    now_ms: float


class PerformanceSummary(_Summary):
    """The endpoints that are timed, and those slower in their latest session than before."""

    endpoints_tracked: int = 0
    degraded_since_last: tuple[Degraded, ...] = ()


class Applied(_Summary):
    """What loading the context has put into effect."""

    noise_rules: int = 0


class SessionContext(_Summary):
    """What `load_session_context` answers: everything earlier sessions left, in short."""

    project: str
    session_count: int
    last_session: Timestamp | None = None
    baselines: BaselineSummary = BaselineSummary()
    api_schema: ApiSchemaSummary = ApiSchemaSummary()
    noise_config: NoiseSummary = NoiseSummary()
    error_history: ErrorSummary = ErrorSummary()
    performance: PerformanceSummary = PerformanceSummary()
    other_namespaces: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    applied: Applied = Applied()
    persistence: Persistence = "disk"
    notices: tuple[str, ...] = ()


class NamespaceStats(_Summary):
    """How much one namespace holds."""

    entries: int = 0
    bytes: int = 0


class MemoryStats(_Summary):
    """How much a project's memory holds, and how much it may."""

    project: str
    total_bytes: int
    limit_bytes: int
    other_projects_bytes: int
    namespaces: dict[str, NamespaceStats] = Field(default_factory=dict)
    session_count: int
    oldest: Timestamp | None = None
    persistence: Persistence = "disk"
    notices: tuple[str, ...] = ()


def told(context: SessionContext) -> str:
    """The context in one line, for a log: numbers only."""
    return (
        f"project memory, session {context.session_count}: {context.baselines.count} baselines, "
        f"{context.noise_config.rules_count} noise rules, {context.api_schema.endpoints_known} endpoints, "
        f"{len(context.error_history.unresolved)} unresolved errors"
    )


def summarised_errors(history: ErrorHistory, now: datetime) -> ErrorSummary:
    """The errors worth knowing at the start of a session."""
    newest_first = sorted(history.entries, key=lambda entry: entry.last_seen, reverse=True)
    recent = [entry for entry in newest_first if entry.resolved and _age(entry, now) <= RECENTLY]
    return ErrorSummary(
        unresolved=_known(entry for entry in newest_first if not entry.resolved),
        resolved_recently=_known(recent),
    )


def _age(entry: ErrorRecord, now: datetime) -> timedelta:
    return now - (entry.resolved_at or entry.last_seen)


def _known(entries: Iterable[ErrorRecord]) -> tuple[KnownError, ...]:
    return tuple(
        KnownError(
            fingerprint=entry.fingerprint,
            first_seen=entry.first_seen,
            last_seen=entry.last_seen,
            occurrences=entry.occurrences,
            message=entry.message,
            resolved_at=entry.resolved_at if entry.resolved else None,
            sessions_to_fix=_sessions_to_fix(entry),
        )
        for entry in entries
    )


def _sessions_to_fix(entry: ErrorRecord) -> int | None:
    if not entry.resolved or entry.first_session is None or entry.resolved_session is None:
        return None
    return entry.resolved_session - entry.first_session + 1


def summarised_schema(schema: ApiSchema, session: int) -> ApiSchemaSummary:
    """How many endpoints are known to the present *session*, and since when nothing was added."""
    updated = max((entry.last_seen for entry in schema.endpoints), default=None)
    recent = sum(entry.session > session - RECENT_SESSIONS for entry in schema.endpoints)
    return ApiSchemaSummary(endpoints_known=len(schema.endpoints), last_updated=updated, seen_recently=recent)


def summarised_noise(config: NoiseConfig) -> NoiseSummary:
    """How many rules there are, by whom, and what they did."""
    auto = sum(rule.auto for rule in config.rules)
    return NoiseSummary(
        rules_count=len(config.rules),
        auto_detected=auto,
        manual=len(config.rules) - auto,
        entries_filtered_lifetime=sum(rule.filtered for rule in config.rules),
    )


def summarised_performance(timings: Timings) -> PerformanceSummary:
    """How many endpoints are timed, and which have become slow."""
    slow = [entry for entry in timings.endpoints if _is_degraded(entry)]
    return PerformanceSummary(
        endpoints_tracked=len(timings.endpoints),
        degraded_since_last=tuple(
            Degraded(endpoint=entry.endpoint, was_ms=entry.before_ms, now_ms=entry.session_ms) for entry in slow
        ),
    )


def _is_degraded(entry: EndpointTiming) -> bool:
    return entry.before_samples > 0 and entry.session_ms > DEGRADED_FACTOR * entry.before_ms
