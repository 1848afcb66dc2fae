"""A model on loopback that does what the prompt says, and remembers every request it got.

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

from integration.agents.dialects import (
    Call,
    Tool,
    Turn,
    chat_events,
    chat_turn,
    responses_events,
    responses_turn,
)

__all__ = ["ScriptedModel"]

_DIRECTIVE = re.compile(r"\[\[(say|stream|run|write|call) ([\w-]+) ?([^\]]*)\]\]")
_SHELLS = ("bash", "run_shell_command", "exec_command", "shell_command", "shell", "execute")
_WRITERS = ("write", "write_file")
_PAUSE = 0.03


class _Reply(NamedTuple):
    pieces: tuple[str, ...]
    call: Call | None
    pause: float


class ScriptedModel:
    """Serves on a free loopback port while it is entered. `requests` are the bodies it got, in order."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self._calls = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
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
        """What the model says to *turn*. Without tools it is asked for a title or the like."""
        found = _DIRECTIVE.findall(turn.words)
        if not turn.tools or not found:
            return _Reply(("A title",), None, 0)
        what, tag, rest = found[-1]
        if what == "say":
            return _Reply((f"answer-{tag}.",), None, 0)
        if what == "stream":
            return _Reply(tuple(f"{tag}-{n:03d} " for n in range(1, int(rest) + 1)), None, _PAUSE)
        if turn.answered:
            return _Reply((f"after-{tag}.",), None, 0)
        self._calls += 1
        call = _call(f"call_{self._calls:04d}", turn.tools, what, rest)
        return _Reply((f"before-{tag}.",), call, 0)


def _call(call_id: str, tools: tuple[Tool, ...], what: str, rest: str) -> Call | None:
    if what == "call":
        name, _, arguments = rest.partition(" ")
        offered = [tool.name for tool in tools if tool.name.endswith(name)]
        return Call(call_id, offered[0], json.loads(arguments or "{}")) if offered else None
    by_name = {tool.name: tool for tool in tools}
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


def _handler(model: ScriptedModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send("application/json", json.dumps({"object": "list", "data": [{"id": "fake-model"}]}))

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            body = json.loads(raw)
            responses = self.path.endswith("/responses")
            turn = responses_turn(body) if responses else chat_turn(body)
            if turn.tools:
                model.requests.append(json.dumps(body, ensure_ascii=False))
            reply = model.reply(turn)
            if not body.get("stream"):
                self._send("application/json", _whole(reply))
                return
            pieces = _paced(reply)
            self._stream(responses_events(pieces, reply.call) if responses else chat_events(pieces, reply.call))

        def _send(self, kind: str, text: str) -> None:
            data = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", kind)
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
                return  # the agent was killed: that is what we are here for

        def log_message(self, *_arguments: Any) -> None:
            """Nothing on stderr."""

    return Handler


def _paced(reply: _Reply) -> Iterator[str]:
    for piece in reply.pieces:
        yield piece
        time.sleep(reply.pause)


def _whole(reply: _Reply) -> str:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(reply.pieces)}
    if reply.call:
        function = {"name": reply.call.name, "arguments": json.dumps(reply.call.arguments)}
        message["tool_calls"] = [{"id": reply.call.id, "type": "function", "function": function}]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if reply.call else "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
    answer = {"id": "chatcmpl-scripted", "object": "chat.completion", "created": 1, "model": "fake-model"}
    return json.dumps({**answer, "choices": [choice], "usage": usage})
