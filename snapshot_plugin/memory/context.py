"""The summary of earlier sessions for a new one, and the statistics of a memory."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import Field

from snapshot_plugin.memory.changes import Persistence
from snapshot_plugin.memory.documents import is_degraded, is_resolved, matching_rule, sessions_to_fix
from snapshot_plugin.memory.entries import KINDS, Entry, moment_in
from snapshot_plugin.memory.files import API_SCHEMA, BASELINES, ERRORS, NOISE, PERFORMANCE
from snapshot_plugin.memory.view import MemoryView
from snapshot_plugin.model.value import Timestamp, Value

__all__ = [
    "ApiSchemaSummary", "BaselineSummary", "Degraded", "ErrorSummary", "KnownError", "MemoryStats",
    "NamespaceStats", "NoiseSummary", "PerformanceSummary", "SessionContext", "bounded", "context_of", "few",
    "stats_of",
]  # fmt: skip

CONTEXT_BYTES: Final = 8000
RECENT_SESSIONS: Final = 3
RECENTLY: Final = timedelta(days=7)
_MOST_KEYS: Final = 12


class BaselineSummary(Value):
    """The baselines there are; `last_validated` is when one was last saved, read or compared."""

    count: int = 0
    names: tuple[str, ...] = ()
    last_validated: Timestamp | None = None


class ApiSchemaSummary(Value):
    """How much of the API is known, and how much of it was seen in the last three sessions."""

    endpoints_known: int = 0
    last_updated: Timestamp | None = None
    seen_recently: int = 0


class NoiseSummary(Value):
    """The noise rules in effect, and how much they have filtered so far."""

    rules_count: int = 0
    auto_detected: int = 0
    manual: int = 0
    entries_filtered_lifetime: int = 0


class KnownError(Value):
    """One error from earlier sessions."""

    fingerprint: str
    first_seen: Timestamp
    last_seen: Timestamp
    occurrences: int = 1
    message: str | None = None
    resolved_at: Timestamp | None = None
    sessions_to_fix: int | None = None


class ErrorSummary(Value):
    """Unresolved errors, newest first; those resolved within seven days; how many a noise rule hides."""

    unresolved: tuple[KnownError, ...] = ()
    resolved_recently: tuple[KnownError, ...] = ()
    hidden_as_noise: int = 0


class Degraded(Value):
    """An endpoint that has become slow."""

    endpoint: str
    was_ms: float
    now_ms: float

    def __str__(self) -> str:
        return f"{self.endpoint} (was {self.was_ms:.0f}ms, now {self.now_ms:.0f}ms)"


class PerformanceSummary(Value):
    """The endpoints that are timed, and those slower in their latest session than before."""

    endpoints_tracked: int = 0
    degraded_since_last: tuple[Degraded, ...] = ()


class SessionContext(Value):
    """What earlier sessions left: the answer of `ProjectMemory.load_context`."""

    project: str
    session_count: int
    last_session: Timestamp | None = None
    baselines: BaselineSummary = BaselineSummary()
    api_schema: ApiSchemaSummary = ApiSchemaSummary()
    noise_config: NoiseSummary = NoiseSummary()
    error_history: ErrorSummary = ErrorSummary()
    performance: PerformanceSummary = PerformanceSummary()
    other_namespaces: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    preferences: tuple[str, ...] = ()
    persistence: Persistence = "disk"
    notices: tuple[str, ...] = ()

    @property
    def start_line(self) -> str:
        """The context in one line, for a log: numbers only."""
        return (
            f"Loaded session context: {self.baselines.count} baselines, "
            f"{self.noise_config.rules_count} noise rules, {self.api_schema.endpoints_known} endpoints"
        )


class NamespaceStats(Value):
    """How much one namespace holds. `entries` counts errors, rules and endpoints, not files."""

    entries: int = 0
    bytes: int = 0


class MemoryStats(Value):
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


def context_of(view: MemoryView, *, now: datetime, **about: Any) -> SessionContext:
    """The context from *view*, with the fields in *about*."""
    endpoints, timings, noise = (
        list(view.current(namespace).values()) for namespace in (API_SCHEMA, PERFORMANCE, NOISE)
    )
    session = view.meta["session_count"]
    auto = sum(bool(rule.get("auto")) for rule in noise)
    baselines = [entry for entry in view.entries.values() if entry.name.namespace == BASELINES]
    return SessionContext(
        session_count=session,
        baselines=BaselineSummary(
            count=len(baselines), names=tuple(sorted(entry.name.key for entry in baselines)),
            last_validated=max((entry.used_at for entry in baselines), default=None),
        ),
        api_schema=ApiSchemaSummary(
            endpoints_known=len(endpoints),
            last_updated=max(filter(None, (moment_in(entry["last_seen"]) for entry in endpoints)), default=None),
            seen_recently=sum(entry.get("session", 0) > session - RECENT_SESSIONS for entry in endpoints),
        ),
        noise_config=NoiseSummary(
            rules_count=len(noise), auto_detected=auto, manual=len(noise) - auto,
            entries_filtered_lifetime=sum(rule.get("filtered", 0) for rule in noise),
        ),
        error_history=_errors(view, now),
        performance=PerformanceSummary(
            endpoints_tracked=len(timings),
            degraded_since_last=tuple(
                Degraded(endpoint=timing["endpoint"], was_ms=timing["before_ms"], now_ms=timing["session_ms"])
                for timing in timings if is_degraded(timing)
            ),
        ),
        other_namespaces={n: tuple(keys) for n, keys in view.keys.items() if n not in (BASELINES, *KINDS)},
        **about,
    )  # fmt: skip


def _errors(view: MemoryView, now: datetime) -> ErrorSummary:
    noise, errors = view.current(NOISE), view.current(ERRORS).values()
    newest_first = sorted(errors, key=lambda entry: str(entry["last_seen"]), reverse=True)
    listed = [
        entry for entry in newest_first
        if matching_rule(noise, f"{entry['fingerprint']} {entry.get('message', '')}") is None
    ]  # fmt: skip
    known = [(_known(entry), is_resolved(entry)) for entry in listed]
    return ErrorSummary(
        unresolved=tuple(error for error, is_fixed in known if not is_fixed),
        resolved_recently=tuple(
            error for error, is_fixed in known if is_fixed and now - (error.resolved_at or now) <= RECENTLY
        ),
        hidden_as_noise=len(newest_first) - len(listed),
    )


def _known(entry: Entry) -> KnownError:
    fields = ("fingerprint", "first_seen", "last_seen", "occurrences", "message")
    return KnownError(
        **{field: entry[field] for field in fields if field in entry},
        resolved_at=entry["resolved_at"] if is_resolved(entry) else None,
        sessions_to_fix=sessions_to_fix(entry),
    )


def stats_of(view: MemoryView, **about: Any) -> MemoryStats:
    """The statistics from *view*, with the fields in *about*."""
    sizes = Counter[str]()
    for entry in view.entries.values():
        sizes[entry.name.namespace] += entry.size
    spaces = {name: NamespaceStats(entries=len(keys), bytes=sizes[name]) for name, keys in view.keys.items()}
    return MemoryStats(
        total_bytes=sizes.total(), namespaces=spaces,
        session_count=view.meta["session_count"],
        oldest=min((entry.used_at for entry in view.entries.values()), default=None), **about,
    )  # fmt: skip


# The answer of a tool ----------------------------------------------------------------------------------------

_ALL: Final = 'session_store(action="load", namespace="{}", start=0, limit=50)'
_MORE: Final = {
    "error_history.unresolved": _ALL.format(ERRORS),
    "error_history.resolved_recently": _ALL.format(ERRORS),
    "performance_baselines.degraded_since_last": _ALL.format(PERFORMANCE),
    "baselines.names": 'session_store(action="list", namespace="baselines")',
    "other_namespaces": 'session_store(action="list")',
    "preferences": 'session_store(action="list", namespace="global")',
    "notices": 'session_store(action="stats")',
}
"""The lists of the answer that may be truncated, and how an agent gets the rest of each."""


def bounded(context: SessionContext, preferences: dict[str, Any], most: int = CONTEXT_BYTES) -> dict[str, Any]:
    """The context for an agent, in at most *most* bytes of JSON. Lists are truncated; omitted items are counted."""
    answer = _answer(context, preferences)
    cut: dict[str, int] = {}
    while len(json.dumps(_counted(answer, cut), ensure_ascii=False).encode(errors="replace")) > most:
        sizes = {path: len(json.dumps(_at(answer, path))) for path in _MORE if _at(answer, path)}
        if not sizes:
            break
        path = max(sizes, key=lambda name: sizes[name])
        items = _at(answer, path)
        for key in (list(items) if isinstance(items, dict) else range(len(items)))[len(items) * 3 // 4 :][::-1]:
            del items[key]
            cut[path] = cut.get(path, 0) + 1
    return _counted(answer, cut)


def _counted(answer: dict[str, Any], cut: dict[str, int]) -> dict[str, Any]:
    left_out = {path: f"{count} more: {_MORE[path]}" for path, count in cut.items()}
    return {**answer, "left_out": left_out} if left_out else answer


def _at(answer: dict[str, Any], path: str) -> Any:
    outer, _, inner = path.partition(".")
    return answer[outer][inner] if inner else answer.get(outer)


def _answer(context: SessionContext, preferences: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = context.model_dump(mode="json")
    errors, schema, timings = answer["error_history"], answer["api_schema"], answer.pop("performance")
    errors["unresolved_count"] = len(errors["unresolved"])
    for name in ("unresolved", "resolved_recently"):
        errors[name] = [_told(error) for error in getattr(context.error_history, name)]
    seen = f"{schema.pop('seen_recently')}/{schema['endpoints_known']}"
    schema["coverage"] = f"{seen} endpoints observed in last {RECENT_SESSIONS} sessions"
    timings["degraded_since_last"] = [str(each) for each in context.performance.degraded_since_last]
    answer["performance_baselines"] = timings
    answer["other_namespaces"] = {name: few(keys, _MOST_KEYS) for name, keys in context.other_namespaces.items()}
    answer["preferences"] = {key: _cut(json.dumps(value)) for key, value in preferences.items()}
    answer["notices"] = [_cut(notice, 300) for notice in context.notices]
    return answer


def _told(error: KnownError) -> dict[str, Any]:
    told: dict[str, Any] = {"fingerprint": _cut(error.fingerprint), "first_seen": f"{error.first_seen:%Y-%m-%d}"}
    if error.resolved_at is not None:
        told |= {"resolved": f"{error.resolved_at:%Y-%m-%d}", "sessions_to_fix": error.sessions_to_fix}
    else:
        told |= {"last_seen": f"{error.last_seen:%Y-%m-%d}", "occurrences": error.occurrences}
    return told | ({"message": _cut(error.message)} if error.message else {})


def _cut(text: str, most: int = 160) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def few(texts: Sequence[str], most: int, longest: int = 60) -> list[str]:
    """The first *most* of *texts*, each truncated, and how many more there are."""
    more = [f"… {len(texts) - most} more"] if len(texts) > most else []
    return [_cut(text, longest) for text in texts[:most]] + more
