from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import InvalidSnapshot, InvalidSnapshotVersion
from snapshot_plugin.exchange.foreign import as_document
from snapshot_plugin.exchange.foreign import load_dump as load_document
from snapshot_plugin.migrate import migrate as migrate_document
from snapshot_plugin.migrate import plan_migration
from snapshot_plugin.model import CURRENT_VERSION
from tests.tries import tries

Raw = dict[str, Any]


def migrate(raw: Any) -> Any:
    """A document, or another tool's dump, at the current version."""
    return migrate_document(as_document(raw))


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
UNKNOWN = st.dictionaries(st.text(max_size=5).map("x-{}".format), JSON, max_size=3)
"""Fields no version knows, by names no version will give a meaning."""

WORDS = st.text(max_size=20)
TIMES = st.datetimes().map(lambda moment: moment.isoformat()) | st.integers(0, 4 * 10**12)
ROLES = st.sampled_from(["user", "assistant", "system", "tool"])
IDS = st.text(min_size=1, max_size=8)


def record(fields: dict[str, st.SearchStrategy[Any]], **optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Raw]:
    known = st.fixed_dictionaries(fields, optional=optional)
    return st.tuples(known, UNKNOWN).map(lambda pair: {**pair[0], **pair[1]})


CALLS = st.lists(record({"tool": WORDS}, args=JSON, id=IDS, result=JSON, error=JSON), max_size=3)
RECORDS = st.lists(
    record({"id": IDS, "name": WORDS, "args": JSON}, result=JSON, error=JSON, timestamp=TIMES), max_size=3
)
MESSAGES = st.lists(
    record(
        {"role": ROLES, "content": WORDS}, timestamp=TIMES, token_count=st.integers(0), tool_calls=CALLS | st.none()
    ),
    max_size=4,
)
OPENAGENT = record(
    {
        "metadata": record({"session_id": IDS, "created_at": TIMES, "updated_at": TIMES}, title=st.none() | WORDS),
        "messages": MESSAGES,
    }
)
ONERINGAI = record(
    {
        "agentId": IDS,
        "createdAt": TIMES,
        "context": record({"core": record({"history": MESSAGES, "toolCalls": RECORDS}, systemPrompt=WORDS)}),
    },
    version=st.just(1),
    plugins=UNKNOWN,
    metadata=UNKNOWN,
    memory=record({"entries": st.lists(record({"key": WORDS}, createdAt=TIMES, value=JSON), max_size=3)}),
)
V1 = record(
    {"version": st.just(1), "session_id": IDS, "created_at": TIMES},
    config=record({}, working_dir=WORDS, custom=UNKNOWN, system_prompt=WORDS),
    acp_session_id=WORDS,
    messages=MESSAGES | st.none(),
    metrics=record({}, tokens_in=st.integers(0), tokens_out=st.integers(0)),
    metadata=record({}, title=JSON, tags=JSON, plugins=JSON, memory=JSON),
)
OLD = OPENAGENT | ONERINGAI | V1

moderate = tries(150)


def unknown_fields(value: Any) -> Iterator[str]:
    """Every field no version knows, with its value, wherever it is."""
    if isinstance(value, list):
        for item in value:
            yield from unknown_fields(item)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name.startswith("x-"):
                yield f"{name}={json.dumps(inner)}"
            yield from unknown_fields(inner)


@pytest.mark.requirement("STORE-MIGRATE-INPUT")
@moderate
@given(OLD)
def test_an_old_document_loads_and_is_not_changed(raw: Raw) -> None:
    before = copy.deepcopy(raw)

    assert load_document(raw).version == CURRENT_VERSION
    assert raw == before


@moderate
@given(OLD)
def test_migration_is_idempotent(raw: Raw) -> None:
    once = migrate(raw)

    assert migrate(once) == once
    assert plan_migration(once) == ()


@moderate
@given(OLD)
def test_the_same_document_always_migrates_to_the_same_bytes(raw: Raw) -> None:
    assert json.dumps(migrate(raw)) == json.dumps(migrate(copy.deepcopy(raw)))


@pytest.mark.requirement("STORE-MIGRATE-NOTHING-LOST")
@moderate
@given(OLD)
def test_unknown_fields_are_kept(raw: Raw) -> None:
    kept = set(unknown_fields(migrate(raw)))

    assert set(unknown_fields(raw)) <= kept


@pytest.mark.requirement("ORBIT-MIGRATE-CURRENT")
@moderate
@given(record({"version": st.just(CURRENT_VERSION), "session_id": IDS}))
def test_current_document_is_returned_unchanged(raw: Raw) -> None:
    assert migrate(raw) is raw


SHAPELESS = st.fixed_dictionaries(
    {},
    optional={
        "version": st.sampled_from([0, 1, CURRENT_VERSION]) | JSON,
        "session_id": IDS | JSON,
        "agentId": IDS | JSON,
        "created_at": TIMES | JSON,
        "createdAt": TIMES | JSON,
        "config": JSON | st.dictionaries(st.sampled_from(["custom", "mcp_servers", "environment"]), JSON),
        "metrics": JSON | st.dictionaries(st.sampled_from(["tokens_in", "input_tokens", "total_tokens"]), JSON),
        "metadata": JSON | st.fixed_dictionaries({"session_id": IDS, "created_at": TIMES | JSON}),
        "messages": JSON
        | st.lists(JSON | st.dictionaries(st.sampled_from(["role", "content", "tool_calls"]), JSON)),
        "context": JSON
        | st.fixed_dictionaries({"core": st.dictionaries(st.sampled_from(["history", "toolCalls"]), JSON)}),
        "memory": JSON | st.dictionaries(st.just("entries"), JSON),
        "plugins": JSON,
    },
)


@tries(500)
@given(JSON | SHAPELESS)
def test_any_json_loads_or_is_refused_with_our_error(raw: Any) -> None:
    before = copy.deepcopy(raw)

    with suppress(InvalidSnapshot, InvalidSnapshotVersion):
        load_document(raw)

    assert raw == before
