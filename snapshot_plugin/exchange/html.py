"""Export a session as one HTML page. The page loads nothing and runs nothing; session text is escaped."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from html import escape

from snapshot_plugin.exchange.markdown import TextPart, call_of, moment, note_of, parts_of, title_of
from snapshot_plugin.inert import plain, readable_json
from snapshot_plugin.model.content import Block, ImageBlock, ResourceBlock, TextBlock, ThoughtBlock, ToolCallBlock
from snapshot_plugin.model.repair import readable
from snapshot_plugin.model.snapshot import Message, SessionSnapshot

__all__ = ["to_html"]

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
    title = title_of(snapshots[0]) if len(snapshots) == 1 else f"{len(snapshots)} sessions"
    articles = "\n".join("\n".join(_article(snapshot, tools=tools)) for snapshot in snapshots)
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


def _article(snapshot: SessionSnapshot, *, tools: bool) -> Iterator[str]:
    about: dict[str, str | None] = {
        "Session": snapshot.session_id,
        "Created": moment(snapshot.created_at),
        "Updated": moment(snapshot.updated_at),
        "Messages": str(len(snapshot.messages)),
        "Tokens": str(snapshot.metrics.total_tokens),
        "Agent": snapshot.agent.name if snapshot.agent else None,
        "Directory": snapshot.config.cwd,
        "Tags": ", ".join(snapshot.tags),
    }
    yield f"<article>\n<h1>{escape(title_of(snapshot))}</h1>\n<dl>"
    yield from (f"<dt>{name}</dt><dd>{_text(value)}</dd>" for name, value in about.items() if value)
    yield "</dl>"
    for _, message in readable(snapshot.messages):
        yield from _message(message, tools=tools)
    yield "</article>"


def _message(message: Message, *, tools: bool) -> Iterator[str]:
    time = ""
    if message.timestamp:
        stamp = message.timestamp.strftime("%Y-%m-%dT%H:%M:%SZ")
        time = f' <time datetime="{stamp}">{moment(message.timestamp)}</time>'
    yield f'<section class="{message.role}">\n<h2>{message.role.title()}{time}</h2>'
    calls = sum(isinstance(block, ToolCallBlock) for block in message.content)
    for block in message.content:
        if tools or not isinstance(block, ToolCallBlock):
            yield _block(block)
    if calls and not tools:
        yield f"<p><em>({calls} tool call{'s' if calls > 1 else ''} left out)</em></p>"
    yield "</section>"


def _block(block: Block) -> str:
    if isinstance(block, TextBlock):
        return _prose(block.text)
    if folded := _folded(block):
        summary, content = folded
        return f"<details><summary>{_text(summary)}</summary>{content}</details>"
    if isinstance(block, ImageBlock) and block.mime_type in _PICTURES:
        data = "".join(block.data.split())
        if _BASE64.fullmatch(data):
            return f'<img alt="" src="data:{block.mime_type};base64,{data}">'
    if note := note_of(block):
        return f"<p><em>{_text(note)}</em></p>"
    return _json(block.raw())


def _folded(block: Block) -> tuple[str, str] | None:
    """A folded section: its summary line and its content."""
    if isinstance(block, ThoughtBlock) and block.text:
        return "Thought", _prose(block.text)
    if isinstance(block, ToolCallBlock):
        return f"Tool: {block.title or block.tool_call_id} ({block.status or 'open'})", _json(call_of(block))
    if isinstance(block, ResourceBlock) and isinstance(block.resource.get("text"), str):
        content = escape(plain(block.resource["text"], lines=True))
        return f"Resource {block.resource.get('uri', '')}", f"<pre>{content}</pre>"
    return None


def _prose(text: str) -> str:
    """A text with its fenced code as code blocks; everything else is shown verbatim."""
    return "".join(_part(part) for part in parts_of(text))


def _part(part: TextPart) -> str:
    words = "\n".join(part.lines).strip("\n")
    if part.fence:
        return f"<pre>{escape(words)}</pre>"
    return f"<p>{escape(words)}</p>" if words.strip() else ""


def _json(value: object) -> str:
    return f"<pre>{escape(readable_json(value))}</pre>"


def _text(text: str) -> str:
    return escape(plain(text))
