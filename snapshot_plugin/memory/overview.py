"""The whole memory at a glance: the context for a new session, and the statistics."""

from __future__ import annotations

from collections.abc import Iterable

from snapshot_plugin.memory.archive import Archive
from snapshot_plugin.memory.evict import Stored, kept_errors, kept_timings
from snapshot_plugin.memory.merge import merged_errors, merged_schema, merged_timings, with_filtered
from snapshot_plugin.memory.names import API_SCHEMA, BASELINES, ERRORS, NOISE, PERFORMANCE
from snapshot_plugin.memory.records import ApiSchema, ErrorHistory, Timings
from snapshot_plugin.memory.seen import Seen
from snapshot_plugin.memory.summary import (
    Applied,
    BaselineSummary,
    MemoryStats,
    NamespaceStats,
    SessionContext,
    summarised_errors,
    summarised_noise,
    summarised_performance,
    summarised_schema,
)

__all__ = ["context_of", "stats_of"]

_KNOWN = frozenset({BASELINES, NOISE, API_SCHEMA, ERRORS, PERFORMANCE})


def context_of(archive: Archive, seen: Seen) -> SessionContext:
    """What earlier sessions left, and this one saw so far; noise rules are put into effect on the way."""
    with archive.lock:
        entries = archive.shelf.look(archive.clock())
        archive.apply_noise()
        others: dict[str, list[str]] = {}
        for name in sorted(entries):
            if name.namespace not in _KNOWN:
                others.setdefault(name.namespace, []).append(name.key)
        return SessionContext(
            project=str(archive.project),
            session_count=archive.sessions.meta.session_count,
            last_session=archive.sessions.previous,
            baselines=_baselines(entries.values()),
            api_schema=summarised_schema(_schema(archive, seen), archive.sessions.meta.session_count),
            noise_config=summarised_noise(with_filtered(archive.noise, seen.filtered)),
            error_history=summarised_errors(_errors(archive, seen), archive.clock()),
            performance=summarised_performance(_timings(archive, seen)),
            other_namespaces={namespace: tuple(keys) for namespace, keys in others.items()},
            applied=Applied(noise_rules=len(archive.noise.rules)),
            persistence=archive.standing.persistence,
            notices=archive.standing.notices,
        )


def stats_of(archive: Archive) -> MemoryStats:
    """How much there is of everything."""
    with archive.lock:
        entries = archive.shelf.look(archive.clock()).values()
        sizes: dict[str, list[int]] = {}
        for entry in sorted(entries):
            sizes.setdefault(entry.name.namespace, []).append(entry.size)
        return MemoryStats(
            project=str(archive.project),
            total_bytes=sum(entry.size for entry in entries),
            limit_bytes=archive.limits.project_bytes,
            other_projects_bytes=archive.shelf.elsewhere,
            namespaces={name: NamespaceStats(entries=len(of), bytes=sum(of)) for name, of in sizes.items()},
            session_count=archive.sessions.meta.session_count,
            oldest=min((entry.saved_at for entry in entries), default=None),
            persistence=archive.standing.persistence,
            notices=archive.standing.notices,
        )


def _baselines(entries: Iterable[Stored]) -> BaselineSummary:
    found = sorted(entry for entry in entries if entry.name.namespace == BASELINES)
    return BaselineSummary(
        count=len(found),
        names=tuple(entry.name.key for entry in found),
        last_validated=max((entry.used_at for entry in found), default=None),
    )


def _errors(archive: Archive, seen: Seen) -> ErrorHistory:
    stored = [entry for history in archive.all_of(ErrorHistory, ERRORS) for entry in history.entries]
    history = merged_errors(ErrorHistory(), ErrorHistory(entries=(*stored, *seen.errors.entries)))
    return kept_errors(history, archive.limits, archive.clock())


def _schema(archive: Archive, seen: Seen) -> ApiSchema:
    stored = [entry for schema in archive.all_of(ApiSchema, API_SCHEMA) for entry in schema.endpoints]
    return merged_schema(ApiSchema(), ApiSchema(endpoints=(*stored, *seen.schema.endpoints)))


def _timings(archive: Archive, seen: Seen) -> Timings:
    stored = [entry for timings in archive.all_of(Timings, PERFORMANCE) for entry in timings.endpoints]
    timings = merged_timings(Timings(), Timings(endpoints=(*stored, *seen.timings.endpoints)))
    return kept_timings(timings, archive.limits, archive.clock())
