"""What the author of an SDK agent keeps of a session, and what the model therefore has to be told. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from snapshot_plugin.acp.notes import NOTE_LIMIT, lost_note, transcript_note
from snapshot_plugin.acp.parts import plain
from snapshot_plugin.acp.state import HISTORY
from snapshot_plugin.acp.turns import turns
from snapshot_plugin.errors import InvalidSnapshot
from snapshot_plugin.model.frozen import freeze, thaw
from snapshot_plugin.model.snapshot import SessionSnapshot

__all__ = ["Kept", "kept_history", "note_about", "storable"]


class Kept(NamedTuple):
    """A history as its author gave it, and how many messages of the record had been said by then."""

    value: dict[str, Any]
    messages: int


def storable(value: Any) -> dict[str, Any]:
    """A history as it can be stored, apart from what its author does with it later.

    Raises:
        InvalidSnapshot: it is not a JSON object, or one that would not come back as it is.
    """
    if not isinstance(value, dict):
        raise InvalidSnapshot(f"a history is a JSON object, not a {type(value).__name__}", hint="return a dict")
    frozen = freeze(value, "history")
    if plain(frozen) != frozen:
        raise InvalidSnapshot("the history is nested too deeply", hint="flatten it")
    copy: dict[str, Any] = thaw(frozen)
    return copy


def kept_history(record: SessionSnapshot, agent: str | None) -> Kept | None:
    """The history *agent* can take back; None where there is none, or where it is not one of this conversation.

    Another agent's history means nothing to this one, and that of a whole conversation is wrong for a fork
    which began in its middle.
    """
    kept = record.plugins.get(HISTORY)
    if not isinstance(kept, dict) or not isinstance(kept.get("value"), dict) or kept.get("agent") != agent:
        return None
    messages = kept.get("messages")
    if not isinstance(messages, int) or messages > len(record.messages):
        return None
    return Kept(thaw(kept["value"]), messages)


def note_about(record: SessionSnapshot, *, remembered: int, limit: int = NOTE_LIMIT) -> str | None:
    """What the model has to be told, if the agent remembers the first *remembered* messages by itself."""
    if not remembered:
        return transcript_note(record, limit=limit) if record.messages else None
    since = [turn for turn in turns(record.messages[remembered:]) if not turn.refused]
    lost = [message for turn in since for message in turn.messages]
    return lost_note(lost, limit=limit) if lost else None
