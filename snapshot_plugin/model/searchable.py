"""The text that a search covers: words of a message or a session, without secrets, pictures and sounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from snapshot_plugin.model.content import ToolCallBlock
from snapshot_plugin.model.redact import may_name_a_secret, redact
from snapshot_plugin.model.secret_shapes import redact_text
from snapshot_plugin.model.snapshot import Message, SessionSnapshot

__all__ = ["Passage", "passages"]

_NO_WORDS = frozenset(
    {"blob", "data", "encrypted_content", "id", "kind", "mimeType", "signature", "status", "thoughtSignature"}
    | {"thought_signature", "toolCallId", "type", "_meta", "annotations"}
)
"""Fields that hold no words of anybody: bytes as text, and names that only programs read."""


class Passage(NamedTuple):
    """What can be found of one message; number 0 is the session itself: its title, task, plan and tags."""

    number: int
    role: str
    tools: str
    body: str


def passages(snapshot: SessionSnapshot) -> Iterator[Passage]:
    """The session and its messages, numbered from 1, with every secret taken out."""
    clean = redact(snapshot.evolve(messages=()))[0]
    about = (clean.title, clean.current_task, *(entry.content for entry in clean.plan), *clean.tags)
    yield Passage(0, "", "", "\n".join(filter(None, about)))
    for number, message in enumerate(snapshot.messages, 1):
        names: set[str] = set()
        passage = _passage(number, message, names)
        # A close look at every field takes most of the time of an index; most messages need none.
        if any(map(may_name_a_secret, names)) or redact_text(f"{passage.body}\n{passage.tools}")[1]:
            passage = _passage(number, redact(message)[0], names)
        yield passage


def _passage(number: int, message: Message, names: set[str]) -> Passage:
    tools = [block for block in message.content if isinstance(block, ToolCallBlock)]
    used = dict.fromkeys(name for tool in tools for name in (tool.title, tool.kind) if name)
    # Tool output is often present twice, as content and raw; it is indexed once.
    said = dict.fromkeys(text for block in message.content for text in _texts(block.raw(), names))
    return Passage(number, message.role, "\n".join(used), "\n".join(said))


def _texts(value: Any, names: set[str]) -> Iterator[str]:
    """Every text inside a JSON value, in order; what its parts are called is added to *names*.

    A stack, not recursion: tools may nest as deep as they like.
    """
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            if each:
                yield each
        elif isinstance(each, dict):
            names.update(each)
            waiting += [item for name, item in reversed(each.items()) if name not in _NO_WORDS]
        elif isinstance(each, list | tuple):
            waiting += reversed(each)
