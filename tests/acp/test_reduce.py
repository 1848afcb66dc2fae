"""The reducer: every update of the protocol becomes the record it should, and nothing makes it raise."""

from __future__ import annotations

import json
import math
from time import process_time
from typing import Any

import pytest

from snapshot_plugin import Message
from snapshot_plugin.acp.notes import lost_note
from snapshot_plugin.acp.reducer import AcpReducer
from snapshot_plugin.acp.state import stored_setup
from tests.acp.events import (
    BLANK,
    NOW,
    blocks,
    calls,
    prompt,
    recorded,
    recording,
    said,
    stop,
    text,
    tool,
    update,
)

DIFF = {"type": "diff", "path": "a.py", "oldText": "1", "newText": "2"}


# Words ----------------------------------------------------------------------------------------------------


def test_a_turn_becomes_a_prompt_and_an_answer_with_times_and_its_stop_reason() -> None:
    snapshot = recorded(prompt("hi"), said("Hel"), said("lo"), stop())
    user, answer = snapshot.messages
    assert (user.role, user.text, answer.role, answer.text) == ("user", "hi", "assistant", "Hello")
    assert user.timestamp is not None
    assert answer.timestamp is not None
    assert user.timestamp < answer.timestamp
    assert answer.metadata["acp"] == {"stopReason": "end_turn"}
    assert snapshot.metrics.turns == 1


def test_chunks_keep_their_order_and_adjacent_ones_are_joined() -> None:
    snapshot = recorded(
        prompt("go"),
        said("a", "agent_thought_chunk"),
        said("b", "agent_thought_chunk"),
        said("c"),
        tool("t", "tool_call", title="T"),
        said("d"),
        said("e"),
        said("f", "agent_thought_chunk"),
    )
    assert blocks(snapshot)[1] == [
        {"type": "thought", "text": "ab"},
        {"type": "text", "text": "c"},
        {"type": "tool_call", "toolCallId": "t", "title": "T"},
        {"type": "text", "text": "de"},
        {"type": "thought", "text": "f"},
    ]


def test_chunks_of_different_messages_are_not_joined() -> None:
    snapshot = recorded(prompt("go"), said("a", messageId="1"), said("b", messageId="1"), said("c", messageId="2"))
    assert blocks(snapshot)[1] == [text("ab"), text("c")]


def test_annotated_chunk_is_not_joined_and_empty_chunks_are_dropped() -> None:
    marked = {**text("b"), "annotations": {"audience": ["user"]}}
    unmarked = {**text("d"), "annotations": None, "_meta": None}
    events = [update("agent_message_chunk", content=content) for content in (marked, text("c"), unmarked)]
    assert blocks(recorded(prompt("go"), said("a"), *events))[1] == [text("a"), marked, text("cd")]


@pytest.mark.parametrize(
    "content",
    [
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "x"}},
        {"type": "hologram", "depth": 3},
        {"type": "text", "text": 5},
    ],
)
def test_every_content_type_is_kept_in_answers_prompts_and_thoughts(content: Any) -> None:
    snapshot = recorded(
        {"prompt": [content]},
        update("agent_message_chunk", content=content),
        update("agent_thought_chunk", content=content),
    )
    assert blocks(snapshot) == [[content], [content, {"type": "thought", "content": content}]]


@pytest.mark.parametrize(
    "content", [{"type": "tool_call", "toolCallId": "x"}, {"type": "acp_update"}, 5, None, [1]]
)
def test_content_that_is_not_a_block_or_imitates_ours_is_wrapped(content: Any) -> None:
    snapshot = recorded(prompt("go"), update("agent_message_chunk", content=content))
    assert blocks(snapshot)[1] == [{"type": "acp_content", "content": content}]
    assert calls(snapshot) == []


def test_a_prompt_keeps_all_its_blocks() -> None:
    picture = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    assert blocks(recorded({"prompt": [text("look"), picture, text("!")]})) == [[text("look"), picture, text("!")]]


# Echoes and words from the agent that are the user's --------------------------------------------------------


