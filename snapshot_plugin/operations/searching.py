"""Full text over all sessions, or within one: the hits, the sessions they are in, and how many more there are."""

from __future__ import annotations

import functools
import shlex
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from snapshot_plugin.errors import SnapshotNotFound
from snapshot_plugin.inert import plain
from snapshot_plugin.model.ids import as_reference
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.references import resolve, short_ids
from snapshot_plugin.operations.sessions import Selection, reason, tagged_before

if TYPE_CHECKING:
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.operations.work import Work
    from snapshot_plugin.search.find import Hit, SearchQuery, SearchResult
    from snapshot_plugin.search.index import SearchIndex
    from snapshot_plugin.store.base import SnapshotStore

__all__ = [
    "MessageHit",
    "SearchRequest",
    "Searched",
    "SessionHits",
    "at_snapshot",
    "forget_index",
    "index_all",
    "jump_to",
    "search",
    "search_index",
    "search_ready",
]

_EACH = 5
"""How many hits of a session are shown if several are searched, so that one session does not hide the others."""
_FEW = 30
"""The most sessions that are indexed while the user waits. A search that must answer at once leaves the rest."""
_KEYS = ("ASNAP_KEY", "ASNAP_PASSPHRASE")


class MessageHit(Part):
    """A message with the words. `matches` has their start and end in `snippet`."""

    session_id: str
    snapshot: int | None
    """The number of the earlier snapshot it is in; null for the session as it is now."""
    title: str | None
    message: int | None
    """Its number, from 1; null for the session itself: its title, task, plan or tags."""
    role: str
    at: datetime | None
    snippet: str
    matches: tuple[tuple[int, int], ...]
    jump: str
    """The command that shows it."""


class SessionHits(Part):
    """A session of which hits are shown, and how many it has; not all of them may be shown."""

    session_id: str
    snapshot: int | None
    """As in hits."""
    short_id: str
    title: str | None
    agent: str | None
    cwd: str | None
    changed_at: datetime
    hits: int


class Searched(Document):
    """What was found: the sessions that changed last first, each one's messages in their order."""

    kind: ClassVar[str] = "search"
    rows: ClassVar[str] = "hits"
    query: str
    hits: tuple[MessageHit, ...]
    sessions: tuple[SessionHits, ...]
    total_hits: int
    total_sessions: int
    """How many sessions have hits; those of which none is shown are not in `sessions`."""
    searched: int
    """How many sessions were searched."""
    unindexed: int = 0
    """How many sessions changed since they were indexed. Their hits are missing; search again later."""
    hidden: dict[str, int]
    """How many were not searched, by filter."""
    unreadable: tuple[str, ...]
    as_of: datetime


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """What to look for, and where."""

    query: str
    ref: str | None = None
    cwd: str | None = None
    unplaced: bool = True
    """Whether sessions without a directory are searched if `cwd` is given."""
    agent: str | None = None
    tags: tuple[str, ...] = ()
    tool: str | None = None
    role: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 20
    earlier: bool = False
    """Also search text that was later compacted away."""


def search_ready(work: Work, asked: SearchRequest) -> Searched | None:
    """Search the index without opening the store; None if the store must be opened for this search."""
    from snapshot_plugin.search.ready import answered

    where = work.config.storage_path
    has_key = any(name.startswith(_KEYS) for name in work.environ)
    if asked.earlier or asked.tags or "://" in where or has_key or work.config.encryption:
        return None
    ready = answered(where, work.cache, functools.partial(_chosen, asked, _question(asked)))
    return _searched(asked.query, *ready, unreadable=(), as_of=work.now) if ready is not None else None


