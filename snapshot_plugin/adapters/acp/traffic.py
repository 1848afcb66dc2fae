"""What has to be written down of a message on its way: pure, for whoever sits between client and agent.

Each function gives the `Entry` for one kind of message, or None where there is nothing to write down. An entry
that is `durable` has to be on disk before the message goes on; any other has to be in the spool.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from snapshot_plugin.adapters.acp.notes import is_note
from snapshot_plugin.adapters.acp.requests import Pending
from snapshot_plugin.adapters.acp.wire import Message

__all__ = [
    "Entry",
    "answered_by_agent",
    "answered_by_client",
    "asked_by_agent",
    "is_echoed_note",
    "prompted",
    "updated",
    "with_note",
]


class Entry(NamedTuple):
    """An event for the journal."""

    event: dict[str, Any]
    durable: bool = False


def prompted(params: Message, *, at: str) -> Entry:
    """The user's prompt, before the agent gets it."""
    return Entry({"prompt": params.get("prompt") or [], "t": at}, durable=True)


def with_note(params: Message, note: str) -> Message:
    """A prompt that tells the model *note* first."""
    return {**params, "prompt": [{"type": "text", "text": note}, *(params.get("prompt") or [])]}


def updated(update: Message) -> Entry:
    """A ``session/update``. That a tool starts has to be durable: what it does may outlive everybody."""
    return Entry({"update": update}, durable=update.get("sessionUpdate") == "tool_call")


def asked_by_agent(asked: Pending) -> Entry | None:
    """A request of the agent, before the client gets it: only what asks for permission is kept."""
    if asked.method != "session/request_permission":
        return None
    return Entry({"permission": asked.params, "n": str(asked.id)}, durable=True)


def answered_by_client(asked: Pending, answer: Message) -> Entry | None:
    """The client's answer to a request of the agent: what was permitted, what a terminal showed."""
    result = answer.get("result")
    if not isinstance(result, dict):
        return None
    if asked.method == "session/request_permission":
        return Entry({"outcome": result.get("outcome"), "n": str(asked.id)}, durable=True)
    if asked.method.startswith("terminal/"):
        shown = {**{key: asked.params[key] for key in ("command", "args") if key in asked.params}, **result}
        return Entry({"terminal": {"terminalId": asked.params.get("terminalId"), **shown}})
    return None


def answered_by_agent(asked: Pending, answer: Message, *, at: str) -> Entry | None:
    """The agent's answer to a request about a session that is recorded: the end of a turn, a changed setting."""
    result = answer.get("result")
    if asked.method == "session/prompt":
        stop = result if isinstance(result, dict) else {"error": answer.get("error")}
        return Entry({"stop": stop, "t": at}, durable=True)
    if not isinstance(result, dict):
        return None
    if asked.method == "session/set_mode":
        return Entry({"config": {"modes": {"currentModeId": asked.params.get("modeId")}}})
    return Entry({"config": result}) if "configOptions" in result or "modes" in result else None


def is_echoed_note(update: Message) -> bool:
    """Whether an agent that echoes prompts shows what we told the model: it is not the user's own words."""
    content = update.get("content")
    text = content.get("text") if isinstance(content, dict) else None
    return update.get("sessionUpdate") == "user_message_chunk" and isinstance(text, str) and is_note(text)