def test_echoed_prompt_is_not_recorded_twice() -> None:
    picture = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    snapshot = recorded(
        {"prompt": [text("look at this"), picture]},
        said("look ", "user_message_chunk"),
        said("at this", "user_message_chunk"),
        update("user_message_chunk", content=picture),
        said("ok"),
        stop(),
    )
    assert blocks(snapshot) == [[text("look at this"), picture], [text("ok")]]


def test_extra_user_text_within_a_turn_is_kept_in_place() -> None:
    snapshot = recorded(prompt("go"), said("a"), said("hurry", "user_message_chunk"), said("b"), stop())
    kinds = [block["type"] for block in blocks(snapshot)[1]]
    assert kinds == ["text", "acp_update", "text"]


def test_same_user_text_after_the_agent_started_is_not_an_echo() -> None:
    snapshot = recorded(prompt("hurry"), said("a"), said("hurry", "user_message_chunk"), stop())
    assert [block["type"] for block in blocks(snapshot)[1]] == ["text", "acp_update"]


def test_echoed_restoration_note_is_not_recorded() -> None:
    note = lost_note([Message(role="assistant", content="partial")], limit=1000)
    echoed = said(note, "user_message_chunk")
    assert recorded(echoed).messages == ()
    assert blocks(recorded(prompt("go"), echoed, said("ok"))) == [[text("go")], [text("ok")]]


def test_a_conversation_replayed_outside_a_turn_becomes_the_record() -> None:
    snapshot = recorded(
        said("he", "user_message_chunk"),
        said("llo", "user_message_chunk"),
        said("hi"),
        said("one", "user_message_chunk", messageId="1"),
        said("two", "user_message_chunk", messageId="2"),
        said("three"),
        {"stop": {}},
    )
    assert [(m.role, m.text) for m in snapshot.messages] == [
        ("user", "hello"),
        ("assistant", "hi"),
        ("user", "one"),
        ("user", "two"),
        ("assistant", "three"),
    ]


def test_agent_messages_outside_a_turn_are_recorded() -> None:
    snapshot = recorded(said("Welcome"), prompt("hi"), said("Hi"), stop(), said("By the way"), prompt("yes?"))
    assert [m.text for m in snapshot.messages] == ["Welcome", "hi", "Hi", "By the way", "yes?"]


# Tool calls -----------------------------------------------------------------------------------------------


def test_tool_call_updates_merge_lists_replace_and_nulls_change_nothing() -> None:
    snapshot = recorded(
        prompt("go"),
        tool("t", "tool_call", title="Edit", kind="edit", status="pending", rawInput={"a": 1}, name="edit_file"),
        tool(
            "t",
            status="in_progress",
            content=[{"type": "content", "content": text("…")}],
            title=None,
            rawInput=None,
        ),
        tool("t", status="completed", content=[DIFF], locations=[{"path": "a.py"}], rawOutput={"ok": True}, x=1),
        tool("t", content=None, locations=None, x=None),
    )
    assert blocks(snapshot)[1] == [
        {
            "type": "tool_call",
            "toolCallId": "t",
            "title": "Edit",
            "kind": "edit",
            "status": "completed",
            "content": [DIFF],
            "locations": [{"path": "a.py"}],
            "rawInput": {"a": 1},
            "rawOutput": {"ok": True},
            "name": "edit_file",
            "x": 1,
        }
    ]


def test_late_update_reaches_its_tool_call_however_old() -> None:
    first = [prompt("go"), tool("old", "tool_call", status="in_progress"), said("meanwhile"), stop()]
    more = [event for n in range(60) for event in (prompt(f"p{n}"), said(f"a{n}"), stop())]
    snapshot = recorded(*first, *more, tool("old", status="completed"))
    assert [call.status for call in calls(snapshot)] == ["completed"]
    assert snapshot.messages[1].text == "meanwhile"
    assert len(snapshot.messages) == 122


