"""OpenCode's ``opencode export``: ``{"info": session, "messages": [{"info": message, "parts": […]}]}``.

Times are milliseconds since 1970. Parts that only mark steps, and other parts outside the conversation, are kept as
unknown blocks.
"""

from __future__ import annotations

from typing import Any

from snapshot_plugin.errors import InvalidSnapshot
from snapshot_plugin.exchange.foreign.lines import Line, as_dict, as_list
from snapshot_plugin.migrate.fields import lifetime, utc_text

__all__ = ["is_opencode", "read_opencode"]

_STATES = {"completed": "completed", "error": "failed", "running": "in_progress", "pending": "pending"}


def is_opencode(document: Any) -> bool:
    """Whether this is an export of OpenCode."""
    messages = as_dict(document).get("messages")
    about = as_dict(as_dict(document).get("info"))
    if not isinstance(messages, list) or not isinstance(about.get("id"), str):
        return False
    return all(isinstance(as_dict(message).get("parts"), list) for message in messages)


def read_opencode(document: Line) -> Line:
    """The session as a document of the current version, not yet validated."""
    about = document["info"]
    time = as_dict(about.get("time"))
    messages = [_message(entry) for entry in document["messages"]]
    infos = [as_dict(entry.get("info")) for entry in document["messages"]]
    kept = {name: value for name, value in about.items() if name not in ("id", "title", "directory", "time")}
    return {
        "version": 2,
        "session_id": about["id"],
        "agent_session_id": about["id"],
        "provider_type": "opencode",
        "agent": {"name": "opencode", "version": about.get("version")},
        **lifetime(time.get("created"), time.get("updated")),
        "title": about.get("title"),
        "config": {"cwd": about.get("directory"), "model": _model(infos)},
        "messages": messages,
        "metrics": _metrics(infos),
        "metadata": {"opencode": kept} if kept else {},
    }


def _message(entry: Line) -> Line:
    about = as_dict(entry.get("info"))
    created = as_dict(about.get("time")).get("created")
    kept = {name: value for name, value in about.items() if name not in ("id", "role", "sessionID", "time")}
    tokens = as_dict(about.get("tokens")).get("output")
    if about.get("role") not in ("user", "assistant"):
        raise InvalidSnapshot(f"message {about.get('id')!r} of this OpenCode session has no role that is known")
    return {
        "role": about["role"],
        "content": [_block(as_dict(part)) for part in as_list(entry.get("parts"))],
        "id": about.get("id"),
        "timestamp": None if created is None else utc_text(created, f"message {about.get('id')}"),
        "token_count": tokens if type(tokens) is int else None,
        "metadata": {"opencode": kept} if kept else {},
    }


def _block(part: Line) -> Line:
    kind = part.get("type")
    if kind == "text":
        return {"type": "text", "text": part.get("text") or "", **_rest(part, "text")}
    if kind == "reasoning":
        return {"type": "thought", "text": part.get("text") or "", **_rest(part, "text")}
    if kind == "tool":
        return _call(part)
    if kind == "file" and isinstance(part.get("url"), str):
        return {"type": "resource_link", "uri": part["url"], "name": part.get("filename") or "", **_file(part)}
    return part


def _call(part: Line) -> Line:
    state = as_dict(part.get("state"))
    block = {
        "type": "tool_call",
        "toolCallId": str(part.get("callID") or part.get("id") or ""),
        "title": str(part.get("tool") or ""),
        "status": _STATES.get(str(state.get("status")), "pending"),
        "rawInput": state.get("input"),
        "rawOutput": state.get("output", state.get("error")),
    }
    known = ("status", "input", "output", "error")
    return {**block, "state": {name: value for name, value in state.items() if name not in known}}


def _file(part: Line) -> Line:
    return {"mimeType": part["mime"]} if isinstance(part.get("mime"), str) else {}


def _rest(part: Line, *known: str) -> Line:
    """The unknown fields of a part, without the ids that only link it to its message."""
    return {name: value for name, value in part.items() if name not in {"type", "sessionID", "messageID", *known}}


def _model(infos: list[Line]) -> str | None:
    found = [info.get("modelID") for info in infos if isinstance(info.get("modelID"), str)]
    return found[-1] if found else None


def _metrics(infos: list[Line]) -> Line:
    tokens = [as_dict(info.get("tokens")) for info in infos]
    caches = [as_dict(each.get("cache")) for each in tokens]
    given = _sum(tokens, "input") + _sum(caches, "read") + _sum(caches, "write")
    made = _sum(tokens, "output") + _sum(tokens, "reasoning")
    costs = [info["cost"] for info in infos if isinstance(info.get("cost"), int | float)]
    turns = sum(info.get("role") == "user" for info in infos)
    counted = {"turns": turns, "input_tokens": given, "output_tokens": made, "total_tokens": given + made}
    return {**counted, "cost": sum(costs), "currency": "USD"} if costs else counted


def _sum(holders: list[Line], name: str) -> int:
    return sum(holder[name] for holder in holders if type(holder.get(name)) is int)
