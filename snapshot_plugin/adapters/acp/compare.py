"""Does the agent remember? Its own replay, held against the record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from snapshot_plugin.adapters.acp.reduce import Recording
from snapshot_plugin.model.snapshot import Message, SessionSnapshot

__all__ = ["Verdict", "compare"]


class Verdict(NamedTuple):
    """What the agent's replay lacks. `whole`: it has every finished turn; `blank`: nothing of the conversation."""

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
    missing = tuple(_missing(record.messages, recording.snapshot(now).messages))
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


def _missing(recorded: Sequence[Message], shown: Sequence[Message]) -> Iterator[Message]:
    """Messages whose words are not found, in order, in what the same side was shown to say.

    White space and the borders between messages do not count: agents cut and join as they like.
    """
    said = {
        role: "".join(_words(message) for message in shown if message.role == role)
        for role in ("user", "assistant")
    }
    position = dict.fromkeys(said, 0)
    for message in recorded:
        words = _words(message)
        if not words or message.role not in said:
            continue
        found = said[message.role].find(words, position[message.role])
        if found < 0:
            yield message
        else:
            position[message.role] = found + len(words)


def _words(message: Message) -> str:
    return "".join(message.text.split())
