"""What the adapters share, and mappings that need no framework installed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import InvalidInput, InvalidSnapshotVersion, Message, SnapshotCorrupted
from snapshot_plugin.codec.document import message_line
from snapshot_plugin.exchange.rendering import to_html, to_markdown
from snapshot_plugin.frameworks import (
    agent_framework_messages,
    claude_entries,
    google_events,
    openai_items,
    pydantic_messages,
)
from snapshot_plugin.frameworks.conversations import (
    checked,
    described,
    is_exact_json,
    opaque,
    raw_of,
    reading,
    title_of,
)
from snapshot_plugin.frameworks.sessions import new_session
from snapshot_plugin.model import TextBlock, ToolCallBlock
from snapshot_plugin.model.repair import repair
from snapshot_plugin.operations.conversation import said_of
from tests.tries import tries

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**40), 10**40) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
words = st.text(max_size=12)


def items() -> st.SearchStrategy[dict[str, Any]]:
    part = st.fixed_dictionaries(
        {"type": st.sampled_from(["input_text", "output_text", "input_image"])},
        optional={"text": words, "annotations": json_values, "image_url": words},
    )
    said = st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "developer", "system", "odd"]),
         "content": words | st.lists(part, max_size=3) | st.none()},
        optional={"type": st.just("message"), "id": words, "status": words, "metadata": json_values, "rest": words},
    )  # fmt: skip
    call = st.fixed_dictionaries(
        {"type": st.just("function_call"), "call_id": words, "name": words, "arguments": words | json_values},
        optional={"id": words, "parts": json_values},
    )
    result = st.fixed_dictionaries(
        {"type": st.just("function_call_output"), "call_id": words,
         "output": words | json_values | st.lists(part, max_size=3)}
    )  # fmt: skip
    thought = st.fixed_dictionaries(
        {"type": st.just("reasoning"), "summary": st.lists(st.fixed_dictionaries({"text": words}), max_size=2)},
        optional={"encrypted_content": words},
    )
    return said | call | result | thought | st.dictionaries(words, json_values, max_size=4)


def entries() -> st.SearchStrategy[dict[str, Any]]:
    inner = words | st.fixed_dictionaries({"type": st.sampled_from(["text", "image"])}, optional={"text": words})
    part = (
        st.fixed_dictionaries({"type": st.just("text"), "text": words}, optional={"cache_control": json_values})
        | st.fixed_dictionaries({"type": st.just("thinking"), "thinking": words}, optional={"signature": words})
        | st.fixed_dictionaries({"type": st.just("tool_use"), "id": words, "name": words, "input": json_values})
        | st.fixed_dictionaries(
            {"type": st.just("tool_result"), "tool_use_id": words, "content": words | json_values | st.lists(inner)}
        )
        | st.fixed_dictionaries({"type": words}, optional={"data": json_values})
    )
    message = st.fixed_dictionaries(
        {"content": words | st.lists(part, max_size=3)},
        optional={"usage": json_values, "model": words, "role": words},
    )
    return st.fixed_dictionaries(
        {"type": st.sampled_from(["user", "assistant", "summary"])},
        optional={"uuid": words, "message": message | json_values, "parts": json_values,
                  "timestamp": st.sampled_from(["2026-11-16T10:00:00.000Z", "2026-11-16T10:00:00Z", "x", ""])},
    )  # fmt: skip


def model_messages() -> st.SearchStrategy[dict[str, Any]]:
    texts = st.sampled_from(["user-prompt", "system-prompt", "text", "thinking", "file"])
    asked = words | st.fixed_dictionaries({"kind": words}, optional={"url": words, "content": words})
    part = (
        st.fixed_dictionaries({"part_kind": texts, "content": words | json_values}, optional={"id": json_values})
        | st.fixed_dictionaries({"part_kind": st.just("user-prompt"), "content": st.lists(asked, max_size=3)})
        | st.fixed_dictionaries(
            {"part_kind": st.just("tool-call"), "tool_name": words, "args": json_values, "tool_call_id": words}
        )
        | st.fixed_dictionaries(
            {
                "part_kind": st.just("tool-return"),
                "tool_name": words,
                "content": json_values,
                "tool_call_id": words,
            },
            optional={"outcome": st.sampled_from(["success", "failed"])},
        )
    )
    return st.fixed_dictionaries(
        {"kind": st.sampled_from(["request", "response", "other"]), "parts": st.lists(part, max_size=3)},
        optional={"usage": json_values, "model_name": words, "metadata": json_values},
    )


def microsoft_messages() -> st.SearchStrategy[dict[str, Any]]:
    content = (
        st.fixed_dictionaries({"type": st.sampled_from(["text", "text_reasoning"]), "text": words | json_values})
        | st.fixed_dictionaries(
            {"type": st.just("function_call"), "call_id": words, "name": words, "arguments": json_values}
        )
        | st.fixed_dictionaries({"type": st.just("function_result"), "call_id": words, "result": json_values})
        | st.fixed_dictionaries({"type": words}, optional={"uri": json_values})
    )
    return st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool", "x"]), "contents": st.lists(content, max_size=3)},
        optional={"message_id": words, "additional_properties": json_values},
    )


def google_parts() -> st.SearchStrategy[dict[str, Any]]:
    part = (
        st.fixed_dictionaries({"text": words}, optional={"thought": st.booleans(), "extra": json_values})
        | st.fixed_dictionaries(
            {"function_call": st.fixed_dictionaries({"name": words}, optional={"id": words, "args": json_values})}
        )
        | st.fixed_dictionaries(
            {"function_response": st.fixed_dictionaries({"id": words, "name": words, "response": json_values})}
        )
        | st.dictionaries(words, json_values, max_size=2)
    )
    content = st.fixed_dictionaries({"parts": st.lists(part, max_size=3)}, optional={"role": words})
    return st.fixed_dictionaries(
        {"id": words, "author": st.sampled_from(["user", "desk"])},
        optional={"content": content, "usage_metadata": json_values, "actions": json_values},
    )


@tries(100)
@given(microsoft_messages())
def test_any_agent_framework_message_round_trips(data: dict[str, Any]) -> None:
    assert same(agent_framework_messages.json_of(agent_framework_messages.message_of(data)), data)


@tries(100)
@given(google_parts())
def test_any_adk_event_round_trips(data: dict[str, Any]) -> None:
    assert same(google_events.json_of(google_events.message_of(data)), data)


@tries(100)
@given(items())
def test_any_openai_item_round_trips(item: dict[str, Any]) -> None:
    message = openai_items.message_of(item)
    assert same(openai_items.item_of(message), item)
    assert same(openai_items.item_in(message_line(message)), item)


@pytest.mark.parametrize(
    "item",
    [
        {"type": "function_call", "call_id": "c", "name": None, "arguments": "{}"},
        {"type": "reasoning", "summary": []},
        {"role": ["user"], "content": "hi"},
        {"role": "nobody", "content": "hi"},
    ],
)
def test_openai_item_without_readable_text_is_kept_hidden(item: dict[str, Any]) -> None:
    message = openai_items.message_of(item)
    assert message.is_opaque
    assert openai_items.item_of(message) == item


@pytest.mark.parametrize(
    "item",
    [
        {"role": "developer", "content": "a lone \ud800", "id": "\udfff"},
        {"role": "user", "content": ""},
        {"type": "message", "role": "assistant", "content": "x", "status": "completed"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "n": 10**4299},
        {"role": "user", "content": "hi", "parts": "kept"},
        {"role": "user", "content": [{"type": "input_text", "text": 5}]},
        {"type": "reasoning", "summary": [{"text": None}]},
    ],
)
def test_readable_openai_item_comes_back(item: dict[str, Any]) -> None:
    message = openai_items.message_of(item)
    assert message.content
    assert to_markdown(described(new_session("s", "x"), (message,)))
    assert same(openai_items.item_of(message), item)
    assert same(openai_items.item_in(message_line(message)), item)


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b'{"message":{"role":"user"}}', b'{"message":{"metadata":{"openai":1}}}']
)
def test_line_that_holds_no_openai_item_is_damage(line: bytes) -> None:
    with pytest.raises(SnapshotCorrupted, match=r"session s holds .* 'x'"), reading("s", "x"):
        openai_items.item_in(line)


@pytest.mark.parametrize(
    "floats",
    [
        [[["gone"], "NaN"]], [[["score", 3], "NaN"]], [[[], "NaN"]], [[["score"], "Infinity"]], [[["role"], "NaN"]],
        [[[{}], "NaN"]], [[None, "NaN"]], [["score"]], 7, "x", [[["score"], 5]],
    ],
)  # fmt: skip
def test_floats_that_do_not_fit_their_entry_are_damage_of_the_session(floats: Any) -> None:
    message = openai_items.message_of({"role": "user", "content": "hi", "score": float("nan")})
    wrong = message.evolve(metadata={**message.metadata, "floats": floats})
    damage = r"session s holds .* 'floats'"
    with pytest.raises(SnapshotCorrupted, match=damage), reading("s", "x"):
        openai_items.item_of(wrong)
    with pytest.raises(SnapshotCorrupted, match=damage), reading("s", "x"):
        openai_items.item_in(message_line(wrong))


_ASKED, _FOUND, _DECLINED = "What is this?", "a cat", "I cannot help."
_CONVERSATIONS: dict[str, list[Message]] = {
    "openai-agents": [openai_items.message_of(item) for item in (
        {"role": "user", "content": [{"type": "input_text", "text": _ASKED}, {"type": "input_image", "id": 1}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "look", "input": "closely"},
        {"type": "function_call_output", "call_id": "c1",
         "output": [{"type": "input_text", "text": _FOUND}, {"type": "input_image", "file_id": "g"}]},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "nothing"},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": _DECLINED}]},
    )],
    "claude-agent-sdk": [claude_entries.message_of({"type": role, "message": {"content": each}}) for role, each in (
        ("user", [{"type": "text", "text": _ASKED}, {"type": "image", "source": {"type": "base64"}}]),
        ("assistant", [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]),
        ("user", [{"type": "tool_result", "tool_use_id": "c1",
                   "content": [{"type": "text", "text": _FOUND}, {"type": "image", "source": {}}]}]),
        ("assistant", [{"type": "text", "text": _DECLINED}]),
    )],
    "pydantic-ai": [pydantic_messages.message_of({"kind": kind, "parts": parts}, kind) for kind, parts in (
        ("request", [{"part_kind": "user-prompt", "content": [_ASKED, {"kind": "image-url", "url": "x"}]}]),
        ("response", [{"part_kind": "tool-call", "tool_name": "look", "args": "{}", "tool_call_id": "c1"}]),
        ("request", [{"part_kind": "tool-return", "tool_name": "look", "tool_call_id": "c1", "content": [_FOUND]}]),
        ("response", [{"part_kind": "text", "content": _DECLINED}]),
    )],
    "google-adk": [google_events.message_of({"id": "", "author": by, "content": {"parts": each}}) for by, each in (
        ("user", [{"text": _ASKED}, {"inline_data": {"data": "AA==", "mime_type": "image/png"}}]),
        ("desk", [{"function_call": {"id": "c1", "name": "look", "args": {}}}, {"function_call": {"name": "x"}}]),
        ("desk", [{"function_response": {"id": "c1", "name": "look", "response": {"result": [_FOUND]}}}]),
        ("desk", [{"text": _DECLINED}]),
    )],
    "agent-framework": [agent_framework_messages.message_of({"role": role, "contents": each}) for role, each in (
        ("user", [{"type": "text", "text": _ASKED}, {"type": "uri", "uri": "x"}]),
        ("assistant", [{"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}]),
        ("tool", [{"type": "function_result", "call_id": "c1", "result": _FOUND}]),
        ("assistant", [{"type": "text", "text": _DECLINED}]),
    )],
}  # fmt: skip


@pytest.mark.parametrize("framework", _CONVERSATIONS)
def test_people_see_the_words_beside_an_image_and_every_result(framework: str) -> None:
    session = described(new_session("s", framework), tuple(_CONVERSATIONS[framework]))
    shown = [piece for said in said_of(session, tools=True) for piece in said.pieces]
    assert session.title == shown[0].text == _ASKED
    assert shown[1].kind not in ("text", "entry")
    assert any(_FOUND in f"{piece.text} {piece.detail}" for piece in shown)
    assert {piece.status for piece in shown if piece.kind == "tool"} == {"completed"}
    assert shown[-1].text == _DECLINED
    assert repair(session)[1] == ()


@tries(100)
@given(entries())
def test_any_claude_entry_round_trips(entry: dict[str, Any]) -> None:
    assert same(claude_entries.entry_of(claude_entries.message_of(entry)), entry)


@tries(100)
@given(model_messages())
def test_any_pydantic_message_round_trips(data: dict[str, Any]) -> None:
    assert same(pydantic_messages.json_of(pydantic_messages.message_of(data, "id")), data)


def same(left: Any, right: Any) -> bool:
    """Equal, with equal types: 1, 1.0 and true differ."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and (left == right or repr(left) == repr(right) == "nan")


