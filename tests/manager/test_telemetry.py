"""Numbers about saves and restores, from Python and through OpenTelemetry."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import pytest
from opentelemetry.metrics import Histogram, Meter, NoOpMeter, NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from snapshot_plugin import MemoryStore, SnapshotManager, StoreUnavailable
from snapshot_plugin.manager.events import (
    Event,
    SessionRecovered,
    SessionRestored,
    SnapshotCreated,
    SnapshotFailed,
    SnapshotSkipped,
)
from snapshot_plugin.manager.telemetry import WINDOW, EventMetrics, opentelemetry_subscriber, quantiles
from snapshot_plugin.testing import Fault, FaultyCall, FaultyStore
from tests.manager.sessions import Chat, quick

_AT = datetime(2026, 1, 1, tzinfo=UTC)


def _saved(size: int, duration: float) -> SnapshotCreated:
    return SnapshotCreated(session_id="s", at=_AT, seq=1, size_bytes=size, duration=duration, trigger="auto")


_ALL: tuple[Event, ...] = (
    _saved(100, 0.5),
    _saved(300, 1.5),
    SnapshotSkipped(session_id="s", at=_AT, reason="unchanged"),
    SnapshotFailed(session_id="s", at=_AT, operation="save", code="store_unavailable", message="full"),
    SnapshotFailed(session_id="s", at=_AT, operation="restore", code="corrupted", message="bad"),
    SessionRestored(session_id="s", at=_AT, seq=1, age=3.0, grade="native-load", duration=0.25),
    SessionRecovered(session_id="s", at=_AT, records=2, seq=3),
)


@pytest.mark.requirement(
    "MANAGER-METRIC-PYTHON",
)
def test_counters_and_distributions_can_be_read_at_any_time() -> None:
    metrics = EventMetrics()
    for event in _ALL:
        metrics(event)
    now = metrics.snapshot()
    assert (now.saved, now.skipped, now.recovered) == (2, 1, 1)
    assert now.failed == {"save": 1, "restore": 1}
    assert now.restored == {"native-load": 1}
    assert (now.save_size_bytes.count, now.save_size_bytes.total) == (2, 400.0)
    assert (now.save_size_bytes.least, now.save_size_bytes.most) == (100.0, 300.0)
    assert now.save_seconds.p50 == 0.5
    assert now.restore_seconds.total == 0.25


def test_snapshot_of_metrics_does_not_change_later() -> None:
    metrics = EventMetrics()
    before = metrics.snapshot()
    metrics(_ALL[0])
    assert (before.saved, metrics.snapshot().saved) == (0, 1)
    assert before.save_seconds.p99 is None


def test_quantiles_are_observed_values() -> None:
    assert quantiles(range(1, 101)) == {"p50": 50, "p95": 95, "p99": 99}
    assert quantiles([1.0, 2.0, 3.0, 4.0]) == {"p50": 2.0, "p95": 4.0, "p99": 4.0}
    assert quantiles([1.0, 100.0]) == {"p50": 1.0, "p95": 100.0, "p99": 100.0}
    assert quantiles([7.0]) == {"p50": 7.0, "p95": 7.0, "p99": 7.0}
    assert quantiles([]) == {}


def test_quantile_memory_is_bounded_while_the_count_continues() -> None:
    metrics = EventMetrics()
    for size in range(WINDOW + 10):
        metrics(_saved(size, 0.0))
    sizes = metrics.snapshot().save_size_bytes
    assert (sizes.count, sizes.least) == (WINDOW + 10, 0.0)
    assert sizes.p50 == 10 + (WINDOW - 1) // 2


def _points(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, Any], float]]]:
    data = reader.get_metrics_data()
    assert data is not None
    metrics = [m for r in data.resource_metrics for scope in r.scope_metrics for m in scope.metrics]
    return {
        metric.name: [
            (dict(point.attributes or {}), float(getattr(point, "value", 0) or getattr(point, "sum", 0)))
            for point in metric.data.data_points
        ]
        for metric in metrics
    }


@pytest.mark.anyio
@pytest.mark.requirement("MANAGER-METRIC-OTEL")
async def test_opentelemetry_gets_the_numbers_a_manager_counts() -> None:
    def second_read_fails(call: FaultyCall) -> Fault | None:
        return Fault(error=StoreUnavailable("away")) if (call.method, call.number) == ("read", 2) else None

    reader, chat, store = InMemoryMetricReader(), Chat("chat", "one"), FaultyStore(MemoryStore(), second_read_fails)
    manager = SnapshotManager(store, quick(), meter_provider=MeterProvider(metric_readers=[reader]))
    sizes = [(await manager.snapshot(chat)).size_bytes]
    await manager.snapshot(chat)
    chat.say("two")
    sizes.append((await manager.snapshot(chat)).size_bytes)
    await manager.restore("chat")
    with pytest.raises(StoreUnavailable):
        await manager.restore("chat")

    counted, points = manager.metrics.snapshot(), _points(reader)
    assert points["asnap.snapshots"] == [
        ({"outcome": "saved", "trigger": "manual"}, counted.saved),
        ({"outcome": "skipped", "reason": "unchanged"}, counted.skipped),
    ]
    assert (counted.saved, counted.skipped) == (2, 1)
    assert points["asnap.snapshot.size"] == [({}, sum(sizes))]
    assert points["asnap.restores"] == [({"grade": "snapshot"}, counted.restored["snapshot"])]
    assert points["asnap.failures"] == [
        ({"operation": "restore", "error.type": "store_unavailable"}, counted.failed["restore"])
    ]


@pytest.mark.requirement("MANAGER-METRIC-OTEL")
def test_opentelemetry_instruments_carry_the_same_numbers_and_no_session_ids() -> None:
    reader = InMemoryMetricReader()
    subscriber = opentelemetry_subscriber(MeterProvider(metric_readers=[reader]))
    assert subscriber is not None
    for event in _ALL:
        subscriber(event)
    points = _points(reader)
    assert points["asnap.snapshots"] == [
        ({"outcome": "saved", "trigger": "auto"}, 2),
        ({"outcome": "skipped", "reason": "unchanged"}, 1),
    ]
    assert points["asnap.failures"] == [
        ({"operation": "save", "error.type": "store_unavailable"}, 1),
        ({"operation": "restore", "error.type": "corrupted"}, 1),
    ]
    assert points["asnap.restores"] == [({"grade": "native-load"}, 1)]
    assert points["asnap.recovered"] == [({"outcome": "recovered"}, 1)]
    assert points["asnap.snapshot.size"] == [({}, 400)]
    assert points["asnap.snapshot.duration"] == [({}, 2.0)]
    assert points["asnap.restore.duration"] == [({}, 0.25)]


@pytest.mark.requirement("MANAGER-METRIC-OTEL")
def test_opentelemetry_histograms_tell_milliseconds_and_kilobytes_apart() -> None:
    reader = InMemoryMetricReader()
    subscriber = opentelemetry_subscriber(MeterProvider(metric_readers=[reader]))
    assert subscriber is not None
    for size, seconds in ((300, 0.002), (300_000, 0.2), (30_000_000, 2.0)):
        subscriber(_saved(size, seconds))
    data = reader.get_metrics_data()
    assert data is not None
    (scope,) = data.resource_metrics[0].scope_metrics
    assert scope.scope.version == version("snapshot-plugin")
    for metric in scope.metrics:
        if metric.name in {"asnap.snapshot.size", "asnap.snapshot.duration"}:
            (point,) = metric.data.data_points
            assert sorted(getattr(point, "bucket_counts", ()), reverse=True)[:4] == [1, 1, 1, 0], metric.name


def test_opentelemetry_before_1_30_gets_histograms_without_advice() -> None:
    class OldMeter(NoOpMeter):
        def create_histogram(self, name: str, unit: str = "", description: str = "") -> Histogram:  # type: ignore[override]
            return super().create_histogram(name, unit, description)

    class OldProvider(NoOpMeterProvider):
        def get_meter(self, name: str, *_: Any, **__: Any) -> Meter:
            return OldMeter(name)

    subscriber = opentelemetry_subscriber(OldProvider())
    assert subscriber is not None
    subscriber(_saved(1, 1.0))


def test_without_opentelemetry_no_instruments_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert opentelemetry_subscriber() is None