async def search(
    work: Work, store: SnapshotStore, asked: SearchRequest, *, rebuild: bool = False, at_once: bool = False
) -> Searched:
    """Update the index from the store, and search.

    With *at_once*, if updating the index would take long, the index is searched as it is: `Searched.unindexed` says
    so, and the caller must run `index_all`.
    """
    unindexed = 0
    async with search_index(work, store, rebuild=rebuild) as index:
        metas = await index.listed()
        tagged = await tagged_before(store, metas, asked.tags)
        question, chosen = _chosen(asked, _question(asked), metas, tagged)
        if asked.earlier or any(seq is not None for _, seq in chosen.named.values()):
            found, chosen, unreadable = await _in_snapshots(store, question, chosen)
        else:
            only, progress = frozenset(question.sessions), functools.partial(work.progress, "indexing")
            if at_once and index.is_kept and (stale := await _stale(index, metas, only)) > _FEW:
                only, unindexed = frozenset(), stale
            found, unreadable = await index.ask(question, metas, only=only, progress=progress)
    answer = _searched(asked.query, found, chosen, unreadable=unreadable, as_of=work.now)
    return replace(answer, searched=answer.searched - unindexed, unindexed=unindexed)


async def _stale(index: SearchIndex, metas: Sequence[SnapshotMeta], only: Collection[str]) -> int:
    """How many of the sessions *only* changed since they were indexed."""
    from snapshot_plugin.search.database import heads

    known, _ = await index.ask(heads, metas, only=frozenset())
    return sum(m.session_id in only and known.get(m.session_id) != (m.seq, m.root) for m in metas)


async def index_all(work: Work, store: SnapshotStore) -> None:
    """Update the index for all sessions of the store. An interruption keeps what was indexed.

    Does nothing while another process does the same.
    """
    async with search_index(work, store) as index:
        with index.alone() as alone:
            if alone:
                await index.ask(lambda _connection: None, await index.listed())


@asynccontextmanager
async def search_index(work: Work, store: SnapshotStore, *, rebuild: bool = False) -> AsyncIterator[SearchIndex]:
    """The index of *store*, in the user's cache."""
    from snapshot_plugin.search.index import opened_index

    async with opened_index(store, work.cache, name=work.name(store), rebuild=rebuild) as index:
        yield index


async def forget_index(work: Work, store: SnapshotStore) -> None:
    """Delete the index, if there is one: it must not keep what was removed from the store permanently."""
    import anyio

    if [path async for path in anyio.Path(work.cache).glob("search-*")]:
        async with search_index(work, store, rebuild=True):
            pass


def at_snapshot(session: str, snapshot: int | None) -> str:
    """The reference of a session, or of one of its snapshots."""
    return session if snapshot is None else f"{session}@{snapshot}"


def jump_to(session: str, message: int | None) -> str:
    """The command that shows a message, or a session; *session* is a reference."""
    return f"asnap show {shlex.quote(plain(session))}" + (f" --message {message}" if message else "")


def _question(asked: SearchRequest) -> SearchQuery:
    from snapshot_plugin.search.find import SearchQuery
    from snapshot_plugin.search.query import expression, narrowing

    return SearchQuery(
        expression=expression(asked.query),
        narrowing=narrowing(tool=asked.tool, role=asked.role),
        sessions=(),
        limit=asked.limit,
        each=asked.limit if asked.ref else _EACH,
        since=asked.since,
        until=asked.until,
    )


class _Chosen(NamedTuple):
    """What to search, by its name in the query: sessions, the last changed first, or snapshots."""

    named: Mapping[str, tuple[SnapshotMeta, int | None]]
    hidden: dict[str, int]
    """How many sessions each filter hides."""
    ids: Sequence[str]
    """Of all sessions."""


