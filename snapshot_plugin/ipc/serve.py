"""Serve a front end over a pipe: one request per line, answers in the same order, until the pipe ends."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import anyio

from snapshot_plugin.errors import InvalidInput, LimitExceeded
from snapshot_plugin.ipc.bridge import Bridge, Reply, refusal
from snapshot_plugin.system.lines import Lines

__all__ = ["chunks_of", "serve"]

_CHUNK = 1 << 16
_MAX_LINE = 64 << 20
_TOO_LONG = b"a line that is too long"


async def serve(
    bridge: Bridge, chunks: AsyncIterator[bytes], send: Callable[[bytes], None], *, limit: int = _MAX_LINE
) -> None:
    """Answer every line of *chunks*, one after the other. A last line without a newline counts, too.

    Returns when *chunks* end, or when the answers can no longer be written.
    """
    lines = Lines(limit, lambda _head, _tail: _TOO_LONG)
    with suppress(BrokenPipeError):
        async for chunk in chunks:
            for line in lines.feed(chunk):
                await _serve_line(bridge, line, send, limit)
        await _serve_line(bridge, lines.rest(), send, limit)


async def _serve_line(bridge: Bridge, line: bytes, send: Callable[[bytes], None], limit: int) -> None:
    if line is _TOO_LONG:
        error = LimitExceeded(f"a line is longer than {limit} bytes; it was not read", hint="send less at a time")
        send(_encoded({**refusal(error), "state": (await bridge.answer({"type": "session_state"}))["state"]}))
    elif line.strip():
        send(_encoded(await bridge.answer(_parsed(line))))


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None  # the bridge refuses it like any malformed request


def _refuse(name: str) -> None:
    raise InvalidInput(f"{name} is not JSON")


def _encoded(reply: Reply) -> bytes:
    return json.dumps(reply, separators=(",", ":")).encode() + b"\n"


async def chunks_of(fd: int) -> AsyncIterator[bytes]:
    """Yield what arrives at a file descriptor until its end. Waiting can be cancelled."""
    while True:
        with suppress(PermissionError):  # a regular file is always ready and cannot be polled
            await anyio.wait_readable(fd)
        data = os.read(fd, _CHUNK)
        if not data:
            return
        yield data
