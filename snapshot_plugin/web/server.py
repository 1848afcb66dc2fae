"""The application and its server: one page, its files and the API, on 127.0.0.1 only."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from snapshot_plugin.errors import InvalidInput, SnapshotError
from snapshot_plugin.web import changing, events, reading
from snapshot_plugin.web.answers import failure, refusal
from snapshot_plugin.web.guard import Guard
from snapshot_plugin.web.site import Site

__all__ = ["application", "listening", "new_token", "serve"]

_STATIC = Path(__file__).with_name("static")
_ADDRESS = "127.0.0.1"
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_PAGES = ("/", "/s/{id:path}", "/compare", "/stats", "/trash")


def new_token() -> str:
    """A new random token, which every API request must carry."""
    return secrets.token_urlsafe(24)


def listening(port: int) -> socket.socket:
    """A socket that listens on 127.0.0.1 only; *port* 0 takes any free port.

    Raises:
        InvalidInput: the port is taken, or not allowed.
    """
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((_ADDRESS, port))
        opened.listen(128)
    except (OSError, OverflowError) as error:
        opened.close()
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidInput(f"port {port} cannot be used: {why}", hint="omit --port to use a free one") from error
    return opened


def _files() -> dict[str, Response]:
    """The page's files, read once, because a browser requests all of them before it shows anything."""
    headers = {"cache-control": "no-cache"}
    return {
        path.name: Response(path.read_bytes(), headers=headers, media_type=_TYPES[path.suffix])
        for path in _STATIC.iterdir()
        if path.suffix in _TYPES
    }


def application(site: Site, *, port: int, token: str, patience: float = 10.0) -> Starlette:
    """The application that serves one store. A request's head and body must each come within *patience* seconds."""
    hosts = [f"{_ADDRESS}:{port}", f"localhost:{port}"]
    watcher = events.Watcher(site)

    @asynccontextmanager
    async def watching(_app: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watcher.run)
            tasks.start_soon(site.keep_indexed)
            yield
            tasks.cancel_scope.cancel()

    files = _files()

    async def page(_request: Request) -> Response:
        return files["index.html"]

    async def file(request: Request) -> Response:
        return files.get(request.path_params["name"]) or refusal(404, "not_found", "there is no such file")

    async def failed(_request: Request, error: Exception) -> Response:
        assert isinstance(error, SnapshotError)  # noqa: S101 — registered for it below
        return failure(error, site.place)

    async def missing(_request: Request, _error: Exception) -> Response:
        return refusal(404, "not_found", "there is nothing at this address")

    async def wrong_method(_request: Request, _error: Exception) -> Response:
        return refusal(405, "wrong_method", "this address does not allow this method")

    app = Starlette(
        routes=[
            *reading.ROUTES,
            *changing.ROUTES,
            *events.ROUTES,
            Route("/static/{name}", file),
            *(Route(path, page) for path in _PAGES),
        ],
        middleware=[Middleware(Guard, hosts=hosts, token=token, read_only=site.read_only)],
        exception_handlers={SnapshotError: failed, 404: missing, 405: wrong_method},
        lifespan=watching,
    )
    app.state.site, app.state.watcher, app.state.patience = site, watcher, patience
    return app


class _Impatient(H11Protocol):
    """Closes a connection whose request does not arrive in time: uvicorn has no limit for headers."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._deadline:
            self._deadline.cancel()

    def _watch(self) -> None:
        cycle: Any = self.cycle  # None before the first request
        is_waiting = cycle is None or cycle.response_complete
        if is_waiting and self._deadline is None:
            self._deadline = self.loop.call_later(self.config.app.state.patience, self.transport.close)  # type: ignore[union-attr]
        elif not is_waiting and self._deadline:
            self._deadline.cancel()
            self._deadline = None


async def serve(app: Starlette, opened: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM; open streams end with it."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="on", timeout_graceful_shutdown=1, ws="none",
        http=_Impatient,
    )  # fmt: skip
    await uvicorn.Server(config).serve(sockets=[opened])
