"""The reducer under anything: it never raises, agrees with itself, and can stop and go on anywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import MemoryStore, SessionSnapshot
from snapshot_plugin.acp.compare import compare
from snapshot_plugin.acp.notes import lost_note, transcript_note
from snapshot_plugin.acp.replay import replay
from snapshot_plugin.model import ToolCallBlock
from tests.acp.events import BLANK, NOW, prompt, recorded, recording, said, stop, tool, update
from tests.tries import tries

Event = dict[str, Any]
few = tries(150)

# Anything -------------------------------------------------------------------------------------------------

names = st.text(st.characters(), max_size=5)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | names
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
UPDATES = (
    "user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan",
    "available_commands_update", "current_mode_update", "config_option_update", "session_info_update",
    "usage_update", "notice", "compaction_update", "other",
)  # fmt: skip
FIELDS = (
    "content", "messageId", "toolCallId", "title", "kind", "status", "locations", "rawInput", "rawOutput",
    "entries", "availableCommands", "currentModeId", "configOptions", "used", "size", "cost", "tool_call_id",
    "terminals", "permission", "type", "raw_input", "\ud83d",
)  # fmt: skip
EVENTS = (
    "new",
    "agent",
    "prompt",
    "stop",
    "interrupted",
    "permission",
    "outcome",
    "terminal",
    "config",
    "odd",
    "t",
    "n",
)
INNER = (
    "type", "text", "content", "sessionId", "info", "name", "command", "cwd", "mcpServers", "additionalDirectories",
    "modes", "currentModeId", "configOptions", "id", "category", "currentValue", "toolCall", "toolCallId",
    "options", "terminalId", "output", "stopReason", "usage", "totalTokens", "amount", "currency",
    "priority", "status", "\ud83d",
)  # fmt: skip
known_words = st.sampled_from(
    ["text", "terminal", "model", "x", "acp_update", "tool_call", "thought", "acp_content"]
)
likely = st.recursive(
    scalars | known_words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(INNER), inner, max_size=4),
    max_leaves=10,
)
strange_updates = st.dictionaries(st.sampled_from(FIELDS), likely | anything, max_size=5).flatmap(
    lambda fields: st.sampled_from(UPDATES).map(lambda kind: {"sessionUpdate": kind, **fields})
)
strange_events = st.one_of(
    st.builds(lambda value: {"update": value}, strange_updates | anything),
    st.dictionaries(st.sampled_from(EVENTS), likely | anything, min_size=1, max_size=3),
)


@few
@given(st.lists(strange_events, max_size=12))
def test_any_events_reduce_to_a_session_that_can_be_stored_shown_and_compared(
    events: list[Event],
) -> None:
    snapshot = recorded(*events)
    stored = json.loads(json.dumps(snapshot.raw(), allow_nan=False))
    assert SessionSnapshot.model_validate(stored) == snapshot
    shown = list(replay(snapshot, {}, tool_bytes=100))
    assert all(isinstance(each["sessionUpdate"], str) for each in shown)
    json.dumps(shown, allow_nan=False)
    compare(snapshot, [event["update"] for event in events if isinstance(event.get("update"), dict)])
    assert len(transcript_note(snapshot, limit=500)) < 1200
    assert len(lost_note(snapshot.messages, limit=500)) < 1200


@few
@given(st.lists(strange_events, max_size=12))
def test_reading_the_snapshot_early_does_not_change_the_result(events: list[Event]) -> None:
    live = recording()
    for event in events:
        live.apply(event)
        live.snapshot(NOW)
    assert live.snapshot(NOW) == recorded(*events)


# Sessions as agents make them -------------------------------------------------------------------------------

words = st.text("ab \n", min_size=1, max_size=4)
ids = st.sampled_from(["1", "2", "3"])
message_ids = st.sampled_from([None, "m1", "m2"])
picture = {"type": "image", "data": "aGk=", "mimeType": "image/png"}


def _chunk(kind: str) -> st.SearchStrategy[Event]:
    return st.builds(lambda text, message_id: said(text, kind, messageId=message_id), words, message_ids)


def _terminal_call(call_id: str, terminal: str) -> Event:
    return tool(call_id, content=[{"type": "terminal", "terminalId": terminal}])


in_a_turn = st.one_of(
    _chunk("agent_message_chunk"),
    _chunk("agent_thought_chunk"),
    _chunk("user_message_chunk"),
    st.just(update("agent_message_chunk", content=picture)),
    st.builds(lambda name, title: tool(name, "tool_call", title=title, status="pending"), ids, words),
    st.builds(lambda name, status: tool(name, status=status), ids, st.sampled_from(["in_progress", "completed"])),
    st.builds(_terminal_call, ids, ids),
    st.builds(lambda name, out: {"terminal": {"terminalId": name, "output": out}}, ids, words),
    st.builds(lambda n, name: {"permission": {"toolCall": {"toolCallId": name}, "options": []}, "n": n}, ids, ids),
    st.builds(lambda n: {"outcome": {"outcome": "cancelled"}, "n": n}, ids),
    st.just(update("weather", sunny=True)),
    st.just(update("plan", entries=[{"content": "x"}])),
    st.builds(lambda title: update("session_info_update", title=title), st.none() | words),
    st.builds(lambda used: update("usage_update", used=used, size=9), st.integers(0, 9)),
)
ends = st.sampled_from([stop(), stop("cancelled"), {"interrupted": "killed"}])
a_turn = st.builds(
    lambda asked, done, end: [prompt(asked), *done, end], words, st.lists(in_a_turn, max_size=8), ends
)


def _joined(parts: list[list[Event]]) -> list[Event]:
    return [event for part in parts for event in part]


outside = st.lists(in_a_turn, max_size=3)
sessions = st.lists(a_turn | outside, max_size=4).map(_joined)


@tries(250)
@given(sessions, st.data())
def test_recording_resumed_from_a_snapshot_ends_like_an_uninterrupted_one(
    events: list[Event], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(events)))
    middle = recorded(*events[:at])
    stored = SessionSnapshot.model_validate(json.loads(json.dumps(middle.raw())))
    assert recorded(*events[at:], base=stored) == recorded(*events)


@few
@given(sessions)
def test_every_word_and_call_sent_is_in_the_record(events: list[Event]) -> None:
    snapshot = recorded(*events)
    for kind, of in (("agent_message_chunk", "text"), ("agent_thought_chunk", "thought")):
        blocks = [b.raw() for m in snapshot.messages if m.role == "assistant" for b in m.content]
        kept = "".join(block.get("text", "") for block in blocks if block["type"] == of)
        assert kept == "".join(_text_of(event, kind) for event in events)
    named = {event["update"]["toolCallId"] for event in events if "toolCallId" in event.get("update", {})}
    assert _calls(snapshot) >= named


def _text_of(event: Event, kind: str) -> str:
    each = event.get("update", {})
    return str(each["content"].get("text", "")) if each.get("sessionUpdate") == kind else ""


def _calls(snapshot: SessionSnapshot) -> set[str]:
    blocks = (block for message in snapshot.messages for block in message.content)
    return {block.tool_call_id for block in blocks if isinstance(block, ToolCallBlock)}


def _runs(snapshot: SessionSnapshot) -> list[tuple[str, str]]:
    """Who said what, with messages of one speaker joined: a replay has no other borders between an agent's."""
    runs: list[tuple[str, str]] = []
    for message in snapshot.messages:
        if runs and runs[-1][0] == message.role == "assistant":
            runs[-1] = ("assistant", runs[-1][1] + message.text)
        elif message.text or message.role == "user":
            runs.append((message.role, message.text))
    return runs


