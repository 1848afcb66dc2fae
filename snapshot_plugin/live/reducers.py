"""Which function turns the spooled records of a provider type into a snapshot, and the default one.

The package knows those below by name and imports them when they are needed, so recovery needs no adapter in sight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import groupby
from typing import Any, Final

from snapshot_plugin.errors import InvalidSnapshot
from snapshot_plugin.live.ports import Record, Reduce
from snapshot_plugin.model.content import TextBlock
from snapshot_plugin.model.snapshot import Message, SessionSnapshot

__all__ = ["KNOWN", "reduce_messages", "reduced"]

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


KNOWN: Final = {
    "messages": "snapshot_plugin.live.reducers:reduce_messages",
    "acp": "snapshot_plugin.acp.reducer:reduce_spool",
}
"""Provider type to ``module:function``."""

_DEFAULT: Final = "messages"


def reduced(
    start: SessionSnapshot, records: Sequence[Record], more: Mapping[str, Reduce] | None = None
) -> SessionSnapshot:
    """*start* with *records* applied, by the function in *more* or in `KNOWN` for their provider type.

    Raises:
        InvalidSnapshot: no function is known for them, or it raised, or it returned another session.
    """
    reduce = _reduce_for(start, records, more or {})
    try:
        snapshot = reduce(start, records)
    except Exception as error:
        raise InvalidSnapshot(f"the spool could not be applied: {type(error).__name__}: {error}") from error
    if getattr(snapshot, "session_id", None) != start.session_id:
        raise InvalidSnapshot(f"the spool turned into something that is not session {start.session_id!r}")
    return snapshot


def _reduce_for(start: SessionSnapshot, records: Sequence[Record], more: Mapping[str, Reduce]) -> Reduce:
    """The first record may name the provider type; else the session does, and else it is messages."""
    named = records[0].data.get("provider_type")
    if named is None:
        named = start.provider_type if start.provider_type in {*more, *KNOWN} else _DEFAULT
    if not isinstance(named, str) or (named not in more and named not in KNOWN):
        raise InvalidSnapshot(f"no reducer is known for records of provider type {named!r}")
    return more[named] if named in more else _imported(KNOWN[named])


def _imported(name: str) -> Reduce:
    module, _, function = name.partition(":")
    found: Reduce = getattr(import_module(module), function)
    return found
