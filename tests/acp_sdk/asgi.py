"""The SDK's ASGI application, driven without a network: WebSocket and streamable HTTP as client transports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

from acp.http.protocol import (
    ACP_ENDPOINT_PATH,
    CONNECTION_ID_HEADER,
    SESSION_ID_HEADER,
    method_requires_session_header,
    session_id_from_message,
)

__all__ = ["App", "HttpTransport", "WebSocketTransport"]

Json = dict[str, Any]
_PLACE = {"path": ACP_ENDPOINT_PATH, "root_path": "", "query_string": b""}
App = Callable[..., Coroutine[Any, Any, None]]


class WebSocketTransport:
    """One socket."""

    def __init__(self, app: App) -> None:
        self._to_app: asyncio.Queue[Json] = asyncio.Queue()
        self._from_app: asyncio.Queue[Json | None] = asyncio.Queue()
        self._to_app.put_nowait({"type": "websocket.connect"})
        self._running = asyncio.create_task(
            app({"type": "websocket", "headers": [], **_PLACE}, self._to_app.get, self._take)
        )

    async def _take(self, event: Json) -> None:
        if event["type"] == "websocket.send":
            await self._from_app.put(json.loads(event["text"]))

    async def send(self, message: Json) -> None:
        await self._to_app.put({"type": "websocket.receive", "text": json.dumps(message)})

    async def receive(self) -> Json | None:
        return await self._from_app.get()

    async def close(self) -> None:
        await self._to_app.put({"type": "websocket.disconnect"})
        await self._running
        await self._from_app.put(None)


class HttpTransport:
    """A POST for each message, an event stream for the connection and each session, as the SDK's client does."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._headers: dict[str, str] = {"content-type": "application/json", "accept": "text/event-stream"}
        self._inbox: asyncio.Queue[Json | None] = asyncio.Queue()
        self._streams: dict[str | None, asyncio.Task[None]] = {}
        self.came_by: list[str | None] = []
        """For each message that was received: which stream it came by. Between streams there is no order."""

    async def send(self, message: Json) -> None:
        headers = dict(self._headers)
        session_id = session_id_from_message(message)
        if method_requires_session_header(message.get("method")) and session_id is not None:
            headers[SESSION_ID_HEADER] = session_id
        status, answered, body = await self._call("POST", headers, json.dumps(message).encode())
        assert status in (200, 202), (status, body, message)
        if status == 200:
            self._headers[CONNECTION_ID_HEADER] = answered[CONNECTION_ID_HEADER.lower()]
            self._open(None)
            await self._inbox.put(json.loads(body))

    async def receive(self) -> Json | None:
        return await self._inbox.get()

    async def close(self) -> None:
        await self._call("DELETE", self._headers, b"")
        await asyncio.gather(*self._streams.values())
        await self._inbox.put(None)

    async def _call(self, method: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        events: list[Json] = []

        async def receive() -> Json:
            return {"type": "http.request", "body": body}

        async def send(event: Json) -> None:
            events.append(event)

        await self._app(_scope(method, headers), receive, send)
        start = events[0]
        answered = {name.decode().lower(): value.decode() for name, value in start["headers"]}
        return start["status"], answered, b"".join(event.get("body", b"") for event in events[1:])

    def _open(self, session_id: str | None) -> None:
        headers = {**self._headers, **({SESSION_ID_HEADER: session_id} if session_id else {})}

        async def send(event: Json) -> None:
            if event.get("status") == 404:
                self._streams.pop(session_id, None)  # it may be offered later
            for line in event.get("body", b"").decode().splitlines():
                if line.startswith("data:"):
                    self.came_by.append(session_id)
                    await self._heard(json.loads(line.removeprefix("data:")))

        async def never() -> Json:
            await asyncio.Event().wait()
            raise AssertionError

        self._streams[session_id] = asyncio.create_task(self._app(_scope("GET", headers), never, send))

    async def _heard(self, message: Json) -> None:
        session_id = session_id_from_message(message)
        if session_id is not None and session_id not in self._streams:
            self._open(session_id)
        await self._inbox.put(message)


def _scope(method: str, headers: dict[str, str]) -> Json:
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": method, "headers": raw, **_PLACE}
