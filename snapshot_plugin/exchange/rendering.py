"""Export sessions as Markdown, HTML or JSON, with or without secrets.

Markdown and HTML are two notations of one projection (`_page`). Session text cannot run code, load or hide
anything, or imitate our own headings. In Markdown, texts keep their formatting, except for HTML, images, links to
anything but the web, and headings that look like ours. In HTML, all text is escaped, and the page allows nothing
but its own style.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Literal, NamedTuple

from snapshot_plugin.inert import plain, readable_json, several
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
from snapshot_plugin.model.redact import RedactionReport, redact
from snapshot_plugin.model.repair import readable
from snapshot_plugin.model.snapshot import Message, SessionSnapshot

__all__ = ["SHARED", "TEXTS", "Rendered", "TextForm", "document_of", "render", "to_html", "to_markdown"]

TextForm = Literal["markdown", "html", "json"]
TEXTS: tuple[TextForm, ...] = ("markdown", "html", "json")
SHARED = frozenset({"markdown", "html"})
"""Formats for sharing: secrets are removed by default."""


class Rendered(NamedTuple):
    """A text, and the report of its redactions."""

    text: str
    redacted: RedactionReport


def render(
    snapshots: Sequence[SessionSnapshot], form: TextForm, *, tools: bool = True, redacted: bool | None = None
) -> Rendered:
    """The sessions as one text. Unless *redacted* is given, the formats in `SHARED` are redacted."""
    report = RedactionReport()
    if form in SHARED if redacted is None else redacted:
        found, report = redact(tuple(snapshots))
        snapshots = found
    if form == "html":
        return Rendered(to_html(snapshots, tools=tools), report)
    if form == "markdown":
        return Rendered("\n".join(to_markdown(snapshot, tools=tools) for snapshot in snapshots), report)
    documents = [document_of(snapshot) for snapshot in snapshots]
    return Rendered(readable_json(documents[0] if len(documents) == 1 else documents) + "\n", report)


def document_of(snapshot: SessionSnapshot) -> dict[str, Any]:
    """The session as a document that `load_document` reads back, in this and every later release."""
    return {"version": snapshot.version, "session_id": snapshot.session_id, **snapshot.raw()}


# What there is to read -------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """A part of a message. All but *text* is safe to show on one line."""

    kind: Literal["text", "thought", "tool", "resource", "image", "note", "json"]
    text: str
    label: str = ""
    """The title of a tool call, the address of a resource, the type of a picture."""
    status: str = ""
    data: str = ""
    """A picture, as base64."""


class _MessageParts(NamedTuple):
    role: str
    at: datetime | None
    parts: tuple[_Part, ...]


class _Page(NamedTuple):
    """A session as something to read."""

    title: str
    facts: dict[str, str]
    """Numbers and times."""
    words: dict[str, tuple[str, ...]]
    """Words of the user or the agent."""
    messages: Iterator[_MessageParts]


def _page(snapshot: SessionSnapshot, *, tools: bool) -> _Page:
    """The session as it is shown. Without *tools*, each message only says how many tool calls there were."""
    agent = snapshot.agent.name if snapshot.agent else None
    words = {"Agent": [agent], "Directory": [snapshot.config.cwd], "Tags": snapshot.tags}
    return _Page(
        plain(snapshot.title or "") or "Untitled session",
        {
            "Created": _moment(snapshot.created_at),
            "Updated": _moment(snapshot.updated_at),
            "Messages": str(len(snapshot.messages)),
            "Tokens": str(snapshot.metrics.total_tokens),
        },
        {name: tuple(plain(word) for word in each if word) for name, each in words.items() if any(each)},
        (_shown(message, tools=tools) for _, message in readable(snapshot.messages)),
    )


def _moment(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _shown(message: Message, *, tools: bool) -> _MessageParts:
    blocks = [block for block in message.content if tools or not isinstance(block, ToolCallBlock)]
    parts = [_part(block) for block in blocks]
    if left_out := len(message.content) - len(blocks):
        parts.append(_Part("note", f"({several(left_out, 'tool call')} left out)"))
    return _MessageParts(message.role, message.timestamp, tuple(parts))


def _part(block: Block) -> _Part:
    if isinstance(block, TextBlock):
        return _Part("text", block.text)
    if isinstance(block, ThoughtBlock) and block.text:
        return _Part("thought", block.text)
    if isinstance(block, ToolCallBlock):
        call = {name: value for name, value in block.raw().items() if name != "type"}
        label, status = plain(block.title or block.tool_call_id), plain(block.status or "open")
        return _Part("tool", readable_json(call), label, status)
    return _attachment(block) or _Part("json", readable_json(block.raw()))


def _attachment(block: Block) -> _Part | None:
    if isinstance(block, ImageBlock | AudioBlock):
        note = f"{block.type}, {plain(block.mime_type)}, {len(block.data) * 3 // 4} bytes"
        data = block.data if isinstance(block, ImageBlock) else ""
        return _Part("image", note, block.mime_type, data=data)
    if isinstance(block, ResourceBlock):
        uri = plain(str(block.resource.get("uri", "")))
        if isinstance(block.resource.get("text"), str):
            return _Part("resource", plain(block.resource["text"], lines=True), uri)
        if "blob" in block.resource:
            return _Part("note", f"resource, {uri}")
    if isinstance(block, ResourceLinkBlock):
        return _Part("note", f"link to {plain(block.title or block.name)} at {plain(block.uri)}")
    return None


# Markdown --------------------------------------------------------------------------------------------------

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
    """The session as a Markdown document: a head, then each message under its role and time."""
    page = _page(snapshot, tools=tools)
    words = {name: ", ".join(map(_code, each)) for name, each in page.words.items()}
    about = {"Session": _code(snapshot.session_id), **page.facts, **words}
    lines = [f"# {_inline(page.title)}", "", *(f"- **{name}:** {value}" for name, value in about.items())]
    lines += ["", "---", ""]
    for message in page.messages:
        time = f" [{_moment(message.at)}]" if message.at else ""
        lines += [f"## {message.role.title()}{time}", ""]
        for part in message.parts:
            lines += [_markdown(part), ""]
    return "\n".join(lines)


def _markdown(part: _Part) -> str:
    if part.kind == "text":
        return _harmless(part.text)
    if part.kind == "thought":
        return "*Thought:*\n\n" + _fenced(plain(part.text, lines=True))
    if part.kind == "tool":
        return f"**Tool call:** {_code(part.label)} ({_inline(part.status)})\n\n{_fenced(part.text, 'json')}"
    if part.kind == "resource":
        return f"*Resource {_code(part.label)}:*\n\n{_fenced(part.text)}"
    if part.kind == "json":
        return _fenced(part.text, "json")
    return f"*{_inline(part.text)}*"


def _harmless(text: str) -> str:
    """*text* with its Markdown made inert; fenced code is unchanged."""
    out: list[str] = []
    for part in _split(text):
        if part.fence:
            out += [part.fence + part.language, *part.lines, part.fence]
        else:
            out += map(_harmless_line, part.lines)
    return "\n".join(out)


class _Stretch(NamedTuple):
    """A part of a text: plain lines, or the code in a fence."""

    lines: list[str]
    fence: str = ""
    language: str = ""
    """The language of the code. Anything else after a fence is dropped, because a renderer may interpret it."""


def _split(text: str) -> list[_Stretch]:
    """A text without terminal control characters, split at its fences. An unclosed fence ends with the text."""
    parts = [_Stretch([])]
    for line in plain(text, lines=True).split("\n"):
        found = _FENCE.match(line)  # an indented fence ends with its list; the fences we write start at the margin
        here = parts[-1]
        if here.fence and found and found[1].startswith(here.fence) and not found[2].strip():
            parts.append(_Stretch([]))
        elif not here.fence and found and not (found[1][0] == "`" and "`" in found[2]):
            language = _LANGUAGE.match(found[2])
            parts.append(_Stretch([], found[1], language[1] if language else ""))
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


def _fenced(text: str, language: str = "") -> str:
    """*text* in a fence that is longer than any inside it."""
    ticks = "`" * max(3, 1 + max((len(run) for run in _TICKS.findall(text)), default=0))
    return f"{ticks}{language}\n{text}\n{ticks}"


# HTML ------------------------------------------------------------------------------------------------------

_STYLE = """
:root { color-scheme: light dark }
:root { --line: #d0d7de; --soft: #f6f8fa; --dim: #59636e; --user: #0969da; --agent: #1a7f37 }
@media (prefers-color-scheme: dark) {
  :root { --line: #3d444d; --soft: #151b23; --dim: #9198a1; --user: #4493f8; --agent: #3fb950 }
}
body { font: 16px/1.55 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem }
h1 { overflow-wrap: anywhere }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; color: var(--dim) }
dd { margin: 0; overflow-wrap: anywhere }
section { border-left: 3px solid var(--line); padding: 0 0 0 1rem; margin: 1.5rem 0 }
section.user { border-color: var(--user) }
section.assistant { border-color: var(--agent) }
h2 { font-size: 1rem; margin: 0 0 .3rem }
time { color: var(--dim); font-weight: normal }
p { margin: .3rem 0; white-space: pre-wrap; overflow-wrap: anywhere }
pre { background: var(--soft); padding: .7rem; overflow-x: auto; border-radius: 6px; font-size: .85rem }
details { margin: .4rem 0 }
summary { cursor: pointer; color: var(--dim); overflow-wrap: anywhere }
img { max-width: 100% }
footer { color: var(--dim); font-size: .85rem; margin: 3rem 0 1rem }
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; img-src data:; base-uri 'none'; form-action 'none'"
_PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


def to_html(snapshots: Sequence[SessionSnapshot], *, tools: bool = True) -> str:
    """The sessions as one page. With *tools*, tool calls are included, folded; without, they are only counted."""
    pages = [(snapshot.session_id, _page(snapshot, tools=tools)) for snapshot in snapshots]
    title = pages[0][1].title if len(pages) == 1 else f"{len(pages)} sessions"
    articles = "\n".join("\n".join(_article(*each)) for each in pages)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
{articles}
<footer>Written by asnap export.</footer>
</body>
</html>
"""


def _article(session_id: str, page: _Page) -> Iterator[str]:
    words = {name: ", ".join(each) for name, each in page.words.items()}
    about = {"Session": plain(session_id), **page.facts, **words}
    yield f"<article>\n<h1>{escape(page.title)}</h1>\n<dl>"
    yield from (f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in about.items())
    yield "</dl>"
    for message in page.messages:
        time = ""
        if message.at:
            stamp = message.at.strftime("%Y-%m-%dT%H:%M:%SZ")
            time = f' <time datetime="{stamp}">{_moment(message.at)}</time>'
        yield f'<section class="{message.role}">\n<h2>{message.role.title()}{time}</h2>'
        yield from map(_html, message.parts)
        yield "</section>"
    yield "</article>"


def _html(part: _Part) -> str:
    if part.kind == "text":
        return _prose(part.text)
    if part.kind == "thought":
        return _folded("Thought", _prose(part.text))
    if part.kind in ("tool", "resource"):
        summary = f"Tool: {part.label} ({part.status})" if part.kind == "tool" else f"Resource {part.label}"
        return _folded(summary, f"<pre>{escape(part.text)}</pre>")
    if part.kind == "json":
        return f"<pre>{escape(part.text)}</pre>"
    data = "".join(part.data.split())
    if part.label in _PICTURES and _BASE64.fullmatch(data):
        return f'<img alt="" src="data:{part.label};base64,{data}">'
    return f"<p><em>{escape(part.text)}</em></p>"


def _folded(summary: str, content: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def _prose(text: str) -> str:
    """A text with its fenced code as code blocks; everything else is shown verbatim."""
    return "".join(map(_paragraph, _split(text)))


def _paragraph(part: _Stretch) -> str:
    words = "\n".join(part.lines).strip("\n")
    if part.fence:
        return f"<pre>{escape(words)}</pre>"
    return f"<p>{escape(words)}</p>" if words.strip() else ""
