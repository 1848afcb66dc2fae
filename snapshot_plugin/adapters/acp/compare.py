"""Does the agent remember? Its own replay, held against the record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from snapshot_plugin.adapters.acp.reduce import Recording
from snapshot_plugin.model.snapshot import Message, SessionSnapshot

__all__ = ["Verdict", "compare"]


class Verdict(NamedTuple):
    """What the agent's replay lacks. `whole`: it has every finished turn; `blank`: it has none of the conversation."""

    kind: Literal["whole", "partial", "blank"]
    missing: tuple[Message, ...] = ()
    """Messages of the record that the agent did not show, the interrupted one included."""


def compare(record: SessionSnapshot, updates: Iterable[dict[str, Any]], now: datetime) -> Verdict:
    """Hold what the agent replayed against the record: by order and by words, never by ids or chunk borders.

    Agents show internal texts as user messages, rename tools, and number calls anew: what is more does not
    matter, only what is missing. An unfinished last turn that is missing does not make a replay partial.
    """
    empty = record.evolve(messages=(), metadata={})
    recording = Recording(empty)
    for update in updates:
        recording.apply({"update": update})
    shown = [_words(message) for message in recording.snapshot(now).messages]
    missing = tuple(_missing(record.messages, shown))
    spoken = [message for message in record.messages if _words(message)]
    if not missing or not spoken:
        return Verdict("whole")
    if len(missing) == len(spoken):
        return Verdict("blank", missing)
    finished = [message for message in missing if not is_unfinished(message, record)]
    return Verdict("partial" if finished else "whole", missing)


def is_unfinished(message: Message, record: SessionSnapshot) -> bool:
    """Whether a message belongs to the last turn and that turn was cut off."""
    last = record.messages[-1]
    cut_off = last.role == "user" or "interrupted" in (last.metadata.get("acp") or {})
    tail = record.messages[-2:] if last.role == "assistant" else record.messages[-1:]
    return cut_off and any(message is each for each in tail)


def _missing(messages: Sequence[Message], shown: Sequence[str]) -> Iterable[Message]:
    """Messages whose words are not found in what was shown, in order. A message may be cut into several, or joined."""
    everything = "\n".join(shown)
    position = 0
    for message in messages:
        words = _words(message)
        if not words:
            continue
        found = everything.find(words, position)
        if found < 0:
            found = "".join(everything.split()).find("".join(words.split()))
            if found < 0:
                yield message
            continue
        position = found + len(words)


def _words(message: Message) -> str:
    return message.text.strip()
