"""Codex's rollout files: JSON lines ``{"timestamp", "type", "payload"}``; older ones hold the payloads alone.

``session_meta`` comes first, ``turn_context`` has the settings of a turn, ``response_item`` its messages and tool
calls. ``event_msg`` repeats most of it for the screen; only its token counts are used. Any other line is kept under
``metadata.codex``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from snapshot_plugin.errors import InvalidSnapshot
from snapshot_plugin.exchange.foreign.lines import Line, as_dict, as_list, as_text

__all__ = ["is_codex", "read_codex"]

_ENVELOPES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_ITEMS = frozenset({"message", "reasoning", "function_call", "function_call_output", "custom_tool_call"})
_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
_CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
"""Types of items that call a tool, and the field with the input."""
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "local_shell_call_output"})


def is_codex(lines: Sequence[Line]) -> bool:
    """Whether these lines are a Codex rollout."""
    if any(as_text(line.get("type")) in _ENVELOPES and isinstance(line.get("payload"), dict) for line in lines):
        return True
    return (
        bool(lines) and "id" in lines[0] and "timestamp" in lines[0] and any(_is_item(line) for line in lines[1:])
    )


def _is_item(line: Line) -> bool:
    return as_text(line.get("type")) in _ITEMS and "payload" not in line


def read_codex(lines: Sequence[Line]) -> Line:
    """The session as a document of the current version, not yet validated.

    Raises:
        InvalidSnapshot: the file has no session id or no time.
    """
    reading = _RolloutReading()
    for number, line in enumerate(lines):
        reading.take(_enveloped(line, is_first=number == 0))
    return reading.document()


def _enveloped(line: Line, *, is_first: bool) -> Line:
    """Convert a line of an older file to the current form."""
    if isinstance(line.get("payload"), dict):
        return line
    if is_first and "type" not in line:
        return {"timestamp": line.get("timestamp"), "type": "session_meta", "payload": line}
    return (
        {"type": "response_item", "payload": line}
        if _is_item(line) or as_text(line.get("type")) in _OUTPUTS
        else line
    )


class _RolloutReading:
    """The session read so far."""

    def __init__(self) -> None:
        self.about: Line = {}
        self.settings: Line = {}
        self.tokens: Line = {}
        self.messages: list[Line] = []
        self.other: list[Line] = []
        self.times: list[str] = []
        self._calls: dict[str | None, Line] = {}

    def take(self, line: Line) -> None:
        kind, payload = as_text(line.get("type")), as_dict(line.get("payload"))
        if isinstance(line.get("timestamp"), str):
            self.times.append(line["timestamp"])
        if kind == "session_meta" and not self.about:
            self.about = payload
        elif kind == "turn_context":
            self.settings = payload
        elif kind == "response_item":
            self._item(payload, line.get("timestamp"))
        elif kind == "event_msg":
            self._event(line, payload)
        else:
            self.other.append(line)

    def _event(self, line: Line, payload: Line) -> None:
        if payload.get("type") == "token_count":
            self.tokens = as_dict(as_dict(payload.get("info")).get("total_token_usage")) or self.tokens
        elif as_text(payload.get("type")) not in ("user_message", "agent_message", "agent_reasoning"):
            self.other.append(line)

    def _item(self, item: Line, when: Any) -> None:
        kind = as_text(item.get("type"))
        if kind == "message":
            self._speak(_ROLES.get(str(item.get("role")), "system"), _contents(item), when)
        elif kind in _OUTPUTS and as_text(item.get("call_id")) in self._calls:
            self._calls[item["call_id"]].update(_outcome(item))
        else:
            self._speak("assistant", [self._block(item)], when)

    def _block(self, item: Line) -> Line:
        kind = as_text(item.get("type"))
        if kind == "reasoning":
            texts = [as_text(as_dict(part).get("text")) or "" for part in as_list(item.get("summary"))]
            rest = {name: value for name, value in item.items() if name not in ("type", "summary")}
            return {"type": "thought", "text": "\n".join(texts), **rest}
        if kind not in _CALLS:
            return item
        call: Line = {
            "type": "tool_call",
            "toolCallId": str(item.get("call_id") or item.get("id") or ""),
            "title": str(item.get("name") or "shell"),
            "status": "pending",
            "rawInput": _parsed(item.get(_CALLS[kind])),
        }
        self._calls[call["toolCallId"]] = call
        return call

    def _speak(self, role: str, blocks: list[Line], when: Any) -> None:
        """Add to the current message. All output of the agent up to the next user message is one message."""
        if role == "assistant" and self.messages and self.messages[-1]["role"] == role:
            self.messages[-1]["content"] += blocks
        else:
            self.messages.append({"role": role, "content": blocks, "timestamp": when})

    def document(self) -> Line:
        session_id = self.about.get("id")
        if not isinstance(session_id, str):
            raise InvalidSnapshot(
                "this Codex file does not say which session it is", hint="check that its first line is complete"
            )
        times = sorted([*self.times, *[t for t in [self.about.get("timestamp")] if isinstance(t, str)]])
        if not times:
            raise InvalidSnapshot("this Codex file does not say when anything was said", session_id=session_id)
        counted = {
            name: _number(self.tokens.get(name)) for name in ("input_tokens", "output_tokens", "total_tokens")
        }
        kept = {
            "session_meta": _without(self.about, "id", "cwd"),
            "turn_context": self.settings,
            "lines": self.other,
        }
        return {
            "version": 2,
            "session_id": session_id,
            "agent_session_id": session_id,
            "provider_type": "codex",
            "agent": {"name": "codex", "version": self.about.get("cli_version")},
            "created_at": times[0],
            "updated_at": times[-1],
            "config": {
                "cwd": self.settings.get("cwd") or self.about.get("cwd"),
                "model": self.settings.get("model"),
                "instructions": as_text(self.about.get("instructions")),
            },
            "messages": self.messages,
            "metrics": {**counted, "turns": sum(message["role"] == "user" for message in self.messages)},
            "metadata": {"codex": {name: value for name, value in kept.items() if value}},
        }


def _contents(item: Line) -> list[Line]:
    return [_content(as_dict(part) or {"type": "text", "text": str(part)}) for part in as_list(item.get("content"))]


def _content(part: Line) -> Line:
    if part.get("type") in ("input_text", "output_text", "text") and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    return part


def _outcome(item: Line) -> Line:
    output = item.get("output")
    failed = as_dict(output).get("success") is False
    return {"status": "failed" if failed else "completed", "rawOutput": _parsed(output)}


def _parsed(value: Any) -> Any:
    """Parse JSON that was written as text; any other value is returned unchanged."""
    if not isinstance(value, str):
        return value
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return found if isinstance(found, dict | list) else value


def _without(holder: Line, *names: str) -> Line:
    return {name: value for name, value in holder.items() if name not in names}


def _number(value: Any) -> int:
    return value if type(value) is int else 0
