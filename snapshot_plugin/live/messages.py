"""The default reducer: spool records that are messages, pieces of text, or fields of the snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from snapshot_plugin.errors import InvalidSnapshot
from snapshot_plugin.live.spool import Record
from snapshot_plugin.model.content import TextBlock
from snapshot_plugin.model.snapshot import Message, SessionSnapshot

__all__ = ["reduce_messages"]

_KINDS = ("message", "append", "state")


def reduce_messages(snapshot: SessionSnapshot, records: Sequence[Record]) -> SessionSnapshot:
    """Apply records of three kinds, in order, to *snapshot*.

    ``{"message": {…}}`` adds a message, or replaces the one that has its id. ``{"append": {"text": …}}`` continues
    the assistant's message, or begins one. ``{"state": {…}}`` sets fields of the snapshot.

    Raises:
        InvalidSnapshot: a record is of no such kind, or its content does not fit.
    """
    for kind, values in _runs(records):
        if kind == "append":
            snapshot = _grown(snapshot, "".join(_text(value) for value in values))
        else:
            for value in values:
                snapshot = _with_message(snapshot, value) if kind == "message" else snapshot.with_stored(value)
    return snapshot


def _runs(records: Sequence[Record]) -> Iterator[tuple[str, list[Any]]]:
    """Neighbours of one kind together: thousands of small appends are one."""
    pairs = (pair for record in records if (pair := _kind_and_value(record)))
    for kind, run in groupby(pairs, key=lambda pair: pair[0]):
        yield kind, [value for _, value in run]


def _kind_and_value(record: Record) -> tuple[str, Any] | None:
    kinds = [kind for kind in _KINDS if kind in record.data]
    if not kinds and "provider_type" in record.data:
        return None
    if len(kinds) != 1 or not isinstance(record.data[kinds[0]], dict):
        raise InvalidSnapshot(f"spool record {record.n} is not a message, an append or a state")
    return kinds[0], record.data[kinds[0]]


def _text(value: dict[str, Any]) -> str:
    text = value.get("text")
    if not isinstance(text, str):
        raise InvalidSnapshot("an append has no text")
    return text


def _grown(snapshot: SessionSnapshot, text: str) -> SessionSnapshot:
    last = snapshot.messages[-1] if snapshot.messages else None
    if last is None or last.role != "assistant":
        return _added(snapshot, Message(role="assistant", content=(TextBlock(text=text),)))
    end = last.content[-1] if last.content else None
    if isinstance(end, TextBlock):
        blocks = (*last.content[:-1], end.evolve(text=end.text + text))
    else:
        blocks = (*last.content, TextBlock(text=text))
    return _replaced(snapshot, len(snapshot.messages) - 1, last.evolve(content=blocks))


def _with_message(snapshot: SessionSnapshot, value: dict[str, Any]) -> SessionSnapshot:
    message = Message.model_validate(value)
    ids = [known.id for known in snapshot.messages]
    if message.id is None or message.id not in ids:
        return _added(snapshot, message)
    return _replaced(snapshot, ids.index(message.id), message)


def _added(snapshot: SessionSnapshot, message: Message) -> SessionSnapshot:
    return snapshot.append(message, now=snapshot.updated_at)  # reading no clock: the same records give the same


def _replaced(snapshot: SessionSnapshot, at: int, message: Message) -> SessionSnapshot:
    return snapshot.evolve(messages=(*snapshot.messages[:at], message, *snapshot.messages[at + 1 :]))
