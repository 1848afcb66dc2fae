"""Serve until the client leaves, a signal comes, or the caller cancels; then write the memory."""

from __future__ import annotations

import hmac
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from socket import create_server
from socket import socket as Socket  # noqa: N812 — a class
from typing import Any, Final

import anyio
from mcp.server.mcpserver import MCPServer
from starlette.types import ASGIApp, Receive, Scope, Send

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.manager.signals import LastGasp
from snapshot_plugin.memory.server.project import ServedProject
from snapshot_plugin.memory.server.server import MemoryServer
from snapshot_plugin.store.base import SnapshotStore

__all__ = ["LOOPBACK", "PATH", "http_app", "serve_http", "serve_stdio"]

LOOPBACK: Final = "127.0.0.1"
PATH: Final = "/mcp"
_SHORTEST_TOKEN: Final = 16


async def serve_stdio(project: ServedProject, store: SnapshotStore, *, all_projects: bool = False) -> None:
    """Serve one client on standard input and output."""
    # A read of the terminal cannot be cancelled, so Ctrl-C ends the process as SIGTERM does: after writing.
    signal.signal(signal.SIGINT, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    await _serve(
        MemoryServer(project, store, all_projects=all_projects), store, lambda server: server.run_stdio_async()
    )


async def serve_http(
    project: ServedProject,
    store: SnapshotStore,
    *,
    port: int,
    token: str,
    ready: Callable[[str], None],
    all_projects: bool = False,
) -> None:
    """Serve any number of clients on this machine that know *token*; *ready* is told the address.

    Raises:
        InvalidInput: the token is too short, or the port is taken.
    """
    import uvicorn  # noqa: PLC0415 — only needed for HTTP

    _refuse_short(token)
    with _listening(port) as socket:  # from now on clients can connect, even before they are served

        async def run(server: MCPServer[Any]) -> None:
            config = uvicorn.Config(http_app(server, token=token), log_level="warning")
            ready(f"http://{LOOPBACK}:{socket.getsockname()[1]}{PATH}")
            await uvicorn.Server(config).serve(sockets=[socket])

        await _serve(MemoryServer(project, store, all_projects=all_projects), store, run)


def _listening(port: int) -> Socket:
    try:
        return create_server((LOOPBACK, port))
    except OSError as error:
        raise InvalidInput(
            f"port {port} cannot be used: {error.strerror}", hint="choose another; 0 is any that is free"
        ) from error


async def _serve(
    server: MemoryServer, store: SnapshotStore, run: Callable[[MCPServer[Any]], Awaitable[None]]
) -> None:
    # The store is not opened before a tool needs it: the memory works without one, and without its key.
    project = server.project
    project.announce()
    async with aclosing(store), anyio.create_task_group() as tasks:
        if LastGasp.is_possible():
            tasks.start_soon(LastGasp(project.aclose).run)
        tasks.start_soon(project.run)
        try:
            await run(server)
        finally:
            with anyio.CancelScope(shield=True):
                await project.aclose()
            tasks.cancel_scope.cancel()


def http_app(server: MCPServer[Any], *, token: str) -> ASGIApp:
    """The server as an ASGI application that answers only requests with ``Authorization: Bearer <token>``.

    Requests under a foreign host name or from a foreign origin are refused by the SDK, so no web page gets in.
    """
    _refuse_short(token)
    return _WithToken(server.streamable_http_app(streamable_http_path=PATH, host=LOOPBACK), token)


def _refuse_short(token: str) -> None:
    if len(token) < _SHORTEST_TOKEN:
        raise InvalidInput(f"the token has fewer than {_SHORTEST_TOKEN} characters", hint="use a long random one")


class _WithToken:
    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._may(scope):
            await self._app(scope, receive, send)
            return
        headers = [(b"www-authenticate", b"Bearer"), (b"content-type", b"text/plain"), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def _may(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self._expected)
