"""What is written down of each kind of message, and what of it has to reach the disk first."""

from __future__ import annotations

from typing import Any

import pytest

from snapshot_plugin.acp.notes import lost_note
from snapshot_plugin.acp.messages import Pending
from snapshot_plugin.acp.events import (
    Entry,
    answered_by_agent,
    answered_by_client,
    asked_by_agent,
    is_echoed_note,
    prompted,
    updated,
    with_note,
)

Json = dict[str, Any]


def asked(method: str, **params: Any) -> Pending:
    return Pending(7, method, "s", params)


def chunk(kind: str, text: str) -> Json:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}}


def test_a_prompt_is_durable_and_recorded_without_what_the_model_is_told() -> None:
    params = {"sessionId": "s", "prompt": [{"type": "text", "text": "hi", "future": 1}]}
    assert prompted(params, at="now") == Entry({"prompt": params["prompt"], "t": "now"}, durable=True)
    told = with_note(params, "note")
    assert told["prompt"] == [{"type": "text", "text": "note"}, *params["prompt"]]
    assert len(params["prompt"]) == 1


@pytest.mark.parametrize(
    ("kind", "durable"), [("tool_call", True), ("tool_call_update", False), ("agent_message_chunk", False)]
)
def test_of_updates_only_a_tool_that_starts_is_durable(kind: str, durable: bool) -> None:
    update = {"sessionUpdate": kind, "unknown": [1]}
    assert updated(update) == Entry({"update": update}, durable=durable)


def test_of_what_an_agent_asks_only_permission_is_recorded() -> None:
    permission = asked("session/request_permission", options=[])
    assert asked_by_agent(permission) == Entry({"permission": {"options": []}, "n": "7"}, durable=True)
    assert asked_by_agent(asked("fs/read_text_file", path="/secret")) is None


def test_what_the_client_answers_is_recorded_for_permissions_and_terminals_alone() -> None:
    outcome = {"outcome": "selected", "optionId": "yes"}
    permission = asked("session/request_permission")
    assert answered_by_client(permission, {"result": {"outcome": outcome}}) == Entry(
        {"outcome": outcome, "n": "7"}, durable=True
    )
    created = answered_by_client(
        asked("terminal/create", command="ls", env=["KEY"]), {"result": {"terminalId": "t"}}
    )
    assert created == Entry({"terminal": {"terminalId": "t", "command": "ls"}})
    shown = answered_by_client(asked("terminal/output", terminalId="t"), {"result": {"output": "x"}})
    assert shown == Entry({"terminal": {"terminalId": "t", "output": "x"}})
    assert answered_by_client(asked("fs/read_text_file"), {"result": {"content": "secret"}}) is None
    assert answered_by_client(permission, {"error": {"code": 1}}) is None


def test_the_end_of_a_turn_is_durable_however_it_ends() -> None:
    prompt = asked("session/prompt")
    ended = answered_by_agent(prompt, {"result": {"stopReason": "end_turn"}}, at="now")
    assert ended == Entry({"stop": {"stopReason": "end_turn"}, "t": "now"}, durable=True)
    failed = answered_by_agent(prompt, {"error": {"code": 1}}, at="now")
    assert failed == Entry({"stop": {"error": {"code": 1}}, "t": "now"}, durable=True)


def test_a_setting_that_was_accepted_is_recorded() -> None:
    mode = asked("session/set_mode", modeId="code")
    assert answered_by_agent(mode, {"result": {}}, at="now") == Entry(
        {"config": {"modes": {"currentModeId": "code"}}}
    )
    assert answered_by_agent(mode, {"error": {}}, at="now") is None
    options: Json = {"configOptions": []}
    assert answered_by_agent(asked("session/set_config_option"), {"result": options}, at="now") == Entry(
        {"config": options}
    )
    assert answered_by_agent(asked("_vendor/thing"), {"result": {"x": 1}}, at="now") is None


def test_a_note_that_comes_back_as_the_users_words_is_known() -> None:
    note = lost_note([], limit=100)
    assert is_echoed_note(chunk("user_message_chunk", note))
    assert not is_echoed_note(chunk("agent_message_chunk", note))
    assert not is_echoed_note(chunk("user_message_chunk", "hi"))
    assert not is_echoed_note({"sessionUpdate": "user_message_chunk"})