def test_reused_call_id_in_a_later_turn_is_a_new_call() -> None:
    turn = [tool("1", "tool_call", status="pending"), tool("1", status="completed"), stop()]
    snapshot = recorded(prompt("a"), *turn, prompt("b"), tool("1", "tool_call", status="pending"))
    assert [call.status for call in calls(snapshot)] == ["completed", "pending"]


def test_update_for_an_unknown_call_creates_it() -> None:
    assert calls(recorded(prompt("go"), tool("t", title="T", status="completed")))[0].title == "T"


def test_update_cannot_change_a_calls_identity_or_our_annotations() -> None:
    wrong = {"tool_call_id": "u", "type": "text", "permission": 1, "terminals": 1, "raw_input": 1}
    (call,) = calls(recorded(prompt("go"), tool("t", "tool_call", status=5, kind=[], title={}, **wrong)))
    assert call.raw() == {"type": "tool_call", "toolCallId": "t"}


def test_a_tool_call_without_an_id_is_kept_verbatim() -> None:
    nameless = {"sessionUpdate": "tool_call", "title": "?"}
    assert blocks(recorded(prompt("go"), {"update": nameless}))[1] == [{"type": "acp_update", "update": nameless}]


def permission(call_id: str, n: str) -> dict[str, Any]:
    options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
    return {"permission": {"toolCall": {"toolCallId": call_id, "title": "Rm"}, "options": options}, "n": n}


def test_permission_request_and_answer_are_kept_on_the_call() -> None:
    outcome = {"outcome": "selected", "optionId": "yes"}
    snapshot = recorded(
        prompt("go"),
        tool("a", "tool_call", status="pending"),
        permission("a", "1"),
        permission("b", "2"),
        {"outcome": outcome, "n": "1"},
        {"outcome": {"outcome": "cancelled"}, "n": "2"},
        {"outcome": {"outcome": "stray"}, "n": "3"},
    )
    first, second = calls(snapshot)
    assert (first.title, second.title) == ("Rm", "Rm")
    assert first.raw()["permission"]["outcome"] == outcome
    assert first.raw()["permission"]["asked"][0]["optionId"] == "yes"
    assert second.raw()["permission"]["outcome"] == {"outcome": "cancelled"}


def test_answer_to_a_dead_agents_request_is_not_matched_to_another() -> None:
    events = prompt("go"), permission("a", "1"), {"interrupted": "killed"}, {"outcome": "late", "n": "1"}
    assert "outcome" not in calls(recorded(*events))[0].raw()["permission"]


def shows(*terminals: str) -> dict[str, Any]:
    return {"content": [{"type": "terminal", "terminalId": name} for name in terminals]}


def test_terminal_output_is_kept_on_every_call_that_shows_it() -> None:
    snapshot = recorded(
        prompt("go"),
        {"terminal": {"terminalId": "1", "command": "ls", "env": [{"name": "TOKEN", "value": "secret"}]}},
        tool("a", "tool_call", **shows("1", "2")),
        {"terminal": {"terminalId": "2", "output": "two"}},
        {"terminal": {"terminalId": "1", "output": "one"}},
        {"terminal": {"terminalId": "1", "output": "one more", "exitStatus": {"exitCode": 0}}},
        stop(),
        {"terminal": {"terminalId": "2", "output": "two, late"}},
        prompt("again"),
        tool("b", "tool_call", **shows("1")),
    )
    first, second = calls(snapshot)
    one = {"command": "ls", "output": "one more", "exitStatus": {"exitCode": 0}}
    assert first.raw()["terminals"] == {"1": one, "2": {"output": "two, late"}}
    assert second.raw()["terminals"] == {"1": one}
    assert "secret" not in json.dumps(snapshot.raw())


def test_terminal_no_longer_shown_by_a_call_is_kept() -> None:
    events = [
        prompt("go"),
        {"terminal": {"terminalId": "1", "output": "one"}},
        {"terminal": {"terminalId": "2", "output": "two"}},
        tool("a", "tool_call", **shows("1")),
        tool("a", **shows("2")),
        stop(),
        prompt("again"),
        tool("b", "tool_call", **shows("1")),
        stop(),
    ]
    whole = recorded(*events)
    assert calls(whole)[1].raw()["terminals"] == {"1": {"output": "one"}}
    middle = recorded(*events[:6])
    assert recorded(base=middle) == middle
    assert recorded(*events[6:], base=middle) == whole


