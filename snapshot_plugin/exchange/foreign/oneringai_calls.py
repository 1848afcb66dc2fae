"""oneringai keeps tool calls beside the history; version 1 keeps them on the message they led to."""

from __future__ import annotations

from collections import deque
from typing import Any

from snapshot_plugin.migrate.fields import Raw, as_object, keep, take_list, utc_text

__all__ = ["read_calls", "weave_calls"]


def read_calls(raw: list[Any]) -> list[Raw]:
    """Tool call records with the names of version 1 and their times in UTC; other fields stay as they are."""
    return [_read(as_object(call, f"toolCalls[{i}]"), f"toolCalls[{i}]") for i, call in enumerate(raw)]


def _read(call: Raw, path: str) -> Raw:
    if "name" in call:
        keep(call, "tool", call.pop("name"))
    if call.get("timestamp") is not None:
        call["timestamp"] = utc_text(call["timestamp"], f"{path}.timestamp")
    return call


def weave_calls(messages: list[Raw], calls: list[Raw]) -> list[Raw]:
    """Put each call on the assistant message that follows it in time, keeping the order of the calls.

    A call with no assistant message before the next speaker gets its own assistant message: the turn was
    interrupted. A call without a time comes last.
    """
    waiting = deque(calls)
    woven: list[Raw] = []
    for message in messages:
        due: list[Raw] = []
        while waiting and _came_before(waiting[0], message):
            due.append(waiting.popleft())
        if due and message.get("role") == "assistant":
            message["tool_calls"] = take_list(message, "tool_calls") + due
        elif due:
            woven.append(_unanswered(due))
        woven.append(message)
    return [*woven, _unanswered(list(waiting))] if waiting else woven


def _came_before(call: Raw, message: Raw) -> bool:
    called, said = call.get("timestamp"), message.get("timestamp")
    return called is not None and said is not None and bool(called <= said)


def _unanswered(calls: list[Raw]) -> Raw:
    message: Raw = {"role": "assistant", "content": [], "tool_calls": calls}
    called = calls[0].get("timestamp")
    return message if called is None else {**message, "timestamp": called}
