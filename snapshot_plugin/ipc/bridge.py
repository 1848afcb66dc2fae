"""Carry out the requests of a front end: one current session, saved before each answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import singledispatchmethod
from typing import Any

from snapshot_plugin.errors import InvalidInput, SnapshotError, SnapshotNotFound
from snapshot_plugin.exchange.foreign import load_dump
from snapshot_plugin.exchange.rendering import render
from snapshot_plugin.ipc import requests
from snapshot_plugin.manager.manager import SnapshotManager
from snapshot_plugin.model.context_size import message_tokens
from snapshot_plugin.model.ids import COMPANIONS, new_id, owner_of
from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.model.snapshot import Message, SessionSnapshot
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.store.base import StoredSnapshot, Trashed

__all__ = ["PROTOCOL", "Bridge", "ClientState", "Reply", "refusal"]

PROTOCOL = 1
Reply = dict[str, Any]
Deleted = Callable[[Sequence[Trashed]], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class ClientState:
    """Part of every answer: the current session, whether it was restored, and its length."""

    session_id: str | None = None
    is_restored: bool = False
    message_count: int = 0


class _Current:
    """The current session, as the manager sees it."""

    def __init__(self, state: SessionSnapshot) -> None:
        self.state = state

    @property
    def session_id(self) -> str:
        return self.state.session_id

    def snapshot(self) -> SessionSnapshot:
        return self.state


class Bridge:
    """Answers the requests of one front end. The caller opens and closes the manager."""

    def __init__(
        self, manager: SnapshotManager, *, make_id: Callable[[], str] = new_id, deleted: Deleted | None = None
    ) -> None:
        self.state = ClientState()
        self._manager = manager
        self._make_id = make_id
        self._deleted = deleted
        self._current: _Current | None = None

    async def answer(self, raw: Any) -> Reply:
        """Carry out one request and return its answer. A `SnapshotError` is returned as an answer."""
        correlation = raw.get("id") if isinstance(raw, dict) else None
        try:
            reply = await self._do(requests.read_request(raw))
        except SnapshotError as error:
            reply = refusal(error)
        echoed = {"id": correlation} if isinstance(correlation, str | int) else {}
        return {**reply, **echoed, "state": asdict(self.state)}

    @singledispatchmethod
    async def _do(self, request: Any) -> Reply:
        raise NotImplementedError(type(request))

    # The current session ---------------------------------------------------------------------------------

    @_do.register
    async def _create(self, request: requests.CreateSession) -> Reply:
        current = await self._begin(request.title)
        return {"type": "session_created", "session_id": current.session_id}

    @_do.register
    async def _add(self, request: requests.AddMessages) -> Reply:
        known = self._current.state if self._current else None
        added = self._read(request.messages, known)
        current = self._current or await self._begin(None)
        before = current.state
        current.state = _grown(before, added, now=self._manager.clock())
        try:
            ref = await self._manager.snapshot(current, trigger="message")
        except SnapshotError:
            current.state = before
            raise
        self.state = replace(self.state, message_count=self.state.message_count + len(added))
        return {
            "type": "session_message_added",
            "session_id": current.session_id,
            "message_count": len(current.state.messages),
            "total_tokens": current.state.metrics.total_tokens,
            "estimated_tokens": current.state.metrics.estimated_tokens,
            "seq": ref.seq,
            "notices": list(ref.notices),
        }

    @_do.register
    async def _save(self, request: requests.SaveSession) -> Reply:
        _ = request
        try:
            if self._current is None:
                raise InvalidInput("there is no current session to save", hint="create or load one first")
            ref = await self._manager.snapshot(self._current, trigger="manual")
        except SnapshotError as error:
            return {**refusal(error), "type": "session_saved", "success": False}
        return {"type": "session_saved", "success": True, "session_id": ref.session_id, "seq": ref.seq}

    @_do.register
    async def _load(self, request: requests.LoadSession) -> Reply:
        if self._current is None or self._current.session_id != request.session_id:
            await self._switch(request.session_id)
        current = self._held()
        messages = current.state.messages
        self.state = ClientState(session_id=current.session_id, is_restored=True, message_count=len(messages))
        end = None if request.limit is None else request.offset + request.limit
        return {
            "type": "session_loaded",
            "session_id": current.session_id,
            "message_count": len(messages),
            "title": current.state.title,
            "total_tokens": current.state.metrics.total_tokens,
            "estimated_tokens": current.state.metrics.estimated_tokens,
            "offset": request.offset,
            "messages": [message.raw() for message in messages[request.offset : end]],
        }

    @_do.register
    async def _clear(self, request: requests.ClearSession) -> Reply:
        _ = request
        await self._close_current()
        return {"type": "session_cleared"}

    @_do.register
    async def _tell(self, request: requests.TellState) -> Reply:
        _ = request
        return {"type": "session_state", "protocol": PROTOCOL}

    # All sessions ----------------------------------------------------------------------------------------

    @_do.register
    async def _list(self, request: requests.ListSessions) -> Reply:
        metas = await self._manager.store.list()
        listed = [meta for meta in metas if owner_of(meta.session_id) is None][: request.limit]
        return {"type": "session_list_result", "sessions": [_info(meta) for meta in listed]}

    @_do.register
    async def _delete(self, request: requests.DeleteSession) -> Reply:
        session_id = request.session_id
        try:
            await self._manager.store.history(session_id)
        except SnapshotNotFound as error:
            return {**refusal(error), "type": "session_deleted", "success": False}
        if self._current and self._current.session_id == session_id:
            await self._close_current()
        async with self._manager.leasing(session_id) as leased:
            await leased.take()  # take exclusive ownership
            await leased.release()
            trashed = [await self._manager.store.delete(session_id)]
        for suffix in COMPANIONS:
            with suppress(SnapshotNotFound):
                trashed.append(await self._manager.store.delete(session_id + suffix))
        if self._deleted:
            await self._deleted(trashed)
        return {"type": "session_deleted", "success": True, "session_id": session_id}

    @_do.register
    async def _export(self, request: requests.ExportSession) -> Reply:
        content, redacted = "", {}
        snapshot = await self._named(request.session_id)
        if snapshot is not None:
            rendered = render([snapshot], request.format, tools=request.tools, redacted=request.redact)
            content, redacted = rendered.text, rendered.redacted.counts
        return {"type": "session_exported", "format": request.format, "content": content, "redacted": redacted}

    # Inside ----------------------------------------------------------------------------------------------

    async def _begin(self, title: str | None) -> _Current:
        now = self._manager.clock()
        begun = SessionSnapshot(
            session_id=self._make_id(), provider_type="ipc", title=title, created_at=now, updated_at=now
        )
        current = _Current(begun)
        await self._close_current()
        await self._manager.start_auto_snapshot(current)
        try:
            await self._manager.snapshot(current, trigger="created")
        except SnapshotError:
            await self._manager.stop_auto_snapshot(begun.session_id, save=False)
            raise
        self._current, self.state = current, ClientState(session_id=begun.session_id)
        return current

    async def _switch(self, session_id: str) -> None:
        """Switch to another session. If it cannot be opened, the current one stays."""
        found = await self._manager.store.read(session_id)
        current = _Current(found.snapshot)
        await self._manager.start_auto_snapshot(current, baseline=found)
        await self._reload(current, found)
        await self._close_current()
        self._current = current

    async def _reload(self, current: _Current, found: StoredSnapshot) -> None:
        """Read the session again, because taking its lease may have recovered a spool.

        The lease is held, so no other process can change the session now.
        """
        newest = await self._manager.store.read(current.session_id)
        if newest.ref.seq != found.ref.seq:
            current.state = newest.snapshot

    async def _close_current(self) -> None:
        if self._current is not None:
            await self._manager.stop_auto_snapshot(self._current.session_id)
        self._current, self.state = None, ClientState()

    def _held(self) -> _Current:
        if self._current is None:
            raise InvalidInput("there is no current session")
        return self._current

    async def _named(self, session_id: str | None) -> SessionSnapshot | None:
        if session_id is None or (self._current and self._current.session_id == session_id):
            return self._current.state if self._current else None
        return await self._manager.store.load(session_id)

    def _read(self, raw: Sequence[dict[str, Any]], known: SessionSnapshot | None) -> tuple[Message, ...]:
        """Convert messages of front ends' session files, validated like every other document."""
        now = rfc3339(self._manager.clock())
        first = len(known.messages) if known else 0
        messages = [
            {"timestamp": now, **_with_call_ids(message, first + place)} for place, message in enumerate(raw)
        ]
        about = {"session_id": known.session_id if known else "new", "created_at": now}
        return load_dump({"metadata": about, "messages": messages}).messages


