"""What a namespace lets go of when it is full or too old. Pure: entries in, decisions out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from snapshot_plugin.memory.limits import Limits
from snapshot_plugin.memory.merge import merged_endpoint
from snapshot_plugin.memory.names import (
    API_SCHEMA,
    BASELINES,
    ERROR_HISTORY,
    ERRORS,
    PERFORMANCE,
    SCHEMA,
    TIMINGS,
    Name,
)
from snapshot_plugin.memory.reading import read_document
from snapshot_plugin.memory.records import ApiSchema, ErrorHistory, Timings
from snapshot_plugin.model.value import Value

__all__ = ["Stored", "evicted", "kept_endpoints", "kept_errors", "kept_timings", "trimmed"]

_DOCUMENTS = frozenset({ERROR_HISTORY, SCHEMA, TIMINGS})
"""These hold many entries in one file, and are trimmed inside instead."""


class Stored(NamedTuple):
    """An entry as eviction sees it."""

    name: Name
    size: int
    saved_at: datetime
    used_at: datetime


def evicted(namespace: str, stored: Iterable[Stored], limits: Limits, now: datetime) -> list[Name]:
    """The entries of *namespace* that must go: the oldest of too many, and those past their time."""
    entries = [entry for entry in stored if entry.name.namespace == namespace and entry.name not in _DOCUMENTS]
    if namespace == BASELINES:
        return _surplus(sorted(entries, key=lambda entry: entry.used_at), limits.baselines)
    oldest_first = sorted(entries, key=lambda entry: entry.saved_at)
    if namespace == ERRORS:
        young = [entry for entry in oldest_first if now - entry.saved_at <= limits.error_age]
        return _gone(oldest_first, young) + _surplus(young, limits.errors)
    if namespace == API_SCHEMA:
        return _surplus(oldest_first, limits.endpoints)
    if namespace == PERFORMANCE:
        young = [entry for entry in oldest_first if now - entry.saved_at <= limits.performance_age]
        return _gone(oldest_first, young)
    return []


def _surplus(oldest_first: Sequence[Stored], room: int) -> list[Name]:
    return [entry.name for entry in oldest_first[: max(0, len(oldest_first) - room)]]


def _gone(before: Sequence[Stored], after: Sequence[Stored]) -> list[Name]:
    kept = {entry.name for entry in after}
    return [entry.name for entry in before if entry.name not in kept]


def kept_errors(history: ErrorHistory, limits: Limits, now: datetime) -> ErrorHistory:
    """First in, first out; and nothing that was not seen for longer than the age limit."""
    young = [entry for entry in history.entries if now - entry.last_seen <= limits.error_age]
    return history.evolve(entries=tuple(young[-limits.errors :]))


def kept_timings(timings: Timings, limits: Limits, now: datetime) -> Timings:
    """Only what was measured within the age limit; of too many, those measured last."""
    young = [entry for entry in timings.endpoints if now - entry.updated_at <= limits.performance_age]
    if len(young) > limits.timings:
        young = sorted(young, key=lambda entry: entry.updated_at)[-limits.timings :]
    return timings.evolve(endpoints=tuple(young))


def kept_endpoints(schema: ApiSchema, limits: Limits) -> ApiSchema:
    """The most frequent endpoints by themselves; rare ones are merged by path, as ``GET /users/*``.

    Should even that be too many, the rarest go.
    """
    if len(schema.endpoints) <= limits.endpoints:
        return schema
    frequent = sorted(schema.endpoints, key=lambda entry: -entry.seen)
    kept = {entry.endpoint: entry for entry in frequent[: limits.endpoints]}
    for rare in frequent[limits.endpoints :]:
        general = rare.evolve(endpoint=_general(rare.endpoint), merged=max(rare.merged, 1))
        known = kept.get(general.endpoint)
        kept[general.endpoint] = merged_endpoint(known, general) if known else general
    most = sorted(kept.values(), key=lambda entry: -entry.seen)
    return schema.evolve(endpoints=tuple(most[: limits.endpoints]))


def _general(endpoint: str) -> str:
    """The endpoint with the last part of its path left open."""
    method, space, target = endpoint.rpartition(" ")
    path = urlsplit(target).path.rstrip("/")
    return f"{method}{space}{path.rpartition('/')[0]}/*"


def trimmed(name: Name, raw: Any, limits: Limits, now: datetime) -> tuple[Any, int]:
    """A document somebody wants to save, and how many of its entries had to go. Without need it is not touched."""
    if name == ERROR_HISTORY:
        history = read_document(ErrorHistory, raw, seen_at=now)
        errors = kept_errors(history, limits, now)
        return _unless_same(raw, errors, len(history.entries) - len(errors.entries))
    if name == SCHEMA:
        schema = read_document(ApiSchema, raw, seen_at=now)
        endpoints = kept_endpoints(schema, limits)
        return _unless_same(raw, endpoints, len(schema.endpoints) - len(endpoints.endpoints))
    if name == TIMINGS:
        before = read_document(Timings, raw, seen_at=now)
        timings = kept_timings(before, limits, now)
        return _unless_same(raw, timings, len(before.endpoints) - len(timings.endpoints))
    return raw, 0


def _unless_same(raw: Any, kept: Value, gone: int) -> tuple[Any, int]:
    return (kept.raw(), gone) if gone else (raw, 0)
