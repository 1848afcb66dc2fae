"""The turns of a record, and how each of them ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from snapshot_plugin.model.snapshot import Message

__all__ = ["Turn", "turns", "was_cut_off"]

_WELL = ("end_turn", "max_tokens", "max_turn_requests")


class Turn(NamedTuple):
    """A prompt and the messages up to the next one. What came before the first prompt is a turn without one."""

    messages: tuple[Message, ...]

    @property
    def settled(self) -> bool:
        """Whether it was answered to its end, so that an agent has no excuse for having forgotten it."""
        answers = [message for message in self.messages if message.role == "assistant"]
        has_prompt = self.messages[0].role == "user"
        return has_prompt and bool(answers) and not any(was_cut_off(answer) for answer in answers)

    @property
    def refused(self) -> bool:
        """Whether the agent refused it: the protocol has it drop such a turn from what the model is told."""
        return any(_acp(message).get("stopReason") == "refusal" for message in self.messages)


def turns(messages: Sequence[Message]) -> Iterator[Turn]:
    """The record, turn by turn."""
    start = 0
    for at, message in enumerate(messages):
        if message.role == "user" and at > start:
            yield Turn(tuple(messages[start:at]))
            start = at
    if start < len(messages):
        yield Turn(tuple(messages[start:]))


def was_cut_off(answer: Message) -> bool:
    """Whether an answer ended before its time: a crash, an error, a refusal, or the user's wish."""
    end = _acp(answer)
    if "interrupted" in end or "error" in end:
        return True
    return "stopReason" in end and end["stopReason"] not in _WELL


def _acp(message: Message) -> dict[str, Any]:
    acp = message.metadata.get("acp")
    return acp if isinstance(acp, dict) else {}
