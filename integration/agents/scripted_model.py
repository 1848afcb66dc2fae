"""A model on loopback that does what the prompt says, and keeps every request it got.

=========================  =====================================================================
in the prompt              the model
=========================  =====================================================================
``[[say TAG]]``            answers ``answer-TAG.``
``[[stream TAG n]]``       streams ``TAG-001 TAG-002 …``, n pieces, 30 ms apart
``[[run TAG command]]``    says ``before-TAG.``, runs the command in the agent's shell tool
``[[write TAG path]]``     says ``before-TAG.``, writes a file with the agent's writing tool
``[[call TAG tool {…}]]``  says ``before-TAG.``, calls the tool (by the end of its name) with these arguments
=========================  =====================================================================

The last such directive of the last user message counts. Once a tool has answered, the model says ``after-TAG.``
A request without a directive asks for a summary (``/compact``) or a title; a summary contains `SUMMARY`.
It speaks every dialect of `integration.agents.dialects`; the path of a request chooses.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from integration.agents.dialects import Call, Tool, Turn, dialect_of

__all__ = ["SUMMARY", "ScriptedModel"]

SUMMARY = "summary-of-all-so-far"
_DIRECTIVE = re.compile(r"\[\[(say|stream|run|write|call) ([\w-]+) ?([^\]]*)\]\]")
_ASKS_FOR_SUMMARY = re.compile(r"summar|compact|snapshot", re.IGNORECASE)
_SHELLS = ("bash", "run_shell_command", "exec_command", "shell_command", "shell", "execute")
_WRITERS = ("write", "write_file")
_PAUSE = 0.03
_MODELS = {
    "object": "list",
    "data": [{"id": "fake-model", "object": "model", "type": "model"}],
    "models": [{"name": "models/gemini-2.5-flash"}],
}


class _Reply(NamedTuple):
    pieces: tuple[str, ...]
    call: Call | None = None
    pause: float = 0


class ScriptedModel:
    """Serves on a free loopback port while it is entered. `requests` are the bodies with tools, in order."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.summaries = 0
        """How often it was asked for a summary."""
        self._calls = 0
        self._server = _Server(self)
        self.port = int(self._server.server_address[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True, name="scripted model").start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def reply(self, turn: Turn) -> _Reply:
        """What the model says to *turn*."""
        found = _DIRECTIVE.findall(turn.words)
        if not turn.tools or not found:
            return self._aside(turn)
        what, tag, rest = found[-1]
        if what == "say":
            return _Reply((f"answer-{tag}.",))
        if what == "stream":
            return _Reply(tuple(f"{tag}-{n:03d} " for n in range(1, int(rest) + 1)), pause=_PAUSE)
        if turn.answered:
            return _Reply((f"after-{tag}.",))
        self._calls += 1
        call = _call(f"call_{self._calls:04d}", turn.tools, what, rest)
        return _Reply((f"before-{tag}.",), call)

    def _aside(self, turn: Turn) -> _Reply:
        """A request that is not about the user's prompt: a summary of the conversation, or a title for it."""
        asked = turn.words if turn.tools else f"{turn.system} {turn.words}"
        if not _ASKS_FOR_SUMMARY.search(asked):
            return _Reply(("A title",))
        self.summaries += 1
        return _Reply((f"<summary>{SUMMARY}</summary>",))


def _call(call_id: str, tools: tuple[Tool, ...], what: str, rest: str) -> Call | None:
    if what == "call":
        name, _, arguments = rest.partition(" ")
        offered = [tool.name for tool in tools if tool.name.endswith(name)]
        return Call(call_id, offered[0], json.loads(arguments or "{}")) if offered else None
    by_name = {tool.name.lower(): tool for tool in tools}
    names = _SHELLS if what == "run" else _WRITERS
    tool = next((by_name[name] for name in names if name in by_name), None)
    return Call(call_id, tool.name, _arguments(tool, rest)) if tool else None


def _arguments(tool: Tool, rest: str) -> dict[str, Any]:
    """Fill in the tool's parameters: the command or path where it belongs, something harmless where required."""
    properties = tool.schema.get("properties") or {}
    filled: dict[str, Any] = {}
    for name, schema in properties.items():
        if name in ("command", "cmd", "filePath", "file_path", "path"):
            filled[name] = ["bash", "-lc", rest] if schema.get("type") == "array" else rest
        elif name == "content":
            filled[name] = "written by the model\n"
        elif name in (tool.schema.get("required") or ()):
            filled[name] = {"boolean": False, "number": 1, "integer": 1}.get(str(schema.get("type")), "as asked")
    return filled


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, model: ScriptedModel) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model = model


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._send(_MODELS)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        path = urlsplit(self.path).path
        dialect = dialect_of(path)
        if dialect is None:  # counting tokens, events for statistics: any answer will do
            self._send({"input_tokens": 10, "totalTokens": 10})
            return
        body = json.loads(raw)
        turn = dialect.turn(body)
        if turn.tools:
            self.server.model.requests.append(json.dumps(body, ensure_ascii=False))
        reply, tokens = self.server.model.reply(turn), len(raw) // 4
        if body.get("stream") or path.endswith(":streamGenerateContent"):
            self._stream(dialect.events(_paced(reply), reply.call, tokens))
        else:
            self._send(dialect.whole(reply.pieces, reply.call, tokens))

    def _send(self, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, events: Iterator[str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            for event in events:
                self.wfile.write(event.encode())
                self.wfile.flush()
        except OSError:
            return  # the agent was killed, which is what these runs do

    def log_message(self, *_arguments: Any) -> None:
        """Nothing on stderr."""


def _paced(reply: _Reply) -> Iterator[str]:
    for piece in reply.pieces:
        yield piece
        time.sleep(reply.pause)
