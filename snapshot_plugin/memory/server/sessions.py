"""Stored sessions as an agent wants to see them: listed, searched, shown, saved, and planned to be resumed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import anyio.to_thread

from snapshot_plugin.memory.server.answers import (
    SearchAnswer,
    SearchHit,
    SessionLine,
    SessionList,
    SessionView,
    SnapshotTaken,
)
from snapshot_plugin.memory.server.messages import excerpt_of, readable, viewed
from snapshot_plugin.errors import InvalidInput, NotFound, SnapshotError, StoreNotFound, StoreUnavailable
from snapshot_plugin.manager.control import Answer, ask_owner
from snapshot_plugin.manager.lease import Owner, owner_of
from snapshot_plugin.manager.ports import LocalPlace
from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.store.base import SnapshotStore, StoredSnapshot

__all__ = ["StoredSessions"]

_MAX_SEARCHED: Final = 200
_TIMEOUT: Final = 30.0


class StoredSessions:
    """The snapshot store, seen from a project."""

    def __init__(self, store: SnapshotStore, project: Path) -> None:
        self.store = store
        self.project = project

    async def metas(self) -> tuple[Sequence[SnapshotMeta], list[str]]:
        """Every session there is; a store that was never written to has none, and that is said."""
        try:
            return await self.store.list(), []
        except StoreNotFound as error:
            return (), [f"no session was ever stored: {error.message}"]

    async def listed(self, *, limit: int, here: bool) -> SessionList:
        """The sessions last changed, of this project or of all."""
        metas, notices = await self.metas()
        wanted = [meta for meta in metas if not here or self._is_here(meta)]
        lines = [await self._line(meta) for meta in wanted[:limit]]
        return SessionList(sessions=lines, hidden=len(metas) - len(lines), notices=notices)

    async def search(self, query: str, *, limit: int) -> SearchAnswer:
        """The newest messages that hold *query*, in whatever case, one session after another."""
        if not query.strip():
            raise InvalidInput("there is nothing to search for", hint="pass some words")
        metas, notices = await self.metas()
        hits: list[SearchHit] = []
        searched = 0
        for meta in metas[:_MAX_SEARCHED]:
            if len(hits) >= limit:
                break
            searched += 1
            try:
                found = await self.store.read(meta.session_id)
            except SnapshotError as error:
                notices.append(f"{meta.session_id}: {error.message}")
                continue
            hits += await anyio.to_thread.run_sync(_hits, found, query.casefold(), limit - len(hits))
        left = len(metas) - searched
        return SearchAnswer(hits=hits, sessions_searched=searched, sessions_left=left, notices=notices)

    async def show(self, session_id: str, *, at: int | None, start: int | None, limit: int) -> SessionView:
        """A session, and *limit* of its messages: from *start* on, or the last ones."""
        found = await self.store.read(session_id, at=at)
        messages = found.snapshot.messages
        first = max(0, len(messages) - limit) if start is None else start
        return SessionView(
            session=await self._line(found.meta),
            trigger=found.meta.trigger,
            plan=[f"[{entry.status}] {entry.content}" for entry in found.snapshot.plan],
            current_task=found.snapshot.current_task,
            messages=[viewed(index, messages[index]) for index in range(first, min(first + limit, len(messages)))],
            first_index=first,
            total_messages=len(messages),
            notices=skipped(found),
        )

    async def take(self, session_id: str | None, *, tag: str) -> SnapshotTaken:
        """Ask the process that runs a session to save it now.

        Raises:
            NotFound: it is not running; what was stored last is what there is.
            StoreUnavailable: its process did not answer.
        """
        session_id = session_id or await self._only_live_one()
        newest = (await self.store.history(session_id))[0].seq
        owner = await self.owner(session_id)
        if owner is None:
            raise NotFound(
                f"session {session_id!r} is not live; its newest snapshot is {newest}", session_id=session_id,
                hint="only the process that runs a session can save it; list_snapshots shows which are live",
            )  # fmt: skip
        request = {"op": "snapshot", "session_id": session_id, "tag": tag}
        return _taken(session_id, tag, owner, await ask_owner(owner, request, timeout=_TIMEOUT))

    async def newest_here(self) -> str:
        """The session of this project that changed last."""
        metas, _ = await self.metas()
        here = [meta.session_id for meta in metas if self._is_here(meta)]
        if not here:
            raise NotFound(f"no session of {self.project} is stored", hint="list_snapshots shows all there are")
        return here[0]

    async def owner(self, session_id: str) -> Owner | None:
        """The process that runs a stored session; None when nobody does, or nobody can tell."""
        if not isinstance(self.store, LocalPlace):
            return None
        place = self.store
        return await anyio.to_thread.run_sync(lambda: owner_of(place.session_dir(session_id)))

    async def _only_live_one(self) -> str:
        metas, _ = await self.metas()
        lines = [await self._line(meta) for meta in metas if self._is_here(meta)]
        live = [line.session_id for line in lines if line.live]
        if len(live) != 1:
            raise InvalidInput(
                f"{len(live)} sessions of this project are live{': ' if live else ''}{', '.join(live)}",
                hint="name the session: take_snapshot(session_id=…)",
            )
        return live[0]

    async def _line(self, meta: SnapshotMeta) -> SessionLine:
        return SessionLine.of(meta, live=await self.owner(meta.session_id) is not None)

    def _is_here(self, meta: SnapshotMeta) -> bool:
        return meta.cwd is not None and Path(meta.cwd).is_relative_to(self.project)


def skipped(found: StoredSnapshot) -> list[str]:
    """What had to be passed over to get at a snapshot."""
    return [f"{finding.kind}: {finding.detail}" for finding in found.skipped]


def _hits(found: StoredSnapshot, query: str, limit: int) -> list[SearchHit]:
    return list(_find(found, query, limit))


def _find(found: StoredSnapshot, query: str, limit: int) -> Iterator[SearchHit]:
    hits = 0
    for index in reversed(range(len(found.snapshot.messages))):
        message = found.snapshot.messages[index]
        excerpt = excerpt_of(readable(message), query)
        if excerpt is not None and hits < limit:
            hits += 1
            yield SearchHit(
                session_id=found.ref.session_id,
                seq=found.ref.seq,
                message_index=index,
                role=message.role,
                excerpt=excerpt,
                title=found.snapshot.title,
            )


def _taken(session_id: str, tag: str, owner: Owner, answer: Answer) -> SnapshotTaken:
    who = f"process {owner.pid} on {owner.host}, which runs session {session_id!r},"
    if answer.outcome == "unreachable":
        raise StoreUnavailable(f"{who} did not answer: {answer.reason}", session_id=session_id, hint="try again")
    status, seq = answer.result.get("status"), answer.result.get("seq")
    if answer.outcome == "refused" or status != "saved" or not isinstance(seq, int):
        reason = answer.reason or answer.result.get("problem") or status or "it gave no reason"
        raise SnapshotError(f"{who} did not save it: {reason}", session_id=session_id)
    return SnapshotTaken(session_id=session_id, seq=seq, tag=tag, owner_pid=owner.pid)
