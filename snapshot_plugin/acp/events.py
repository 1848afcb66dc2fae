"""Which message becomes which event of the record, and what of an update the client is shown. Pure.

Each function returns the `RecordedEvent` for one kind of message, or None if there is nothing to record. A durable
one must be on disk before the message is passed on; any other must be in the spool.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from snapshot_plugin.acp.actions import AgentGone, RecordEvent, Steps, ToClient, Wait
from snapshot_plugin.acp.messages import Message, Pending, notification
from snapshot_plugin.acp.notes import is_note
from snapshot_plugin.acp.state import STATE_UPDATES
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.model.times import rfc3339

if TYPE_CHECKING:
    from snapshot_plugin.acp.core import Core

__all__ = [
    "RecordedEvent",
    "answered_by_agent",
    "answered_by_client",
    "asked_by_agent",
    "chunk",
    "is_late_replay",
    "is_withheld",
    "never_sent",
    "prompted",
    "show",
    "show_state",
    "shown",
    "stamp",
    "until_up",
    "with_note",
]


class RecordedEvent(NamedTuple):
    """An event for the record."""

    event: dict[str, Any]
    durable: bool = False


def prompted(params: Message) -> RecordedEvent:
    """The user's prompt, before the agent gets it."""
    return RecordedEvent({"prompt": params.get("prompt") or [], "t": stamp()}, durable=True)


def never_sent(why: str) -> RecordedEvent:
    """The prompt that was recorded last did not reach the agent."""
    return RecordedEvent({"unsent": why, "t": stamp()}, durable=True)


def with_note(params: Message, note: str) -> Message:
    """A prompt that also tells the model *note*: last, because agents make titles of how a prompt begins."""
    prompt = params.get("prompt")
    return {**params, "prompt": [*(prompt if isinstance(prompt, list) else []), {"type": "text", "text": note}]}


def asked_by_agent(asked: Pending) -> RecordedEvent | None:
    """A request of the agent, before the client gets it: only what asks for permission is kept."""
    if asked.method != "session/request_permission":
        return None
    return RecordedEvent({"permission": asked.params, "n": str(asked.id)}, durable=True)


def answered_by_client(asked: Pending, answer: Message) -> RecordedEvent | None:
    """The client's answer to a request of the agent: what was permitted, what a terminal showed."""
    result = answer.get("result")
    if not isinstance(result, dict):
        return None
    if asked.method == "session/request_permission":
        return RecordedEvent({"outcome": result.get("outcome"), "n": str(asked.id)}, durable=True)
    if asked.method.startswith("terminal/"):
        shown = {**{key: asked.params[key] for key in ("command", "args") if key in asked.params}, **result}
        return RecordedEvent({"terminal": {"terminalId": asked.params.get("terminalId"), **shown}})
    return None


def answered_by_agent(asked: Pending, answer: Message) -> RecordedEvent | None:
    """The agent's answer to a request about a session that is recorded: the end of a turn, a changed setting."""
    result = answer.get("result")
    if asked.method == "session/prompt":
        stop = result if isinstance(result, dict) else {"error": answer.get("error")}
        return RecordedEvent({"stop": stop, "t": stamp()}, durable=True)
    if not isinstance(result, dict):
        return None
    if asked.method == "session/set_mode":
        return RecordedEvent({"config": {"modes": {"currentModeId": asked.params.get("modeId")}}})
    if asked.method == "session/set_model":
        return RecordedEvent({"config": {"models": {"currentModelId": asked.params.get("modelId")}}})
    return RecordedEvent({"config": result}) if result.keys() & {"configOptions", "modes", "models"} else None


def _is_echoed_note(update: Message) -> bool:
    """Whether an agent that echoes prompts shows our note to the model, which the user did not write."""
    content = update.get("content")
    text = content.get("text") if isinstance(content, dict) else None
    return update.get("sessionUpdate") == "user_message_chunk" and isinstance(text, str) and is_note(text)


def _is_note_title(update: Message) -> bool:
    """Whether an agent made a title of our note to the model."""
    title = update.get("title")
    return isinstance(title, str) and is_note(title.strip())


def stamp() -> str:
    """Return the time of day as events carry it."""
    return rfc3339(datetime.now(UTC))


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
            yield RecordEvent(session_id, {"update": update})
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
    """Whether an update only repeats our note to the model, which is neither user text nor a title."""
    if kind == "user_message_chunk":
        return _is_echoed_note(update)
    return kind == "session_info_update" and _is_note_title(update)
