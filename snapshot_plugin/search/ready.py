"""Search an index that is up to date, without opening the store. Most searches take this path.

It requires a plain store on a local disk in which no session changed since it was indexed. In every other case
the caller opens the store.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.search.database import IndexDatabase, cached_list, heads, index_path
from snapshot_plugin.search.find import SearchQuery, SearchResult
from snapshot_plugin.store.look import look

__all__ = ["answered"]

T = TypeVar("T")
Choose = Callable[[Sequence[SnapshotMeta]], tuple[SearchQuery, T]]
"""Called with the full list of the store; returns the query, and a value that is passed back to the caller."""


def answered(root: str, cache: Path, choose: Choose[T]) -> tuple[SearchResult, T] | None:
    """The result of the query that *choose* returns for the sessions of the store in the directory *root*.

    None if the store has to be opened first: a session to search changed or cannot be read, or a dead process
    left records that are not in a snapshot yet.
    """
    seen = look(root)
    path = index_path(cache, seen.store_id, sealed=False) if seen else None
    if seen is None or path is None or not path.exists() or _is_anybody_dead(root, seen.leased):
        return None
    try:
        with contextlib.closing(IndexDatabase(path, store_id=seen.store_id)) as database:
            sessions = cached_list(database.connection, seen.mark)
            if sessions is None:
                return None
            question, rest = choose(sessions)
            known = heads(database.connection)
            current = {each.session_id for each in sessions if known.get(each.session_id) == (each.seq, each.root)}
            return (question(database.connection), rest) if current.issuperset(question.sessions) else None
    except (OSError, sqlite3.Error):
        return None


def _is_anybody_dead(root: str, leased: Sequence[str]) -> bool:
    """Whether the owner of one of these sessions died without a clean stop."""
    if not leased:
        return False
    from snapshot_plugin.live.owners import ownerships  # noqa: PLC0415 — while nobody runs a session, not needed
    from snapshot_plugin.model.ids import session_id_of  # noqa: PLC0415 — as above

    names = [name for directory in leased if (name := session_id_of(directory)) is not None]
    return any(presence.died for presence in ownerships(Path(root), names).values())
