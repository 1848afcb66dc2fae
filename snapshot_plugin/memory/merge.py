"""How what was just seen is added to what is stored. Pure: both are documents of the same kind."""

from __future__ import annotations

from snapshot_plugin.memory.records import (
    ApiSchema,
    Endpoint,
    EndpointTiming,
    ErrorHistory,
    ErrorRecord,
    NoiseConfig,
    Timings,
)

__all__ = ["merged_endpoint", "merged_errors", "merged_schema", "merged_timings", "with_filtered"]


def merged_errors(stored: ErrorHistory, seen: ErrorHistory) -> ErrorHistory:
    """Add sightings: a known error keeps its place in the line, a new one goes to its end."""
    entries = {entry.fingerprint: entry for entry in stored.entries}
    for entry in seen.entries:
        known = entries.get(entry.fingerprint)
        entries[entry.fingerprint] = _merged_error(known, entry) if known else entry
    return stored.evolve(entries=tuple(entries.values()))


def _merged_error(old: ErrorRecord, new: ErrorRecord) -> ErrorRecord:
    resolved = max((at for at in (old.resolved_at, new.resolved_at) if at), default=None)
    return old.evolve(
        first_seen=min(old.first_seen, new.first_seen),
        last_seen=max(old.last_seen, new.last_seen),
        occurrences=old.occurrences + new.occurrences,
        message=new.message or old.message,
        resolved_at=resolved,
        resolved_session=new.resolved_session or old.resolved_session,
    )


def merged_schema(stored: ApiSchema, seen: ApiSchema) -> ApiSchema:
    """Add observations of endpoints."""
    endpoints = {entry.endpoint: entry for entry in stored.endpoints}
    for entry in seen.endpoints:
        known = endpoints.get(entry.endpoint)
        endpoints[entry.endpoint] = merged_endpoint(known, entry) if known else entry
    return stored.evolve(endpoints=tuple(endpoints.values()))


def merged_endpoint(old: Endpoint, new: Endpoint) -> Endpoint:
    """Two observations of what counts as the same endpoint."""
    return old.evolve(
        seen=old.seen + new.seen,
        last_seen=max(old.last_seen, new.last_seen),
        session=max(old.session, new.session),
        shape=new.shape if new.shape is not None else old.shape,
        merged=old.merged + new.merged,
    )


def merged_timings(stored: Timings, seen: Timings) -> Timings:
    """Add measurements. Those of a new session move the last session's into the average of all before."""
    endpoints = {entry.endpoint: entry for entry in stored.endpoints}
    for entry in seen.endpoints:
        known = endpoints.get(entry.endpoint)
        endpoints[entry.endpoint] = _merged_timing(known, entry) if known else entry
    return stored.evolve(endpoints=tuple(endpoints.values()))


def _merged_timing(old: EndpointTiming, new: EndpointTiming) -> EndpointTiming:
    if new.session != old.session:
        before = _mean((old.before_ms, old.before_samples), (old.session_ms, old.session_samples))
        samples = old.before_samples + old.session_samples
        return new.evolve(before_ms=before, before_samples=samples)
    return old.evolve(
        updated_at=max(old.updated_at, new.updated_at),
        session_ms=_mean((old.session_ms, old.session_samples), (new.session_ms, new.session_samples)),
        session_samples=old.session_samples + new.session_samples,
    )


def _mean(*parts: tuple[float, int]) -> float:
    samples = sum(count for _, count in parts)
    return sum(value * count for value, count in parts) / samples if samples else 0.0


def with_filtered(config: NoiseConfig, filtered: dict[str, int]) -> NoiseConfig:
    """Add to each rule how much it kept out; *filtered* counts by pattern."""
    rules = [
        rule.evolve(filtered=rule.filtered + filtered[rule.pattern]) if rule.pattern in filtered else rule
        for rule in config.rules
    ]
    return config.evolve(rules=tuple(rules))