def test_terminal_output_after_a_call_stopped_showing_it_is_kept_for_the_next_call() -> None:
    events = [
        prompt("go"),
        tool("a", "tool_call", **shows("1")),
        tool("a", **shows("2")),
        {"terminal": {"terminalId": "1", "output": "one"}},
        tool("b", "tool_call", **shows("1")),
        {"terminal": {"terminalId": "1", "output": "one more"}},
        tool("b", **shows("2")),
        {"terminal": {"terminalId": "1", "output": "one, late"}},
        stop(),
    ]
    whole = recorded(*events)
    first, second = calls(whole)
    assert "terminals" not in first.raw()
    assert second.raw()["terminals"] == {"1": {"output": "one, late"}}
    for at in range(len(events)):
        assert recorded(*events[at:], base=recorded(*events[:at])) == whole


# How the session is ---------------------------------------------------------------------------------------


def test_last_plan_replaces_earlier_ones() -> None:
    entries = [{"content": "look", "priority": "high", "status": "completed"}, {"content": "leap", "x": 1}]
    snapshot = recorded(update("plan", entries=[{"content": "old"}]), update("plan", entries=entries))
    assert [entry.raw() for entry in snapshot.plan] == [entries[0], entries[1]]
    assert recorded(update("plan", entries=[]), base=snapshot).plan == ()
    assert recorded(update("plan", entries=5), base=snapshot).plan == snapshot.plan


def test_last_mode_options_model_and_commands_replace_earlier_ones() -> None:
    modes = {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}]}
    option = {
        "id": "m",
        "name": "Model",
        "category": "model",
        "type": "select",
        "currentValue": "big",
        "options": [],
    }
    flag = {"id": "f", "name": "Fast", "type": "boolean", "currentValue": True}
    commands = [{"name": "help", "description": "…"}]
    snapshot = recorded(
        {"config": {"modes": modes, "configOptions": [{**option, "currentValue": "small"}]}},
        update("current_mode_update", currentModeId="code"),
        update("config_option_update", configOptions=[option, flag]),
        update("available_commands_update", availableCommands=commands),
    )
    assert (snapshot.config.mode, snapshot.config.model) == ("code", "big")
    assert snapshot.config.options == {"m": "big", "f": True}
    noted = snapshot.metadata["acp"]
    assert noted["modes"] == {**modes, "currentModeId": "code"}
    assert (noted["configOptions"], noted["commands"]) == ([option, flag], commands)
    assert snapshot.messages == ()


def test_a_title_is_set_kept_and_cleared_by_null() -> None:
    titled = recorded(update("session_info_update", title="T"))
    assert titled.title == "T"
    assert recorded(update("session_info_update", updatedAt="x"), base=titled).title == "T"
    assert recorded(update("session_info_update", title=5), base=titled).title == "T"
    assert recorded(update("session_info_update", title=None), base=titled).title is None


def test_usage_and_cost_are_the_latest_and_turn_tokens_are_summed() -> None:
    usage = {"totalTokens": 10, "inputTokens": 7, "outputTokens": 3, "thoughtTokens": 1}
    snapshot = recorded(
        update("usage_update", used=1, size=100, cost={"amount": 0.5, "currency": "EUR"}),
        update("usage_update", used=5, size=100),
        prompt("a"),
        stop(usage=usage),
        prompt("b"),
        stop(usage={**usage, "totalTokens": True}),
    )
    metrics = snapshot.metrics
    assert snapshot.metadata["acp"]["context"] == {"used": 5, "size": 100}
    assert (metrics.cost, metrics.currency) == (0.5, "EUR")
    assert (metrics.total_tokens, metrics.input_tokens, metrics.output_tokens) == (10, 14, 6)
    assert snapshot.messages[1].metadata["acp"]["usage"] == usage


