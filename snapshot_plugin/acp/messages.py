"""JSON-RPC, one message per line: parse and build messages, and coalesce those of a stream."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pydantic_core import from_json

from snapshot_plugin.system.lines import Lines

__all__ = [
    "AUTH_REQUIRED",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "LINE_BYTES",
    "METHOD_NOT_FOUND",
    "RESOURCE_NOT_FOUND",
    "UNSUPPORTED_VERSION",
    "VERSION",
    "ForeignLines",
    "LongLine",
    "Message",
    "Pending",
    "TextRuns",
    "as_object",
    "asking_for_version_1",
    "chunk",
    "encode",
    "failure",
    "key_of",
    "long_line_text",
    "notification",
    "offered",
    "parse",
    "request",
    "success",
    "text_in",
    "with_whole_error",
]

INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
AUTH_REQUIRED = -32000
RESOURCE_NOT_FOUND = -32002
UNSUPPORTED_VERSION = -32022
LINE_BYTES = 256 << 20
"""Default limit of a message in bytes."""
VERSION = 1
"""The version of the protocol that is recorded."""

_OFFERED = ("list", "resume", "fork", "close", "delete")

Message = dict[str, Any]


class Pending(NamedTuple):
    """A request from one side to the other that is not answered yet."""

    id: Any
    method: str
    session_id: str | None
    params: Message
    note: str | None = None
    """The restoration note that was sent with a prompt."""

    @classmethod
    def of(cls, message: Message) -> Pending:
        """Build it from the request in *message*."""
        params = as_object(message.get("params"))
        named = params.get("sessionId")
        named = named if isinstance(named, str) else None
        return cls(message.get("id"), message["method"], named, params)


def as_object(value: Any) -> Message:
    """Return *value* if it is a JSON object, else an empty one: for fields that may have the wrong type."""
    return value if isinstance(value, dict) else {}


def text_in(update: Message) -> str | None:
    """Return the text of a chunk; None if its content is not text."""
    text = as_object(update.get("content")).get("text")
    return text if isinstance(text, str) else None


def key_of(request_id: Any) -> str:
    """Return a dict key for a request id. An id may be any JSON value; ``1`` and ``"1"`` differ."""
    return repr(request_id)


_TEXT = re.compile(rb'"text"[ \t]*:[ \t]*"([^"\\]*(?:\\.[^"\\]*)*)"')
_INSIDE = re.compile(rb'[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*')
_PROBE = "a text that only this module says"
_OF_A_CHUNK = frozenset({"sessionUpdate", "content", "messageId"})
_CHUNKS = ("agent_message_chunk", "agent_thought_chunk")


_CONTENT = re.compile(rb'"(params|result|error)"\s*:')
_ID = re.compile(rb'"id"\s*:\s*(-?\d+|"(?:[^"\\]|\\.)*")')
_ID_AT_END = re.compile(_ID.pattern + rb"\s*\}\s*$")
_METHOD = re.compile(rb'"method"\s*:\s*("[^"\\]*")')
_SESSION = re.compile(rb'"sessionId"\s*:\s*("(?:[^"\\]|\\.)*")')


def long_line_text(side: str, limit: int) -> str:
    """Say that a message of *side* is too long."""
    return f"the {side} sent a message of more than {limit / (1 << 20):g} MB, which is left out (max_message_bytes)"


class LongLine(NamedTuple):
    """A message that is too long to be read, by the beginning and the end of its line."""

    id: Any
    """The id of a request or an answer; None if there is none."""
    method: str | None
    session_id: str | None

    @classmethod
    def of(cls, head: bytes, tail: bytes) -> LongLine:
        """Read what can be read."""
        content = _CONTENT.search(head)
        before = head[: content.start()] if content else head
        is_answer = content is not None and content[1] != b"params"
        number = _ID.search(before) or (_ID_AT_END.search(tail) if is_answer else None)
        method, session = _METHOD.search(before), _SESSION.search(head)
        return cls(*(json.loads(found[1]) if found else None for found in (number, method, session)))

    def stand_in(self, text: str) -> bytes:
        """Return a line that the other side can handle in its place, and that says so with *text*, if it can."""
        about = {} if self.session_id is None else {"sessionId": self.session_id}
        if self.method is None:
            return b"" if self.id is None else encode(failure(self.id, INTERNAL_ERROR, text))
        if self.method == "session/update" and about:
            return encode(notification(self.method, {**about, "update": chunk(f"[asnap: {text}]\n\n")}))
        return b"" if self.id is None else encode(request(self.id, self.method, about))


class TextRuns:
    """Reads the messages of an agent. Adjacent chunks that differ only in their text are coalesced into one.

    Agents stream text in chunks of a few bytes. A run of chunks is parsed, recorded and reduced once; its bytes are
    those of all its lines. Only chunks from the same read are coalesced, so no chunk waits for another.

    Args:
        may_coalesce: whether chunks of a session, given the agent's id of it, may be coalesced.
        lines: splits what is read.
    """

    def __init__(self, may_coalesce: Callable[[str], bool], lines: Lines | None = None) -> None:
        self._may_coalesce = may_coalesce
        self._lines = lines or Lines()
        self._before = self._behind = b""
        """The bytes before and after the text in the last chunk's line; empty if there was no such chunk."""
        self._session_id = ""

    def read(self, data: bytes) -> Iterator[tuple[Message | None, bytes]]:
        """Yield the messages that *data* completes, each with its bytes; None if a line is not a JSON object."""
        lines = self._lines.feed(data)
        at = 0
        while at < len(lines):
            end = self._end_of_run(lines, at)
            if end > at + 1:
                yield from self._joined(lines[at:end])
            else:
                message = parse(lines[at])
                if end == at and at + 1 < len(lines) and message is not None and _is_chunk(message):
                    self._remember(message, lines[at], lines[at + 1])
                yield message, lines[at]
            at = max(end, at + 1)

    def _end_of_run(self, lines: list[bytes], at: int) -> int:
        """Return the end of the run that starts at *at*; *at* if that line does not match the last chunk."""
        before, behind = self._before, self._behind
        if not before or not self._may_coalesce(self._session_id):
            return at
        start, tail = len(before), len(behind)
        for end in range(at, len(lines)):
            line = lines[end]
            if not (line.startswith(before) and line.endswith(behind)):
                return end
            if not _INSIDE.fullmatch(line, start, len(line) - tail):
                return end
        return len(lines)

    def _joined(self, lines: list[bytes]) -> Iterator[tuple[Message | None, bytes]]:
        whole = b"".join(lines)
        message = parse(whole.replace(self._behind + self._before, b""))
        if message is not None:
            yield message, whole
        else:  # not UTF-8
            yield from ((parse(line), line) for line in lines)

    def under(self, session_id: str, message: Message, data: bytes) -> bytes:
        """Return the bytes of the message read last, line by line, with another session id."""
        params = {**message["params"], "sessionId": session_id}
        if data.find(b"\n") == len(data) - 1:
            return encode({**message, "params": params})
        params["update"] = {**params["update"], "content": {"type": "text", "text": _PROBE}}
        before, _, behind = encode({**message, "params": params}).partition(_PROBE.encode())
        texts = data[len(self._before) : -len(self._behind)]
        return before + texts.replace(self._behind + self._before, behind + before) + behind

    def _remember(self, message: Message, line: bytes, following: bytes) -> None:
        """Remember *line* around its text, if *following* starts like it and the match is certainly the text."""
        found = _TEXT.search(line)
        if found is None or not following.startswith(line[: found.start(1)]):
            return
        before, behind = line[: found.start(1)], line[found.end(1) :]
        params = message["params"]
        content = {"type": "text", "text": _PROBE}
        expected = {**message, "params": {**params, "update": {**params["update"], "content": content}}}
        if parse(before + _PROBE.encode() + behind) == expected:
            self._before, self._behind, self._session_id = before, behind, params["sessionId"]


