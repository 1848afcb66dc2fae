"""Claude Code's session files: JSON lines, each an event, the messages among them linked to the one before.

Messages have the shape of Anthropic's API. A streamed answer takes several lines with the same message id; a tool's
result is a line with the role ``user``. A file may also hold abandoned branches and conversations of sub-agents;
they are kept under ``metadata.claude_code``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snapshot_plugin.errors import InvalidSnapshot
from snapshot_plugin.exchange.foreign.lines import Line, as_dict, as_list, as_text

__all__ = ["is_claude_code", "read_claude_code"]

_TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle", "summary": "summary"}
"""Types of lines that name the session, best first, and the field with the name."""
_ENVELOPE = frozenset({"type", "message", "timestamp", "uuid", "sessionId", "cwd", "version", "toolUseResult"})


def is_claude_code(lines: Sequence[Line]) -> bool:
    """Whether these lines are a Claude Code session."""
    return any(
        as_text(line.get("type")) in ("user", "assistant") and "sessionId" in line and "uuid" in line
        for line in lines
    )


def read_claude_code(lines: Sequence[Line]) -> Line:
    """The session as a document of the current version, not yet validated.

    Raises:
        InvalidSnapshot: the file contains no conversation.
    """
    said = [line for line in lines if _is_said(line)]
    spoken = _spoken(lines, said)
    if not spoken:
        raise InvalidSnapshot("this Claude Code file holds no conversation")
    chosen = {id(line) for line in spoken}
    last = spoken[-1]
    times = sorted(line["timestamp"] for line in spoken if isinstance(line.get("timestamp"), str))
    if not times:
        raise InvalidSnapshot("this Claude Code file does not say when anything was said")
    rest = [line for line in lines if id(line) not in chosen]
    return {
        "version": 2,
        "session_id": last["sessionId"],
        "agent_session_id": last["sessionId"],
        "provider_type": "claude-code",
        "agent": {"name": "claude-code", "version": last.get("version")},
        "created_at": times[0],
        "updated_at": times[-1],
        "title": _title(lines),
        "config": {"cwd": last.get("cwd"), "model": _model(spoken)},
        "messages": _messages(spoken),
        "metrics": _metrics(spoken),
        "metadata": {"claude_code": {"lines": rest}} if rest else {},
    }


def _is_said(line: Line) -> bool:
    return line.get("type") in ("user", "assistant") and isinstance(line.get("message"), dict)


def _spoken(lines: Sequence[Line], said: Sequence[Line]) -> list[Line]:
    """The lines of the branch that was continued last, in order."""
    main = [line for line in said if not line.get("isSidechain")]
    if not main:
        return []
    by_uuid = {line["uuid"]: line for line in lines if isinstance(line.get("uuid"), str)}
    path: set[str] = set()
    at: Any = main[-1].get("uuid")
    while isinstance(at, str) and at in by_uuid and at not in path:
        path.add(at)
        at = by_uuid[at].get("parentUuid") or by_uuid[at].get("logicalParentUuid")
    answers = {_answer(line) for line in main if as_text(line.get("uuid")) in path} - {None}
    calls: set[str | None] = set()
    spoken = []
    for line in main:
        blocks = as_list(line["message"].get("content"))
        results = {as_text(as_dict(block).get("tool_use_id")) for block in blocks if _kind(block) == "tool_result"}
        if as_text(line.get("uuid")) in path or _answer(line) in answers or (results and results <= calls):
            calls |= {as_text(block.get("id")) for block in blocks if _kind(block) == "tool_use"}
            spoken.append(line)
    return spoken


def _kind(block: Any) -> str | None:
    return as_text(as_dict(block).get("type"))


def _answer(line: Line) -> str | None:
    """The id of the model's answer that a line belongs to."""
    return as_text(line["message"].get("id")) if line["type"] == "assistant" else None


