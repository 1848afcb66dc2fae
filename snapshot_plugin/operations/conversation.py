"""A conversation for reading: `said_of` with a line for each tool call, `messages` with all content, page by page.

The first is for terminals, texts and differences; the second for a page that is scrolled. Long texts are cut there,
with their full length; a single message is returned in full. For a session that is live, or whose process died,
messages that are only in the spool are included.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from snapshot_plugin.errors import InvalidInput, SnapshotError
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.text import size

if TYPE_CHECKING:
    from snapshot_plugin.live.recovery import Spooled
    from snapshot_plugin.model.content import Block, ToolCallBlock
    from snapshot_plugin.model.snapshot import Message, SessionSnapshot
    from snapshot_plugin.store.base import SnapshotStore

__all__ = [
    "Content",
    "FileChange",
    "FullMessage",
    "MessagePart",
    "Messages",
    "Said",
    "about_block",
    "detail_of",
    "diff_lines",
    "messages",
    "said_of",
    "spool_mark",
    "spooled",
    "whole_message",
]

_BASE64 = 4 / 3


class MessagePart(Part):
    """A part of a message: its words, a thought, a tool call, or something that is not text."""

    kind: str
    """text, thought, tool, or the type of another block: image, audio, resource, …"""
    text: str = ""
    status: str | None = None
    detail: str | None = None
    """The input and output of a tool; with --tools."""


class Said(Part):
    """One message."""

    number: int
    role: str
    at: datetime | None = None
    pieces: tuple[MessagePart, ...] = ()


def said_of(snapshot: SessionSnapshot, *, tools: bool, first: int = 1, last: int | None = None) -> Iterator[Said]:
    """Yield messages *first* to *last*, counted from 1; with *tools*, also the input and output of tools.

    Entries that only a framework can read are included with *tools* only.
    """
    from snapshot_plugin.model.repair import readable

    messages = snapshot.messages[first - 1 : last]
    shown = dict(readable(messages, snapshot.messages))
    for index, message in enumerate(messages):
        if tools or index in shown:
            yield _said(first + index, shown.get(index, message), tools=tools)


def _said(number: int, message: Message, *, tools: bool) -> Said:
    pieces = tuple(_piece(block, tools=tools) for block in message.content)
    if message.is_opaque:
        pieces = (MessagePart(kind="entry", text=f"kept for {', '.join(message.metadata)}"),)
    return Said(number=number, role=message.role, at=message.timestamp, pieces=pieces)


def _piece(block: Block, *, tools: bool) -> MessagePart:
    from snapshot_plugin.model.content import TextBlock, ThoughtBlock, ToolCallBlock

    if isinstance(block, TextBlock):
        return MessagePart(kind="text", text=block.text)
    if isinstance(block, ThoughtBlock):
        return MessagePart(kind="thought", text=block.text)
    if isinstance(block, ToolCallBlock):
        title = block.title or block.kind or block.tool_call_id
        return MessagePart(kind="tool", text=title, status=block.status, detail=detail_of(block) if tools else None)
    return MessagePart(kind=block.type or "unknown", text=about_block(block.raw()))


def detail_of(tool: ToolCallBlock) -> str:
    """The input and output of a tool, as text."""
    parts = [
        f"{name}: {_as_text(value)}" for name, value in (("in", tool.raw_input), ("out", tool.raw_output)) if value
    ]
    if not tool.raw_output and tool.content:
        parts.append(f"out: {_as_text(tool.content)}")
    return "\n".join(parts)


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return "\n".join(_as_text(item) for item in value)
    if isinstance(value, dict):
        inner = value.get("content") if value.get("type") == "content" else value
        if isinstance(inner, dict) and inner.get("type") == "text" and isinstance(inner.get("text"), str):
            return str(inner["text"])
        if value.get("type") == "diff":
            before, after = str(value.get("oldText") or ""), str(value.get("newText") or "")
            return "\n".join([str(value.get("path", "")), *diff_lines(before, after)])
    return json.dumps(value, ensure_ascii=False, indent=2)


def diff_lines(before: str, after: str) -> list[str]:
    """The lines of a unified diff, without the names of the files."""
    import difflib

    return list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2))[2:]


def about_block(raw: dict[str, Any]) -> str:
    """What a block that is not text holds, in a few words: its type, its place, its size."""
    resource = raw.get("resource")
    uri = raw.get("uri") or (resource.get("uri") if isinstance(resource, dict) else None)
    data = raw.get("data")
    parts = [raw.get("mimeType"), uri, size(int(len(data) / _BASE64)) if isinstance(data, str) else None]
    return ", ".join(str(part) for part in parts if part)


# With all content ---------------------------------------------------------------------------------------------


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


# What is only in the spool ------------------------------------------------------------------------------------


def spool_mark(store: SnapshotStore, session_id: str) -> tuple[int, ...]:
    """Return a value that changes whenever the spool does; empty if there is no spool."""
    from snapshot_plugin.live.place import place_of

    place = place_of(store) if store.capabilities.live else None
    return place.spool_mark(session_id) if place else ()


def spooled(store: SnapshotStore, session_id: str) -> Spooled | None:
    """The session with its spool applied; None if the spool adds nothing, or cannot be applied. Changes nothing."""
    from snapshot_plugin.live.place import place_of
    from snapshot_plugin.live.recovery import with_spool

    if not spool_mark(store, session_id):
        return None
    try:
        found = with_spool(store.sync, place_of(store), session_id, now=datetime.now(UTC), more={})
    except SnapshotError:  # asnap recover explains what cannot be applied
        return None
    return found if found.records else None