def nested(levels: int) -> list[Any]:
    return [nested(levels - 1)] if levels else []


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": "hi", "score": float("nan"), "range": [float("-inf"), {"to": float("inf")}]},
        {"type": "x", "n": float("nan")},
        float("inf"),
        None,
    ],
)
def test_openai_item_with_nan_and_infinity_comes_back(item: Any) -> None:
    message = openai_items.message_of(item)
    assert message.text == ("hi" if "hi" in repr(item) else "")
    assert same(openai_items.item_of(message), item)
    assert same(openai_items.item_in(message_line(message)), item)


@pytest.mark.parametrize("mapping", [openai_items.message_of, claude_entries.message_of])
def test_values_beyond_json_are_refused(mapping: Any) -> None:
    with pytest.raises(InvalidInput, match="nested too deeply"):
        mapping({"type": "x", "n": nested(300)})
    with pytest.raises(TypeError):
        mapping({"type": "x", "n": object()})


@pytest.mark.parametrize(
    "value", [(1,), {1: 2}, float("inf"), pytest.param(10**4300, id="4301 digits"), b"x", object()]
)
def test_values_json_would_change_are_not_exact(value: Any) -> None:
    assert not is_exact_json(value)
    assert not is_exact_json([{"x": value}])


def test_a_title_is_the_first_prompt_on_one_line() -> None:
    asked = Message(role="user", content="Plan\n  three   days " + "x" * 100)
    title = title_of([Message(role="system", content="be kind"), Message(role="user"), asked])
    assert title
    assert title.startswith("Plan three days xxx")
    assert len(title) == 80


