"""Prepare an interrupted session for a resume. The stored session is not changed.

Providers reject a conversation in which a tool call has no result, and a killed agent leaves such calls behind.
`repair` closes them and says that their outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from snapshot_plugin.model.content import Block, TextBlock, ThoughtBlock, ToolCallBlock
from snapshot_plugin.model.frozen import FrozenDict, FrozenList, freeze
from snapshot_plugin.model.snapshot import Message, SessionSnapshot
from snapshot_plugin.model.value import Value

__all__ = ["Notice", "is_outcome_unknown", "readable", "repair"]

_MARK = FrozenDict({"snapshot_plugin": FrozenDict({"synthetic": "outcome-unknown"})})
_TEXT = (
    "Interrupted: the session ended while this tool call was open. "
    "Its outcome is unknown; it may or may not have taken effect."
)
_NOTE = freeze({"type": "content", "content": {"type": "text", "text": _TEXT}, "_meta": _MARK})
_CALL_ID_NAMES = ("tool_call_id", "toolCallId", "tool_use_id")
"""The names that frameworks use for the id of the call in a tool's result."""


class Notice(Value):
    """A change that `repair` made, or a problem that it left alone. The index is a position in the given snapshot.

    * ``tool-call-closed``: a call without an outcome was closed as failed, with a note
    * ``tail-dropped``: an empty message at the end was dropped
    * ``result-without-call``: a tool result names a missing call; it was left unchanged
    """

    kind: Literal["tool-call-closed", "tail-dropped", "result-without-call"]
    message_index: int
    detail: str


def repair(snapshot: SessionSnapshot) -> tuple[SessionSnapshot, tuple[Notice, ...]]:
    """Return *snapshot* with open tool calls closed and an empty tail dropped, and a notice for each change.

    Only for sessions that are not running: in a live session, an open call is normal. No text is lost, and repair
    is idempotent. If nothing needs repair, the same snapshot is returned.
    """
    kept = _without_torn_tail(snapshot.messages)
    notices = [
        Notice(
            kind="tail-dropped",
            message_index=index,
            detail=f"an empty {snapshot.messages[index].role} message at the end was dropped",
        )
        for index in range(len(kept), len(snapshot.messages))
    ]
    notices += _results_without_call(kept)
    changed = dict(_closed(kept))
    for index, message in changed.items():
        notices += _closing_notices(index, kept[index], message)
    if changed or len(kept) < len(snapshot.messages):
        messages = tuple(changed.get(index, message) for index, message in enumerate(kept))
        snapshot = snapshot.evolve(messages=messages)
    return snapshot, tuple(sorted(notices, key=lambda notice: notice.message_index))


def is_outcome_unknown(call: ToolCallBlock) -> bool:
    """Whether `repair` closed this call: the tool itself did not report the failure."""
    content = call.content if isinstance(call.content, list) else ()
    return any(isinstance(item, dict) and item.get("_meta") == _MARK for item in content)


def readable(messages: Sequence[Message], among: Sequence[Message] | None = None) -> list[tuple[int, Message]]:
    """The messages that people can read, each with its index: entries that only frameworks use are left out.

    An open tool call whose result is in another message of *among* (default: these) is shown as completed.
    """
    answered: set[str] = set()
    if any(isinstance(block, ToolCallBlock) and block.is_open for each in messages for block in each.content):
        tools = (each for each in among or messages if each.role == "tool")
        answered.update(*map(_answered_by, tools))
    return [(at, _with_outcome(each, answered)) for at, each in enumerate(messages) if not each.is_opaque]


def _with_outcome(message: Message, answered: set[str]) -> Message:
    if not answered or message.role == "tool" or not answered & _calls(message):
        return message
    blocks = (
        block.evolve(status="completed")
        if isinstance(block, ToolCallBlock) and block.is_open and block.tool_call_id in answered
        else block
        for block in message.content
    )
    return message.evolve(content=tuple(blocks))


def _without_torn_tail(messages: Sequence[Message]) -> Sequence[Message]:
    end = len(messages)
    while end and _is_empty(messages[end - 1]):
        end -= 1
    return messages[:end]


def _is_empty(message: Message) -> bool:
    if message.role == "assistant":
        return all(_says_nothing(block) for block in message.content)
    return not message.content


def _says_nothing(block: Block) -> bool:
    """Whether the block is an empty text or thought without other fields, such as a thought's signature."""
    return isinstance(block, TextBlock | ThoughtBlock) and block.raw() in (
        {"type": block.type, "text": ""},
        {"type": block.type},
    )


def _closed(messages: Sequence[Message]) -> Iterator[tuple[int, Message]]:
    """The messages with open calls closed. Goes backwards, to know whether a result follows."""
    answered: set[str] = set()
    for index in reversed(range(len(messages))):
        message = messages[index]
        if message.role == "tool":
            answered |= _answered_by(message)
            continue
        closed = {
            place: _close(block)
            for place, block in enumerate(message.content)
            if isinstance(block, ToolCallBlock) and block.is_open and block.tool_call_id not in answered
        }
        if closed:
            content = tuple(closed.get(place, block) for place, block in enumerate(message.content))
            yield index, message.evolve(content=content)
        answered -= _calls(message)


def _close(call: ToolCallBlock) -> ToolCallBlock:
    said = call.content if isinstance(call.content, list) else [] if call.content is None else [call.content]
    return call.evolve(status="failed", content=FrozenList([*said, _NOTE]))


def _closing_notices(index: int, before: Message, after: Message) -> Iterator[Notice]:
    for old, new in zip(before.content, after.content, strict=True):
        if old is not new and isinstance(old, ToolCallBlock):
            detail = f"tool call {old.tool_call_id!r} was {old.status or 'without status'}; its outcome is unknown"
            yield Notice(kind="tool-call-closed", message_index=index, detail=detail)


def _results_without_call(messages: Sequence[Message]) -> Iterator[Notice]:
    called: set[str] = set()
    for index, message in enumerate(messages):
        if message.role != "tool":
            called |= _calls(message)
            continue
        for missing in sorted(_answered_by(message) - called):
            detail = f"a tool's result names the call {missing!r}, which is not there"
            yield Notice(kind="result-without-call", message_index=index, detail=detail)


def _calls(message: Message) -> set[str]:
    return {block.tool_call_id for block in message.content if isinstance(block, ToolCallBlock)}


def _answered_by(message: Message) -> set[str]:
    named = ({**message.metadata, **(message.model_extra or {})}.get(name) for name in _CALL_ID_NAMES)
    return _calls(message) | {name for name in named if isinstance(name, str)}