@pytest.mark.parametrize("amount", [True, "1", None, math.inf, 10**400, -(10**400)])
def test_malformed_cost_and_incomplete_context_usage_change_nothing(amount: Any) -> None:
    before = recorded(update("usage_update", used=1, size=9, cost={"amount": 0.5, "currency": "EUR"}))
    after = recorded(update("usage_update", used=2, cost={"amount": amount, "currency": "USD"}), base=before)
    assert after == before


def test_agent_and_its_session_id_are_recorded() -> None:
    info = {"name": "a", "version": "1", "command": ["a", "--acp"], "env": {"KEY": "secret"}}
    snapshot = recorded({"agent": {"sessionId": "theirs", "info": info}})
    assert snapshot.agent_session_id == "theirs"
    assert snapshot.agent is not None
    assert snapshot.agent.raw() == {"name": "a", "version": "1", "command": ["a", "--acp"]}


def test_mcp_servers_are_kept_by_name_and_type_only() -> None:
    local = {"name": "a", "command": "npx", "args": ["--key=secret"], "env": [{"name": "K", "value": "secret"}]}
    remote = {
        "name": "b",
        "type": "http",
        "url": "https://x/?key=secret",
        "headers": [{"name": "K", "value": "secret"}],
    }
    setup = {"cwd": "/w", "additionalDirectories": ["/x", 5], "mcpServers": [local, remote, {"env": "secret"}, 7]}
    snapshot = recorded({"new": setup})
    assert "secret" not in json.dumps([snapshot.raw(), stored_setup(setup)])
    assert (snapshot.config.cwd, snapshot.config.additional_directories) == ("/w", ("/x",))
    assert [(server.name, server.type) for server in snapshot.config.mcp_servers] == [("a", "stdio"), ("b", "http")]


# Everything else ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "unknown",
    [
        {"sessionUpdate": "compaction_update", "compactionId": "c", "status": "completed"},
        {"sessionUpdate": "compaction_summary_chunk", "compactionId": "c", "content": text("…")},
        {"sessionUpdate": "plan_update", "planId": "p", "x": None},
        {"sessionUpdate": "subagent_update", "sessionId": "child"},
        {"sessionUpdate": "weather", "sunny": True},
        {"sessionUpdate": ["odd"]},
        {},
    ],
)
def test_unknown_update_types_are_kept_verbatim_in_place(unknown: dict[str, Any]) -> None:
    snapshot = recorded(prompt("go"), said("a"), {"update": unknown}, said("b"), stop())
    assert blocks(snapshot)[1] == [text("a"), {"type": "acp_update", "update": unknown}, text("b")]


def test_notices_are_not_kept() -> None:
    assert recorded(update("notice", severity="info", title="Hi")).messages == ()


def test_interrupted_turn_keeps_its_text_and_the_reason_it_ended() -> None:
    snapshot = recorded(prompt("go"), said("half an ans"), tool("t", "tool_call"), {"interrupted": "killed"})
    assert snapshot.messages[1].text == "half an ans"
    assert snapshot.messages[1].metadata["acp"] == {"interrupted": "killed"}
    silent = recorded(prompt("go"), {"interrupted": "killed"})
    assert [(m.role, len(m.content)) for m in silent.messages] == [("user", 1), ("assistant", 0)]
    assert recorded({"interrupted": "killed"}, base=silent) == silent


def test_failed_prompt_is_recorded_as_failed() -> None:
    snapshot = recorded(prompt("go"), {"stop": {"error": {"code": -32603}}})
    assert snapshot.messages[1].metadata["acp"] == {"error": {"code": -32603}}


def test_session_counts_as_running_from_prompt_to_response() -> None:
    live = recording(said("early"))
    assert not live.running
    live.apply(prompt("go"))
    assert live.running
    live.apply(stop())
    assert not live.running