def test_turns_and_tokens_follow_the_messages_and_a_given_title_is_kept() -> None:
    usage = {"usage": {"input_tokens": 3, "output_tokens": 2}}
    one = (Message(role="user", content="hi"), Message(role="assistant", content="yes", metadata=usage))
    session = described(new_session("s", "x"), one)
    assert (session.title, session.metrics.turns, session.metrics.total_tokens) == ("hi", 1, 5)
    grown = described(session.evolve(title="mine"), one * 2)
    assert (grown.title, grown.metrics.turns, grown.metrics.total_tokens) == ("mine", 2, 10)
    assert described(grown, one[:1]).metrics.total_tokens == 0


def test_a_newer_format_is_refused() -> None:
    for now, newer in ((1, 2), ({"format": 1}, {"format": 2})):
        session = new_session("s", "x").evolve(plugins={"x": now})
        assert checked(session, "x") is session
        with pytest.raises(InvalidSnapshotVersion, match="newer x adapter"):
            checked(session.evolve(plugins={"x": newer}), "x")


def test_opaque_entries_are_kept_and_shown_only_on_request() -> None:
    entry = opaque("x", {"deep": [1]})
    session = described(new_session("s", "x"), (Message(role="user", content="hi"), entry))
    assert raw_of("x", entry) == {"deep": [1]}
    assert [said.number for said in said_of(session, tools=False)] == [1]
    assert [piece.text for said in said_of(session, tools=True) for piece in said.pieces] == ["hi", "kept for x"]
    assert "## System" not in to_markdown(session)
    assert 'class="system"' not in to_html([session])


def test_a_call_and_its_result_in_another_message_are_paired() -> None:
    call, other = (ToolCallBlock(tool_call_id=name, title=name) for name in "ab")
    messages = (
        Message(role="assistant", content=[TextBlock(text="I look."), call, other]),
        Message(role="tool", content="found", metadata={"tool_call_id": "a"}),
    )
    session = described(new_session("s", "x"), messages)
    [said, _] = said_of(session, tools=False)
    assert [piece.status for piece in said.pieces] == [None, "completed", None]
    assert "(completed)" in to_markdown(session)
    assert [piece.status for piece in next(said_of(session, tools=False, first=1, last=1)).pieces][1] == "completed"
