"""What changes while the page is open: one watcher for all pages, and a stream of JSON lines for each.

An event is ``{"type": "changed", "sessions": […]}``, ``gone`` (deleted), ``tail`` (a live session's spool grew) or
``store`` (the store went away, or came back). A line with ``type: alive`` comes when nothing else did, so that the
page notices a server that is gone.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectSendStream
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.operations.session_rows import SessionRow
from snapshot_plugin.operations.spooled import spool_mark
from snapshot_plugin.web.site import Site

__all__ = ["ROUTES", "Watcher"]

_LOOK = 0.25
"""Seconds between two looks at a store on this disk."""
_LIST = 3.0
"""Seconds between two lists of a store elsewhere, where a look is a list."""
_ALIVE = 10.0
_WAITING = 64

Event = dict[str, Any]
Seen = dict[str, tuple[Any, ...]]


class Watcher:
    """Looks at the store while anybody listens, and tells all of them what changed."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._listeners: set[MemoryObjectSendStream[Event]] = set()
        self._wanted = anyio.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        seen: Seen | None = None
        while True:
            if not self._listeners:
                seen = None
                self._wanted = anyio.Event()
                await self._wanted.wait()
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
            await anyio.sleep(_LOOK if self._site.root else _LIST)

    async def _look(self) -> Seen:
        rows = await self._site.rows()
        spools = await anyio.to_thread.run_sync(self._spools, [row.session_id for row in rows if _has_spool(row)])
        return {row.session_id: (_state(row), spools.get(row.session_id, ())) for row in rows}

    def _spools(self, session_ids: Sequence[str]) -> dict[str, tuple[int, ...]]:
        return {session_id: spool_mark(self._site.store, session_id) for session_id in session_ids}

    def _tell(self, event: Event) -> None:
        for listener in tuple(self._listeners):
            try:
                listener.send_nowait(event)
            except (anyio.WouldBlock, anyio.BrokenResourceError):  # a page that does not read; it reloads later
                self._listeners.discard(listener)
                listener.close()

    async def events(self) -> AsyncIterator[Event]:
        """What changes from now on."""
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


def _has_spool(row: SessionRow) -> bool:
    return row.live is not None or row.ended_unexpectedly


def _state(row: SessionRow) -> tuple[Any, ...]:
    return row.seq, row.saved_at, row.state, row.live.pid if row.live else None, row.ended_unexpectedly


def _changes(before: Mapping[str, tuple[Any, ...]], now: Mapping[str, tuple[Any, ...]]) -> list[Event]:
    changed = [name for name, (state, _) in now.items() if before.get(name, (None,))[0] != state]
    grown = [name for name, (_, spool) in now.items() if name in before and before[name][1] != spool]
    gone = [name for name in before if name not in now]
    told = {"changed": changed, "tail": grown, "gone": gone}
    return [{"type": kind, "sessions": names} for kind, names in told.items() if names]


async def _events(request: Request) -> Response:
    watcher: Watcher = request.app.state.watcher

    async def lines() -> AsyncIterator[bytes]:
        async for event in watcher.events():
            yield json.dumps(event).encode() + b"\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson", headers={"cache-control": "no-store"})


ROUTES = [Route("/api/v1/events", _events)]
