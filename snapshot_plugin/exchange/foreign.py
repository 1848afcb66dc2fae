"""Session files of other tools, read as documents that `snapshot_plugin.migrate` checks.

Claude Code, Codex and OpenCode write conversations: `_Conversation` builds a version 2 document from them.
openagent-terminal, oneringai and OrbitMesh write dumps of their own state: a table per tool says which field goes
where in a version 1 document.

Promise: a part with no place in a session is kept, under ``metadata.<tool>`` or as a block of an unknown kind.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from snapshot_plugin.errors import InvalidInput, InvalidSnapshot, InvalidSnapshotVersion, LimitExceeded, NotFound
from snapshot_plugin.migrate import load_document
from snapshot_plugin.migrate.fields import Raw, as_object, keep, lifetime, take_list, take_object, utc_text
from snapshot_plugin.migrate.v1 import read_messages
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.snapshot import SessionSnapshot

__all__ = [
    "Shape",
    "as_document",
    "is_claude_code",
    "is_codex",
    "is_opencode",
    "load_dump",
    "parse_json",
    "parse_lines",
    "read_claude_code",
    "read_codex",
    "read_directory",
    "read_opencode",
    "shape_of",
]

# JSON that another program wrote ---------------------------------------------------------------------------


def parse_json(text: str, *, where: str = "the file") -> Any:
    """Parse *text* as JSON; `InvalidSnapshot` if it is not JSON, or nested too deeply."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        reason = f"{error.msg} in column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise InvalidSnapshot(f"{where} is not JSON: {reason}", hint="check that the file is complete") from error
    except RecursionError:
        raise InvalidSnapshot(f"{where} is nested too deeply") from None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def parse_lines(text: str) -> list[Raw]:
    """Parse a file with one JSON object per line. An incomplete last line is ignored.

    Raises:
        InvalidSnapshot: another line is not a JSON object.
    """
    rows = [(number, row) for number, row in enumerate(text.split("\n"), 1) if row.strip()]
    out: list[Raw] = []
    for number, row in rows:
        try:
            value = parse_json(row, where=f"line {number}")
        except InvalidSnapshot:
            if len(out) == len(rows) - 1 and out and not text.endswith("\n"):
                break  # the tool was writing it when the file was copied
            raise
        if not isinstance(value, dict):
            raise InvalidSnapshot(f"line {number} is not a JSON object")
        out.append(value)
    return out


def _dict(value: Any) -> Raw:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _sum(holders: Sequence[Raw], *names: str) -> int:
    return sum(holder[name] for holder in holders for name in names if type(holder.get(name)) is int)


def _rest(holder: Raw, *known: str) -> Raw:
    return {name: value for name, value in holder.items() if name not in known}


# Conversations of coding agents ----------------------------------------------------------------------------


class _Conversation:
    """Builds a document of the current version, not yet validated, from a tool's messages and tool calls."""

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.messages: list[Raw] = []
        self._calls: dict[str | None, Raw] = {}

    def say(self, role: Any, blocks: list[Raw], when: Any, kept: Raw | None = None, **fields: Any) -> None:
        """Add a message; *kept* are fields that only the tool knows."""
        metadata = {self._key: kept} if kept else {}
        message = {"role": role, "content": blocks, "timestamp": when, "metadata": metadata, **fields}
        self.messages.append(message)

    def call(self, call_id: Any, title: Any, given: Any, **fields: Any) -> Raw:
        """The block of a tool call, which `answer` completes."""
        self._calls[_text(call_id)] = block = {
            "type": "tool_call",
            "toolCallId": str(call_id),
            "title": str(title),
            "status": "pending",
            "rawInput": given,
            **fields,
        }
        return block

    def answer(self, call_id: Any, output: Any, *, failed: bool, **fields: Any) -> bool:
        """Put a tool's result into its call; False if there is no such call."""
        call = self._calls.get(call_id) if isinstance(call_id, str) else None
        if call is None:
            return False
        call.update({"status": "failed" if failed else "completed", "rawOutput": output, **fields})
        return True

    def document(self, session_id: Any, times: Raw, *, version: Any, kept: Raw, **fields: Any) -> Raw:
        """The whole session. *fields* are sections of the document."""
        return {
            "version": 2,
            "session_id": session_id,
            "agent_session_id": session_id,
            "provider_type": self.tool,
            "agent": {"name": self.tool, "version": version},
            **times,
            "messages": self.messages,
            "metadata": {self._key: kept} if kept else {},
            **fields,
        }

    def times(self, found: Sequence[Any]) -> Raw:
        """When the session was created and last changed: the first and the last of these times."""
        times = sorted(time for time in found if isinstance(time, str))
        if not times:
            raise InvalidSnapshot(f"this {self.tool} file does not say when anything was said")
        return {"created_at": times[0], "updated_at": times[-1]}

    @property
    def _key(self) -> str:
        return self.tool.replace("-", "_")


