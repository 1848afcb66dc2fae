"""What the model is told once, with the next prompt: what it lacks, or the whole conversation.

A note is one text block, marked at both ends; nothing inside it can look like its end. It is bounded: first the
words of the newest messages, then inputs and outputs of the newest tool calls, as far as the budget goes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from snapshot_plugin.acp.state import turns, was_cut_off
from snapshot_plugin.model.content import Block, ResourceLinkBlock, TextBlock, ThoughtBlock, ToolCallBlock
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.snapshot import Message, SessionSnapshot

__all__ = [
    "NOTE_LIMIT",
    "fits",
    "is_note",
    "is_withheld",
    "lost_note",
    "split_notes",
    "transcript_note",
    "with_note",
]

Raw = dict[str, Any]
NOTE_LIMIT = 60_000
"""Characters of a note, unless a host says otherwise."""

_OPEN = '<restoration-note from="asnap">'
_CLOSE = "</restoration-note>"
_NOTE = re.compile(f"({re.escape(_OPEN)}.*?(?:{re.escape(_CLOSE)}|$))", re.DOTALL)
_OF_A_TOOL = 4_000
_HEAD = 200


def transcript_note(snapshot: SessionSnapshot, *, limit: int = NOTE_LIMIT) -> str:
    """The conversation so far, for an agent that starts from nothing; the newest *limit* characters of it."""
    messages = [message for turn in turns(snapshot.messages) if not turn.refused for message in turn.messages]
    plan = "\n".join(f"- [{entry.status or 'pending'}] {entry.content}" for entry in snapshot.plan)
    return _note(
        "This session was restored after an interruption. You have no memory of it, so here is what was said "
        "before the prompt above. Do not repeat or re-run any of it; just continue from here.",
        _told(messages, limit) + (f"\n\nThe plan:\n{_inert(plan)}" if plan else ""),
    )


def lost_note(messages: Sequence[Message], *, limit: int = NOTE_LIMIT) -> str:
    """A note with what the user saw and the agent lacks, of at most *limit* characters."""
    return _note(
        "The session was interrupted before the prompt above. The user has seen the following, which you may not "
        "remember. Nothing of it was re-run; the outcome of tools that were running is unknown.",
        _told(messages, limit),
    )


def fits(messages: Sequence[Message], *, limit: int = NOTE_LIMIT) -> bool:
    """Whether a note can tell all of what was said in *messages*."""
    return sum(len(_words(message)) for message in messages) <= limit


def is_note(text: str) -> bool:
    """Whether *text* is one of our notes echoed back, or the beginning of one."""
    return text.startswith(_OPEN) or (len(text) > len("<restoration") and _OPEN.startswith(text))


def split_notes(text: str) -> Iterator[tuple[bool, str]]:
    """Split *text*: whether each piece is a note, and the piece."""
    return ((is_note(piece), piece) for piece in _NOTE.split(text) if piece)


def _note(about: str, told: str) -> str:
    return f"{_OPEN}\n{about}\n\n{told}\n{_CLOSE}"


def _told(messages: Sequence[Message], limit: int) -> str:
    kept, room = _newest(messages, limit)
    details = _details(kept, room)
    told = ["\n".join([words, *details.get(index, ())]) for index, (_, words) in enumerate(kept)]
    left_out = len(messages) - len(kept)
    gap = f"({left_out} earlier messages are left out.)\n\n" if left_out else ""
    return gap + "\n\n".join(told)


def _newest(messages: Sequence[Message], limit: int) -> tuple[list[tuple[Message, str]], int]:
    """The newest messages whose words fit, and what is left; one that is too long alone is cut at its beginning."""
    kept: list[tuple[Message, str]] = []
    room = limit
    for message in reversed(messages):
        words = _words(message)
        if kept and len(words) > room:
            break
        kept.append((message, words if len(words) <= room else f"[…] {words[len(words) - room :]}"))
        room -= min(len(words), room)
    return kept[::-1], room


def _details(kept: Sequence[tuple[Message, str]], room: int) -> dict[int, list[str]]:
    """Inputs and outputs of tools by message, the newest first for as long as there is room."""
    details: dict[int, list[str]] = {}
    for index in reversed(range(len(kept))):
        for block in reversed(kept[index][0].content):
            text = _of_a_tool(block)[:room] if isinstance(block, ToolCallBlock) else ""
            if text:
                details.setdefault(index, []).insert(0, text)
                room -= len(text)
    return details


def _words(message: Message) -> str:
    lines = [f"{message.role.capitalize()}: {message.text.strip()}", *_beside_text(message.content)]
    if message.role == "assistant" and was_cut_off(message):
        lines.append("[this answer was cut off here]")
    return _inert("\n".join(lines))


def _inert(text: str) -> str:
    return text.replace("restoration-note", "restoration note")


def _beside_text(content: Iterable[Block]) -> Iterator[str]:
    for block in content:
        if isinstance(block, ToolCallBlock):
            yield f"[tool call: {block.title or block.tool_call_id}; {_status(block)}]"
        elif isinstance(block, ResourceLinkBlock):
            yield f"[attached: {block.uri}]"
        elif not isinstance(block, TextBlock | ThoughtBlock) and block.type in ("image", "audio", "resource"):
            yield f"[attached: {block.type}]"


def _status(call: ToolCallBlock) -> str:
    return "outcome unknown" if call.is_open else (call.status or "outcome unknown")


def _of_a_tool(call: ToolCallBlock) -> str:
    """What a tool was given and what it gave, each cut in its middle."""
    given, gave = _shown(call.raw_input), _shown(call.raw_output) or _content(call)
    parts = [f"[{call.title or call.tool_call_id}: input: {_cut(given)}]"] if given else []
    parts += [f"[{call.title or call.tool_call_id}: output: {_cut(gave)}]"] if gave else []
    return _inert("\n".join(parts))


def _cut(text: str) -> str:
    if len(text) <= _OF_A_TOOL:
        return text
    return f"{text[: _OF_A_TOOL - _HEAD]} […] {text[-_HEAD:]}"


def _shown(value: Any) -> str:
    value = thaw(value)
    if value is None or value in ({}, [], ""):
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _content(call: ToolCallBlock) -> str:
    items: list[Any] = call.content if isinstance(call.content, list) else []
    terminals = (call.model_extra or {}).get("terminals") or {}
    outputs = [str(seen["output"]) for seen in terminals.values() if isinstance(seen, dict) and seen.get("output")]
    return " ".join([*(_item(item) for item in items if isinstance(item, dict)), *outputs]).strip()


def _item(item: dict[str, Any]) -> str:
    if item.get("type") == "diff":
        return f"a change of {item.get('path')}"
    content = item.get("content")
    text = content.get("text") if isinstance(content, dict) else None
    return text if isinstance(text, str) else ""


# Notes in what is sent and shown --------------------------------------------------------------------------


def with_note(params: Raw, note: str) -> Raw:
    """A prompt that also tells the model *note*: last, because agents make titles of how a prompt begins."""
    prompt = params.get("prompt")
    return {**params, "prompt": [*(prompt if isinstance(prompt, list) else []), {"type": "text", "text": note}]}


def is_withheld(kind: Any, update: Raw) -> bool:
    """Whether an update only repeats our note to the model, which is neither user text nor a title."""
    if kind == "user_message_chunk":
        return _is_echoed_note(update)
    return kind == "session_info_update" and _is_note_title(update)


def _is_echoed_note(update: Raw) -> bool:
    """Whether an agent that echoes prompts shows our note to the model, which the user did not write."""
    content = update.get("content")
    text = content.get("text") if isinstance(content, dict) else None
    return update.get("sessionUpdate") == "user_message_chunk" and isinstance(text, str) and is_note(text)


def _is_note_title(update: Raw) -> bool:
    """Whether an agent made a title of our note to the model."""
    title = update.get("title")
    return isinstance(title, str) and is_note(title.strip())
