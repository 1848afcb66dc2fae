"""Snapshots as values: frozen, complete after a round trip, and cheap to evolve."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from snapshot_plugin import InvalidSnapshot, Message, SessionSnapshot, SnapshotMeta
from snapshot_plugin.model import (
    AgentInfo,
    ImageBlock,
    McpServer,
    Metrics,
    Parent,
    PlanEntry,
    SessionConfig,
    TextBlock,
)
from snapshot_plugin.model.frozen import FrozenDict
from snapshot_plugin.model.meta import summary_of
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.model.value import Value
from tests.tries import tries
from tests.unknown_fields import with_unknown

NOW = datetime(2026, 11, 16, 0, 51, 47, 1, tzinfo=UTC)
NAN = float("nan")


def snapshot(**fields: Any) -> SessionSnapshot:
    return SessionSnapshot(**{"session_id": "s", "created_at": NOW, "updated_at": NOW, **fields})


def message(text: str) -> Message:
    return Message(role="user", content=(TextBlock(text=text),))


FULL: list[Value] = [
    snapshot(
        agent=AgentInfo(name="a", version="1", command=("a", "--acp")),
        agent_session_id="theirs",
        config=SessionConfig(cwd="/x", options={"effort": "high"}, mcp_servers=(McpServer(name="git"),)),
        messages=(message("one"), Message(role="assistant", content="two", id="m", timestamp=NOW, token_count=3)),
        current_task="t",
        plan=(PlanEntry(content="step", status="completed"),),
        metrics=Metrics(turns=1, cost=0.5, currency="USD", duration_seconds=1.5),
        title="T",
        tags=("a", "b"),
        pinned=True,
        parent=Parent(session_id="p", seq=3, message_index=7),
        plugins={"x": {"y": [1]}},
        memory={"notes": "n"},
        metadata={"k": None},
    ),
    McpServer(name="git", type="http"),
    ImageBlock(data="aGk=", mime_type="image/png"),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def through_json(value: Value) -> Value:
    return type(value).model_validate(json.loads(json.dumps(value.raw())))


@pytest.mark.requirement("STORE-VALUE-UNKNOWN-FIELDS", "ORBIT-TEST-SERIAL")
@tries(100)
@given(st.sampled_from(FULL), st.dictionaries(st.text(), JSON, max_size=3))
def test_unknown_fields_survive_a_round_trip_in_every_kind_of_value(value: Value, extra: dict[str, Any]) -> None:
    known = {*type(value).model_fields, "mimeType", "env", "headers", "args"}
    unknown = {name: item for name, item in extra.items() if name not in known}
    extended = with_unknown(value, unknown)

    again = through_json(extended)

    assert again == extended
    assert again.model_extra == unknown
    assert through_json(again.evolve()) == extended


@pytest.mark.parametrize("value", FULL)
def test_values_survive_copies_and_pickles(value: Value) -> None:
    assert pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == copy.copy(value) == value
    assert len({value, through_json(value)}) == 1


@pytest.mark.requirement("STORE-VALUE-FROZEN")
@pytest.mark.parametrize(
    "change",
    [
        lambda s: setattr(s, "title", "x"),
        lambda s: setattr(s, "unknown", "x"),
        lambda s: delattr(s, "title"),
        lambda s: s.memory.update(a=1),
        lambda s: s.extra["list"].append(1),
        lambda s: s.messages[0].metadata.clear(),
        lambda s: s.messages.append(1),
    ],
)
def test_snapshot_is_deeply_immutable(change: Callable[[Any], object]) -> None:
    value = with_unknown(snapshot(messages=(message("a"),)), extra={"list": []})
    before = json.dumps(value.raw())

    with pytest.raises((TypeError, ValueError, AttributeError)):
        change(value)
    assert json.dumps(value.raw()) == before


def test_equality_means_equal_json() -> None:
    assert snapshot(memory={"a": 1}) != snapshot(memory={"a": True})
    assert snapshot(memory={"a": 1}) != snapshot(memory={"a": 1.0})
    assert snapshot(memory={"a": 1, "b": 2}) == snapshot(memory={"b": 2, "a": 1})
    assert message("a") != TextBlock(text="a")


@pytest.mark.requirement("STORE-VALUE-NAN", "STORE-VALUE-NAIVE", "TERMINAL-ROLE-UNKNOWN")
@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: snapshot(memory={"a": [NAN]}), "SessionSnapshot.memory.a[0]"),
        (
            lambda: snapshot(messages=[{"role": "user", "metadata": {"a": NAN}}]),
            "SessionSnapshot.messages[0].metadata.a",
        ),
        (lambda: snapshot(metadata={1: 2}), "SessionSnapshot.metadata"),
        (lambda: snapshot(metadata=[]), "SessionSnapshot.metadata:"),
        (lambda: snapshot().evolve(memory={"a": NAN}), "SessionSnapshot.memory.a"),
        (lambda: with_unknown(snapshot(), mine=1).evolve(mine={"a": NAN}), "mine.a"),
        (lambda: snapshot().evolve(title=7), "SessionSnapshot.title:"),
        (lambda: snapshot().append("text"), "SessionSnapshot.messages[0]:"),  # type: ignore[arg-type]
        (lambda: Metrics(cost=NAN), "Metrics.cost:"),
        (lambda: Metrics(duration_seconds=float("inf")), "Metrics.duration_seconds:"),
        (lambda: Message(role="robot"), "Message.role:"),  # type: ignore[arg-type]
        (lambda: snapshot(created_at=NOW.replace(tzinfo=None)), "SessionSnapshot.created_at:"),
        (lambda: snapshot().evolve(updated_at=NOW.replace(tzinfo=None)), "SessionSnapshot.updated_at:"),
        (lambda: snapshot(created_at="2026-11-16"), "SessionSnapshot.created_at:"),
        (
            lambda: snapshot(created_at=datetime.min.replace(tzinfo=timezone(5 * timedelta(hours=1)))),
            "SessionSnapshot.",
        ),
    ],
)
def test_invalid_value_is_refused_with_its_path(make: Callable[[], object], path: str) -> None:
    with pytest.raises(InvalidSnapshot) as refused:
        make()

    assert refused.value.message.startswith(path)


def test_error_never_shows_the_refused_value() -> None:
    with pytest.raises(InvalidSnapshot) as refused:
        snapshot().evolve(messages="hunter2")

    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_parsing_foreign_data_raises_pydantics_error() -> None:
    with pytest.raises(ValidationError):
        SessionSnapshot.model_validate({"session_id": "s"})


@pytest.mark.requirement("TERMINAL-TEST-TIMES")
def test_times_are_kept_in_utc_and_sort_as_text() -> None:
    there = timezone(timedelta(hours=-5))
    value = snapshot(created_at=NOW.astimezone(there), updated_at=NOW.replace(microsecond=0))

    assert value.created_at == NOW
    assert value.created_at.tzinfo is UTC
    assert value.raw()["created_at"] == rfc3339(NOW) == "2026-11-16T00:51:47.000001Z"
    assert value.raw()["updated_at"] == "2026-11-16T00:51:47.000000Z"


def test_evolve_and_append_keep_existing_message_objects() -> None:
    first, second, third = message("1"), message("2"), message("3")
    start = with_unknown(snapshot(messages=[first, second]), mine=[1], other=2)
    grown = start.append(third, title="t").evolve(tags=["x"], plugins={"p": 1})

    assert all(mine is theirs for mine, theirs in zip(grown.messages, (first, second, third), strict=True))
    assert (grown.title, grown.tags, grown.plugins) == ("t", ("x",), {"p": 1})
    assert grown.evolve(other=1).model_extra == {"mine": [1], "other": 1}


def test_evolving_with_a_frozen_section_keeps_the_object() -> None:
    memory = FrozenDict({"big": "x"})

    assert snapshot().evolve(memory=memory).memory is memory


def test_evolve_leaves_the_original_unchanged() -> None:
    value = with_unknown(snapshot(), mine=1)
    value.evolve(title="x", mine=2).append(message("y"))

    assert (value.title, value.messages, value.model_extra) == (None, (), {"mine": 1})


def test_unknown_fields_may_have_any_name() -> None:
    names = ["self", "raw", "evolve", "model_fields", "_meta", "__dict__", "a b", ""]
    value = with_unknown(snapshot(), dict.fromkeys(names, 1))

    assert value.model_extra == dict.fromkeys(names, 1)
    assert through_json(value) == value


def test_field_can_be_evolved_by_its_json_name() -> None:
    block = ImageBlock(data="", mime_type="a").evolve(mimeType="b")

    assert block.mime_type == "b"
    assert block.raw()["mimeType"] == "b"


@pytest.mark.requirement("STORE-VALUE-MCP-SECRETS")
@pytest.mark.parametrize("secret", ["env", "headers", "args"])
def test_mcp_server_secrets_are_never_accepted(secret: str) -> None:
    hidden: dict[str, Any] = {secret: {"TOKEN": "x"}}

    assert McpServer(name="git", **hidden).raw() == {"name": "git", "type": "stdio"}
    assert McpServer(name="git").evolve(**hidden).raw() == {"name": "git", "type": "stdio"}
    assert snapshot(config={"mcp_servers": [{"name": "git", **hidden}]}).config.mcp_servers[0].model_extra == {}


def test_defaults_are_not_written() -> None:
    assert set(snapshot().raw()) == {"session_id", "created_at", "updated_at"}
    assert message("x").raw() == {"role": "user", "content": [{"type": "text", "text": "x"}]}


@pytest.mark.requirement("FORMAT-PAYLOAD-META")
def test_summary_repeats_the_fields_shown_in_lists() -> None:
    summary = summary_of(FULL[0])  # type: ignore[arg-type]

    assert json.loads(json.dumps(summary)) == summary
    assert summary["messages"] == 2
    assert summary["parent"] == {"session_id": "p", "seq": 3, "message_index": 7}
    listed = SnapshotMeta.told({**summary, "session_id": "s", "seq": 4, "saved_at": rfc3339(NOW)})
    assert (listed.title, listed.tags, listed.pinned, listed.turns) == ("T", ("a", "b"), True, 1)
    assert listed.changed_at == NOW


@pytest.mark.filterwarnings("ignore::pydantic.json_schema.PydanticJsonSchemaWarning")  # of defaults it leaves out
def test_the_whole_model_has_a_json_schema() -> None:
    assert SessionSnapshot.model_json_schema()["properties"]["memory"]["type"] == "object"
