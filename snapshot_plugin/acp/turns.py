"""The turns of a record, and how each ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from snapshot_plugin.model.content import ToolCallBlock
from snapshot_plugin.model.snapshot import Message

__all__ = ["Turn", "settled_tools", "turns", "was_cut_off", "was_interrupted"]

_WELL = ("end_turn", "max_tokens", "max_turn_requests")


class Turn(NamedTuple):
    """A prompt and the messages up to the next one. What came before the first prompt is a turn without one."""

    messages: tuple[Message, ...]

    @property
    def settled(self) -> bool:
        """Whether it was answered to its end: the agent can be expected to remember it."""
        answers = [message for message in self.messages if message.role == "assistant"]
        has_prompt = self.messages[0].role == "user"
        return has_prompt and bool(answers) and not any(was_cut_off(answer) for answer in answers)

    @property
    def refused(self) -> bool:
        """Whether the model does not have it: the agent refused it, or it never reached the agent."""
        ends = [_acp(message) for message in self.messages]
        return any(end.get("stopReason") == "refusal" or "unsent" in end for end in ends)


def turns(messages: Sequence[Message]) -> Iterator[Turn]:
    """The record, turn by turn."""
    start = 0
    for at, message in enumerate(messages):
        if message.role == "user" and at > start:
            yield Turn(tuple(messages[start:at]))
            start = at
    if start < len(messages):
        yield Turn(tuple(messages[start:]))


def settled_tools(messages: Sequence[Message]) -> tuple[Message, ...]:
    """*messages* with the tool calls of finished turns finished: some agents never say that a tool is done."""
    return tuple(
        _with_settled_tools(message) if turn.settled else message
        for turn in turns(messages)
        for message in turn.messages
    )


def _with_settled_tools(message: Message) -> Message:
    if not any(isinstance(block, ToolCallBlock) and block.is_open for block in message.content):
        return message
    content = tuple(
        block.evolve(status="completed") if isinstance(block, ToolCallBlock) and _is_done(block) else block
        for block in message.content
    )
    return message.evolve(content=content)


def _is_done(call: ToolCallBlock) -> bool:
    return call.is_open and bool(call.content or call.raw_output is not None)


def was_cut_off(answer: Message) -> bool:
    """Whether an answer ended before its time: a crash, an error, a refusal, or the user's wish."""
    end = _acp(answer)
    if not end.keys().isdisjoint(("interrupted", "error", "unsent")):
        return True
    return "stopReason" in end and end["stopReason"] not in _WELL


def was_interrupted(message: Message) -> bool:
    """Whether a crash ended the turn, so that the model does not know of its end."""
    return "interrupted" in _acp(message)


def _acp(message: Message) -> dict[str, Any]:
    acp = message.metadata.get("acp")
    return acp if isinstance(acp, dict) else {}
