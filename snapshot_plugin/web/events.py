"""Report changes to open pages: one watcher for all pages, and a stream of JSON lines for each.

An event is ``{"type": "changed", "sessions": […], "rows": […]}``, ``gone`` (deleted), ``tail`` (a live session's
spool grew) or ``store`` (the store went away, or came back). ``rows`` has the changed sessions as the list shows
them, so that the page need not request the list again; it is omitted when very many changed at once. A line with
``type: alive`` is sent when nothing changes, so that the page notices a server that has stopped.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectSendStream
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.operations.conversation import spool_mark
from snapshot_plugin.operations.document import plain_json
from snapshot_plugin.operations.sessions import SessionRow
from snapshot_plugin.web.site import Site

__all__ = ["ROUTES", "Watcher"]

_LOOK = 0.1
"""Seconds between two checks of a store on this disk; more if a check takes long."""
_IDLE = 9
"""The pause after a check lasts at least this many times as long as the check."""
_LIST = 3.0
"""Seconds between two checks of any other store, where a check lists the whole store."""
_ALIVE = 10.0
_WAITING = 64
_MANY = 50
"""The most changed sessions that an event carries; for more, the page requests the list."""

Event = dict[str, Any]


class WatchedSession(NamedTuple):
    """A session, the state that a page shows of it, and the mark of its spool."""

    row: SessionRow
    state: tuple[Any, ...]
    spool: tuple[int, ...]


class Watcher:
    """Watches the store while there are listeners, and sends changes to all of them."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._listeners: set[MemoryObjectSendStream[Event]] = set()
        self._wanted = anyio.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        seen: Mapping[str, WatchedSession] | None = None
        while True:
            if not self._listeners:
                seen = None
                self._wanted = anyio.Event()
                await self._wanted.wait()
            begun = anyio.current_time()
            try:
                now = await self._look()
            except (SnapshotError, OSError) as error:
                if seen is not None:
                    self._tell({"type": "store", "problem": getattr(error, "message", str(error))})
                seen = None
            else:
                for event in _changes(seen, now) if seen is not None else ():
                    self._tell(event)
                if seen is None:
                    self._tell({"type": "store", "problem": None})
                seen = now
            least = _LOOK if self._site.root else _LIST
            await anyio.sleep(max(least, _IDLE * (anyio.current_time() - begun)))

    async def _look(self) -> Mapping[str, WatchedSession]:
        rows = await self._site.rows()
        live = [row.session_id for row in rows if row.live is not None or row.ended_unexpectedly]
        spools = await anyio.to_thread.run_sync(self._spools, live) if live else {}
        return {row.session_id: WatchedSession(row, _state(row), spools.get(row.session_id, ())) for row in rows}

    def _spools(self, session_ids: Sequence[str]) -> dict[str, tuple[int, ...]]:
        return {session_id: spool_mark(self._site.store, session_id) for session_id in session_ids}

    def _tell(self, event: Event) -> None:
        for listener in tuple(self._listeners):
            try:
                listener.send_nowait(event)
            except (anyio.WouldBlock, anyio.BrokenResourceError):  # the page does not read; it reloads later
                self._listeners.discard(listener)
                listener.close()

    async def events(self) -> AsyncIterator[Event]:
        """Yield changes from now on."""
        send, receive = anyio.create_memory_object_stream[Event](_WAITING)
        self._listeners.add(send)
        self._wanted.set()
        try:
            yield {"type": "alive"}
            while True:
                event: Event = {"type": "alive"}
                with anyio.move_on_after(_ALIVE):
                    event = await receive.receive()
                yield event
        except anyio.EndOfStream:
            return
        finally:
            self._listeners.discard(send)
            send.close()
            receive.close()


def _state(row: SessionRow) -> tuple[Any, ...]:
    return row.seq, row.saved_at, row.state, row.live.pid if row.live else None, row.ended_unexpectedly


def _changes(before: Mapping[str, WatchedSession], now: Mapping[str, WatchedSession]) -> list[Event]:
    changed = [seen for name, seen in now.items() if name not in before or before[name].state != seen.state]
    grown = [name for name, seen in now.items() if name in before and before[name].spool != seen.spool]
    gone = [name for name in before if name not in now]
    told = {"changed": [seen.row.session_id for seen in changed], "tail": grown, "gone": gone}
    events: list[Event] = [{"type": kind, "sessions": names} for kind, names in told.items() if names]
    if 0 < len(changed) <= _MANY:
        events[0]["rows"] = [plain_json(seen.row) for seen in changed]
    return events


async def _events(request: Request) -> Response:
    watcher: Watcher = request.app.state.watcher

    async def lines() -> AsyncIterator[bytes]:
        async for event in watcher.events():
            yield json.dumps(event).encode() + b"\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson", headers={"cache-control": "no-store"})


ROUTES = [Route("/api/v1/events", _events)]