def _messages(spoken: Sequence[Line]) -> list[Line]:
    messages: list[Line] = []
    calls: dict[str | None, Line] = {}
    open_answer: str | None = None
    for line in spoken:
        content = line["message"].get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else as_list(content)
        ours = [block for block in (_block(each, line, calls) for each in blocks) if block is not None]
        answer = _answer(line)
        if answer is not None and answer == open_answer:
            messages[-1]["content"] += ours
        elif ours or not blocks:
            messages.append(_message(line, ours))
        if ours or answer is not None:
            open_answer = answer
    return messages


def _message(line: Line, blocks: list[Line]) -> Line:
    rest = {name: value for name, value in line.items() if name not in _ENVELOPE and value not in (None, False)}
    about = {name: value for name, value in line["message"].items() if name not in ("role", "content")}
    kept = {**rest, **({"message": about} if about else {})}
    return {
        "role": line["type"],
        "content": blocks,
        "id": line.get("uuid"),
        "timestamp": line.get("timestamp"),
        "token_count": as_dict(line["message"].get("usage")).get("output_tokens"),
        "metadata": {"claude_code": kept} if kept else {},
    }


def _block(block: Any, line: Line, calls: dict[str | None, Line]) -> Line | None:
    """Convert a block; None for a tool result, which is merged into its call."""
    raw = as_dict(block) or {"type": "text", "text": str(block)}
    kind = as_text(raw.get("type"))
    if kind == "thinking":
        rest = {name: value for name, value in raw.items() if name not in ("type", "thinking")}
        return {"type": "thought", "text": raw.get("thinking") or "", **rest}
    if kind == "tool_use":
        named: Line = {"type": "tool_call", "toolCallId": str(raw.get("id")), "title": str(raw.get("name") or "")}
        calls[as_text(raw.get("id"))] = call = {**named, "status": "pending", "rawInput": raw.get("input")}
        return call
    if kind == "tool_result" and as_text(raw.get("tool_use_id")) in calls:
        call = calls[raw["tool_use_id"]]
        call |= {"status": "failed" if raw.get("is_error") else "completed", "rawOutput": raw.get("content")}
        if line.get("toolUseResult") is not None:
            call["toolUseResult"] = line["toolUseResult"]
        return None
    source = as_dict(raw.get("source"))
    if kind == "image" and source.get("type") == "base64":
        return {"type": "image", "data": source.get("data"), "mimeType": source.get("media_type")}
    return raw


def _title(lines: Sequence[Line]) -> str | None:
    for kind, field in _TITLES.items():
        found = [line[field] for line in lines if line.get("type") == kind and isinstance(line.get(field), str)]
        if found:
            return str(found[-1])
    return None


def _model(spoken: Sequence[Line]) -> str | None:
    models = [line["message"].get("model") for line in spoken if line["type"] == "assistant"]
    return next((model for model in reversed(models) if isinstance(model, str) and model != "<synthetic>"), None)


def _metrics(spoken: Sequence[Line]) -> Line:
    """Sum the usage of each answer. Its lines repeat the same numbers; the last one is final."""
    usages = {_answer(line): as_dict(line["message"].get("usage")) for line in spoken}
    usages.pop(None, None)
    numbers = {name: sum(_number(usage.get(name)) for usage in usages.values()) for name in _COUNTED}
    given = numbers["input_tokens"] + numbers["cache_creation_input_tokens"] + numbers["cache_read_input_tokens"]
    turns = sum(1 for line in spoken if line["type"] == "user" and not line.get("isMeta") and _has_words(line))
    output = numbers["output_tokens"]
    return {"turns": turns, "input_tokens": given, "output_tokens": output, "total_tokens": given + output}


_COUNTED = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


def _number(value: Any) -> int:
    return value if type(value) is int else 0


def _has_words(line: Line) -> bool:
    content = line["message"].get("content")
    return isinstance(content, str) or any(_kind(block) != "tool_result" for block in as_list(content))
