"""What a new session is told about the earlier ones, and how much a memory holds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import Field

from snapshot_plugin.memory.batch import Batch, Persistence
from snapshot_plugin.memory.documents import Document, is_degraded, is_resolved, matching_rule, sessions_to_fix
from snapshot_plugin.memory.limits import Limits
from snapshot_plugin.memory.names import API_SCHEMA, BASELINES, DOCUMENTS, ERRORS, NOISE, PERFORMANCE
from snapshot_plugin.memory.understand import Entry, moment_in
from snapshot_plugin.model.value import Timestamp, Value

__all__ = [
    "ApiSchemaSummary", "BaselineSummary", "Degraded", "ErrorSummary", "KnownError", "MemoryStats",
    "NamespaceStats", "NoiseSummary", "PerformanceSummary", "SessionContext", "bounded", "context_of", "stats_of",
]  # fmt: skip

CONTEXT_BYTES: Final = 8000
RECENTLY: Final = timedelta(days=7)
RECENT_SESSIONS: Final = 3
_KNOWN: Final = frozenset({BASELINES, *DOCUMENTS})


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


def context_of(batch: Batch, *, project: str, session: int, limits: Limits, now: datetime) -> dict[str, Any]:
    """The fields of `SessionContext` that the batch knows."""
    documents = {namespace: batch.document(namespace) for namespace in DOCUMENTS}
    for document in documents.values():
        document.trim(limits, now)
    others = {namespace: tuple(keys) for namespace, keys in batch.keys.items() if namespace not in _KNOWN}
    return {
        "project": project,
        "session_count": session,
        "baselines": _baselines(batch),
        "api_schema": _schema(documents[API_SCHEMA], session),
        "noise_config": _noise(documents[NOISE]),
        "error_history": _errors(documents[ERRORS], documents[NOISE], now),
        "performance": _performance(documents[PERFORMANCE]),
        "other_namespaces": others,
    }


def _baselines(batch: Batch) -> BaselineSummary:
    found = [stored for stored in batch.entries.values() if stored.name.namespace == BASELINES]
    names = tuple(sorted(stored.name.key for stored in found))
    return BaselineSummary(
        count=len(found), names=names, last_validated=max(map(batch.used_at, found), default=None)
    )


def _schema(document: Document, session: int) -> ApiSchemaSummary:
    entries = document.entries.values()
    return ApiSchemaSummary(
        endpoints_known=len(entries),
        last_updated=max((moment_in(entry["last_seen"]) for entry in entries), default=None),  # type: ignore[type-var]
        seen_recently=sum(entry.get("session", 0) > session - RECENT_SESSIONS for entry in entries),
    )


def _noise(document: Document) -> NoiseSummary:
    rules = document.entries.values()
    auto = sum(bool(rule.get("auto")) for rule in rules)
    filtered = sum(rule.get("filtered", 0) for rule in rules)
    return NoiseSummary(
        rules_count=len(rules), auto_detected=auto, manual=len(rules) - auto, entries_filtered_lifetime=filtered
    )


def _errors(document: Document, noise: Document, now: datetime) -> ErrorSummary:
    newest_first = sorted(document.entries.values(), key=lambda entry: str(entry["last_seen"]), reverse=True)
    is_noise = {
        entry["fingerprint"]: matching_rule(noise.entries, f"{entry['fingerprint']} {entry.get('message', '')}")
        for entry in (newest_first if noise.entries else ())
    }
    listed = [entry for entry in newest_first if not is_noise.get(entry["fingerprint"])]
    fixed = [entry for entry in listed if is_resolved(entry)]
    return ErrorSummary(
        unresolved=_known(entry for entry in listed if not is_resolved(entry)),
        resolved_recently=_known(
            entry for entry in fixed if now - (moment_in(entry["resolved_at"]) or now) <= RECENTLY
        ),
        hidden_as_noise=len(newest_first) - len(listed),
    )


def _known(entries: Iterable[Entry]) -> tuple[KnownError, ...]:
    return tuple(
        KnownError(
            fingerprint=entry["fingerprint"],
            first_seen=entry["first_seen"],
            last_seen=entry["last_seen"],
            occurrences=entry.get("occurrences", 1),
            message=entry.get("message"),
            resolved_at=entry["resolved_at"] if is_resolved(entry) else None,
            sessions_to_fix=sessions_to_fix(entry),
        )
        for entry in entries
    )


def _performance(document: Document) -> PerformanceSummary:
    slow = [entry for entry in document.entries.values() if is_degraded(entry)]
    return PerformanceSummary(
        endpoints_tracked=len(document.entries),
        degraded_since_last=tuple(
            Degraded(endpoint=entry["endpoint"], was_ms=entry["before_ms"], now_ms=entry["session_ms"])
            for entry in slow
        ),
    )


def stats_of(batch: Batch) -> dict[str, Any]:
    """The fields of `MemoryStats` that the batch knows."""
    sizes: dict[str, list[int]] = {}
    for stored in batch.entries.values():
        sizes.setdefault(stored.name.namespace, []).append(stored.size)
    counts = {namespace: len(found) for namespace, found in sizes.items()}
    counts |= {namespace: len(batch.document(namespace).entries) for namespace in DOCUMENTS if namespace in sizes}
    namespaces = {name: NamespaceStats(entries=counts[name], bytes=sum(sizes[name])) for name in sorted(sizes)}
    return {
        "total_bytes": sum(map(sum, sizes.values())),
        "namespaces": namespaces,
        "session_count": batch.meta["session_count"],
        "oldest": min((stored.saved_at for stored in batch.entries.values()), default=None),
    }


# The answer of a tool ----------------------------------------------------------------------------------------


def bounded(context: SessionContext, preferences: dict[str, Any], most: int = CONTEXT_BYTES) -> dict[str, Any]:
    """The context for an agent, in at most *most* bytes of JSON: lists are cut, what is left out is counted."""
    errors, schema, timings = context.error_history, context.api_schema, context.performance
    lists: dict[str, list[Any]] = {
        "error_history.unresolved": [_told(error) for error in errors.unresolved],
        "error_history.resolved_recently": [_told(error) for error in errors.resolved_recently],
        "performance_baselines.degraded_since_last": [
            f"{slow.endpoint} (was {slow.was_ms:.0f}ms, now {slow.now_ms:.0f}ms)"
            for slow in timings.degraded_since_last
        ],
        "baselines.names": list(context.baselines.names),
        "other_namespaces": [(space, _few(keys)) for space, keys in context.other_namespaces.items()],
        "preferences": [(key, _cut(json.dumps(value))) for key, value in preferences.items()],
        "notices": [_cut(notice, 300) for notice in context.notices],
    }
    whole = {name: len(items) for name, items in lists.items()}
    while True:
        answer = _answer(context, schema, lists)
        left_out = {name: whole[name] - len(items) for name, items in lists.items() if whole[name] > len(items)}
        if left_out:
            answer["left_out"] = {name: f"{count} more: {_MORE[name]}" for name, count in left_out.items()}
        if len(json.dumps(answer, ensure_ascii=False).encode(errors="replace")) <= most or not any(lists.values()):
            return answer
        largest = max(lists, key=lambda name: len(json.dumps(lists[name])))
        lists[largest] = lists[largest][: len(lists[largest]) * 3 // 4]


_MORE: Final = {
    "error_history.unresolved": 'session_store(action="load", namespace="errors", start=0, limit=50)',
    "error_history.resolved_recently": 'session_store(action="load", namespace="errors", start=0, limit=50)',
    "performance_baselines.degraded_since_last": 'session_store(action="load", namespace="performance")',
    "baselines.names": 'session_store(action="list", namespace="baselines")',
    "other_namespaces": 'session_store(action="list")',
    "preferences": 'session_store(action="list", namespace="global")',
    "notices": 'session_store(action="stats")',
}  # fmt: skip


def _answer(context: SessionContext, schema: ApiSchemaSummary, lists: dict[str, list[Any]]) -> dict[str, Any]:
    noise, performance, errors = context.noise_config, context.performance, context.error_history
    answer: dict[str, Any] = {
        "project": context.project,
        "session_count": context.session_count,
        "last_session": _second(context.last_session),
        "baselines": {
            "count": context.baselines.count,
            "names": lists["baselines.names"],
            "last_validated": _second(context.baselines.last_validated),
        },
        "api_schema": {
            "endpoints_known": schema.endpoints_known,
            "last_updated": _second(schema.last_updated),
            "coverage": f"{schema.seen_recently}/{schema.endpoints_known} endpoints observed in last "
            f"{RECENT_SESSIONS} sessions",
        },
        "noise_config": noise.model_dump(),
        "error_history": {
            "unresolved_count": len(errors.unresolved),
            "unresolved": lists["error_history.unresolved"],
            "resolved_recently": lists["error_history.resolved_recently"],
            "hidden_as_noise": errors.hidden_as_noise,
        },
        "performance_baselines": {
            "endpoints_tracked": performance.endpoints_tracked,
            "degraded_since_last": lists["performance_baselines.degraded_since_last"],
        },
        "other_namespaces": dict(lists["other_namespaces"]),
        "preferences": dict(lists["preferences"]),
        "persistence": context.persistence,
    }
    return answer | ({"notices": lists["notices"]} if lists["notices"] else {})


def _told(error: KnownError) -> dict[str, Any]:
    told: dict[str, Any] = {"fingerprint": _cut(error.fingerprint), "first_seen": f"{error.first_seen:%Y-%m-%d}"}
    if error.resolved_at is not None:
        told |= {"resolved": f"{error.resolved_at:%Y-%m-%d}", "sessions_to_fix": error.sessions_to_fix}
    else:
        told |= {"last_seen": f"{error.last_seen:%Y-%m-%d}", "occurrences": error.occurrences}
    return told | ({"message": _cut(error.message)} if error.message else {})


def _second(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _cut(text: str, most: int = 160) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _few(keys: tuple[str, ...], most: int = 12) -> list[str]:
    more = [f"… {len(keys) - most} more"] if len(keys) > most else []
    return [_cut(key, 60) for key in keys[:most]] + more