def _is_chunk(message: Message) -> bool:
    """Whether it is a plain text chunk. A chunk with annotations is not coalesced."""
    try:
        if message["method"] != "session/update" or "id" in message:
            return False
        params = message["params"]
        update, content = params["update"], params["update"]["content"]
        is_text = content.keys() == {"type", "text"} and content["type"] == "text" and type(content["text"]) is str
        is_plain = params.keys() == {"sessionId", "update"} and update.keys() <= _OF_A_CHUNK
        return is_text and is_plain and update["sessionUpdate"] in _CHUNKS and type(params["sessionId"]) is str
    except (AttributeError, KeyError, TypeError):
        return False


def parse(line: bytes) -> Message | None:
    """Parse one line; None if it is not a JSON object.

    ``NaN`` and ``Infinity``, which some agents write although they are not JSON, become strings.
    """
    try:
        message = from_json(line, allow_inf_nan=False)
    except ValueError:
        message = _parse_patiently(line)
    return message if isinstance(message, dict) else None


class ForeignLines:
    """Counts the lines of an agent that are not ACP. Agents write logs to stdout by mistake, some of them many."""

    def __init__(self) -> None:
        self.count, self._next = 0, 1

    def add(self) -> bool:
        """Count one more. Returns whether to report it: the 1st, 10th, 100th and so on."""
        self.count += 1
        is_reported = self.count == self._next
        self._next *= 10 if is_reported else 1
        return is_reported