# Claude Code: JSON lines, each an event, the messages among them linked to the one before. Messages have the shape
# of Anthropic's API. A streamed answer takes several lines with the same message id; a tool's result is a line with
# the role ``user``. A file may also hold abandoned branches and conversations of sub-agents; those are only kept.

_TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle", "summary": "summary"}
"""Types of lines that name the session, best first, and the field with the name."""
_ENVELOPE = frozenset({"type", "message", "timestamp", "uuid", "sessionId", "cwd", "version", "toolUseResult"})
_GIVEN = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def is_claude_code(lines: Sequence[Raw]) -> bool:
    """Whether these lines are a Claude Code session."""
    return any(
        line.get("type") in ("user", "assistant") and "sessionId" in line and "uuid" in line for line in lines
    )


def read_claude_code(lines: Sequence[Raw]) -> Raw:
    """The session as a document. `InvalidSnapshot` if the file contains no conversation."""
    spoken = _last_branch(lines)
    if not spoken:
        raise InvalidSnapshot("this Claude Code file holds no conversation")
    session, chosen, last = _Conversation("claude-code"), {id(line) for line in spoken}, spoken[-1]
    open_answer: str | None = None
    for line in spoken:
        content = line["message"].get("content")
        theirs = [{"type": "text", "text": content}] if isinstance(content, str) else _list(content)
        ours = [block for each in theirs if (block := _claude_block(session, each, line)) is not None]
        answer = _answer_id(line)
        if answer is not None and answer == open_answer:
            session.messages[-1]["content"] += ours
        elif ours or not theirs:
            _claude_message(session, line, ours)
        if ours or answer is not None:
            open_answer = answer
    models = [line["message"].get("model") for line in spoken if line["type"] == "assistant"]
    named = [model for model in models if isinstance(model, str) and model != "<synthetic>"]
    rest = [line for line in lines if id(line) not in chosen]
    return session.document(
        last["sessionId"],
        session.times([line.get("timestamp") for line in spoken]),
        version=last.get("version"),
        title=_claude_title(lines),
        config={"cwd": last.get("cwd"), "model": named[-1] if named else None},
        metrics=_claude_metrics(spoken),
        kept={"lines": rest} if rest else {},
    )


