"""Search the earlier snapshots of a session, for example for text that a compaction has replaced.

The index is built in memory for each search. The index on disk covers the newest snapshots only, so it never
holds text that a policy has removed from the store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import anyio.to_thread

from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.search.content import IndexedLines, IndexEntry, put, texts_in
from snapshot_plugin.search.database import IndexDatabase
from snapshot_plugin.search.find import SearchQuery, SearchResult
from snapshot_plugin.search.passages import Text

if TYPE_CHECKING:
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.store.base import SnapshotStore, StoredSnapshot

__all__ = ["Snapshots", "search_snapshots"]


class Snapshots(NamedTuple):
    """The result of a search in several snapshots. Each is named ``session@seq``, the newest ``session``.

    `numbers` maps the names of the searched snapshots to their numbers; `unreadable` lists those that cannot be
    read.
    """

    found: SearchResult
    numbers: dict[str, int | None]
    unreadable: tuple[str, ...]


async def search_snapshots(
    store: SnapshotStore, session_id: str, question: SearchQuery, *, at: int | None = None
) -> Snapshots:
    """Search the snapshot numbered *at*; or the newest one, and those that have more messages than the next.

    Text that is also in a later snapshot is found there only.

    Raises:
        SnapshotNotFound, SnapshotCorrupted: there is no such snapshot, or it cannot be read.
    """
    first = await store.read(session_id, at=at)
    states = {session_id if at is None else _name(first.meta): first}
    unreadable: list[str] = []
    for meta in _before_shrinking(await store.history(session_id)) if at is None else ():
        try:
            states[_name(meta)] = await store.read(session_id, at=meta.seq)
        except SnapshotError:
            unreadable.append(_name(meta))
    found = await anyio.to_thread.run_sync(_asked, states, replace(question, sessions=list(states)))
    numbers = {name: None if name == session_id else state.meta.seq for name, state in states.items()}
    return Snapshots(found, numbers, tuple(unreadable))


def _before_shrinking(history: Sequence[SnapshotMeta]) -> list[SnapshotMeta]:
    """The snapshots, of those given newest first, that have more messages than the next one."""
    return [before for after, before in pairwise(history) if before.messages > after.messages]


def _name(meta: SnapshotMeta) -> str:
    return f"{meta.session_id}@{meta.seq}"


def _asked(states: Mapping[str, StoredSnapshot], question: SearchQuery) -> SearchResult:
    said: set[tuple[str, str]] = set()
    with contextlib.closing(IndexDatabase(None, store_id="")) as database:
        for name, state in states.items():
            texts = texts_in(state.snapshot)
            new = [Text("", "", "", None) if (text.role, text.body) in said else text for text in texts]
            put(
                database.connection,
                IndexEntry(state.meta.evolve(session_id=name), new, IndexedLines(), IndexedLines()),
            )
            said.update((text.role, text.body) for text in texts)
        return question(database.connection)
