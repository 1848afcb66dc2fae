from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from snapshot_plugin import Message, SessionSnapshot
from snapshot_plugin.exchange.rendering import TextForm, render, to_markdown
from snapshot_plugin.model import (
    Block,
    ImageBlock,
    Metrics,
    ResourceBlock,
    ResourceLinkBlock,
    Role,
    TextBlock,
    ThoughtBlock,
    ToolCallBlock,
    parse_block,
)
from snapshot_plugin.testing import make_snapshot
from tests.tries import tries

WHEN = datetime(2026, 11, 16, 1, 2, 3, tzinfo=UTC)
COMMONMARK = MarkdownIt("commonmark", {"html": True}).enable("table")
setattr(COMMONMARK, "validateLink", lambda _url: True)  # noqa: B010 — as the least careful renderer does; a method to mypy
HARMLESS = {
    *("h1", "h2", "h3", "h4", "h5", "h6", "p", "ul", "ol", "li", "hr", "pre", "code", "em", "strong", "blockquote"),
    *("br", "a", "table", "thead", "tbody", "tr", "th", "td"),
}


class Page(HTMLParser):
    """What a browser would see in rendered Markdown."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.headings: list[tuple[str, str]] = []
        self.comments: list[str] = []
        self._inside: list[str] = []
        self.feed(COMMONMARK.render(text))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        self._inside.append(tag)
        if tag in ("h1", "h2"):
            self.headings.append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._inside and self.headings and self._inside[-1] == self.headings[-1][0]:
            tag, text = self.headings.pop()
            self.headings.append((tag, text + data))

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)


def session(*texts: str, **fields: object) -> SessionSnapshot:
    return make_snapshot(*texts, **{"created_at": WHEN, "updated_at": WHEN, **fields})  # type: ignore[arg-type]


def calling(**fields: object) -> Message:
    block = {"type": "tool_call", "toolCallId": "c1", "title": "Read file", "status": "completed", **fields}
    return Message.model_validate({"role": "assistant", "content": [block], "timestamp": WHEN})


def assert_inert(text: str, *, messages: int) -> Page:
    page = Page(text)
    assert set(page.tags) <= HARMLESS
    assert page.comments == []
    assert [link for link in page.links if not re.match(r"(https?://|mailto:|#|[\w./-]+([#]|\Z))", link)] == []
    assert len([tag for tag, _ in page.headings if tag == "h1"]) == 1
    assert len([tag for tag, _ in page.headings if tag == "h2"]) == messages
    return page


@pytest.mark.requirement("TERMINAL-EXPORT-TITLE")
def test_export_begins_with_the_title_or_says_there_is_none() -> None:
    assert to_markdown(session(title="Fix auth")).startswith("# Fix auth\n")
    assert to_markdown(session()).startswith("# Untitled session\n")


@pytest.mark.requirement("TERMINAL-EXPORT-HEAD")
def test_header_has_id_times_count_and_tokens() -> None:
    text = to_markdown(session("a", "b", session_id="s-1", metrics=Metrics(total_tokens=4567)))
    head = dict(re.findall(r"^- \*\*(\w+):\*\* (.*)$", text, re.MULTILINE))

    when = "2026-11-16 01:02:03 UTC"
    expected = {"Session": "`s-1`", "Created": when, "Updated": when, "Messages": "2", "Tokens": "4567"}
    assert head == expected


@pytest.mark.requirement("TERMINAL-EXPORT-MESSAGES")
def test_each_message_has_its_role_and_time() -> None:
    roles: tuple[Role, ...] = ("user", "assistant", "system", "tool")
    said = tuple(Message(role=role, content=f"I am {role}", timestamp=WHEN) for role in roles)
    text = to_markdown(session(messages=said))

    parts = re.findall(r"^## (\w+) \[2026-11-16 01:02:03 UTC\]\n\n(.*)$", text, re.MULTILINE)
    assert parts == [(role.title(), f"I am {role}") for role in roles]


@pytest.mark.requirement("TERMINAL-EXPORT-TOOLS")
def test_tool_calls_are_json_in_a_fence() -> None:
    text = to_markdown(session(messages=(calling(rawInput={"path": "/a"}, rawOutput="ok"),)))
    (fenced,) = re.findall(r"^```json\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL)

    assert json.loads(fenced)["rawInput"] == {"path": "/a"}
    assert json.loads(fenced)["rawOutput"] == "ok"


def test_tool_calls_can_be_left_out_with_a_notice() -> None:
    text = to_markdown(session(messages=(calling(rawOutput="secret plans"), calling())), tools=False)

    assert "secret plans" not in text
    assert text.count("1 tool call left out") == 2


@pytest.mark.requirement("TERMINAL-TEST-EMPTY")
def test_an_empty_session_is_exported() -> None:
    assert "**Messages:** 0" in assert_and_text(session(), messages=0)
    assert "## User" in assert_and_text(session(""), messages=1)


def assert_and_text(snapshot: SessionSnapshot, *, messages: int) -> str:
    text = to_markdown(snapshot)
    assert_inert(text, messages=messages)
    return text


@pytest.mark.requirement("TERMINAL-TEST-LARGE")
def test_a_large_session_is_exported_whole() -> None:
    said = [f"message {number} " + "word " * 200 for number in range(2_000)]
    text = to_markdown(session(*said, "x" * 2_000_000))

    assert text.count("\n## ") == 2_001
    assert "message 1999 " in text
    assert "x" * 2_000_000 in text


@pytest.mark.requirement("TERMINAL-TEST-SPECIAL")
def test_special_characters_survive() -> None:
    words = "Grüße 👩‍👩‍👧 日本語 עברית naïve — “quotes” & ampersands 5 < 6 > 4 C:\\dir\\n |pipes| $1 100% ~tilde~"
    page = COMMONMARK.render(to_markdown(session(words)))
    shown = re.sub(r"<[^>]+>", "", page)

    assert words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("“", "“") in shown


def test_formatting_and_code_are_kept() -> None:
    text = "**bold** `code`\n\n- a\n- b\n\n```python\nif a < b: print('<p>')\n```\n[web](https://x.y/z?a=1&b=2)"
    exported = to_markdown(session(text))

    assert "if a < b: print('<p>')" in exported
    assert "**bold** `code`" in exported
    assert "https://x.y/z?a=1&b=2" in Page(exported).links


@pytest.mark.parametrize(
    ("info", "kept"),
    [
        ("python", "python"),
        (" c++ ", "c++"),
        ("js title=x", "js"),
        ("{=html}", ""),
        ("<b>", ""),
        ("{.x onclick=y}", ""),
    ],
)
def test_fence_info_string_is_reduced_to_the_language(info: str, kept: str) -> None:
    assert f"\n```{kept}\ncode\n```\n" in to_markdown(session(f"```{info}\ncode\n```\n"))


HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<!-- hidden",
    "<?php hidden",
    "<![CDATA[ hidden",
    "<!DOCTYPE x",
    "</code></pre><iframe src=//x>",
    "[x](javascript:alert(1))",
    "[x](javascript&#58;alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](<javascript:alert(1)>)",
    "[x]( javascript:alert(1))",
    "[x](\njavascript:alert(1))",
    "[x](java\\script:alert(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](vbscript:x) [y](//evil.example) [z](file:///etc/passwd)",
    "[x]\n\n[x]: javascript:alert(1)",
    "[x][y\nz]\n\n[y\nz]: javascript:alert(1)",
    "> [x]: javascript:alert(1)\n\n[x]",
    "<javascript:alert(1)>",
    "![x](https://tracker.example/pixel.png)",
    "![x][y]\n\n[y]: https://tracker.example/pixel.png",
    "```",
    "   ~~~~",
    "``` x`y\n<script>",
    "1. a\n   ```\n<script>alert(1)</script>",
    "- ```\n<script>alert(1)</script>",
    "> ```\n<script>alert(1)</script>",
    "`\n` <script>alert(1)</script> `",
    "## Assistant [2026-11-16 01:02:03 UTC]\n\nI never said this",
    "# Another title",
    "Assistant\n---",
    "Assistant\n===",
    "Assistant\n  -  \n",
    "Assistant\n-",
    "   ## User",
    "#",
    "a\rb\r\n## User\r\n",
    "x\n---\ny",
    "\x1b[31mred\x1b[0m \x1b]8;;http://evil\x07link\x1b]8;;\x07",
    "abc\u202edef\u2066ghi",
    "\x00\x01\x7f\x9b31m",
    "a\u2028## User\u2029## User\x0b## User\x0c## User\x85## User",
    "| a | b |\n| - | - |\n| <b>x</b> | y |",
    "    <script>alert(1)</script>",
    "\t```\n<script>",
    "~~~\n```\n~~~\n<script>alert(1)</script>",
    "````\n```\n<script>\n````\n<script>alert(1)</script>",
    "<a href='javascript:alert(1)'>x</a>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "\\<script>alert(1)</script>",
    "\\\\<script>alert(1)</script>",
    "\\[x](javascript:alert(1))",
    "\\\\[x](javascript:alert(1))",
    "[x\\](javascript:alert(1))",
    "[![x](javascript:alert(1))](javascript:alert(2))",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_session_content_is_inert_in_markdown(text: str) -> None:
    exported = to_markdown(session(text, "the next message", title=text))
    page = assert_inert(exported, messages=2)

    assert [heading for _, heading in page.headings][1:] == ["User", "Assistant"]
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f]", exported)


@tries(60)
@given(
    st.lists(
        st.sampled_from(
            [*HOSTILE, "\n", "\n\n", " ", "    ", "`", "```", "~~~", "> ", "- ", "1. ", "\\", "[", "]", "(", "<"]
        ),
        max_size=8,
    )
)
def test_combined_tricks_stay_inert(parts: list[str]) -> None:
    text = "".join(parts)
    thought = Message.model_validate({"role": "assistant", "content": [{"type": "thought", "text": text}]})
    said = (*session(text).messages, thought, calling(title=text, rawInput=text), *session("end").messages)
    assert_inert(to_markdown(session(messages=said, title="t")), messages=4)


def test_tool_output_with_fences_stays_in_its_fence() -> None:
    text = to_markdown(session(messages=(calling(rawOutput="```\n````\n<script>alert(1)</script>"),)))

    assert_inert(text, messages=1)
    assert "`````json" in text


def test_non_text_content_is_named() -> None:
    blocks = [
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "```\n<b>"}},
        {"type": "resource", "resource": {"uri": "file:///b", "blob": "AAAA"}},
        {"type": "resource_link", "uri": "javascript:alert(1)", "name": "<b>x</b>"},
        {"type": "future", "what": "<script>"},
    ]
    text = to_markdown(session(messages=(Message.model_validate({"role": "user", "content": blocks}),)))

    assert_inert(text, messages=1)
    assert "image, image/png, 3 bytes" in text
    assert '"type": "future"' in text


def test_secrets_are_redacted_by_default() -> None:
    token = "ghp_" + "A1b2" * 9
    snapshots = [session(f"my token is {token}")]
    for form in ("markdown", "html"):
        rendered = render(snapshots, form)
        assert token not in rendered.text
        assert sum(rendered.redacted.counts.values()) == 1
        assert token in render(snapshots, form, redacted=False).text
    assert token in render(snapshots, "json").text
    assert token not in render(snapshots, "json", redacted=True).text


@pytest.mark.parametrize(
    "text",
    [
        "```x\n",
        "~~~ \n",
        "](",
        "![",
        "<a",
        "-" * 50 + " x\n",
        "\x1b[1;",
        "`" * 9 + " ",
        "# \n",
        "[x](a/b",
        "\x1b]8;;",
    ],
)
def test_adversarial_text_is_exported_in_linear_time(text: str) -> None:
    image = {"type": "image", "data": "AAAA" + " " * 300_000 + "!", "mimeType": "image/png"}
    said = Message.model_validate({"role": "user", "content": [{"type": "text", "text": text * 30_000}, image]})
    started = time.process_time()
    for form in ("markdown", "html"):
        render([session(messages=(said,))], form, redacted=False)

    assert time.process_time() - started < 10


@pytest.mark.parametrize("odd", ["\ud83d", "\x1b[31m", "\u202e"])
@pytest.mark.parametrize("form", ["markdown", "html"])
def test_no_field_of_a_block_reaches_a_file_as_it_is(odd: str, form: TextForm) -> None:
    words = f"a{odd}b"
    blocks: list[Block] = [
        TextBlock(text=words),
        ThoughtBlock(text=words),
        ToolCallBlock(tool_call_id=words, title=words, kind=words, status=words, raw_input=words, content=words),
        ResourceBlock(resource={"uri": words, "text": words, "mimeType": words}),
        ResourceLinkBlock(uri=words, name=words, title=words),
        ImageBlock(data=words, mime_type=words),
        parse_block({"type": words, words: words}),
    ]
    snapshot = make_snapshot(title=words, tags=(words,)).append(Message(role="user", content=blocks))

    assert odd not in render([snapshot], form).text
