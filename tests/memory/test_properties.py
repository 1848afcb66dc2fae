"""What holds for all data: names come back, limits hold, nothing is lost or counted twice."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from snapshot_plugin import InvalidInput
from snapshot_plugin.memory import MemoryLimits
from snapshot_plugin.memory.documents import MemoryDocument
from snapshot_plugin.memory.entries import KINDS, moment_in, parse
from snapshot_plugin.memory.files import API_SCHEMA, ERRORS, SUFFIX, encoded, name_in_file, name_of
from snapshot_plugin.memory.privacy import without_secrets
from snapshot_plugin.model.times import rfc3339
from tests.tries import tries

NOW = datetime(2026, 1, 1, tzinfo=UTC)
QUICK = tries(60)
ages = st.integers(0, 60).map(lambda days: NOW - timedelta(days=days))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)
field_names = st.sampled_from(
    [
        "message",
        "count",
        "endpoint",
        "method",
        "path",
        "avg_ms",
        "p95",
        "pattern",
        "resolved",
        "errors",
        "rules",
        "GET /a",
    ]
)
likely = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=20)
    | st.sampled_from(["GET /a", "2026-01-20", "1.5s"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(field_names | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=20,
)
sightings = st.lists(st.tuples(st.sampled_from("abcdef"), ages), max_size=30)


def history(seen: list[tuple[str, datetime]], document: MemoryDocument | None = None) -> MemoryDocument:
    document = document or MemoryDocument(ERRORS)
    for name, at in seen:
        [entry] = parse(ERRORS, "history", {"fingerprint": name}, rfc3339(at)).entries
        document.add(entry, session=1, limits=MemoryLimits())
    return document


@given(st.text(max_size=80), st.text(max_size=80))
@QUICK
def test_accepted_name_round_trips_through_its_file(namespace: str, key: str) -> None:
    try:
        name = name_of(namespace, key)
    except InvalidInput:
        return
    directory, file = name.path
    assert "/" not in directory + file
    assert not directory.startswith(".")
    assert name_in_file(directory, file) == name
    assert file.endswith(SUFFIX)


@given(values)
@QUICK
def test_written_value_is_read_back_unchanged(value: Any) -> None:
    assert json.loads(encoded(value)) == value


@given(values)
@QUICK
def test_redaction_is_idempotent(value: Any) -> None:
    clean, _ = without_secrets(value)
    assert without_secrets(clean) == (clean, {})


@given(sightings, sightings)
@QUICK
def test_errors_count_every_sighting_once(first: list[Any], second: list[Any]) -> None:
    both = history(second, history(first)).entries
    assert sum(entry["occurrences"] for entry in both.values()) == len(first) + len(second)
    for name, entry in both.items():
        times = [at for seen, at in first + second if seen == name]
        assert (moment_in(entry["first_seen"]), moment_in(entry["last_seen"])) == (min(times), max(times))


@given(sightings)
@QUICK
def test_saving_a_loaded_history_again_counts_nothing_twice(seen: list[Any]) -> None:
    document = history(seen)
    before = json.loads(json.dumps(document.raw()))
    for entry in parse(ERRORS, "history", before, rfc3339(NOW)).entries:
        document.add(entry, session=2, limits=MemoryLimits())
    assert document.raw() == before


@given(sightings, st.integers(1, 8))
@QUICK
def test_kept_errors_are_the_newest_within_the_age_limit(seen: list[Any], room: int) -> None:
    limits, document = MemoryLimits(errors=room), history(seen)
    young = [
        name
        for name, entry in document.entries.items()
        if NOW - (moment_in(entry["last_seen"]) or NOW) <= limits.error_age
    ]
    gone = document.trim(limits, NOW)
    assert list(document.entries) == young[-room:]
    assert gone == len({name for name, _ in seen}) - len(document.entries)


@given(
    st.lists(st.tuples(st.sampled_from(["/a", "/b", "/b/1", "/b/2", "/b/3", "/c/d/e"]), st.integers(1, 9))),
    st.integers(1, 4),
)
@QUICK
def test_merging_endpoints_respects_the_limit_and_keeps_frequent_ones(
    seen: list[tuple[str, int]], room: int
) -> None:
    document = MemoryDocument(API_SCHEMA)
    for path, count in seen:
        [entry] = parse(API_SCHEMA, "schema", {"endpoint": f"GET {path}", "count": count}, rfc3339(NOW)).entries
        document.add(entry, session=1, limits=MemoryLimits())
    before = dict(document.entries)
    document.trim(MemoryLimits(endpoints=room), NOW)
    assert len(document.entries) <= room
    if len(before) <= room:
        assert document.entries == before
    else:
        most = max(entry["seen"] for entry in before.values())
        assert max(entry["seen"] for entry in document.entries.values()) >= most


@pytest.mark.parametrize("namespace", list(KINDS))
@given(likely | values)
@example({"^": None})
@QUICK
def test_any_data_is_understood_or_reported_as_ignored(namespace: str, data: Any) -> None:
    found = parse(namespace, KINDS[namespace].document.key, data, rfc3339(NOW))
    assert all(isinstance(entry[KINDS[namespace].named_by], str) for entry in found.entries)
    assert len(found.ignored) >= len(found.unread)
    document = MemoryDocument.read(namespace, KINDS[namespace].document.key, data, NOW)
    for entry in found.entries:
        if len(entry[KINDS[namespace].named_by]) < 400:
            document.add(entry, session=1, limits=MemoryLimits())
    document.trim(MemoryLimits(), NOW)
    again = MemoryDocument.read(namespace, KINDS[namespace].document.key, json.loads(encoded(document.raw())), NOW)
    assert set(again.entries) == set(document.entries)
