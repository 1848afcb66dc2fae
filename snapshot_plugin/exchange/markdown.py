"""Export a session as Markdown. Session text cannot run code, hide text, or imitate our own headings.

Texts keep their formatting, except for HTML, images, links to anything but the web, and headings that look like
ours. Every code fence ends with its message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from snapshot_plugin.inert import plain, readable_json
from snapshot_plugin.model.content import (
    AudioBlock,
    Block,
    ImageBlock,
    ResourceBlock,
    ResourceLinkBlock,
    TextBlock,
    ThoughtBlock,
    ToolCallBlock,
)
from snapshot_plugin.model.repair import readable
from snapshot_plugin.model.snapshot import Message, SessionSnapshot

__all__ = ["TextPart", "call_of", "moment", "note_of", "parts_of", "title_of", "to_markdown"]

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)\Z")
_LANGUAGE = re.compile(r"\s*([\w+#.-]+)(?=\s|\Z)")
_TICKS = re.compile(r"`+")
_OUR_LEVELS = 2
"""The levels of our own headings; headings in texts are moved below them."""
_RULE = 3
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_LINK = re.compile(r"\]\((?!https?://|mailto:|#|[\w./-]+[)#])")
_HEADING = re.compile(r"(\s{0,3})(#{1,6})(?=[ \t]|$)")
_UNDERLINE = re.compile(r"\s{0,3}(?:(-+)|=+)\s*\Z")


def to_markdown(snapshot: SessionSnapshot, *, tools: bool = True) -> str:
    """The session as a Markdown document: a head, then each message under its role and time.

    Args:
        snapshot: the session.
        tools: whether tool calls are written out; without, each message says how many there were.
    """
    return "\n".join([*_head(snapshot), *_body(snapshot.messages, tools=tools)])


def title_of(snapshot: SessionSnapshot) -> str:
    """The session's title, or a placeholder."""
    return plain(snapshot.title or "") or "Untitled session"


def moment(when: datetime) -> str:
    """A time in UTC, for people."""
    return when.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _head(snapshot: SessionSnapshot) -> Iterator[str]:
    yield f"# {_inline(title_of(snapshot))}"
    yield ""
    about: dict[str, str | None] = {
        "Session": _code(snapshot.session_id),
        "Created": moment(snapshot.created_at),
        "Updated": moment(snapshot.updated_at),
        "Messages": str(len(snapshot.messages)),
        "Tokens": str(snapshot.metrics.total_tokens),
        "Agent": _code(snapshot.agent.name) if snapshot.agent and snapshot.agent.name else None,
        "Directory": _code(snapshot.config.cwd) if snapshot.config.cwd else None,
        "Tags": ", ".join(map(_code, snapshot.tags)) or None,
    }
    yield from (f"- **{name}:** {value}" for name, value in about.items() if value)
    yield from ("", "---", "")


def _body(messages: Sequence[Message], *, tools: bool) -> Iterator[str]:
    for _, message in readable(messages):
        time = f" [{moment(message.timestamp)}]" if message.timestamp else ""
        yield f"## {message.role.title()}{time}"
        yield ""
        for block in message.content:
            if tools or not isinstance(block, ToolCallBlock):
                yield from _block(block)
        left_out = 0 if tools else sum(isinstance(block, ToolCallBlock) for block in message.content)
        if left_out:
            yield from (f"*({left_out} tool call{'s' if left_out > 1 else ''} left out)*", "")


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, TextBlock):
        yield harmless(block.text)
    elif isinstance(block, ThoughtBlock) and block.text:
        yield from ("*Thought:*", "", fenced(plain(block.text, lines=True)))
    elif isinstance(block, ToolCallBlock):
        status = _inline(plain(block.status or "open"))
        yield f"**Tool call:** {_code(block.title or block.tool_call_id)} ({status})"
        yield ""
        yield fenced(readable_json(call_of(block)), "json")
    elif isinstance(block, ResourceBlock) and isinstance(block.resource.get("text"), str):
        yield f"*Resource {_code(str(block.resource.get('uri', '')))}:*"
        yield ""
        yield fenced(plain(block.resource["text"], lines=True))
    elif note := note_of(block):
        yield f"*{_inline(note)}*"
    else:
        yield fenced(readable_json(block.raw()), "json")
    yield ""


def call_of(block: ToolCallBlock) -> dict[str, Any]:
    """A tool call as shown: its title, input and output."""
    raw = block.raw()
    return {name: value for name, value in raw.items() if name != "type"}


def note_of(block: Block) -> str | None:
    """A note for content that text cannot show; None if its JSON should be shown."""
    if isinstance(block, ImageBlock | AudioBlock):
        return f"{block.type}, {plain(block.mime_type)}, {len(block.data) * 3 // 4} bytes"
    if isinstance(block, ResourceBlock) and "blob" in block.resource:
        return f"resource, {plain(str(block.resource.get('uri', '')))}"
    if isinstance(block, ResourceLinkBlock):
        return f"link to {plain(block.title or block.name)} at {plain(block.uri)}"
    return None


# Texts -----------------------------------------------------------------------------------------------------


def harmless(text: str) -> str:
    """*text* with its Markdown made inert; fenced code is unchanged."""
    out: list[str] = []
    for part in parts_of(text):
        if part.fence:
            out += [part.fence + part.language, *part.lines, part.fence]
        else:
            out += map(_harmless_line, part.lines)
    return "\n".join(out)


class TextPart(NamedTuple):
    """A part of a text: plain lines, or the code in a fence."""

    lines: list[str]
    fence: str = ""
    language: str = ""
    """The language of the code. Anything else after a fence is dropped, because a renderer may interpret it."""


def parts_of(text: str) -> list[TextPart]:
    """A text without terminal control characters, split at its fences. An unclosed fence ends with the text."""
    parts = [TextPart([])]
    for line in plain(text, lines=True).split("\n"):
        found = _FENCE.match(line)  # an indented fence ends with its list; the fences we write start at the margin
        here = parts[-1]
        if here.fence and found and found[1].startswith(here.fence) and not found[2].strip():
            parts.append(TextPart([]))
        elif not here.fence and found and not (found[1][0] == "`" and "`" in found[2]):
            language = _LANGUAGE.match(found[2])
            parts.append(TextPart([], found[1], language[1] if language else ""))
        else:
            here.lines.append(line)
    return parts


def _harmless_line(line: str) -> str:
    if underline := _UNDERLINE.match(line):
        # Below a line of text these would make it a heading.
        return "* * *" if underline[1] and len(underline[1]) >= _RULE else "\\" + line.strip()
    line = _HEADING.sub(lambda found: found[1] + "#" * min(6, len(found[2]) + _OUR_LEVELS), line, count=1)
    return _inline(line)


def _inline(text: str) -> str:
    """One line without HTML, without pictures, and without links to anything but the web."""
    text = _TAG.sub("&lt;", text).replace("![", "!\\[").replace("]:", "]\\:")
    return _LINK.sub(r"]\\(", text)


def _code(text: str) -> str:
    """*text* as inline code, whatever backticks it holds."""
    text = plain(text)
    ticks = "`" * (1 + max((len(run) for run in _TICKS.findall(text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}" if text else "—"


def fenced(text: str, language: str = "") -> str:
    """*text* in a fence that is longer than any inside it."""
    ticks = "`" * max(3, 1 + max((len(run) for run in _TICKS.findall(text)), default=0))
    return f"{ticks}{language}\n{text}\n{ticks}"
