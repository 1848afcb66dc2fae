"""Some messages of a session with all their content, for a page that is scrolled.

Long texts are cut, with their full length; a single message is returned in full. For a session that is live, or
whose process died, messages that are only in the spool are included.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.operations.document import Document, Part

if TYPE_CHECKING:
    from snapshot_plugin.live.recovery import Spooled
    from snapshot_plugin.model.content import Block, ToolCallBlock
    from snapshot_plugin.model.snapshot import Message
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Content", "FileChange", "FullMessage", "Messages", "messages", "whole_message"]

_LONGEST = 20_000
"""Characters of a text in a page of messages."""
_WHOLE = 4_000_000
"""Characters of a text in a single message: more than a browser shows at once."""
_PICTURE = 3_000_000
"""Characters of base64 of a picture in a page; a larger one is only named."""
_DRAWN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


class FileChange(Part):
    """A file that a tool changed, before and after."""

    path: str
    before: str | None
    after: str


class Content(Part):
    """A part of a message."""

    kind: str
    """text, thought, tool, image, or the type of another block."""
    text: str = ""
    length: int | None = None
    """The full length of the text, if it is cut."""
    status: str | None = None
    tool: str | None = None
    """The kind of tool: read, edit, execute, …"""
    input: str = ""
    output: str = ""
    changes: tuple[FileChange, ...] = ()
    places: tuple[str, ...] = ()
    """The files that a tool read."""
    permission: str | None = None
    """What the user was asked before the tool ran, and what was answered."""
    mime_type: str | None = None
    data: str | None = None
    """A picture, as base64."""


class FullMessage(Part):
    """One message; `spooled` if no snapshot holds it yet."""

    number: int
    role: str
    at: datetime | None = None
    id: str | None = None
    spooled: bool = False
    content: tuple[Content, ...] = ()


class Messages(Document):
    """Some messages of one snapshot, and how many there are."""

    kind: ClassVar[str] = "messages"
    rows: ClassVar[str] = "messages"
    session_id: str
    snapshot: int
    total: int
    saved: int
    """How many of them are in a snapshot; the others are in the spool."""
    first: int
    messages: tuple[FullMessage, ...]


async def messages(
    store: SnapshotStore, session_id: str, *, at: int | None, first: int, limit: int, spooled: Spooled | None = None
) -> Messages:
    """The messages from number *first* on, at most *limit*; from the end, where *first* is negative."""
    if spooled is not None and at is None:
        every = spooled.snapshot.messages
        start = _start(first, len(every))
        found, seq, total, saved = every[start : start + limit], spooled.seq, len(every), spooled.saved
    else:
        begin = None if first < 0 else max(0, first - 1)
        page = await store.page(session_id, at=at, start=begin, count=-first if begin is None else limit)
        start, found, seq, total, saved = page.start, page.messages, page.seq, page.total, page.total
    return Messages(
        session_id=session_id,
        snapshot=seq,
        total=total,
        saved=saved,
        first=start + 1,
        messages=tuple(_full(n, m, saved, _LONGEST) for n, m in enumerate(found, start + 1)),
    )


def _start(first: int, total: int) -> int:
    return max(0, total + first if first < 0 else first - 1)


async def whole_message(
    store: SnapshotStore, session_id: str, number: int, *, at: int | None, spooled: Spooled | None = None
) -> Messages:
    """One message with all of its text.

    Raises:
        InvalidInput: there is no such message.
    """
    if spooled is not None and at is None:
        seq, total, saved = spooled.seq, len(spooled.snapshot.messages), spooled.saved
        found: Sequence[Message] = spooled.snapshot.messages[number - 1 : number]
    else:
        page = await store.page(session_id, at=at, start=number - 1, count=1)
        seq, total, saved, found = page.seq, page.total, page.total, page.messages
    if not found:
        raise InvalidInput(f"session {session_id} has no message {number}: it has {total}", session_id=session_id)
    one = tuple(_full(number, each, saved, _WHOLE) for each in found)
    return Messages(session_id=session_id, snapshot=seq, total=total, saved=saved, first=number, messages=one)


def _full(number: int, message: Message, saved: int, longest: int) -> FullMessage:
    return FullMessage(
        number=number,
        role=message.role,
        at=message.timestamp,
        id=message.id,
        spooled=number > saved,
        content=tuple(_content(block, longest) for block in message.content),
    )


def _content(block: Block, longest: int) -> Content:
    from snapshot_plugin.model.content import ImageBlock, TextBlock, ThoughtBlock, ToolCallBlock

    if isinstance(block, TextBlock | ThoughtBlock):
        return Content(kind=block.type, **_cut(block.text, longest))
    if isinstance(block, ToolCallBlock):
        return _tool(block, longest)
    if isinstance(block, ImageBlock) and block.mime_type in _DRAWN and len(block.data) <= _PICTURE:
        return Content(kind="image", mime_type=block.mime_type, data=block.data, text=block.uri or "")
    from snapshot_plugin.operations.transcript import about_block

    return Content(kind=block.type or "unknown", **_cut(about_block(block.raw()), longest))


def _cut(text: str, longest: int) -> dict[str, Any]:
    return {"text": text} if len(text) <= longest else {"text": text[:longest], "length": len(text)}


def _tool(block: ToolCallBlock, longest: int) -> Content:
    content = block.content if isinstance(block.content, list | tuple) else ()
    changes = tuple(_changes(content, longest))
    output = _words(block.raw_output) if block.raw_output is not None else ""
    shown = "\n".join(_texts(content)) or output
    texts = (_words(block.raw_input) if block.raw_input is not None else "", shown)
    cut = [text[:longest] for text in texts]
    return Content(
        kind="tool",
        text=block.title or block.kind or block.tool_call_id,
        length=max(map(len, texts)) if any(len(text) > longest for text in texts) else None,
        status=block.status,
        tool=block.kind,
        input=cut[0],
        output=cut[1],
        changes=changes,
        places=tuple(_places(block.locations)),
        permission=_permission((block.model_extra or {}).get("permission")),
    )


def _changes(content: Sequence[Any], longest: int) -> Iterator[FileChange]:
    for each in content:
        if isinstance(each, Mapping) and each.get("type") == "diff":
            before = each.get("oldText")
            yield FileChange(
                path=str(each.get("path", "")),
                before=str(before)[:longest] if before is not None else None,
                after=str(each.get("newText") or "")[:longest],
            )


def _texts(content: Sequence[Any]) -> Iterator[str]:
    for each in content:
        if not isinstance(each, Mapping) or each.get("type") == "diff":
            continue
        inner = each.get("content") if each.get("type") == "content" else each
        if isinstance(inner, Mapping) and isinstance(inner.get("text"), str):
            yield inner["text"]
        elif isinstance(each.get("output"), str):  # a terminal, as far as it was recorded
            yield each["output"]
        elif each.get("type") != "terminal":
            yield _words(each)


def _words(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and len(value) == 1 and isinstance(only := next(iter(value.values())), str):
        return only
    return json.dumps(value, ensure_ascii=False, indent=2, default=dict)


def _places(locations: Any) -> Iterator[str]:
    for each in locations if isinstance(locations, list | tuple) else ():
        if isinstance(each, Mapping) and isinstance(each.get("path"), str):
            line = each.get("line")
            yield f"{each['path']}:{line}" if isinstance(line, int) else each["path"]


def _permission(noted: Any) -> str | None:
    """What was answered, in the words of the option that was chosen."""
    if not isinstance(noted, Mapping):
        return None
    outcome = noted.get("outcome")
    if isinstance(outcome, Mapping) and isinstance(outcome.get("outcome"), Mapping):
        outcome = outcome["outcome"]
    if not isinstance(outcome, Mapping):
        return "asked, and not answered"
    options = noted.get("asked")
    names = {
        each.get("optionId"): each.get("name")
        for each in (options if isinstance(options, list | tuple) else ())
        if isinstance(each, Mapping)
    }
    chosen = outcome.get("optionId")
    return f"answered: {names.get(chosen) or chosen or outcome.get('outcome')}"
