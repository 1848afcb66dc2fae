"""Search in the earlier snapshots of a session: what it said before its beginning was summarised, for example.

The index is built in memory for each search. The index on disk holds the newest snapshots only: it never keeps what
a policy has dropped from the store, and need not be compared with every snapshot.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import anyio.to_thread

from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.search.content import Entry, IndexedLines, put, texts_in
from snapshot_plugin.search.database import IndexDatabase
from snapshot_plugin.search.find import Found, Question
from snapshot_plugin.search.rows import Text

if TYPE_CHECKING:
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.store.base import SnapshotStore, StoredSnapshot

__all__ = ["Snapshots", "search_snapshots"]


class Snapshots(NamedTuple):
    """What was found in snapshots of a session. They are called ``session@seq`` in it, the newest ``session``.

    `numbers` are those that were looked into, by these names; `unreadable` names those that could not be.
    """

    found: Found
    numbers: dict[str, int | None]
    unreadable: tuple[str, ...]


async def search_snapshots(
    store: SnapshotStore, session_id: str, question: Question, *, at: int | None = None
) -> Snapshots:
    """Put a question to the snapshot numbered *at*, or to the newest one and all that said more than the next one.

    What a later snapshot says as well is found there only.

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
    """Of snapshots, newest first, those that had more messages than the next one."""
    return [before for after, before in pairwise(history) if before.messages > after.messages]


def _name(meta: SnapshotMeta) -> str:
    return f"{meta.session_id}@{meta.seq}"


def _asked(states: Mapping[str, StoredSnapshot], question: Question) -> Found:
    said: set[tuple[str, str]] = set()
    with contextlib.closing(IndexDatabase(None, store_id="")) as database:
        for name, state in states.items():
            texts = texts_in(state.snapshot)
            new = [Text("", "", "", None) if (text.role, text.body) in said else text for text in texts]
            put(database.connection, Entry(state.meta.evolve(session_id=name), new, IndexedLines(), IndexedLines()))
            said.update((text.role, text.body) for text in texts)
        return question(database.connection)