def _chosen(
    asked: SearchRequest,
    question: SearchQuery,
    sessions: Sequence[SnapshotMeta],
    tagged: frozenset[str] = frozenset(),
) -> tuple[SearchQuery, _Chosen]:
    """The query for the index, given all sessions of the store."""
    ids = [session.session_id for session in sessions]
    if asked.ref is not None:
        session, seq = _target(asked.ref, asked.query, sessions)
        name = session.session_id if seq is None else f"{asked.ref}\0"
        return replace(question, sessions=[name]), _Chosen({name: (session, seq)}, {}, ids)
    selection = Selection(
        below=asked.cwd, unplaced=asked.unplaced, agent=asked.agent, tags=asked.tags, tagged_before=tagged
    )
    kept, hidden = _filtered(sessions, selection)
    named = {session.session_id: (session, None) for session in kept}
    return replace(question, sessions=list(named)), _Chosen(named, hidden, ids)


def _filtered(sessions: Sequence[SnapshotMeta], selection: Selection) -> tuple[list[SnapshotMeta], dict[str, int]]:
    kept, hidden = [], Counter[str]()
    for session in sessions:
        if by := reason(session, selection):
            hidden[by[0]] += 1
        else:
            kept.append(session)
    return kept, dict(hidden)


async def _in_snapshots(
    store: SnapshotStore, question: SearchQuery, chosen: _Chosen
) -> tuple[SearchResult, _Chosen, tuple[str, ...]]:
    from snapshot_plugin.search.earlier import search_snapshots

    ((session, at),) = chosen.named.values()
    found, numbers, unreadable = await search_snapshots(store, session.session_id, question, at=at)
    named = {name: (session, seq) for name, seq in numbers.items()}
    one = found._replace(total_sessions=min(1, found.total_sessions))
    return one, chosen._replace(named=named), unreadable


def _target(ref: str, query: str, sessions: Sequence[SnapshotMeta]) -> tuple[SnapshotMeta, int | None]:
    try:
        return resolve(ref, sessions)
    except SnapshotNotFound as error:
        quoted = f"to search for several words, quote them: asnap search {shlex.quote(f'{query} {ref}')}"
        raise SnapshotNotFound(
            error.message, session_id=error.session_id, hint=f"{error.hint}\n  {quoted}" if error.hint else quoted
        ) from None


def _searched(
    query: str, found: SearchResult, chosen: _Chosen, *, unreadable: Sequence[str], as_of: datetime
) -> Searched:
    sessions = frozenset(session.session_id for session, _ in chosen.named.values())
    with_hits = {chosen.named[name][0].session_id for name in found.counts}
    short = short_ids(chosen.ids, of=with_hits)
    return Searched(
        query=query,
        hits=tuple(_message_hit(hit, *chosen.named[hit.session_id]) for hit in found.hits),
        sessions=tuple(_session_hits(*chosen.named[name], short, hits) for name, hits in found.counts.items()),
        total_hits=found.total_hits,
        total_sessions=found.total_sessions,
        searched=len(sessions) - sum(name in sessions for name in unreadable),
        hidden=chosen.hidden,
        unreadable=tuple(unreadable),
        as_of=as_of,
    )


def _message_hit(hit: Hit, session: SnapshotMeta, snapshot: int | None) -> MessageHit:
    snippet, matches = _unmarked(plain(hit.snippet))
    return MessageHit(
        session_id=session.session_id,
        snapshot=snapshot,
        title=session.title or session.opening,
        message=hit.number or None,
        role=hit.role,
        at=hit.at,
        snippet=snippet,
        matches=matches,
        jump=jump_to(at_snapshot(as_reference(session.session_id), snapshot), hit.number or None),
    )


def _unmarked(snippet: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    from snapshot_plugin.search.find import END, START

    text, matches = "", []
    for number, part in enumerate(snippet.split(START)):
        match, _, rest = part.partition(END) if number else ("", "", part)
        matches += [(len(text), len(text) + len(match))] if match else []
        text += match + rest
    return text, tuple(matches)


def _session_hits(session: SnapshotMeta, snapshot: int | None, short: Mapping[str, str], hits: int) -> SessionHits:
    return SessionHits.from_fields(
        session,
        snapshot=snapshot,
        short_id=at_snapshot(short[session.session_id], snapshot),
        title=session.title or session.opening,
        hits=hits,
    )
