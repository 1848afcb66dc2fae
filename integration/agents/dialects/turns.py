"""What a model request is about, whatever API it is written in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

__all__ = ["Call", "Tool", "Turn", "latest", "sse", "text_of"]

Json = dict[str, Any]
_ADDED = re.compile(r"<(system-reminder|restoration-note)\b.*?</\1>", re.DOTALL)


class Tool(NamedTuple):
    """A tool the agent offers to the model."""

    name: str
    schema: Json


class Turn(NamedTuple):
    """The user's last words, whether a tool has answered since, the tools on offer, and the system prompt."""

    words: str
    answered: bool
    tools: tuple[Tool, ...]
    system: str = ""


class Call(NamedTuple):
    """A tool call the model makes."""

    id: str
    name: str
    arguments: Json


def latest(said: Iterable[tuple[str, bool]]) -> tuple[str, bool]:
    """The last user words and whether a tool answered them, from messages as (text, has a tool result).

    Reminders of the agent and notes of the proxy, which are added to the user's messages, are not the user's words.
    """
    words, answered = "", False
    for text, is_result in said:
        if is_result:
            answered = True
        if own := _ADDED.sub("", text).strip():
            words, answered = own, False
    return words, answered


def text_of(content: Any) -> str:
    """The text of a message's content: a string, or a list of parts of which some have text."""
    if isinstance(content, str):
        return content
    parts = (part.get("text") for part in content or [] if isinstance(part, dict))
    return "\n".join(part for part in parts if isinstance(part, str))


def sse(data: Json, event: str = "") -> str:
    """One server-sent event."""
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(data)}\n\n"
