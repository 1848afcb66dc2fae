"""What was seen since the last flush: errors, endpoints, timings, noise. Bounded, as those are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from snapshot_plugin.memory.evict import kept_endpoints, kept_errors, kept_timings
from snapshot_plugin.memory.limits import Limits
from snapshot_plugin.memory.merge import merged_errors, merged_schema, merged_timings
from snapshot_plugin.memory.records import (
    ApiSchema,
    Endpoint,
    EndpointTiming,
    ErrorHistory,
    ErrorRecord,
    Timings,
)

__all__ = ["Seen"]


@dataclass(kw_only=True)
class Seen:
    """Documents of the same kinds as the stored ones, holding only what is to be added to them."""

    errors: ErrorHistory = field(default_factory=ErrorHistory)
    schema: ApiSchema = field(default_factory=ApiSchema)
    timings: Timings = field(default_factory=Timings)
    filtered: Counter[str] = field(default_factory=Counter)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to add."""
        return not (self.errors.entries or self.schema.endpoints or self.timings.endpoints or self.filtered)

    def add_error(self, error: ErrorRecord, limits: Limits, now: datetime) -> None:
        """Another sighting of an error, or its resolution."""
        self.errors = kept_errors(merged_errors(self.errors, ErrorHistory(entries=(error,))), limits, now)

    def add_endpoint(self, endpoint: Endpoint, limits: Limits) -> None:
        """Another observation of an endpoint."""
        self.schema = kept_endpoints(merged_schema(self.schema, ApiSchema(endpoints=(endpoint,))), limits)

    def add_timing(self, timing: EndpointTiming, limits: Limits, now: datetime) -> None:
        """Another measurement."""
        self.timings = kept_timings(merged_timings(self.timings, Timings(endpoints=(timing,))), limits, now)
