from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import Message, SessionSnapshot
from snapshot_plugin.exchange.rendering import to_html
from snapshot_plugin.model import AgentInfo, SessionConfig
from snapshot_plugin.testing import make_snapshot
from tests.exchange.test_markdown import HOSTILE
from tests.tries import tries

ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "article", "h1", "h2", "dl", "dt", "dd", "section", "p"),
    *("pre", "em", "details", "summary", "time", "footer", "img"),
}
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "datetime", "alt", "src"}


class Page(HTMLParser):
    """Every tag, attribute and text of a page, as a browser would take them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.comments: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def everywhere(text: str) -> SessionSnapshot:
    """A session that says *text* wherever something can be said."""
    blocks = [
        {"type": "text", "text": text},
        {"type": "thought", "text": text},
        {"type": "tool_call", "toolCallId": text, "title": text, "status": text, "rawInput": {text: text}},
        {"type": "resource", "resource": {"uri": text, "text": text}},
        {"type": "resource_link", "uri": text, "name": text},
        {"type": "image", "data": text, "mimeType": "image/png"},
        {"type": "image", "data": "AAAA", "mimeType": text},
        {"type": "unknown", text: text},
    ]
    message = Message.model_validate({"role": "assistant", "content": blocks})
    about: dict[str, Any] = {
        "title": text,
        "tags": (text,),
        "agent": AgentInfo(name=text),
        "config": SessionConfig(cwd=text),
    }
    return make_snapshot(messages=(message,), **about)


def assert_inert(text: str) -> Page:
    page = Page(text)
    assert {tag for tag, _ in page.tags} <= ALLOWED
    assert {name for _, attributes in page.tags for name in attributes} <= ATTRIBUTES
    assert page.comments == []
    sources = [attributes["src"] or "" for _, attributes in page.tags if "src" in attributes]
    assert [
        src for src in sources if not re.fullmatch(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*", src)
    ] == []
    return page


@pytest.mark.parametrize("text", [*HOSTILE, '"><script>', "'><x onclick='", "</title><script>", "</style><script>"])
def test_session_content_is_inert_in_html(text: str) -> None:
    exported = to_html([everywhere(text)])
    page = assert_inert(exported)

    assert page.count("section") == 1
    assert page.count("style") == 1
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f]", exported)


@tries(40)
@given(st.text(max_size=60))
def test_any_text_is_inert_in_html(text: str) -> None:
    exported = to_html([everywhere(text)])
    exported.encode()
    assert_inert(exported)


def test_page_loads_nothing_and_runs_nothing() -> None:
    exported = to_html([make_snapshot("hello")])
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', exported)
    (style,) = re.findall(r"<style>(.*?)</style>", exported, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()

    assert policy.split("; ")[:2] == ["default-src 'none'", f"style-src 'sha256-{digest}'"]
    assert "unsafe" not in policy
    assert not re.search(r"https?:|url\(|@import|<script|<link", exported)


def test_page_supports_light_and_dark() -> None:
    assert "prefers-color-scheme: dark" in to_html([make_snapshot()])


def test_text_is_shown_verbatim() -> None:
    words = "a < b && c > d\n  indented 👩‍👩‍👧 日本語\n\n```python\nprint('<p>')\n```\nafter"
    page = Page(to_html([make_snapshot(words, title="T & U")]))

    assert "a < b && c > d\n  indented 👩‍👩‍👧 日本語" in page.text
    assert "print('<p>')" in page.text
    assert page.count("pre") == 1
    assert "T & U" in page.text


def test_tools_are_folded_or_left_out() -> None:
    call = {"type": "tool_call", "toolCallId": "c", "title": "Read", "status": "completed", "rawOutput": "plans"}
    snapshot = make_snapshot(messages=(Message.model_validate({"role": "assistant", "content": [call]}),))

    assert Page(to_html([snapshot])).count("details") == 1
    assert "plans" in to_html([snapshot])
    assert "plans" not in to_html([snapshot], tools=False)
    assert "1 tool call left out" in to_html([snapshot], tools=False)


def test_pictures_of_known_kinds_are_shown() -> None:
    picture = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
    drawing = {"type": "image", "data": "PHN2Zz4=", "mimeType": "image/svg+xml"}
    snapshot = make_snapshot(messages=(Message.model_validate({"role": "user", "content": [picture, drawing]}),))
    page = assert_inert(to_html([snapshot]))

    assert page.count("img") == 1
    assert "image/svg+xml" in page.text


def test_several_sessions_can_share_a_page() -> None:
    page = Page(to_html([make_snapshot("a", title="One"), make_snapshot("b", title="Two")]))
    assert page.count("article") == 2
