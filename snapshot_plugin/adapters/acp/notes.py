"""What the model is told once, with the next prompt: what was lost, or the whole conversation where it must be."""

from __future__ import annotations

from collections.abc import Sequence

from snapshot_plugin.model.content import ToolCallBlock
from snapshot_plugin.model.snapshot import Message, SessionSnapshot

__all__ = ["lost_note", "transcript_note"]

_OPEN = '<restoration-note from="asnap">'
_CLOSE = "</restoration-note>"


def transcript_note(snapshot: SessionSnapshot, *, limit: int) -> str:
    """The conversation so far, for an agent that starts from nothing; the newest *limit* characters of it."""
    turns = [_told(message) for message in snapshot.messages]
    kept: list[str] = []
    size = 0
    for turn in reversed(turns):
        if kept and size + len(turn) > limit:
            break
        kept.insert(0, turn[-limit:])
        size += len(turn)
    left_out = len(turns) - len(kept)
    gap = f"({left_out} earlier messages are left out.)\n\n" if left_out else ""
    return (
        f"{_OPEN}\nThis session was restored after an interruption. You have no memory of it, so here is what was said. "
        f"Do not repeat or re-run any of it; just go on from here.\n\n{gap}" + "\n\n".join(kept) + f"\n{_CLOSE}"
    )


def lost_note(messages: Sequence[Message], *, limit: int) -> str:
    """What the user saw and the agent forgot."""
    told = "\n\n".join(_told(message) for message in messages)[-limit:]
    return (
        f"{_OPEN}\nThe session was interrupted. The user has seen the following, which you may not remember. "
        f"Nothing of it was re-run; the outcome of tools that were running is unknown.\n\n{told}\n{_CLOSE}"
    )


def _told(message: Message) -> str:
    tools = [block for block in message.content if isinstance(block, ToolCallBlock)]
    lines = [f"{message.role.capitalize()}: {message.text.strip()}"]
    lines += [f"[tool call: {call.title or call.tool_call_id}; {_status(call)}]" for call in tools]
    return "\n".join(lines)


def _status(call: ToolCallBlock) -> str:
    return "outcome unknown" if call.is_open else (call.status or "outcome unknown")