def _parse_patiently(line: bytes) -> Any:
    """Parse with the standard library, which also accepts lone surrogates, deeper nesting, and ``NaN``."""
    line = line.strip()
    if not (line.startswith(b"{") and line.endswith(b"}")):  # some agents write many such lines
        return None
    try:
        return json.loads(line.decode(), parse_constant=str)
    except (ValueError, RecursionError):
        return None


def encode(message: Message) -> bytes:
    """Serialize a message as one line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def request(request_id: Any, method: str, params: Message) -> Message:
    """Build a request."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def notification(method: str, params: Message) -> Message:
    """Build a notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def chunk(text: str) -> Message:
    """Build the update for agent output *text*."""
    return {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}


def success(request_id: Any, result: Any) -> Message:
    """Build the answer to a request."""
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def failure(request_id: Any, code: int, text: str, data: Message | None = None) -> Message:
    """Build an error answer. Line breaks in *text* become spaces. Some clients show only its ``data.details``."""
    text = " ".join(text.splitlines())
    error = {"code": code, "message": text, "data": {"details": text, **(data or {})}}
    return {"jsonrpc": "2.0", "id": request_id, "error": error}


def with_whole_error(answer: Message) -> Message:
    """Return a valid JSON-RPC error answer, with a code and a text; the same object if it is valid already."""
    error = answer.get("error") or {}
    code, text = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, str(error))
    if isinstance(error, dict) and type(code) is int and isinstance(text, str):
        return answer
    told = text if isinstance(text, str) else "the agent gave no reason"
    return failure(answer.get("id"), code if type(code) is int else INTERNAL_ERROR, told, {"error": error})


def asking_for_version_1(params: Message) -> Message:
    """Return the params of an ``initialize`` that offers a later version as those of one that offers version 1.

    A client names the latest version that it speaks, and decides whether to go on with the earlier one that it is
    answered. Its own fields stay, for an agent that answers with the later version all the same.
    """
    offer = params.get("protocolVersion")
    if type(offer) is not int or offer <= VERSION:
        return params
    given = as_object(params.get("capabilities"))
    able: Message = {name: given[name] for name in ("elicitation", "_meta") if name in given}
    if isinstance(auth := given.get("auth"), dict):
        able["auth"] = {"terminal": isinstance(auth.get("terminal"), dict)}
    named = {"clientInfo": params["info"]} if isinstance(params.get("info"), dict) else {}
    return {"clientCapabilities": able, **named, **params, "protocolVersion": VERSION}


def offered(result: Message) -> Message:
    """Return the agent's `initialize` answer with our capabilities added and nothing else changed."""
    capabilities = as_object(result.get("agentCapabilities"))
    session = as_object(capabilities.get("sessionCapabilities"))
    ours: Message = {name: {} for name in _OFFERED if session.get(name) is None}
    able = {**capabilities, "loadSession": True, "sessionCapabilities": {**session, **ours}}
    return {**result, "agentCapabilities": able}
