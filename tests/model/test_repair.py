"""Interrupted sessions made fit to go on."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import Message, SessionSnapshot
from snapshot_plugin.model import Block, TextBlock, ThoughtBlock, ToolCallBlock, parse_block
from snapshot_plugin.model.repair import Notice, is_outcome_unknown, repair
from tests.tries import tries

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def session(*messages: Message) -> SessionSnapshot:
    return SessionSnapshot(session_id="s", created_at=NOW, updated_at=NOW, messages=messages)


def said(role: Any, *blocks: Block | str, **fields: Any) -> Message:
    content = [TextBlock(text=block) if isinstance(block, str) else block for block in blocks]
    return Message(role=role, content=content, **fields)


def call(tool_call_id: str = "c1", status: str | None = None, **fields: Any) -> ToolCallBlock:
    return ToolCallBlock(tool_call_id=tool_call_id, status=status, **fields)


def kinds(notices: tuple[Notice, ...]) -> list[tuple[str, int]]:
    return [(notice.kind, notice.message_index) for notice in notices]


def only_call(snapshot: SessionSnapshot, index: int = 0) -> ToolCallBlock:
    return next(block for block in snapshot.messages[index].content if isinstance(block, ToolCallBlock))


@pytest.mark.requirement("STORE-VALUE-REPAIR")
@pytest.mark.parametrize("status", [None, "pending", "in_progress"])
def test_open_tool_call_is_closed_as_failed_with_an_unknown_outcome(status: str | None) -> None:
    partial = {"type": "content", "content": {"type": "text", "text": "so far"}}
    broken = session(said("assistant", "before", call(status=status, content=[partial], title="Run"), "after"))

    repaired, notices = repair(broken)

    closed = only_call(repaired)
    assert (closed.status, closed.title, closed.content[0]) == ("failed", "Run", partial)
    assert len(closed.content) == 2
    assert closed.content[1]["type"] == "content"
    assert is_outcome_unknown(closed)
    assert [block.type for block in repaired.messages[0].content] == ["text", "tool_call", "text"]
    assert kinds(notices) == [("tool-call-closed", 0)]
    assert "c1" in notices[0].detail


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_a_tool_call_with_an_outcome_is_left_alone(status: str) -> None:
    whole = session(said("user", "go"), said("assistant", call(status=status)))

    repaired, notices = repair(whole)

    assert repaired is whole
    assert notices == ()
    assert not is_outcome_unknown(only_call(repaired, 1))


@pytest.mark.requirement("STORE-VALUE-REPAIR-PURE")
def test_given_snapshot_is_not_mutated_and_other_messages_are_the_same_objects() -> None:
    broken = session(said("user", "go"), said("assistant", call()), said("user", "and?"), said("assistant"))
    before = json.dumps(broken.raw())

    repaired, _ = repair(broken)

    assert json.dumps(broken.raw()) == before
    assert repaired.messages[0] is broken.messages[0]
    assert repaired.messages[2] is broken.messages[2]


def test_content_that_is_not_a_list_is_kept_beside_the_note() -> None:
    repaired, _ = repair(session(said("assistant", call(content="odd"))))

    assert only_call(repaired).content[0] == "odd"
    assert is_outcome_unknown(only_call(repaired))


def test_the_note_is_recognised_after_a_round_trip() -> None:
    repaired, _ = repair(session(said("assistant", call())))
    again = SessionSnapshot.model_validate(json.loads(json.dumps(repaired.raw())))

    assert is_outcome_unknown(only_call(again))


@pytest.mark.parametrize(
    "result",
    [
        said("tool", "42", metadata={"tool_call_id": "c1"}),
        said("tool", "42", toolCallId="c1"),
        said("tool", "42", tool_use_id="c1"),
        said("tool", call(raw_output="42")),
    ],
)
def test_call_with_a_later_tool_message_is_not_an_orphan(result: Message) -> None:
    whole = session(said("assistant", call()), result)

    assert repair(whole) == (whole, ())


def test_result_belongs_to_the_nearest_earlier_call_when_ids_are_reused() -> None:
    result = said("tool", "42", metadata={"tool_call_id": "c1"})
    broken = session(said("assistant", call()), said("user", "again"), said("assistant", call()), result)

    assert kinds(repair(broken)[1]) == [("tool-call-closed", 0)]

    broken = session(said("assistant", call()), result, said("assistant", call()))

    assert kinds(repair(broken)[1]) == [("tool-call-closed", 2)]


def test_a_result_without_its_call_is_reported_and_kept() -> None:
    broken = session(
        said("tool", "42", metadata={"tool_call_id": "gone"}), said("assistant", call("gone", "completed"))
    )

    repaired, notices = repair(broken)

    assert repaired is broken
    assert kinds(notices) == [("result-without-call", 0)]


def test_empty_result_without_its_call_is_dropped_with_the_torn_tail() -> None:
    broken = session(said("user", "go"), said("tool", metadata={"tool_call_id": "gone"}))

    repaired, notices = repair(broken)

    assert repaired.messages == broken.messages[:1]
    assert kinds(notices) == [("tail-dropped", 1)]
    assert notices[0].detail == "an empty tool message at the end was dropped"


@pytest.mark.requirement("STORE-VALUE-REPAIR")
def test_an_empty_tail_is_dropped_message_by_message() -> None:
    broken = session(
        said("user", "go"),
        said("assistant", "", ThoughtBlock(text="")),
        said("user"),
        said("system"),
        said("assistant"),
    )

    repaired, notices = repair(broken)

    assert repaired.messages == broken.messages[:1]
    assert kinds(notices) == [("tail-dropped", index) for index in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    "last",
    [
        said("assistant", "x"),
        said("assistant", " "),
        said("assistant", "", ThoughtBlock(text="hm")),
        said("assistant", ThoughtBlock(text="", content={"type": "image"})),
        said("assistant", parse_block({"type": "thought", "text": "", "signature": "abc"})),
        said("assistant", parse_block({"type": "text", "text": "", "_meta": {"a": 1}})),
        said("assistant", parse_block({"type": "new kind"})),
        said("assistant", call(status="completed")),
        said("user", ""),
    ],
)
def test_tail_with_any_content_is_kept(last: Message) -> None:
    whole = session(said("user", "go"), last)

    assert repair(whole) == (whole, ())


def test_empty_messages_in_the_middle_are_kept() -> None:
    whole = session(said("assistant"), said("user"), said("user", "go"))

    assert repair(whole) == (whole, ())


def test_session_of_only_empty_messages_becomes_empty() -> None:
    assert repair(session(said("assistant"), said("user")))[0].messages == ()


IDS = st.sampled_from(["c1", "c2", "c3"])
BLOCKS = st.one_of(
    st.builds(TextBlock, text=st.sampled_from(["", " ", "words"])),
    st.builds(ThoughtBlock, text=st.sampled_from(["", "hm"])),
    st.builds(
        call,
        IDS,
        st.sampled_from([None, "pending", "in_progress", "completed", "failed"]),
        content=st.sampled_from([None, [], "odd", [{"type": "terminal", "terminalId": "t"}]]),
    ),
    st.just(parse_block({"type": "future", "text": "kept"})),
)
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant", "system", "tool"]),
    content=st.lists(BLOCKS, max_size=4),
    metadata=st.just({}) | IDS.map(lambda name: {"tool_call_id": name}),
)
SESSIONS = st.lists(MESSAGES, max_size=8).map(lambda messages: session(*messages))


def words(snapshot: SessionSnapshot) -> str:
    blocks = (block for message in snapshot.messages for block in message.content)
    return "|".join(block.text for block in blocks if isinstance(block, TextBlock | ThoughtBlock) and block.text)


@tries(300)
@given(SESSIONS)
def test_repair_is_idempotent_and_loses_no_text(broken: SessionSnapshot) -> None:
    repaired, notices = repair(broken)
    again, left = repair(repaired)

    assert again is repaired
    assert {notice.kind for notice in left} <= {"result-without-call"}
    assert left == tuple(notice for notice in notices if notice.kind == "result-without-call")
    assert words(repaired) == words(broken)
    assert (repaired is broken) == all(notice.kind == "result-without-call" for notice in notices)


@tries(300)
@given(SESSIONS)
def test_after_repair_every_call_has_an_outcome_or_a_result(broken: SessionSnapshot) -> None:
    messages = repair(broken)[0].messages
    for index, message in enumerate(messages):
        for block in message.content if message.role != "tool" else ():
            if isinstance(block, ToolCallBlock) and block.is_open:
                later = [after for after in messages[index:] if after.role == "tool"]
                answers = [after.metadata.get("tool_call_id") for after in later]
                answers += [
                    b.tool_call_id for after in later for b in after.content if isinstance(b, ToolCallBlock)
                ]
                assert block.tool_call_id in answers
