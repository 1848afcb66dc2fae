"""The text that a search covers: the words of a message or a session, without secrets, images and audio.

Messages are read as stored JSON: building `Message` objects would take as long as everything else together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.model.redact import may_name_a_secret, redact
from snapshot_plugin.model.secret_shapes import may_hold_secrets, redact_text
from snapshot_plugin.model.snapshot import Message, SessionSnapshot

__all__ = ["Text", "about", "passages"]

_NO_WORDS = frozenset(
    {"blob", "data", "encrypted_content", "id", "kind", "mimeType", "signature", "status", "thoughtSignature"}
    | {"thought_signature", "toolCallId", "type", "_meta", "annotations"}
)
"""Fields that are not searched: encoded bytes, and names that only programs read."""

_TEXT_BLOCK = frozenset({"type", "text"})


class Text(NamedTuple):
    """The indexed text of one message; `at` is in seconds since 1970."""

    body: str
    tools: str
    role: str
    at: int | None


def about(snapshot: SessionSnapshot, history: Iterable[SnapshotMeta] = ()) -> Text:
    """The text of the session itself: its title, task, plan and tags, with secrets removed.

    A tag is also found as ``tag:NAME``; the tag of a snapshot in *history* is followed by the snapshot's
    reference.
    """
    tagged = [f"tag:{tag} {meta.session_id}@{meta.seq}" for meta in history for tag in meta.snapshot_tags]
    tags = [*(f"tag:{redact_text(tag)[0]}" for tag in snapshot.tags), *tagged]
    said = (snapshot.title, snapshot.current_task, *(entry.content for entry in snapshot.plan), *tags)
    return Text("\n".join(redact_text(text)[0] for text in said if text), "", "", None)


def passages(messages: Iterable[Mapping[str, Any]]) -> list[Text]:
    """The text of each of *messages*, given as stored JSON, with secrets removed."""
    harmless: set[str] = set()
    return [_passage(message, harmless) for message in messages]


def _passage(message: Mapping[str, Any], harmless: set[str]) -> Text:
    """The text of *message*. *harmless* are field names that name no secret; new ones are added."""
    names: set[str] = set()
    text = _text_of(message, names)
    names -= harmless
    if any(map(may_name_a_secret, names)) or may_hold_secrets(text.body) or may_hold_secrets(text.tools):
        return _text_of(redact(Message.model_validate(message))[0].raw(), names)
    harmless |= names
    return text


def _text_of(message: Mapping[str, Any], names: set[str]) -> Text:
    content = message.get("content", ())
    used: dict[str, None] = {}
    for block in content:
        if block.get("type") == "tool_call":
            used |= {name: None for name in map(block.get, ("title", "kind")) if isinstance(name, str) and name}
    moment = message.get("timestamp")
    at = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    said = "\n".join(_strings(content, names))
    return Text(said, "\n".join(used), message["role"], int(at.timestamp()) if at else None)


def _strings(content: Sequence[Any], names: set[str]) -> Iterable[str]:
    """Every distinct string inside JSON values, in order; the names of the fields are added to *names*.

    Tool output is often present twice, as content and raw; it is indexed once. Values may be nested to any
    depth, so this uses a stack instead of recursion.
    """
    said: dict[str, None] = {}
    waiting = [*reversed(content)]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            said[each] = None
        elif isinstance(each, dict):
            if each.keys() == _TEXT_BLOCK and isinstance(each["text"], str):  # as most are
                said[each["text"]] = None
            else:
                names.update(each)
                waiting += [each[name] for name in reversed(each) if name not in _NO_WORDS]
        elif isinstance(each, (list, tuple)):
            waiting += reversed(each)
    said.pop("", None)
    return said
