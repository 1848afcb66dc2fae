"""From the record back to the client: what is shown again, and that the protocol allows every bit of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from snapshot_plugin import Message, SessionSnapshot
from snapshot_plugin.acp.replay import replay
from snapshot_plugin.model import ToolCallBlock
from tests.acp.events import NOW, calls, prompt, recorded, said, stop, text, tool, update
from tests.acp.schema import validator_for

Updates = list[dict[str, Any]]
DIFF = {"type": "diff", "path": "/a.py", "oldText": "1", "newText": "2"}
PICTURE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
COMPACTION = {"sessionUpdate": "compaction_update", "compactionId": "c", "status": "completed"}
COMMANDS = [{"name": "help", "description": "…"}]

RICH = recorded(
    update("available_commands_update", availableCommands=COMMANDS),
    {"prompt": [text("look "), PICTURE, text("here")], "t": "2026-11-16T00:00:01Z"},
    said("hm", "agent_thought_chunk"),
    update("agent_thought_chunk", content=PICTURE),
    said("First"),
    tool("t", "tool_call", title="Edit", kind="edit", status="pending", rawInput={"a": 1}),
    tool("t", status="completed", content=[DIFF], locations=[{"path": "/a.py", "line": 1}], rawOutput={"ok": 1}),
    {"update": COMPACTION},
    update("plan", entries=[{"content": "leap", "priority": "high", "status": "pending"}]),
    said("then."),
    stop(),
    update("session_info_update", title="T"),
    update("usage_update", used=5, size=10, cost={"amount": 0.5, "currency": "EUR"}),
    prompt("and now?"),
    tool("u", "tool_call", title="Deploy", status="in_progress", content=[{"type": "terminal", "terminalId": "x"}]),
    {"terminal": {"terminalId": "x", "output": "deploying", "truncated": False}},
    {"permission": {"toolCall": {"toolCallId": "u"}, "options": []}, "n": "1"},
    {"interrupted": "killed"},
)


def shown(record: SessionSnapshot, *, client: Any = None, tool_bytes: int = 1000) -> Updates:
    return list(replay(record, client or {}, tool_bytes=tool_bytes))


def kinds(updates: Updates) -> list[str]:
    return [update["sessionUpdate"] for update in updates]


def statuses(updates: Updates) -> list[str]:
    return [update["status"] for update in updates if update["sessionUpdate"] == "tool_call"]


def test_open_calls_of_a_turn_whose_end_is_not_known_are_completed_only_with_an_output() -> None:
    with_output = tool("u", "tool_call", title="Run", status="in_progress", rawOutput={"ok": 1})
    copied = recorded(prompt("go"), tool("t", "tool_call", title="Read", status="pending"), with_output)
    assert statuses(shown(copied)) == ["failed", "completed"]
    assert statuses(shown(recorded(stop(), base=copied))) == ["completed", "completed"]
    assert statuses(shown(recorded(stop("cancelled"), base=copied))) == ["failed", "failed"]


def test_open_calls_of_a_running_turn_are_shown_as_they_are_and_those_before_it_are_not() -> None:
    call = tool("t", "tool_call", title="Read", status="pending")
    running = recorded(prompt("go"), call, stop(), prompt("on"), {"update": {**call["update"], "toolCallId": "u"}})
    assert statuses(list(replay(running, {}, is_running=True))) == ["completed", "pending"]


def test_replay_shows_everything_in_order_then_the_state() -> None:
    assert kinds(shown(RICH)) == [
        *["user_message_chunk"] * 3,
        *["agent_thought_chunk"] * 2,
        "agent_message_chunk",
        "tool_call",
        "agent_message_chunk",
        "user_message_chunk",
        "tool_call",
        "plan",
        "available_commands_update",
        "session_info_update",
        "usage_update",
    ]


@pytest.mark.parametrize("client", [{}, {"session": {"compaction": {}}}])
def test_every_replayed_update_is_valid_in_the_protocol(client: Any) -> None:
    check = validator_for("SessionNotification")
    for each in shown(RICH, client=client):
        check({"sessionId": "s", "update": each})


def test_replay_then_record_gives_the_same_conversation() -> None:
    again = recorded(*({"update": each} for each in shown(RICH)))
    assert [(m.role, m.text) for m in again.messages] == [(m.role, m.text) for m in RICH.messages]
    before, after = calls(RICH), calls(again)
    assert after[0] == before[0]
    assert (after[1].title, after[1].status) == ("Deploy", "failed")
    assert (again.plan, again.title, again.metrics.cost) == (RICH.plan, RICH.title, RICH.metrics.cost)
    assert shown(again) == shown(RICH)


def test_open_tool_call_is_replayed_as_failed_with_a_note_and_its_terminal_as_text() -> None:
    call = shown(RICH)[9]
    assert (call["toolCallId"], call["status"]) == ("u", "failed")
    assert call["content"][0] == {"type": "content", "content": text("deploying")}
    assert "unknown" in call["content"][1]["content"]["text"]
    assert "terminal" not in json.dumps([item["type"] for item in call["content"]])
    assert "permission" not in call
    assert "terminals" not in call


def test_terminal_without_captured_output_is_replayed_with_a_note() -> None:
    record = recorded(
        prompt("go"),
        tool("t", "tool_call", status="completed", content=[{"type": "terminal", "terminalId": "x"}]),
        {"terminal": {"terminalId": "x", "output": 5}},
    )
    (item,) = shown(record)[1]["content"]
    assert "not captured" in item["content"]["text"]


def test_consecutive_messages_of_one_speaker_stay_separate() -> None:
    record = recorded(prompt("one"), {"interrupted": "x"}, prompt("two"), said("a"), stop(), said("b"))
    ids = {each["content"]["text"]: each["messageId"] for each in shown(record)}
    assert len(set(ids.values())) == 4
    (own,) = shown(SessionSnapshot(session_id="s", created_at=NOW, updated_at=NOW, messages=(mine(),)))
    assert own["messageId"] == "mine"


def mine() -> Message:
    return Message(role="system", content="hello", id="mine")


def test_compaction_is_replayed_only_to_clients_that_support_it() -> None:
    assert "compaction_update" not in kinds(shown(RICH))
    assert COMPACTION in shown(RICH, client={"session": {"compaction": {}}})
    for odd in ({"session": None}, {"session": 5}, {"session": {"compaction": None}}):
        assert "compaction_update" not in kinds(shown(RICH, client=odd))


def test_unknown_updates_are_replayed_verbatim_unless_they_lack_a_type() -> None:
    weather = {"sessionUpdate": "weather", "sunny": True, "nothing": None}
    record = recorded(prompt("go"), {"update": weather}, {"update": {"odd": 1}}, said("x"))
    assert shown(record)[1] == weather
    assert len(shown(record)) == 3


def test_content_that_is_not_a_block_is_replayed_as_json() -> None:
    record = recorded({"prompt": [5]}, update("agent_message_chunk", content=None), said("x"))
    assert [each["content"] for each in shown(record)] == [text("5"), text("null"), text("x")]


def test_empty_messages_are_not_replayed() -> None:
    assert shown(recorded(prompt(""), said(""), said("", "agent_thought_chunk"), stop())) == []
    assert (
        shown(recorded(said("x"), update("plan", entries=[]), update("session_info_update", title=None)))[1:] == []
    )


def test_large_tool_payloads_are_truncated_in_the_replay_but_not_in_the_record() -> None:
    big = "x" * 5000
    diffs = [{"type": "diff", "path": f"/{n}", "oldText": big, "newText": big} for n in range(3)]
    record = recorded(
        prompt("go"),
        tool("t", "tool_call", status="completed", content=diffs, rawInput={"k": [big]}, rawOutput="ü" * 5000),
    )
    call = shown(record, tool_bytes=6000)[1]
    first, second, third = call["content"]
    assert first["oldText"] == big
    assert first["newText"].startswith("x" * 1000 + "\n[… 4000 more")
    assert second["newText"].startswith("\n[… 5000 more")
    assert [item["path"] for item in (first, second, third)] == ["/0", "/1", "/2"]
    assert call["rawInput"] == {"k": [big]}
    assert call["rawOutput"].startswith("ü" * 3000 + "\n[… 2000 more")
    assert calls(record)[0].content == diffs
    assert shown(record, tool_bytes=100_000)[1]["content"] == diffs


def test_a_tool_call_of_another_framework_can_be_shown() -> None:
    call = ToolCallBlock(tool_call_id="1", content="text", raw_input="x")
    record = SessionSnapshot(
        session_id="s",
        created_at=NOW,
        updated_at=NOW,
        messages=(Message(role="tool", content=(call,)), Message(role="assistant", content="done")),
        metadata={"acp": 5},
    )
    assert shown(record)[0]["title"] == ""
    assert kinds(shown(record)) == ["tool_call", "agent_message_chunk"]
