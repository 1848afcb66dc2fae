"""JSON-RPC, one message per line: cutting lines, reading them once, and the messages we make ourselves."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import from_json

__all__ = [
    "AUTH_REQUIRED",
    "CANCELLED",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "METHOD_NOT_FOUND",
    "RESOURCE_NOT_FOUND",
    "Lines",
    "Message",
    "encode",
    "failure",
    "notification",
    "parse",
    "request",
    "success",
]

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
CANCELLED = -32800
AUTH_REQUIRED = -32000
RESOURCE_NOT_FOUND = -32002

Message = dict[str, Any]


class Lines:
    """Cuts a byte stream at newlines. A line may be of any length, and cutting it takes time in proportion."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that *data* completes, each with its newline."""
        end = data.rfind(b"\n") + 1
        if not end:
            self._parts.append(data)
            return []
        whole = b"".join([*self._parts, data[:end]])
        self._parts = [data[end:]] if end < len(data) else []
        return whole.splitlines(keepends=True) if b"\r" not in whole else _at_newlines(whole)

    def rest(self) -> bytes:
        """What came after the last newline."""
        return b"".join(self._parts)


def _at_newlines(whole: bytes) -> list[bytes]:
    # splitlines would also cut at a lone carriage return
    return [line + b"\n" for line in whole.split(b"\n")[:-1]]


def parse(line: bytes) -> Message | None:
    """The message a line holds; None for what is not a JSON object.

    ``NaN`` and the like, which are no JSON but which some write, become their names as strings.
    """
    try:
        message = from_json(line, allow_inf_nan=False)
    except ValueError:
        message = _parse_patiently(line)
    return message if isinstance(message, dict) else None


def _parse_patiently(line: bytes) -> Any:
    """The standard library also takes lone surrogates in escapes, deeper nesting, and ``NaN``."""
    try:
        return json.loads(line.decode(), parse_constant=str)
    except (ValueError, RecursionError):
        return None


def encode(message: Message) -> bytes:
    """A message as one line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def request(request_id: str, method: str, params: Message) -> Message:
    """A request of ours."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def notification(method: str, params: Message) -> Message:
    """A notification of ours."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def success(request_id: Any, result: Any) -> Message:
    """Our answer to a request."""
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def failure(request_id: Any, code: int, text: str, data: Any = None) -> Message:
    """Our refusal of a request. Its message is one line, whatever the agent or the client put into *text*."""
    error = {"code": code, "message": " ".join(text.splitlines())}
    return {"jsonrpc": "2.0", "id": request_id, "error": error if data is None else {**error, "data": data}}
