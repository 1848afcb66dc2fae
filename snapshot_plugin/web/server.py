"""The application and its server: one page, its files and the API, on 127.0.0.1 only."""

from __future__ import annotations

import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

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


def application(site: Site, *, port: int, token: str) -> Starlette:
    """The application that serves one store."""
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
    app.state.site, app.state.watcher = site, watcher
    return app


async def serve(app: Starlette, opened: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM; open streams end with it."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="on", timeout_graceful_shutdown=1, ws="none",
    )  # fmt: skip
    await uvicorn.Server(config).serve(sockets=[opened])
