"""What the steps do where the golden documents do not look."""

from __future__ import annotations

from typing import Any

import pytest

from snapshot_plugin import InvalidSnapshot
from snapshot_plugin.exchange.foreign import as_document
from snapshot_plugin.exchange.foreign import load_dump as load_document
from snapshot_plugin.migrate import migrate as migrate_document
from snapshot_plugin.migrate.fields import keep, utc_text
from snapshot_plugin.model import ToolCallBlock

Raw = dict[str, Any]


def migrate(raw: Any) -> Any:
    """A document, or another tool's dump, at the current version."""
    return migrate_document(as_document(raw))


def v1(**changes: Any) -> Raw:
    return {"version": 1, "session_id": "s", "created_at": "2026-01-01T00:00:00Z", **changes}


def oneringai(history: list[Raw], calls: list[Raw], **changes: Any) -> Raw:
    core = {"history": history, "toolCalls": calls}
    return {"agentId": "or", "createdAt": 0, "context": {"core": core}, **changes}


def said(role: str, at: int | None) -> Raw:
    return {"role": role, "content": f"{role} at {at}", "timestamp": at}


def called(name: str, at: int | None) -> Raw:
    return {"name": name, "args": {}, "timestamp": at}


def woven(raw: Raw) -> list[tuple[str, list[str]]]:
    messages = load_document(raw).messages
    return [(m.role, [b.title for b in m.content if isinstance(b, ToolCallBlock)]) for m in messages]


@pytest.mark.requirement("ONERING-FILE-TOOL-CALLS")
def test_tool_call_joins_the_answer_after_it() -> None:
    history = [said("user", 1), said("assistant", 4), said("user", 5), said("assistant", 8)]

    assert woven(oneringai(history, [called("a", 2), called("b", 4), called("c", 7)])) == [
        ("user", []),
        ("assistant", ["a", "b"]),
        ("user", []),
        ("assistant", ["c"]),
    ]


def test_tool_call_of_an_interrupted_turn_does_not_move_to_the_next_turn() -> None:
    history = [said("user", 1), said("user", 5), said("assistant", 8)]

    assert woven(oneringai(history, [called("cut", 2)])) == [
        ("user", []),
        ("assistant", ["cut"]),
        ("user", []),
        ("assistant", []),
    ]


def test_unanswered_and_untimed_tool_calls_come_last() -> None:
    history = [said("user", 1), said("assistant", None)]

    assert woven(oneringai(history, [called("a", 2), called("b", None)])) == [
        ("user", []),
        ("assistant", []),
        ("assistant", ["a", "b"]),
    ]


@pytest.mark.requirement("ONERING-FILE-MEMORY-ENTRY")
def test_two_memory_entries_of_one_key_are_both_kept() -> None:
    entries = [{"key": "k", "value": 1}, {"key": "k", "value": 2}]

    document = migrate(oneringai([], [], memory={"entries": entries}))

    assert document["memory"] == {"k": {"value": 1}, "k_": {"value": 2}}


@pytest.mark.parametrize("entry", [{"value": 1}, {"key": 5}, "k", {"key": "k", "createdAt": "yesterday"}])
def test_memory_entry_without_a_key_or_with_an_invalid_time_is_refused(entry: Any) -> None:
    with pytest.raises(InvalidSnapshot):
        migrate(oneringai([], [], memory={"entries": [entry]}))


@pytest.mark.requirement("TERMINAL-TEST-TIMES")
@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("2026-05-01T10:00:00", "2026-05-01T10:00:00.000000Z"),
        ("2026-05-01T10:00:00+02:00", "2026-05-01T08:00:00.000000Z"),
        ("2026-05-01T10:00:00.123456789Z", "2026-05-01T10:00:00.123456Z"),
        (0, "1970-01-01T00:00:00.000000Z"),
        (1706699400123, "2024-01-31T11:10:00.123000Z"),
        (1706699400123.5, "2024-01-31T11:10:00.123500Z"),
        (-1, "1969-12-31T23:59:59.999000Z"),
    ],
)
def test_a_time_is_stored_in_utc(given: Any, stored: str) -> None:
    assert utc_text(given, "t") == stored


@pytest.mark.parametrize(
    "senseless",
    [None, True, "", "soon", [], {}, 10**30, float("nan"), float("inf"), "0001-01-01T00:00:00+05:00"],
    ids=repr,
)
def test_invalid_time_is_refused(senseless: Any) -> None:
    with pytest.raises(InvalidSnapshot):
        utc_text(senseless, "t")


