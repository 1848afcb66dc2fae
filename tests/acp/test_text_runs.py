"""Runs of text chunks: read as one message, recorded as the same session, passed on byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin.acp.messages import Message, TextRuns, parse
from tests.acp.events import prompt, recorded, said, stop, tool, update
from tests.tries import tries

Json = dict[str, Any]


def line(event: Json, session_id: str = "s", *, ascii_only: bool = True, **more: Any) -> bytes:
    params = {"sessionId": session_id, "update": event.get("update"), **more}
    message = {"jsonrpc": "2.0", "method": "session/update", "params": params}
    return json.dumps(message, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass") + b"\n"


def read(*reads: bytes, joined: bool = True) -> list[tuple[Message | None, bytes]]:
    runs = TextRuns(lambda _session: joined)
    return [each for data in reads for each in runs.read(data)]


def session_of(messages: list[Message | None]) -> Any:
    params = [each.get("params") for each in messages if each is not None]
    updates = [each["update"] for each in params if isinstance(each, dict)]
    return recorded(prompt("go"), *({"update": each} for each in updates), stop()).raw()


_STREAMED = [
    said("one "),
    said(""),
    said("two ", messageId="m-1"),
    said("three ", messageId=None),
    said("hm ", "agent_thought_chunk"),
    said("echo", "user_message_chunk"),
    said("noted ", _meta={"a": 1}),
    update("agent_message_chunk", content={"type": "text", "text": 5}),
    update("agent_message_chunk", content={"type": "text", "text": "annotated", "annotations": {"a": 1}}),
    update("agent_message_chunk", content="no block"),
    update("agent_message_chunk"),
    {"update": None},
    tool("t", "tool_call", title="Read"),
]
_LINES = st.one_of(
    st.sampled_from(_STREAMED).map(line),
    st.text(max_size=6).map(lambda text: line(said(text))),
    st.text('"\\\n/u😀é\x00', max_size=6).map(lambda text: line(said(text), ascii_only=False)),
    st.sampled_from([b"no JSON\n", b"{}\n", b'{"params": 5, "method": "session/update"}\n', b"[1]\n"]),
)


@tries(200)
@given(st.lists(st.lists(_LINES, max_size=6), max_size=4))
def test_joined_chunks_give_the_same_session_byte_for_byte(reads: list[list[bytes]]) -> None:
    lines = [each for lines in reads for each in lines]
    found = read(*(b"".join(lines) for lines in reads))
    assert b"".join(data for _, data in found) == b"".join(lines)
    messages, apart = [message for message, _ in found], [parse(each) for each in lines]
    assert messages.count(None) == apart.count(None)
    assert session_of(messages) == session_of(apart)


def test_neighbouring_chunks_of_one_read_are_one_message() -> None:
    lines = [line(said(text)) for text in ("one ", "two \n", '"three" ', "\\four", "😀")]
    assert len(read(*lines)) == 5
    first, rest = read(b"".join(lines))
    assert first == (parse(lines[0]), lines[0])
    assert rest == (parse(line(said('two \n"three" \\four😀'))), b"".join(lines[1:]))


def test_chunks_of_different_sessions_kinds_or_messages_are_not_joined() -> None:
    lines = [
        *(line(said(text)) for text in "ab"),
        *(line(said(text), "other") for text in "cd"),
        *(line(said(text, "agent_thought_chunk")) for text in "ef"),
        *(line(said(text, messageId=text)) for text in "gh"),
        *(line(said(text, _meta={"x": 1})) for text in "ij"),
        *(line(said(text), _meta={"x": 1}) for text in "kl"),
    ]
    assert [data for _, data in read(b"".join(lines))] == lines


def test_chunks_that_need_separate_handling_are_not_joined() -> None:
    lines = [line(said(text)) for text in "abcd"]
    assert [data for _, data in read(b"".join(lines), joined=False)] == lines


@pytest.mark.parametrize(
    "odd",
    [
        b'a","x":"b', b'a","text":"b', b"\\", b"\\u12", b"\\x", b"\x01", b"\xff", b"\\ud83d", b'"',
    ],
)  # fmt: skip
def test_line_with_unusual_text_is_parsed_on_its_own(odd: bytes) -> None:
    lines = [line(said("@")).replace(b"@", text) for text in (b"one", b"two", odd, b"34", b"five")]
    found = read(b"".join(lines))
    assert b"".join(data for _, data in found) == b"".join(lines)
    alone = [message for message in map(parse, lines) if message is not None]
    texts = [message["params"]["update"]["content"]["text"] for message, _ in found if message is not None]
    assert "".join(texts) == "".join(message["params"]["update"]["content"]["text"] for message in alone)
    assert [message for message, _ in found].count(None) == len(lines) - len(alone)


def test_a_run_continues_line_by_line_under_another_session_id() -> None:
    texts = ["one ", "two \n", '"three" ', "é😀"]
    runs = TextRuns(lambda _session: True)
    shown = b""
    for message, data in runs.read(b"".join(line(said(text), ascii_only=False) for text in texts)):
        assert message is not None
        shown += runs.under("ours", message, data)
    assert [parse(each) for each in shown.splitlines()] == [parse(line(said(text), "ours")) for text in texts]


def test_a_chunk_whose_text_comes_twice_is_not_cut() -> None:
    twice = b'{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk",'
    twice += b'"content":{"type":"text","text":"a","text":"b"}}}}\n'
    assert [data for _, data in read(twice * 3)] == [twice] * 3