def _last_branch(lines: Sequence[Raw]) -> list[Raw]:
    """The lines of the branch that was continued last, in order."""
    said = [
        each
        for each in lines
        if each.get("type") in ("user", "assistant") and isinstance(each.get("message"), dict)
    ]
    main = [line for line in said if not line.get("isSidechain")]
    if not main:
        return []
    by_uuid = {line["uuid"]: line for line in lines if isinstance(line.get("uuid"), str)}
    path: set[str] = set()
    at: Any = main[-1].get("uuid")
    while isinstance(at, str) and at in by_uuid and at not in path:
        path.add(at)
        at = by_uuid[at].get("parentUuid") or by_uuid[at].get("logicalParentUuid")
    answers = {_answer_id(line) for line in main if _text(line.get("uuid")) in path} - {None}
    calls: set[str | None] = set()
    spoken = []
    for line in main:
        blocks = [_dict(block) for block in _list(line["message"].get("content"))]
        results = {_text(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"}
        if _text(line.get("uuid")) in path or _answer_id(line) in answers or (results and results <= calls):
            calls |= {_text(block.get("id")) for block in blocks if block.get("type") == "tool_use"}
            spoken.append(line)
    return spoken


def _answer_id(line: Raw) -> str | None:
    """The id of the model's answer that a line belongs to."""
    return _text(line["message"].get("id")) if line["type"] == "assistant" else None


def _claude_message(session: _Conversation, line: Raw, blocks: list[Raw]) -> None:
    rest = {name: value for name, value in line.items() if name not in _ENVELOPE and value not in (None, False)}
    about = _rest(line["message"], "role", "content")
    tokens = _dict(line["message"].get("usage")).get("output_tokens")
    kept = {**rest, **({"message": about} if about else {})}
    session.say(line["type"], blocks, line.get("timestamp"), kept, id=line.get("uuid"), token_count=tokens)


def _claude_block(session: _Conversation, block: Any, line: Raw) -> Raw | None:
    """Convert a block; None for a tool result, which is merged into its call."""
    raw = _dict(block) or {"type": "text", "text": str(block)}
    kind, source = raw.get("type"), _dict(raw.get("source"))
    if kind == "thinking":
        return {"type": "thought", "text": raw.get("thinking") or "", **_rest(raw, "type", "thinking")}
    if kind == "tool_use":
        return session.call(raw.get("id"), raw.get("name") or "", raw.get("input"))
    if kind == "tool_result":
        result = line.get("toolUseResult")
        more = {} if result is None else {"toolUseResult": result}
        failed = bool(raw.get("is_error"))
        if session.answer(raw.get("tool_use_id"), raw.get("content"), failed=failed, **more):
            return None
    if kind == "image" and source.get("type") == "base64":
        return {"type": "image", "data": source.get("data"), "mimeType": source.get("media_type")}
    return raw


def _claude_title(lines: Sequence[Raw]) -> str | None:
    for kind, field in _TITLES.items():
        found = [line[field] for line in lines if line.get("type") == kind and isinstance(line.get(field), str)]
        if found:
            return str(found[-1])
    return None


def _claude_metrics(spoken: Sequence[Raw]) -> Raw:
    """Sum the usage of each answer. Its lines repeat the same numbers; the last one is final."""
    by_answer = {_answer_id(line): _dict(line["message"].get("usage")) for line in spoken}
    usages = [usage for answer, usage in by_answer.items() if answer is not None]
    given, made = _sum(usages, *_GIVEN), _sum(usages, "output_tokens")
    asked = [line for line in spoken if line["type"] == "user" and not line.get("isMeta")]
    turns = sum(_has_words(line["message"].get("content")) for line in asked)
    return {"turns": turns, "input_tokens": given, "output_tokens": made, "total_tokens": given + made}


def _has_words(content: Any) -> bool:
    return isinstance(content, str) or any(_dict(block).get("type") != "tool_result" for block in _list(content))


# Codex: JSON lines ``{"timestamp", "type", "payload"}``; older files hold the payloads alone. ``session_meta`` is
# first, ``turn_context`` has the settings of a turn, ``response_item`` its messages and tool calls. ``event_msg``
# repeats most of it for the screen; only its token counts are used. Any other line is kept.

_ENVELOPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_ITEMS = ("message", "reasoning", "function_call", "function_call_output", "custom_tool_call")
_CODEX_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
_CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
"""Types of items that call a tool, and the field with the input."""
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
_REPEATED = ("user_message", "agent_message", "agent_reasoning")


def is_codex(lines: Sequence[Raw]) -> bool:
    """Whether these lines are a Codex rollout."""
    if any(line.get("type") in _ENVELOPES and isinstance(line.get("payload"), dict) for line in lines):
        return True
    return bool(lines) and {"id", "timestamp"} <= lines[0].keys() and any(map(_is_item, lines[1:]))


def _is_item(line: Raw) -> bool:
    return line.get("type") in _ITEMS and "payload" not in line


def read_codex(lines: Sequence[Raw]) -> Raw:
    """The session as a document. `InvalidSnapshot` if the file has no session id or no time."""
    session = _Conversation("codex")
    about: Raw = {}
    settings: Raw = {}
    tokens: Raw = {}
    other: list[Raw] = []
    times: list[Any] = []
    for number, raw in enumerate(lines):
        line = _enveloped(raw, is_first=number == 0)
        kind, payload = line.get("type"), _dict(line.get("payload"))
        times.append(line.get("timestamp"))
        if kind == "session_meta" and not about:
            about = payload
        elif kind == "turn_context":
            settings = payload
        elif kind == "response_item":
            _codex_item(session, payload, line.get("timestamp"))
        elif kind == "event_msg" and payload.get("type") == "token_count":
            tokens = _dict(_dict(payload.get("info")).get("total_token_usage")) or tokens
        elif kind != "event_msg" or payload.get("type") not in _REPEATED:
            other.append(line)
    if not isinstance(about.get("id"), str):
        raise InvalidSnapshot(
            "this Codex file does not say which session it is", hint="check that its first line is complete"
        )
    counted = {name: _sum([tokens], name) for name in ("input_tokens", "output_tokens", "total_tokens")}
    kept = {"session_meta": _rest(about, "id", "cwd"), "turn_context": settings, "lines": other}
    return session.document(
        about["id"],
        session.times([*times, about.get("timestamp")]),
        version=about.get("cli_version"),
        config={
            "cwd": settings.get("cwd") or about.get("cwd"),
            "model": settings.get("model"),
            "instructions": _text(about.get("instructions")),
        },
        metrics={**counted, "turns": sum(message["role"] == "user" for message in session.messages)},
        kept={name: value for name, value in kept.items() if value},
    )


def _enveloped(line: Raw, *, is_first: bool) -> Raw:
    """Convert a line of an older file to the current form."""
    if isinstance(line.get("payload"), dict):
        return line
    if is_first and "type" not in line:
        return {"timestamp": line.get("timestamp"), "type": "session_meta", "payload": line}
    is_item = _is_item(line) or line.get("type") in _OUTPUTS
    return {"type": "response_item", "payload": line} if is_item else line


def _codex_item(session: _Conversation, item: Raw, when: Any) -> None:
    """Add an item. All output of the agent up to the next user message is one message."""
    kind, role = item.get("type"), "assistant"
    if kind == "message":
        role = _CODEX_ROLES.get(str(item.get("role")), "system")
        blocks = [
            _codex_content(_dict(part) or {"type": "text", "text": str(part)})
            for part in _list(item.get("content"))
        ]
    elif kind == "reasoning":
        texts = [_text(_dict(part).get("text")) or "" for part in _list(item.get("summary"))]
        blocks = [{"type": "thought", "text": "\n".join(texts), **_rest(item, "type", "summary")}]
    elif isinstance(kind, str) and kind in _CALLS:
        call_id, title = item.get("call_id") or item.get("id") or "", item.get("name") or "shell"
        blocks = [session.call(call_id, title, _unquoted(item.get(_CALLS[kind])))]
    else:
        output = item.get("output")
        failed = _dict(output).get("success") is False
        if kind in _OUTPUTS and session.answer(item.get("call_id"), _unquoted(output), failed=failed):
            return
        blocks = [item]
    if role == "assistant" and session.messages and session.messages[-1]["role"] == role:
        session.messages[-1]["content"] += blocks
    else:
        session.say(role, blocks, when)


def _codex_content(raw: Any) -> Raw:
    part = _dict(raw) or {"type": "text", "text": str(raw)}
    if part.get("type") in ("input_text", "output_text", "text") and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    return part


def _unquoted(value: Any) -> Any:
    """Parse JSON that was written as text; any other value is returned unchanged."""
    if not isinstance(value, str):
        return value
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return found if isinstance(found, dict | list) else value


# OpenCode: ``{"info": session, "messages": [{"info": message, "parts": […]}]}``, times in milliseconds since 1970.
# Parts that only mark steps, and other parts outside the conversation, are kept as unknown blocks.

_STATES = {"completed": "completed", "error": "failed", "running": "in_progress"}
_LINKS = ("type", "sessionID", "messageID")
"""Fields of a part that only link it to its message."""


def is_opencode(document: Any) -> bool:
    """Whether this is an export of OpenCode."""
    messages = _dict(document).get("messages")
    about = _dict(_dict(document).get("info"))
    if not isinstance(messages, list) or not isinstance(about.get("id"), str):
        return False
    return all(isinstance(_dict(message).get("parts"), list) for message in messages)


def read_opencode(document: Raw) -> Raw:
    """The session as a document."""
    session, about = _Conversation("opencode"), document["info"]
    infos = [_dict(entry.get("info")) for entry in document["messages"]]
    for info, entry in zip(infos, document["messages"], strict=True):
        if info.get("role") not in ("user", "assistant"):
            raise InvalidSnapshot(f"message {info.get('id')!r} of this OpenCode session has no role that is known")
        created, tokens = _dict(info.get("time")).get("created"), _dict(info.get("tokens")).get("output")
        session.say(
            info["role"],
            [_opencode_block(session, _dict(part)) for part in entry["parts"]],
            None if created is None else utc_text(created, f"message {info.get('id')}"),
            _rest(info, "id", "role", "sessionID", "time"),
            id=info.get("id"),
            token_count=tokens if type(tokens) is int else None,
        )
    models = [info["modelID"] for info in infos if isinstance(info.get("modelID"), str)]
    time = _dict(about.get("time"))
    return session.document(
        about["id"],
        lifetime(time.get("created"), time.get("updated")),
        version=about.get("version"),
        title=about.get("title"),
        config={"cwd": about.get("directory"), "model": models[-1] if models else None},
        metrics=_opencode_metrics(infos),
        kept=_rest(about, "id", "title", "directory", "time"),
    )


def _opencode_block(session: _Conversation, part: Raw) -> Raw:
    kind = part.get("type")
    if kind in ("text", "reasoning"):
        ours = "text" if kind == "text" else "thought"
        return {"type": ours, "text": part.get("text") or "", **_rest(part, "text", *_LINKS)}
    if kind == "tool":
        state = _dict(part.get("state"))
        call_id, title = part.get("callID") or part.get("id") or "", part.get("tool") or ""
        return session.call(
            call_id,
            title,
            state.get("input"),
            status=_STATES.get(str(state.get("status")), "pending"),
            rawOutput=state.get("output", state.get("error")),
            state=_rest(state, "status", "input", "output", "error"),
        )
    if kind == "file" and isinstance(part.get("url"), str):
        more = {"mimeType": part["mime"]} if isinstance(part.get("mime"), str) else {}
        return {"type": "resource_link", "uri": part["url"], "name": part.get("filename") or "", **more}
    return part


def _opencode_metrics(infos: Sequence[Raw]) -> Raw:
    tokens = [_dict(info.get("tokens")) for info in infos]
    caches = [_dict(each.get("cache")) for each in tokens]
    given = _sum(tokens, "input") + _sum(caches, "read", "write")
    made = _sum(tokens, "output", "reasoning")
    costs = [info["cost"] for info in infos if isinstance(info.get("cost"), int | float)]
    turns = sum(info.get("role") == "user" for info in infos)
    counted = {"turns": turns, "input_tokens": given, "output_tokens": made, "total_tokens": given + made}
    return {**counted, "cost": sum(costs), "currency": "USD"} if costs else counted


# Dumps of a tool's own state -------------------------------------------------------------------------------

Shape = Literal["openagent", "oneringai", "orbitmesh"]


class _Dump(NamedTuple):
    """How a tool's dump becomes a version 1 document."""

    session_id: str
    """Where the dump names its session."""
    provider: str
    fields: Mapping[str, str]
    """Their field to ours. ``a.*`` is every field of ``a``. A field whose place is taken stays where it was."""
    dropped: tuple[str, ...] = ()
    """Fields that say nothing about the session. All others are kept under ``metadata.<shape>``."""
    is_unset: Callable[[Any], bool] = lambda value: value is None
    message: Callable[[Any], Any] = lambda message: message
    """Renames the fields of a message."""
    rest: Callable[[Raw, Raw], None] = lambda _document, _session: None
    """Reads what a table cannot say."""


def _orbitmesh_message(message: Any) -> Any:
    """A message and its blocks with ACP's names: ``ToolCallID`` is ``toolCallId``, ``Text`` is ``text``."""
    if not isinstance(message, dict):
        return message
    fields = {_acp_name(key): value for key, value in message.items()}
    if isinstance(blocks := fields.get("content"), list):
        fields["content"] = [
            {_acp_name(key): value for key, value in block.items()} if isinstance(block, dict) else block
            for block in blocks
        ]
    return {key: value for key, value in fields.items() if value == "" or not _is_zero(value)}


def _acp_name(key: str) -> str:
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*|[^A-Z]+", key)
    return "".join(word.lower() if n == 0 else word.capitalize() for n, word in enumerate(words))


def _is_zero(value: Any) -> bool:
    """Whether Go wrote *value* for a field that was never set."""
    return value in (None, "") or (isinstance(value, str) and value.startswith("0001-01-01"))


def _oneringai_rest(document: Raw, session: Raw) -> None:
    """Plugins, memory and tool calls.

    The files beside ``session.json`` are ``memory`` and ``plugins`` of the document (`read_directory`); the full
    state has them in its context.
    """
    context = _dict(document.get("context"))
    plugins: Raw = {}
    memory: Raw = {}
    for holder in (document, context):
        for name, state in take_object(holder, "plugins").items():
            keep(plugins, name, state)
        state = take_object(holder, "memory")
        for index, raw in enumerate(take_list(state, "entries")):
            path = f"memory.entries[{index}]"
            _remember(memory, as_object(raw, path), path)
        if state:
            keep(document, "memory", state)
    for name, section in (("plugins", plugins), ("memory", memory)):
        if section:
            keep(session["metadata"], name, section)
    calls = _take(document, "context.core.toolCalls")
    session["messages"] = _with_calls(session["messages"], _oneringai_calls(_a_list(calls, "toolCalls")))


def _remember(memory: Raw, entry: Raw, path: str) -> None:
    """Add a memory entry under its key, so that each is stored separately."""
    key = entry.pop("key", None)
    if not isinstance(key, str):
        raise InvalidSnapshot(f"{path} has no key")
    for name in ("createdAt", "lastAccessedAt"):
        if entry.get(name) is not None:
            entry[name] = utc_text(entry[name], f"{path}.{name}")
    keep(memory, key, entry)


def _oneringai_calls(raw: list[Any]) -> list[Raw]:
    """Tool call records with the names of version 1 and their times in UTC; other fields stay as they are."""
    calls = [as_object(call, f"toolCalls[{index}]") for index, call in enumerate(raw)]
    for index, call in enumerate(calls):
        if "name" in call:
            keep(call, "tool", call.pop("name"))
        if call.get("timestamp") is not None:
            call["timestamp"] = utc_text(call["timestamp"], f"toolCalls[{index}].timestamp")
    return calls


def _with_calls(messages: list[Raw], calls: list[Raw]) -> list[Raw]:
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


_DUMPS: dict[Shape, _Dump] = {
    "openagent": _Dump(
        session_id="metadata.session_id",
        provider="openagent-terminal",
        fields={
            "metadata.session_id": "session_id",
            "metadata.created_at": "created_at",
            "metadata.updated_at": "updated_at",
            "metadata.title": "metadata.title",
            "metadata.tags": "metadata.tags",
            "metadata.total_tokens": "metrics.total_tokens",
            "messages": "messages",
        },
        dropped=("version",),
    ),
    "orbitmesh": _Dump(
        session_id="SessionID",
        provider="acp",
        fields={
            "SessionID": "session_id",
            "ACPSessionID": "acp_session_id",
            "ProviderType": "provider_type",
            "CreatedAt": "created_at",
            "UpdatedAt": "updated_at",
            "CurrentTask": "current_task",
            "Messages": "messages",
            "Metadata.*": "metadata",
            "Config.WorkingDir": "config.cwd",
            "Config.WorkingDirectory": "config.cwd",
            "Config.Cwd": "config.cwd",
            "Config.CWD": "config.cwd",
            "Config.Model": "config.model",
            "Config.Mode": "config.mode",
            "Metrics.TokensIn": "metrics.input_tokens",
            "Metrics.InputTokens": "metrics.input_tokens",
            "Metrics.TokensOut": "metrics.output_tokens",
            "Metrics.OutputTokens": "metrics.output_tokens",
            "Metrics.TotalTokens": "metrics.total_tokens",
        },
        dropped=("Version",),
        is_unset=_is_zero,
        message=_orbitmesh_message,
    ),
    # An agent has one session, so the agent's id is the session id.
    "oneringai": _Dump(
        session_id="agentId",
        provider="oneringai",
        fields={
            "agentId": "session_id",
            "createdAt": "created_at",
            "lastActiveAt": "updated_at",
            "metadata.*": "metadata",
            "context.config.*": "config.custom",
            "context.permissions.*": "config.custom.permissions",
            "context.tools.*": "config.custom.tools",
            "context.core.instructions": "config.custom.instructions",
            "context.core.systemPrompt": "config.system_prompt",
            "context.core.history": "messages",
        },
        rest=_oneringai_rest,
    ),
}
_ONERINGAI_VERSION = 1
_COMPANIONS = {
    "sessions": "this is an index of sessions; give the file of one session",
    "entries": 'this is the memory of a session; put it into the session document as "memory"',
}
"""Files beside foreign session files, recognised by the list they hold."""


def load_dump(raw: Any) -> SessionSnapshot:
    """Return *raw*, a dump or a document of ours of any version, as a snapshot. *raw* is never changed.

    Raises:
        InvalidSnapshot: it is not a session, or a part of it does not fit; the text names the path to it.
        InvalidSnapshotVersion: it has a version that is not known.
    """
    try:
        return load_document(as_document(raw))
    except RecursionError:
        raise InvalidSnapshot("the document is nested too deeply", hint="flatten it") from None


def as_document(raw: Any) -> Any:
    """Convert a dump to a version 1 document; return anything else unchanged. Raises what `load_dump` does."""
    shape = shape_of(raw) if isinstance(raw, dict) else None
    if shape is None:
        _refuse_companion(raw)
        return raw
    if shape == "oneringai":
        _refuse_unknown_oneringai(raw)
    try:
        return _version_1(thaw(raw), shape, _DUMPS[shape])
    except InvalidSnapshot as error:
        session_id = _take(thaw(raw), _DUMPS[shape].session_id)
        raise InvalidSnapshot(
            f"session {session_id!r} is not a valid {shape} document: {error.message}",
            session_id=session_id,
            hint=error.hint,
        ) from error


def shape_of(raw: Raw) -> Shape | None:
    """The foreign format of *raw*, known by its shape; None if it is not one. Its ``version`` is not ours."""
    if "session_id" in raw:
        return None
    about, context = _dict(raw.get("metadata")), _dict(raw.get("context"))
    if (
        isinstance(about.get("session_id"), str)
        and isinstance(raw.get("messages"), list)
        and not raw.get("version")
    ):
        return "openagent"
    if isinstance(raw.get("SessionID"), str) and isinstance(raw.get("Messages") or [], list):
        return "orbitmesh"
    return "oneringai" if isinstance(raw.get("agentId"), str) and isinstance(context.get("core"), dict) else None


def _version_1(document: Raw, shape: Shape, dump: _Dump) -> Raw:
    session: Raw = {"version": 1, "config": {}, "metrics": {}, "metadata": {}}
    for theirs, ours in dump.fields.items():
        _move(document, theirs, session, ours, dump.is_unset)
    for name in dump.dropped:
        document.pop(name, None)
    session.setdefault("provider_type", dump.provider)
    session |= lifetime(session.pop("created_at", None), session.pop("updated_at", None))
    messages = _a_list(session.get("messages"), "messages")
    session["messages"] = read_messages([dump.message(message) for message in messages])
    dump.rest(document, session)
    if document:
        keep(session["metadata"], shape, document)
    return session


def _move(document: Raw, theirs: str, session: Raw, ours: str, is_unset: Callable[[Any], bool]) -> None:
    *parents, name = ours.split(".")
    holder = session
    for parent in parents:
        holder = holder.setdefault(parent, {})
    every_field = theirs.endswith(".*")
    if name in holder and not every_field:
        return
    value = _take(document, theirs.removesuffix(".*"))
    if is_unset(value):
        return
    if not every_field:
        holder[name] = value
    elif fields := as_object(value, theirs.removesuffix(".*")):
        holder.setdefault(name, {}).update(fields)


def _take(document: Raw, path: str) -> Any:
    """Remove and return the value at *path*; objects that this leaves empty are removed with it."""
    name, _, rest = path.partition(".")
    if not rest:
        return document.pop(name, None)
    inner = as_object(document[name], name) if document.get(name) is not None else {}
    value = _take(inner, rest)
    if not inner:
        document.pop(name, None)
    return value


def _a_list(value: Any, name: str) -> list[Any]:
    return take_list({name: value}, name)


def _refuse_unknown_oneringai(raw: Raw) -> None:
    for name, holder in (("version", raw), ("context.version", raw["context"])):
        if holder.get("version", _ONERINGAI_VERSION) != _ONERINGAI_VERSION:
            raise InvalidSnapshotVersion(
                f"the oneringai session {raw['agentId']!r} has {name} {holder['version']!r}; only 1 is known",
                session_id=raw["agentId"],
                hint="export it in that format's version 1",
            )


def _refuse_companion(raw: Any) -> None:
    for name, hint in _COMPANIONS.items():
        if isinstance(raw, dict) and "session_id" not in raw and isinstance(raw.get(name), list):
            raise InvalidSnapshot("this JSON file belongs to a session but is not one", hint=hint)


# The directory of an oneringai agent -----------------------------------------------------------------------

_SESSION, _MEMORY, _PLUGINS, _INSTRUCTIONS = "session.json", "memory.json", "plugins", "custom_instructions.md"


def read_directory(place: str | os.PathLike[str], *, limit: int) -> bytes:
    """The session of an agent's directory and its companion files, as JSON.

    Symlinks are not followed, so an imported directory cannot pull in outside files.

    Raises:
        NotFound: it has no session.
        InvalidInput: a file in it is not JSON, or the session is not an object.
        LimitExceeded: its files have more than *limit* bytes together.
    """
    files = _Files(Path(place), limit)
    document = files.json(_SESSION)
    if document is None:
        raise NotFound(f"{place} is a directory without a {_SESSION}", hint="name a file, or an agent's directory")
    if not isinstance(document, dict):
        raise InvalidInput(f"{_SESSION} in {place} is not an object")
    if not document.get("memory") and (memory := files.json(_MEMORY)) is not None:
        document["memory"] = memory if isinstance(memory, dict) else {"entries": memory}
    states = {path.stem: files.json(f"{_PLUGINS}/{path.name}") for path in files.inside(_PLUGINS)}
    if states:
        document["plugins"] = {**states, **(document.get("plugins") or {})}
    if (words := files.text(_INSTRUCTIONS)) is not None:
        _core(document).setdefault("instructions", words)
    return json.dumps(document).encode()


def _core(document: dict[str, Any]) -> dict[str, Any]:
    context = document.setdefault("context", {})
    core = context.setdefault("core", {}) if isinstance(context, dict) else None
    if not isinstance(core, dict):
        raise InvalidInput(f"context.core in {_SESSION} is not an object")
    return core


class _Files:
    """The regular files of a directory, up to a number of bytes together."""

    def __init__(self, place: Path, limit: int) -> None:
        self._place, self._limit, self._left = place, limit, limit

    def inside(self, name: str) -> list[Path]:
        """The JSON files of a directory in it, by name."""
        directory = self._place / name
        is_own = directory.is_dir() and not directory.is_symlink()
        return sorted(each for each in directory.glob("*.json") if _is_regular(each)) if is_own else []

    def text(self, name: str) -> str | None:
        """The text of a file; None if there is no such file."""
        path = self._place / name
        if not _is_regular(path):
            return None
        self._left -= path.stat().st_size
        if self._left < 0:
            raise LimitExceeded(f"{self._place} is larger than {self._limit} bytes", hint="nothing was imported")
        try:
            return path.read_text("utf-8-sig")
        except UnicodeDecodeError:
            raise InvalidInput(f"{path} is not text") from None

    def json(self, name: str) -> Any:
        """The value in a file of JSON; None if there is no such file."""
        text = self.text(name)
        try:
            return None if text is None else parse_json(text)
        except ValueError as error:
            raise InvalidInput(f"{self._place / name} cannot be read: {error}") from error


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