def _asks_only_at_the_start(events: list[Event]) -> bool:
    """Words of the user in the middle of an answer are shown again as the message they are."""
    return not any(event.get("update", {}).get("sessionUpdate") == "user_message_chunk" for event in events)


@few
@given(st.lists(a_turn.filter(_asks_only_at_the_start) | outside, max_size=4).map(_joined))
def test_finished_session_replayed_and_recorded_again_is_equal(events: list[Event]) -> None:
    snapshot = recorded(*events, {"interrupted": "killed"})
    again = recorded(*({"update": each} for each in replay(snapshot, {}, tool_bytes=1000)), base=BLANK)
    assert _runs(again) == _runs(snapshot)
    assert _calls(again) == _calls(snapshot)
    assert again.plan == snapshot.plan
    assert again.title == (snapshot.title or None)


@few
@given(st.lists(a_turn, max_size=4).map(_joined))
def test_replay_of_a_snapshot_always_compares_as_whole(events: list[Event]) -> None:
    snapshot = recorded(*events)
    assert compare(snapshot, replay(snapshot, {}, tool_bytes=1000)).kind == "whole"


@pytest.mark.parametrize(
    "odd",
    [
        update("agent_message_chunk", content={"type": "text", "text": "hi", "\ud83d": 1}),
        update("agent_message_chunk", content={"type": "unknown", "\ud83d": 1}),
        update("tool_call", toolCallId="1", title="t", **{"\ud83d": 1}),
        update("plan", entries=[{"content": "x", "priority": "high", "status": "pending", "\ud83d": 1}]),
    ],
)
def test_fields_whose_names_are_not_valid_text_are_recorded_and_loaded(odd: Event) -> None:
    snapshot = recorded(odd)
    with MemoryStore().sync as store:
        store.save(snapshot)
        loaded = store.load(snapshot.session_id)
    assert [message.text for message in loaded.messages] == [message.text for message in snapshot.messages]
    assert len(loaded.plan) == len(snapshot.plan)
