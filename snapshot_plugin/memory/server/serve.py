"""The MCP server. It serves until the client disconnects, a signal arrives, or the caller cancels."""

from __future__ import annotations

import hmac
import json
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from importlib.metadata import version
from socket import create_server
from typing import Any, Final

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.manager.signals import SaveOnSignal
from snapshot_plugin.memory.server.memory_tools import MEMORY_TOOLS, load_session_context
from snapshot_plugin.memory.server.session_tools import SESSION_TOOLS, list_snapshots, resume_plan, show_session
from snapshot_plugin.memory.server.tools import ServedProject, serving

__all__ = ["LOOPBACK", "PATH", "MemoryServer", "http_app", "serve_http", "serve_stdio"]

LOOPBACK: Final = "127.0.0.1"
PATH: Final = "/mcp"
_SHORTEST_TOKEN: Final = 16
_INSTRUCTIONS = """A memory of this project that outlives sessions. Begin with load_session_context. Keep what the \
next session should know: session_store (decisions, conventions, open ends, baselines), record_error, \
observe_endpoint, set_noise; no secrets. compare_baseline finds regressions. search_sessions and show_session look \
into earlier conversations."""


class MemoryServer(MCPServer[Any]):
    """Tools and resources over a project. The caller runs the server, and closes the project and its store."""

    def __init__(self, project: ServedProject) -> None:
        super().__init__(
            name="asnap", title="Agent session memory", instructions=_INSTRUCTIONS, log_level="WARNING",
            version=version("snapshot-plugin"), tools=[*MEMORY_TOOLS, *SESSION_TOOLS],
        )  # fmt: skip
        self.project = project

        async def entry(namespace: str, key: str) -> Any:
            return await (await project.memory()).load(namespace, key)

        async def keys(namespace: str) -> Any:
            return list(await (await project.memory()).list(namespace))

        resources: dict[str, tuple[str, str, Callable[..., Awaitable[Any]]]] = {
            "context": (
                "memory/context", "What earlier sessions left", lambda: load_session_context(project=project)
            ),
            "entry": ("memory/{namespace}/{key}", "An entry", entry),
            "keys": ("memory/{namespace}", "Keys of a namespace", keys),
            "listed": ("sessions", "Stored sessions", lambda: list_snapshots(project=project, limit=100)),
            "session": (
                "sessions/{session_id}", "A session",
                lambda session_id: show_session(project=project, session_id=session_id, limit=50),
            ),
            "plan": (
                "sessions/{session_id}/plan", "A resume plan",
                lambda session_id: resume_plan(project=project, session_id=session_id),
            ),
        }  # fmt: skip
        for name, (uri, title, read) in resources.items():
            self.resource(f"asnap://{uri}", name=name, title=title, mime_type="application/json")(serving(read))

    async def run_stdio_async(self) -> None:
        """See `MCPServer`. A request that cannot be parsed is answered; the SDK would drop it."""
        async with stdio_server() as (read, write), anyio.create_task_group() as tasks:
            onward, parsed = anyio.create_memory_object_stream[SessionMessage | Exception]()

            async def parse() -> None:
                async with onward:
                    async for message in read:
                        answer = _unparsed(message) if isinstance(message, ValidationError) else None
                        await (onward.send(message) if answer is None else write.send(SessionMessage(answer)))

            tasks.start_soon(parse)
            inside = self._lowlevel_server
            await inside.run(parsed, write, inside.create_initialization_options())
            tasks.cancel_scope.cancel()


def _unparsed(error: ValidationError) -> JSONRPCError | None:
    """Build the answer to a line that is not JSON in the SDK's eyes; None if it was no request.

    The standard library accepts what the SDK does not: a lone surrogate, half of a character.
    """
    line = error.errors()[0]["input"]
    try:
        number = json.loads(line)["id"]
    except (KeyError, RecursionError, TypeError, ValueError):
        return None
    what = ErrorData(code=PARSE_ERROR, message=f"this request cannot be read: {error.errors()[0]['msg']}")
    is_id = isinstance(number, str | int) and not isinstance(number, bool)
    return JSONRPCError(jsonrpc="2.0", id=number, error=what) if is_id else None


async def serve_stdio(server: MemoryServer) -> None:
    """Serve one client on standard input and output."""
    await _serve(server, server.run_stdio_async)


async def serve_http(server: MemoryServer, *, port: int, token: str, ready: Callable[[str], None]) -> None:
    """Serve any number of clients on this machine that know *token*; *ready* is called with the address.

    Raises:
        InvalidInput: the token is too short, or the port is taken.
    """
    import uvicorn  # noqa: PLC0415 — only needed for HTTP

    app = http_app(server, token=token)
    try:
        socket = create_server((LOOPBACK, port))  # clients can connect from now on, before the server runs
    except OSError as error:
        raise InvalidInput(
            f"port {port} cannot be used: {error.strerror}", hint="choose another; 0 is any that is free"
        ) from error
    with socket:

        async def run() -> None:
            ready(f"http://{LOOPBACK}:{socket.getsockname()[1]}{PATH}")
            await uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve(sockets=[socket])

        await _serve(server, run)


async def _serve(server: MemoryServer, run: Callable[[], Awaitable[None]]) -> None:
    # Open the store only when a tool needs it: the memory works without a store, and without its key.
    project = server.project
    project.announce()
    async with aclosing(project.store), anyio.create_task_group() as tasks:
        if SaveOnSignal.is_possible():
            tasks.start_soon(SaveOnSignal(project.aclose).run)
            # A terminal read cannot be cancelled, so Ctrl-C is sent on as SIGTERM, which writes before it exits.
            signal.signal(signal.SIGINT, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        try:
            await run()
        finally:
            with anyio.CancelScope(shield=True):
                await project.aclose()
            tasks.cancel_scope.cancel()


def http_app(server: MCPServer[Any], *, token: str) -> ASGIApp:
    """The server as an ASGI application that answers only requests with ``Authorization: Bearer <token>``.

    The SDK refuses requests with another host name or origin, so no web page can reach the server.
    Raises `InvalidInput` if the token is too short.
    """
    if len(token) < _SHORTEST_TOKEN:
        raise InvalidInput(f"the token has fewer than {_SHORTEST_TOKEN} characters", hint="use a long random one")
    return _WithToken(server.streamable_http_app(streamable_http_path=PATH, host=LOOPBACK), token)


class _WithToken:
    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = [value for name, value in scope.get("headers", ()) if name == b"authorization"]
        is_known = len(given) == 1 and hmac.compare_digest(given[0], self._expected)
        if scope["type"] == "lifespan" or is_known:
            await self._app(scope, receive, send)
            return
        headers = [(b"www-authenticate", b"Bearer"), (b"content-type", b"text/plain"), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
