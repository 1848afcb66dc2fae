"""What holds for all data: names come back, limits hold, nothing is lost or counted twice."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot_plugin.memory import ApiSchema, Endpoint, ErrorHistory, ErrorRecord, Limits
from snapshot_plugin.memory.evict import Stored, evicted, kept_endpoints, kept_errors, trimmed
from snapshot_plugin.memory.files import encoded
from snapshot_plugin.memory.merge import merged_errors, merged_schema
from snapshot_plugin.memory.names import ERROR_HISTORY, SUFFIX, Name, name_from_file, name_of
from snapshot_plugin.memory.privacy import without_secrets
from snapshot_plugin.memory.reading import read_document
from snapshot_plugin.errors import InvalidInput

NOW = datetime(2026, 1, 1, tzinfo=UTC)
QUICK = settings(max_examples=60, deadline=None)
ages = st.integers(0, 60).map(lambda days: NOW - timedelta(days=days))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)
sightings = st.lists(st.tuples(st.sampled_from("abcdef"), ages), max_size=30)


def history(seen: list[tuple[str, datetime]]) -> ErrorHistory:
    entries = [ErrorRecord(fingerprint=name, first_seen=at, last_seen=at) for name, at in seen]
    return merged_errors(ErrorHistory(), ErrorHistory(entries=tuple(entries)))


@given(st.text(max_size=80), st.text(max_size=80))
@QUICK
def test_a_name_that_is_taken_comes_back_from_its_file(namespace: str, key: str) -> None:
    try:
        name = name_of(namespace, key)
    except InvalidInput:
        return
    directory, _, file = name.file.partition("/")
    assert "/" not in file
    assert not directory.startswith(".")
    assert name_from_file(namespace, file) == name
    assert file.endswith(SUFFIX)


@given(values)
@QUICK
def test_what_is_written_is_read_the_same(value: Any) -> None:
    data, size = encoded(value)
    assert json.loads(data) == value
    assert size <= len(data)


@given(values)
@QUICK
def test_taking_secrets_out_again_finds_nothing(value: Any) -> None:
    clean, _ = without_secrets(value)
    assert without_secrets(clean) == (clean, {})


@given(sightings, sightings)
@QUICK
def test_merged_errors_count_every_sighting_once(first: list[Any], second: list[Any]) -> None:
    both = merged_errors(history(first), history(second))
    assert sum(entry.occurrences for entry in both.entries) == len(first) + len(second)
    assert len({entry.fingerprint for entry in both.entries}) == len(both.entries)
    for entry in both.entries:
        times = [at for name, at in first + second if name == entry.fingerprint]
        assert (entry.first_seen, entry.last_seen) == (min(times), max(times))


@given(sightings, st.integers(1, 8))
@QUICK
def test_kept_errors_are_the_newest_comers_that_are_young(seen: list[Any], room: int) -> None:
    limits = Limits(errors=room)
    before = history(seen)
    kept = kept_errors(before, limits, NOW).entries
    young = [entry for entry in before.entries if NOW - entry.last_seen <= limits.error_age]
    assert list(kept) == young[-room:]


@given(
    st.lists(st.tuples(st.sampled_from(["/a", "/b", "/b/1", "/b/2", "/b/3", "/c/d/e"]), st.integers(1, 9))),
    st.integers(1, 4),
)
@QUICK
def test_merging_endpoints_keeps_the_limit_and_the_frequent_ones(seen: list[tuple[str, int]], room: int) -> None:
    entries = tuple(Endpoint(endpoint=f"GET {path}", seen=count, last_seen=NOW) for path, count in seen)
    schema = merged_schema(ApiSchema(), ApiSchema(endpoints=entries))
    kept = kept_endpoints(schema, Limits(endpoints=room)).endpoints
    assert len(kept) <= room
    if len(schema.endpoints) <= room:
        assert kept == schema.endpoints
    else:
        assert max(entry.seen for entry in kept) >= max(entry.seen for entry in schema.endpoints)


@given(
    st.lists(st.tuples(ages, ages), max_size=12),
    st.integers(1, 5),
    st.sampled_from(["baselines", "errors", "free"]),
)
@QUICK
def test_eviction_leaves_no_more_than_fit_and_takes_no_more_than_it_must(
    saved: list[tuple[datetime, datetime]], room: int, namespace: str
) -> None:
    stored = [Stored(Name(namespace, str(n)), 1, at, max(at, used)) for n, (at, used) in enumerate(saved)]
    limits = Limits(baselines=room, errors=room)
    gone = set(evicted(namespace, stored, limits, NOW))
    kept = [entry for entry in stored if entry.name not in gone]
    if namespace == "free":
        assert not gone
    elif namespace == "baselines":
        assert len(kept) == min(room, len(stored))
        assert all(entry.used_at <= other.used_at for entry in stored if entry.name in gone for other in kept)
    else:
        assert len(kept) <= room
        assert all(NOW - entry.saved_at <= limits.error_age for entry in kept)


@given(values)
@QUICK
def test_any_document_can_be_read_and_is_not_touched_without_need(value: Any) -> None:
    read_document(ErrorHistory, value, seen_at=NOW)
    kept, gone = trimmed(ERROR_HISTORY, value, Limits(), NOW)
    assert gone or kept == value
