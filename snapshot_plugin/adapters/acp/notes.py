"""What the model is told once, with the next prompt: what was lost, or the whole conversation where it must be.

A note is one text block, marked at both ends. Nothing inside it can look like its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from snapshot_plugin.adapters.acp.turns import turns, was_cut_off
from snapshot_plugin.model.content import Block, ResourceLinkBlock, TextBlock, ThoughtBlock, ToolCallBlock
from snapshot_plugin.model.snapshot import Message, SessionSnapshot

__all__ = ["is_note", "lost_note", "split_notes", "transcript_note"]

_OPEN = '<restoration-note from="asnap">'
_CLOSE = "</restoration-note>"
_NOTE = re.compile(f"({re.escape(_OPEN)}.*?(?:{re.escape(_CLOSE)}|$))", re.DOTALL)
_OF_A_TOOL = 300


def transcript_note(snapshot: SessionSnapshot, *, limit: int) -> str:
    """The conversation so far, for an agent that starts from nothing; the newest *limit* characters of it."""
    told = [_told(message) for turn in turns(snapshot.messages) if not turn.refused for message in turn.messages]
    kept, left_out = _newest(told, limit)
    gap = f"({left_out} earlier messages are left out.)\n\n" if left_out else ""
    return _note(
        "This session was restored after an interruption. You have no memory of it, so here is what was said. "
        "Do not repeat or re-run any of it; just go on from here.",
        gap + "\n\n".join(kept),
    )


def lost_note(messages: Sequence[Message], *, limit: int) -> str:
    """What the user saw and the agent forgot, at most *limit* characters of it."""
    kept, left_out = _newest([_told(message) for message in messages], limit)
    gap = f"({left_out} earlier messages are left out.)\n\n" if left_out else ""
    return _note(
        "The session was interrupted. The user has seen the following, which you may not remember. "
        "Nothing of it was re-run; the outcome of tools that were running is unknown.",
        gap + "\n\n".join(kept),
    )


def is_note(text: str) -> bool:
    """Whether *text* is a note of ours that comes back, not something the user wrote."""
    return text.startswith(_OPEN)


def split_notes(text: str) -> Iterator[tuple[bool, str]]:
    """*text* in pieces: whether it is a note, and what it says."""
    return ((is_note(piece), piece) for piece in _NOTE.split(text) if piece)


def _note(about: str, told: str) -> str:
    return f"{_OPEN}\n{about}\n\n{told}\n{_CLOSE}"


def _newest(told: Sequence[str], limit: int) -> tuple[list[str], int]:
    """The newest texts that fit, the oldest of them cut at its beginning if it is the only one."""
    kept: list[str] = []
    room = limit
    for text in reversed(told):
        if kept and len(text) > room:
            break
        kept.append(text if len(text) <= room else f"[…] {text[len(text) - room :]}")
        room -= len(text)
    return kept[::-1], len(told) - len(kept)


def _told(message: Message) -> str:
    lines = [f"{message.role.capitalize()}: {message.text.strip()}", *_beside_text(message.content)]
    if message.role == "assistant" and was_cut_off(message):
        lines.append("[this answer was cut off here]")
    return "\n".join(lines).replace("restoration-note", "restoration note")


def _beside_text(content: Iterable[Block]) -> Iterator[str]:
    for block in content:
        if isinstance(block, ToolCallBlock):
            yield f"[tool call: {block.title or block.tool_call_id}; {_status(block)}]"
            if shown := _shown(block)[:_OF_A_TOOL]:
                yield f"[it showed: {shown}]"
        elif isinstance(block, ResourceLinkBlock):
            yield f"[attached: {block.uri}]"
        elif not isinstance(block, TextBlock | ThoughtBlock) and block.type in ("image", "audio", "resource"):
            yield f"[attached: {block.type}]"


def _status(call: ToolCallBlock) -> str:
    return "outcome unknown" if call.is_open else (call.status or "outcome unknown")


def _shown(call: ToolCallBlock) -> str:
    items: list[Any] = call.content if isinstance(call.content, list) else []
    return " ".join(_words(item) for item in items if isinstance(item, dict)).strip()


def _words(item: dict[str, Any]) -> str:
    if item.get("type") == "diff":
        return f"a change of {item.get('path')}"
    content = item.get("content")
    text = content.get("text") if isinstance(content, dict) else None
    return text if isinstance(text, str) else ""