def test_recording_resumed_in_mid_turn_ends_like_an_uninterrupted_one() -> None:
    events = [
        prompt("look here"),
        said("look ", "user_message_chunk"),
        said("here", "user_message_chunk"),
        {"terminal": {"terminalId": "1", "output": "one"}},
        said("a", messageId="m"),
        tool("t", "tool_call", **shows("1")),
        permission("t", "9"),
        {"outcome": {"outcome": "cancelled"}, "n": "9"},
        said("b", messageId="m"),
        said("c", messageId="m"),
        {"interrupted": "killed"},
    ]
    whole = recorded(*events)
    for at in range(len(events) + 1):
        middle = recorded(*events[:at])
        assert AcpReducer(middle).running == (0 < at < len(events))
        assert recorded(*events[at:], base=middle) == whole
    assert "acp" not in whole.metadata


def test_unfinished_parts_are_not_carried_into_another_conversation() -> None:
    middle = recorded(prompt("one"), said("1"), stop(), prompt("two"), said("2"))
    cut = middle.evolve(messages=middle.messages[:2])
    assert not AcpReducer(cut).running
    assert recorded(said("x"), base=cut).messages[:2] == cut.messages


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_beyond_json_do_not_lose_their_update(value: float) -> None:
    (call,) = calls(recorded(prompt("go"), tool("t", "tool_call", status="completed", rawOutput={"loss": value})))
    assert (call.status, call.raw_output) == ("completed", {"loss": str(value)})
    failed = recorded(
        prompt("go"), {"stop": {"error": {"data": value}}}, {"config": {"modes": {"currentModeId": value}}}
    )
    assert failed.messages[1].metadata["acp"] == {"error": {"data": str(value)}}


def test_deep_nesting_does_not_lose_its_update() -> None:
    deep: Any = "bottom"
    for _ in range(5000):
        deep = [deep]
    (call,) = calls(recorded(prompt("go"), tool("t", "tool_call", status="completed", rawOutput=deep)))
    assert call.status == "completed"
    json.dumps(call.raw())


def test_recording_a_long_turn_takes_linear_time() -> None:
    def seconds(chunks: int) -> float:
        live = recording(prompt("go"))
        event = said("part-000.")
        begun = process_time()
        for _ in range(chunks):
            live.apply(event)
        live.apply(tool("t", "tool_call", **shows("1")))
        for n in range(200):
            live.apply({"terminal": {"terminalId": "1", "output": str(n)}})
        assert len(live.snapshot(NOW).messages[1].text) == 9 * chunks
        return process_time() - begun

    seconds(1000)
    assert min(seconds(100_000) for _ in range(3)) < 4 * min(seconds(50_000) for _ in range(3))


def test_base_snapshot_is_never_mutated() -> None:
    base = recorded(prompt("a"), tool("t", "tool_call", status="pending"), stop())
    before = json.dumps(base.raw())
    recorded(tool("t", status="completed"), prompt("b"), base=base)
    assert json.dumps(base.raw()) == before
    assert BLANK.messages == ()


# Very long answers ----------------------------------------------------------------------------------------


def test_a_very_long_answer_is_recorded_in_parts_that_can_be_saved_in_mid_turn() -> None:
    piece = "0123456789abcdef" * 4096
    live = recording(prompt("go"), *[said(piece)] * 16)
    assert not live.is_long
    live.apply(said("and "))
    assert live.is_long
    middle = live.snapshot(NOW)
    assert not live.is_long
    assert [message.text for message in middle.messages] == ["go", piece * 16, "and "]

    whole = recorded(said("more"), stop(), base=middle)
    assert [message.text for message in whole.messages] == ["go", piece * 16, "and more"]
    assert whole == recorded(prompt("go"), *[said(piece)] * 16, said("and "), said("more"), stop())
    assert ["acp" in message.metadata for message in whole.messages] == [False, False, True]


def test_one_very_long_chunk_is_one_message() -> None:
    snapshot = recorded(prompt("go"), said("x" * (3 << 20)), stop())
    assert [len(message.text) for message in snapshot.messages] == [2, 3 << 20]
    assert snapshot.messages[-1].metadata["acp"] == {"stopReason": "end_turn"}