def refusal(error: SnapshotError) -> Reply:
    """The answer to a request that was not carried out."""
    told = {"code": error.code, "message": error.message, "hint": error.hint, "retryable": error.retryable}
    return {"type": "error", **told}


def _with_call_ids(message: dict[str, Any], place: int) -> dict[str, Any]:
    """Tool calls without an id get one from their place in the session, not in the request."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    named = [
        {"id": f"call-{place}-{n}", **call} if isinstance(call, dict) else call for n, call in enumerate(calls)
    ]
    return {**message, "tool_calls": named}


def _grown(before: SessionSnapshot, added: Sequence[Message], *, now: datetime) -> SessionSnapshot:
    grown = before.append(*map(_counted, added), now=now)
    turns = before.metrics.turns + sum(message.role == "user" for message in added)
    return grown.evolve(metrics=grown.metrics.evolve(turns=turns))


def _counted(message: Message) -> Message:
    """Estimate tokens where the front end did not count them, and mark them as an estimate."""
    if message.token_count is not None:
        return message
    return message.evolve(token_count=message_tokens(message), token_count_estimated=True)


def _info(meta: SnapshotMeta) -> Reply:
    return {
        "session_id": meta.session_id,
        "title": meta.title,
        "created_at": rfc3339(meta.created_at or meta.saved_at),
        "updated_at": rfc3339(meta.updated_at or meta.saved_at),
        "message_count": meta.messages,
        "total_tokens": meta.tokens,
        "tags": list(meta.tags),
        "state": meta.state,
    }