def test_missing_time_is_copied_from_the_other() -> None:
    only_updated = {"version": 1, "session_id": "s", "updated_at": "2026-02-02T00:00:00"}

    assert load_document(only_updated).created_at == load_document(only_updated).updated_at
    assert load_document(v1()).updated_at == load_document(v1()).created_at


def test_a_session_without_any_time_is_refused() -> None:
    with pytest.raises(InvalidSnapshot):
        migrate({"version": 1, "session_id": "s"})


@pytest.mark.parametrize(
    "changes",
    [
        {"messages": {}},
        {"messages": ["hi"]},
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": [{"role": "user", "content": "x", "timestamp": "late"}]},
        {"messages": [{"role": "user", "content": "x", "tool_calls": {}}]},
        {"messages": [{"role": "user", "content": "x", "tool_calls": ["ls"]}]},
        {"config": []},
        {"config": {"custom": "x"}},
        {"config": {"environment": ["A=1"]}},
        {"config": {"mcp_servers": ["files"]}},
        {"metrics": 3},
        {"metadata": "x"},
        {"created_at": "never"},
    ],
    ids=str,
)
def test_a_part_of_the_wrong_kind_is_refused(changes: Raw) -> None:
    with pytest.raises(InvalidSnapshot) as caught:
        migrate(v1(**changes))

    assert caught.value.session_id == "s"


@pytest.mark.requirement("STORE-MIGRATE-NOTHING-LOST", "ONERING-CARE-CREDENTIALS")
def test_environment_values_and_server_secrets_are_dropped_but_their_names_kept() -> None:
    server = {"name": "web", "type": "http", "url": "u", "headers": {"k": "v"}, "env": {}, "args": ["x"]}

    config = migrate(v1(config={"environment": {"KEY": "v"}, "mcp_servers": [server]}))["config"]

    assert config == {"environment_names": ["KEY"], "mcp_servers": [{"name": "web", "type": "http", "url": "u"}]}


def test_a_custom_setting_that_does_not_fit_its_field_becomes_an_option() -> None:
    custom = {"model": {"name": "m"}, "mode": "ask", "tools": ["a"], "depth": 3}

    config = migrate(v1(config={"custom": custom}))["config"]

    assert config == {"mode": "ask", "options": {"model": {"name": "m"}, "tools": ["a"], "depth": 3}}


def test_existing_options_are_kept_beside_custom_ones() -> None:
    config = {"options": {"depth": 1, "a": 1}, "custom": {"depth": 2}}

    assert migrate(v1(config=config))["config"]["options"] == {"depth": 1, "a": 1, "depth_": 2}


def test_existing_field_is_not_replaced_by_a_custom_one() -> None:
    config = migrate(v1(config={"model": "own", "custom": {"model": "other"}}))["config"]

    assert config == {"model": "own", "options": {"model": "other"}}


def test_metadata_sections_move_only_where_they_fit_and_the_field_is_free() -> None:
    document = migrate(v1(title="own", metadata={"title": "other", "tags": [1], "memory": [], "plugins": {"p": 1}}))

    assert document["title"] == "own"
    assert document["plugins"] == {"p": 1}
    assert document["metadata"] == {"title": "other", "tags": [1], "memory": []}


def test_two_agent_session_ids_are_both_kept() -> None:
    document = migrate(v1(acp_session_id="old", agent_session_id="new"))

    assert (document["agent_session_id"], document["agent_session_id_"]) == ("new", "old")


def test_counted_total_is_not_replaced_by_a_sum() -> None:
    metrics = migrate(v1(metrics={"tokens_in": 1, "tokens_out": 2, "total_tokens": 9}))["metrics"]

    assert metrics == {"input_tokens": 1, "output_tokens": 2, "total_tokens": 9}


def test_a_call_with_both_a_result_and_an_error_keeps_both() -> None:
    call = {"id": 7, "tool": "t", "result": "half", "error": "then it broke"}

    block = migrate(v1(messages=[{"role": "assistant", "tool_calls": [call]}]))["messages"][0]["content"][0]

    assert block == {
        "type": "tool_call",
        "toolCallId": "7",
        "title": "t",
        "status": "failed",
        "rawOutput": "half",
        "error": "then it broke",
    }


def test_keep_never_overwrites_a_different_value_or_duplicates_an_equal_one() -> None:
    holder: Raw = {"a": 1, "a_": 2}

    keep(holder, "a", 3)
    keep(holder, "a", 1)

    assert holder == {"a": 1, "a_": 2, "a__": 3}
