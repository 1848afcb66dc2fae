"""Metrics of a manager: readable from Python, and exported to OpenTelemetry if it is installed.

Both are subscribers of the manager's events, so their numbers agree. Session ids are never used as attributes: a
metric with one series per session is expensive to store.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from inspect import signature
from typing import Any

from snapshot_plugin.manager.events import (
    Event,
    SessionRecovered,
    SessionRestored,
    SnapshotCreated,
    SnapshotFailed,
    SnapshotSkipped,
    Subscriber,
)
from snapshot_plugin.model.value import Value

__all__ = ["Distribution", "EventMetrics", "MetricsSnapshot", "opentelemetry_subscriber"]

try:  # it reads a file, so not when a manager is made: that may be in an event loop
    _VERSION = version("snapshot-plugin")
except PackageNotFoundError:  # the package is on the path without having been installed
    _VERSION = ""
WINDOW = 1024
"""How many of the newest values the quantiles cover; count, total, least and most cover all values."""


class Distribution(Value):
    """The distribution of a value. Quantiles are of the newest 1024 values, everything else is of all values."""

    count: int = 0
    total: float = 0.0
    least: float | None = None
    most: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class MetricsSnapshot(Value):
    """All metrics at one moment."""

    saved: int
    """Snapshots that were written."""
    skipped: int
    """Saves with nothing to write."""
    failed: dict[str, int]
    """Failures by operation: save, spool, retention, restore, control."""
    restored: dict[str, int]
    """Restores by grade."""
    recovered: int
    """Sessions recovered after a crash."""
    save_size_bytes: Distribution
    save_seconds: Distribution
    restore_seconds: Distribution


class EventMetrics:
    """Counts events. Subscribe it to an `EventBus` and read it with `snapshot`."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._restored: Counter[str] = Counter()
        self._save_size = _Tally()
        self._save_seconds = _Tally()
        self._restore_seconds = _Tally()

    def __call__(self, event: Event) -> None:
        """Count one event."""
        match event:
            case SnapshotCreated():
                self._save_size.add(event.size_bytes)
                self._save_seconds.add(event.duration)
            case SnapshotFailed():
                self._failed[event.operation] += 1
            case SessionRestored():
                self._restored[event.grade] += 1
                self._restore_seconds.add(event.duration)
        self._counts[event.name] += 1

    def snapshot(self) -> MetricsSnapshot:
        """The current numbers, as an immutable value."""
        return MetricsSnapshot(
            saved=self._counts[SnapshotCreated.name],
            skipped=self._counts[SnapshotSkipped.name],
            failed=dict(self._failed),
            restored=dict(self._restored),
            recovered=self._counts[SessionRecovered.name],
            save_size_bytes=self._save_size.summary(),
            save_seconds=self._save_seconds.summary(),
            restore_seconds=self._restore_seconds.summary(),
        )


class _Tally:
    def __init__(self) -> None:
        self._count = 0
        self._total = 0.0
        self._least: float | None = None
        self._most: float | None = None
        self._newest: deque[float] = deque(maxlen=WINDOW)

    def add(self, value: float) -> None:
        self._count += 1
        self._total += value
        self._least = value if self._least is None else min(value, self._least)
        self._most = value if self._most is None else max(value, self._most)
        self._newest.append(value)

    def summary(self) -> Distribution:
        return Distribution(
            count=self._count, total=self._total, least=self._least, most=self._most, **quantiles(self._newest)
        )


def quantiles(values: Iterable[float]) -> dict[str, float]:
    """The 50th, 95th and 99th percentile by nearest rank.

    Each is a value that occurred. Empty if there are no values.
    """
    ordered = sorted(values)
    if not ordered:
        return {}
    ranks = {name: -(-len(ordered) * part // 100) for name, part in (("p50", 50), ("p95", 95), ("p99", 99))}
    return {name: ordered[rank - 1] for name, rank in ranks.items()}


def opentelemetry_subscriber(meter_provider: Any = None) -> Subscriber | None:
    """A subscriber that updates OpenTelemetry instruments; None if its API is not installed.

    Args:
        meter_provider: where the meter comes from; default: the process's own.
    """
    try:
        from opentelemetry import metrics  # noqa: PLC0415 — optional, and slow to import
    except ImportError:
        return None
    return _Instruments(metrics.get_meter("snapshot_plugin", _VERSION, meter_provider=meter_provider))


_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_BYTES = tuple(1 << power for power in range(8, 30, 2))


def _buckets(meter: Any, boundaries: Sequence[float]) -> dict[str, Any]:
    """The argument that sets a histogram's buckets. The default ones are made for milliseconds."""
    name = "explicit_bucket_boundaries_advisory"  # new in OpenTelemetry 1.30
    return {name: boundaries} if name in signature(meter.create_histogram).parameters else {}


class _Instruments:
    def __init__(self, meter: Any) -> None:
        self._snapshots = meter.create_counter("asnap.snapshots", unit="{save}", description="Saves, by outcome")
        self._failures = meter.create_counter(
            "asnap.failures", unit="{failure}", description="Failures of any kind"
        )
        self._restores = meter.create_counter("asnap.restores", unit="{session}", description="Restores, by grade")
        self._recovered = meter.create_counter("asnap.recovered", unit="{session}", description="Spools recovered")
        sizes, times = _buckets(meter, _BYTES), _buckets(meter, _SECONDS)
        self._size = meter.create_histogram("asnap.snapshot.size", unit="By", description="Bytes per save", **sizes)
        self._duration = meter.create_histogram(
            "asnap.snapshot.duration", unit="s", description="Time per save", **times
        )
        self._restore = meter.create_histogram(
            "asnap.restore.duration", unit="s", description="Time per restore", **times
        )

    def __call__(self, event: Event) -> None:
        match event:
            case SnapshotCreated():
                self._snapshots.add(1, {"outcome": "saved", "trigger": event.trigger})
                self._size.record(event.size_bytes)
                self._duration.record(event.duration)
            case SnapshotSkipped():
                self._snapshots.add(1, {"outcome": "skipped", "reason": event.reason})
            case SnapshotFailed():
                self._failures.add(1, {"operation": event.operation, "error.type": event.code})
            case SessionRestored():
                self._restores.add(1, {"grade": event.grade})
                self._restore.record(event.duration)
            case SessionRecovered():
                self._recovered.add(1, {"outcome": "failed" if event.problem else "recovered"})
