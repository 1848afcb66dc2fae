"""Stored sessions as an agent may see them: those of its project unless more is allowed, and without secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from snapshot_plugin.errors import (
    InvalidInput,
    NotFound,
    SnapshotError,
    SnapshotNotFound,
    StoreNotFound,
    StoreUnavailable,
)
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.live.place import place_of
from snapshot_plugin.manager.control import Answer, ask_owner
from snapshot_plugin.manager.places import user_cache_dir
from snapshot_plugin.memory.server.answers import (
    SearchAnswer,
    SearchHit,
    SessionLine,
    SessionList,
    SessionView,
    SnapshotTaken,
)
from snapshot_plugin.memory.server.messages import excerpt_of, readable, viewed
from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.model.redact import redact
from snapshot_plugin.store.base import SnapshotStore, StoredSnapshot

if TYPE_CHECKING:
    from snapshot_plugin.search.find import Found, Hit

__all__ = ["StoredSessions"]

_TIMEOUT: Final = 30.0
_EACH: Final = 3


class StoredSessions:
    """The snapshot store, seen from a project. With *all_projects*, sessions of other projects are seen too."""

    def __init__(
        self, store: SnapshotStore, project: Path, *, all_projects: bool = False, cache: Path | None = None
    ) -> None:
        self.store, self.project = store, project
        self._all = all_projects
        self._cache = cache or user_cache_dir(os.environ)

    async def metas(self) -> tuple[Sequence[SnapshotMeta], list[str], int]:
        """The sessions that may be seen, notices, and how many others there are."""
        try:
            metas = await self.store.list()
        except StoreNotFound as error:
            return (), [f"no session was ever stored: {error.message}"], 0
        seen = [meta for meta in metas if self.is_visible(meta.cwd)]
        return seen, [], len(metas) - len(seen)

    def is_visible(self, cwd: str | None) -> bool:
        """Whether a session that worked in *cwd* may be seen; links in it are followed to where it really was."""
        return self._all or (cwd is not None and _real(cwd).is_relative_to(self.project))

    async def read(self, session_id: str, at: int | None = None) -> StoredSnapshot:
        """A session; one of another project is not found."""
        found = await self.store.read(session_id, at=at)
        if not self.is_visible(found.snapshot.config.cwd or found.meta.cwd):
            raise SnapshotNotFound(
                f"session {session_id!r} is not of this project", session_id=session_id,
                hint="the user can allow it: asnap mcp --all-projects",
            )  # fmt: skip
        return found

    async def listed(self, *, limit: int) -> SessionList:
        """The sessions last changed."""
        metas, notices, others = await self.metas()
        lines = [await self._line(meta) for meta in metas[:limit]]
        return SessionList(sessions=lines, hidden=len(metas) - len(lines) + others, notices=notices)

    async def search(self, query: str, *, limit: int) -> SearchAnswer:
        """Messages that contain *query*, found by the search index, newest session first."""
        if not query.strip():
            raise InvalidInput("there is nothing to search for", hint="pass some words")
        metas, notices, _ = await self.metas()
        if not metas:
            return SearchAnswer(hits=[], sessions_searched=0, notices=notices)
        found, unreadable = await self._found(query, metas, limit)
        titles = {meta.session_id: meta.title for meta in metas}
        words = re.findall(r"\w+", query.casefold())
        hits: list[SearchHit] = []
        for session_id in dict.fromkeys(hit.session_id for hit in found.hits):
            of_session = [hit for hit in found.hits if hit.session_id == session_id]
            hits += await self._hits(of_session, titles[session_id], words)
        notices += [f"{name} cannot be read; see asnap check" for name in unreadable]
        return SearchAnswer(hits=hits, total_hits=found.total_hits, sessions_searched=len(metas), notices=notices)

    async def show(self, session_id: str, *, at: int | None, start: int | None, limit: int) -> SessionView:
        """A session, and *limit* of its messages: from *start* on, or the last ones."""
        found = await self.read(session_id, at)
        messages = found.snapshot.messages
        first = max(0, len(messages) - limit) if start is None else start
        shown = range(first, min(first + limit, len(messages)))
        return SessionView(
            session=await self._line(found.meta),
            trigger=found.meta.trigger,
            plan=[clean(f"[{entry.status}] {entry.content}") for entry in found.snapshot.plan],
            current_task=clean(found.snapshot.current_task),
            messages=await anyio.to_thread.run_sync(lambda: [viewed(index, messages[index]) for index in shown]),
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
        newest = (await self.read(session_id or await self._only_live_one())).meta
        session_id = newest.session_id
        owner = await self.owner(session_id)
        if owner is None:
            raise NotFound(
                f"session {session_id!r} is not live; its newest snapshot is {newest.seq}", session_id=session_id,
                hint="only the process that runs a session can save it; list_snapshots shows which are live",
            )  # fmt: skip
        request = {"op": "snapshot", "session_id": session_id, "tag": tag}
        return _taken(session_id, tag, owner, await ask_owner(owner, request, timeout=_TIMEOUT))

    async def newest_here(self) -> str:
        """The session of this project that changed last."""
        metas, _, _ = await self.metas()
        if not metas:
            raise NotFound(f"no session of {self.project} is stored")
        return metas[0].session_id

    async def owner(self, session_id: str) -> Owner | None:
        """The process that runs a stored session; None when nobody does, or nobody can tell."""
        place = place_of(self.store)
        return await anyio.to_thread.run_sync(place.owner, session_id) if place else None

    async def _only_live_one(self) -> str:
        metas, _, _ = await self.metas()
        live = [meta.session_id for meta in metas if await self.owner(meta.session_id) is not None]
        if len(live) != 1:
            raise InvalidInput(
                f"{len(live)} sessions of this project are live{': ' if live else ''}{', '.join(live)}",
                hint="name the session: take_snapshot(session_id=…)",
            )
        return live[0]

    async def _line(self, meta: SnapshotMeta) -> SessionLine:
        line = SessionLine.of(meta, live=await self.owner(meta.session_id) is not None)
        texts = {
            "title": clean(line.title),
            "problem": clean(line.problem),
            "tags": [clean(tag) for tag in line.tags],
        }
        return line.model_copy(update=texts)

    async def _found(self, query: str, metas: Sequence[SnapshotMeta], limit: int) -> tuple[Found, Sequence[str]]:
        from snapshot_plugin.search.find import Question  # noqa: PLC0415 — SQLite is needed for this tool only
        from snapshot_plugin.search.index import opened_index  # noqa: PLC0415 — as above
        from snapshot_plugin.search.query import expression  # noqa: PLC0415 — as above

        names = [meta.session_id for meta in metas]
        question = Question(expression=expression(query), sessions=names, limit=limit, each=_EACH)
        async with opened_index(self.store, self._cache, name=_store_name(self.store)) as index:
            return await index.ask(question, await index.listed(), only=frozenset(names))

    async def _hits(self, found: list[Hit], title: str | None, words: list[str]) -> list[SearchHit]:
        """The hits of one session, with excerpts from its messages, so that no secret is cut in half."""
        session_id = found[0].session_id
        try:
            stored = await self.read(session_id)
        except SnapshotError:  # it changed since
            return []
        messages = stored.snapshot.messages
        return [
            SearchHit(
                session_id=session_id, seq=stored.ref.seq, message_index=hit.number - 1, role=hit.role or "session",
                title=clean(title),
                excerpt=excerpt_of(readable(messages[hit.number - 1]), words) if hit.number else clean(title) or "",
            )
            for hit in found if hit.number <= len(messages)
        ]  # fmt: skip


@lru_cache(maxsize=1024)
def _real(cwd: str) -> Path:
    return Path(os.path.realpath(cwd))


def clean(text: str | None) -> str | None:
    """*text* without secrets."""
    return None if text is None else redact(text)[0]


def _store_name(store: SnapshotStore) -> str:
    from snapshot_plugin.store.filesystem import FilesystemStore  # noqa: PLC0415 — another store may be used
    from snapshot_plugin.store.marker import read_marker  # noqa: PLC0415 — as above

    return str(read_marker(store.path)["id"]) if isinstance(store, FilesystemStore) else f"{type(store).__name__}"


def skipped(found: StoredSnapshot) -> list[str]:
    """What had to be skipped to read a snapshot."""
    return [f"{finding.kind}: {finding.detail}" for finding in found.skipped]


def _taken(session_id: str, tag: str, owner: Owner, answer: Answer) -> SnapshotTaken:
    who = f"process {owner.pid} on {owner.host}, which runs session {session_id!r},"
    if answer.outcome == "unreachable":
        raise StoreUnavailable(f"{who} did not answer: {answer.reason}", session_id=session_id, hint="try again")
    status, seq = answer.result.get("status"), answer.result.get("seq")
    if answer.outcome == "refused" or status != "saved" or not isinstance(seq, int):
        reason = answer.reason or answer.result.get("problem") or status or "it gave no reason"
        raise SnapshotError(f"{who} did not save it: {reason}", session_id=session_id)
    return SnapshotTaken(session_id=session_id, seq=seq, tag=tag, owner_pid=owner.pid)
