"""Content blocks: ACP's own names on the wire, and nothing dropped that we do not know."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import InvalidSnapshot, Message
from snapshot_plugin.model import (
    AudioBlock,
    ImageBlock,
    ResourceBlock,
    ResourceLinkBlock,
    TextBlock,
    ThoughtBlock,
    ToolCallBlock,
    UnknownBlock,
    parse_block,
)
from snapshot_plugin.model.frozen import FrozenDict, FrozenList
from tests.tries import tries

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KNOWN: list[tuple[type, dict[str, Any]]] = [
    (TextBlock, {"type": "text", "text": "hi", "annotations": {"audience": ["user"]}}),
    (ThoughtBlock, {"type": "thought", "text": "hm", "content": {"type": "image"}}),
    (ImageBlock, {"type": "image", "data": "aGk=", "mimeType": "image/png", "uri": "file:///a.png"}),
    (AudioBlock, {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}),
    (ResourceBlock, {"type": "resource", "resource": {"uri": "file:///a", "text": "x"}}),
    (ResourceLinkBlock, {"type": "resource_link", "uri": "file:///a", "name": "a", "size": 3, "title": "A"}),
    (
        ToolCallBlock,
        {
            "type": "tool_call",
            "toolCallId": "call-1",
            "title": "Edit",
            "kind": "edit",
            "status": "completed",
            "content": [{"type": "diff", "path": "/a", "oldText": None, "newText": "x"}],
            "locations": [{"path": "/a", "line": 3}],
            "rawInput": {"path": "/a"},
            "rawOutput": [1, None],
        },
    ),
]
DO_NOT_FIT = [
    {"type": "text"},
    {"type": "text", "text": 7},
    {"type": "image", "data": "aGk="},
    {"type": "tool_call", "title": "no id"},
    {"type": "resource", "resource": "not an object"},
    {"type": "resource_link"},
]


def through_json(message: Message) -> Message:
    return Message.model_validate(json.loads(json.dumps(message.raw())))


@pytest.mark.requirement("ORBIT-MODEL-BLOCKS")
@pytest.mark.parametrize(("kind", "raw"), KNOWN)
def test_each_block_of_acp_is_read_and_written_under_its_own_names(kind: type, raw: dict[str, Any]) -> None:
    block = parse_block(raw)

    assert type(block) is kind
    assert block.raw() == raw
    assert parse_block(block.raw()) == block


@pytest.mark.requirement("STORE-VALUE-UNKNOWN-FIELDS")
@tries(100)
@given(st.sampled_from([raw for _, raw in KNOWN]), st.dictionaries(st.text(), JSON, max_size=3))
def test_unknown_fields_survive_in_every_block(raw: dict[str, Any], extra: dict[str, Any]) -> None:
    extended = {**extra, **raw}
    message = Message(role="assistant", content=(extended,))

    assert through_json(message) == message
    written = through_json(message).raw()["content"][0]
    assert {name: written[name] for name in extra if name not in NAMES} == {
        name: extended[name] for name in extra if name not in NAMES
    }


NAMES = {name for kind, _ in KNOWN for name in kind.model_fields}  # type: ignore[attr-defined]


@pytest.mark.requirement("STORE-VALUE-UNKNOWN-BLOCKS")
@tries(100)
@given(
    st.dictionaries(st.text(), JSON, max_size=4), JSON.filter(lambda kind: kind not in ("text", "image", "audio"))
)
def test_unknown_block_types_are_written_back_verbatim(raw: dict[str, Any], kind: Any) -> None:
    verbatim = {**raw, "type": kind}
    message = Message(role="user", content=[verbatim])

    assert type(message.content[0]) is UnknownBlock
    assert json.dumps(through_json(message).raw()["content"]) == json.dumps([verbatim])


@pytest.mark.requirement("STORE-VALUE-UNKNOWN-BLOCKS")
@pytest.mark.parametrize("raw", DO_NOT_FIT)
def test_block_that_does_not_fit_its_type_is_kept_verbatim_and_loads_again(raw: dict[str, Any]) -> None:
    block = parse_block(raw)
    message = Message(role="assistant", content=(block, TextBlock(text="after")))

    assert type(block) is UnknownBlock
    assert block.type == raw["type"]
    assert message.content[0] is block
    assert through_json(message) == message
    assert through_json(message).raw()["content"][0] == raw


def test_block_without_a_type_is_kept() -> None:
    block = parse_block({"payload": [1]})

    assert isinstance(block, UnknownBlock)
    assert block.type is None
    assert block.raw() == {"payload": [1]}


@pytest.mark.requirement("STORE-VALUE-FROZEN")
def test_content_of_a_tool_call_is_immutable() -> None:
    call = ToolCallBlock(tool_call_id="1", content=[{"type": "terminal"}], raw_input={"a": [1]})

    assert type(call.content) is FrozenList
    assert type(call.content[0]) is FrozenDict
    with pytest.raises(TypeError):
        call.raw_input["a"].append(2)


@pytest.mark.requirement("STORE-VALUE-NAN")
def test_values_beyond_json_are_refused_even_in_an_unknown_block() -> None:
    with pytest.raises(InvalidSnapshot) as refused:
        Message(role="user", content=[{"type": "text", "text": "x", "more": [float("nan")]}])

    assert "content[0]" in refused.value.message
    assert "more[0]" in refused.value.message


def test_value_that_is_not_a_block_is_refused() -> None:
    with pytest.raises(InvalidSnapshot):
        Message(role="user", content=[7])  # type: ignore[list-item]


@pytest.mark.requirement("TERMINAL-MESSAGE-CONTENT")
def test_plain_text_is_one_text_block() -> None:
    message = Message(role="user", content="hello")

    assert message.content == (TextBlock(text="hello"),)
    assert message.text == "hello"


def test_text_of_a_message_excludes_thoughts_and_tools() -> None:
    message = Message(
        role="assistant",
        content=(
            ThoughtBlock(text="hm"),
            TextBlock(text="a"),
            ToolCallBlock(tool_call_id="1", title="t"),
            TextBlock(text="b"),
        ),
    )

    assert message.text == "ab"


@pytest.mark.requirement("STORE-VALUE-SURROGATE")
@pytest.mark.parametrize("text", ["\ud83d", "a\udc00b"])
def test_lone_surrogates_are_kept(text: str) -> None:
    message = Message(role="user", content=text, metadata={text: [text]})

    assert message.text == text
    assert through_json(message) == message
    assert through_json(message).metadata == {text: [text]}


@pytest.mark.parametrize(
    ("status", "is_open"),
    [(None, True), ("pending", True), ("in_progress", True), ("completed", False), ("failed", False)],
)
def test_a_tool_call_is_open_until_its_outcome_is_known(status: str | None, is_open: bool) -> None:
    assert ToolCallBlock(tool_call_id="1", status=status).is_open is is_open


def test_message_with_an_unknown_block_is_dumped_without_a_warning() -> None:
    future = {"type": "hologram", "depth": [1, None]}
    message = Message.model_validate({"role": "assistant", "content": [{"type": "text", "text": "a"}, future]})
    assert message.model_dump(mode="json")["content"][1] == future


def test_a_field_whose_name_is_not_valid_text_does_not_hide_its_block() -> None:
    block = parse_block({"type": "text", "text": "words", "\ud83d": 1})
    assert isinstance(block, TextBlock)
    assert block.raw() == {"type": "text", "text": "words", "\\ud83d": 1}
