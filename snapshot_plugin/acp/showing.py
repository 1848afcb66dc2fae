"""Steps that record updates and show them to the client, and what the client is never shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from snapshot_plugin.acp.actions import AgentGone, Record, Steps, ToClient, Wait
from snapshot_plugin.acp.events import is_echoed_note, is_note_title
from snapshot_plugin.acp.messages import Message, notification
from snapshot_plugin.acp.state import STATE_UPDATES
from snapshot_plugin.model.snapshot import SessionSnapshot

if TYPE_CHECKING:
    from snapshot_plugin.acp.core import Core

__all__ = ["chunk", "is_late_replay", "is_withheld", "show", "show_state", "shown", "until_up"]

_REPEATED = ("tool_call", "tool_call_update", "plan")


def shown(session_id: str, update: Message) -> ToClient:
    """Show the client one update."""
    return ToClient(notification("session/update", {"sessionId": session_id, "update": update}))


def chunk(text: str) -> Message:
    """The update with which an agent says *text*."""
    return {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}


def show(session_id: str, updates: Sequence[Message]) -> Steps[None]:
    """Record updates and pass them on to the client."""
    for update in updates:
        if not is_withheld(update.get("sessionUpdate"), update):
            yield Record(session_id, {"update": update})
            yield shown(session_id, update)


def show_state(session_id: str, updates: Sequence[Message]) -> Steps[None]:
    """Record and show those of the withheld updates that say how the session is, not what was said in it."""
    kinds = STATE_UPDATES.keys() - {"plan"}
    yield from show(session_id, [each for each in updates if each.get("sessionUpdate") in kinds])


def until_up(core: Core) -> Steps[None]:
    """Wait, bounded, until a restarted agent is ready. Raises `AgentGone` if it is not."""
    is_up = yield Wait(lambda _now: core.is_up or core.is_over, core.patience)
    if not is_up or core.is_over:
        raise AgentGone("the agent ended and did not come back")


def is_late_replay(record: SessionSnapshot, update: Message) -> bool:
    """Whether an update after a restore repeats the record, and is not news."""
    if update.get("sessionUpdate") in _REPEATED:
        return True
    content = update.get("content")
    text = content.get("text") if isinstance(content, dict) else None
    return isinstance(text, str) and any(text.strip() in message.text for message in record.messages)


def is_withheld(kind: Any, update: Message) -> bool:
    """Our note to the model is neither the user's words nor a title."""
    if kind == "user_message_chunk":
        return is_echoed_note(update)
    return kind == "session_info_update" and is_note_title(update)
