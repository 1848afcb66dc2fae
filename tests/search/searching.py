"""A store and its search index, asked as commands ask them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio

from snapshot_plugin import FilesystemStore, SessionSnapshot
from snapshot_plugin.search.find import SearchQuery, SearchResult
from snapshot_plugin.search.index import opened_index
from snapshot_plugin.search.query import expression
from snapshot_plugin.store.base import SnapshotStore


class Reads:
    """Counts the sessions an index has read."""

    def __init__(self) -> None:
        self.names: list[str] = []

    @contextmanager
    def __call__(self, total: int) -> Iterator[Callable[[str], None]]:
        yield self.names.append


@asynccontextmanager
async def stored(
    tmp_path: Path, *sessions: SessionSnapshot, key: str | None = None
) -> AsyncIterator[FilesystemStore]:
    with anyio.fail_after(60):
        async with FilesystemStore(tmp_path / "store", key=key, background=False) as store:
            for session in sessions:
                await store.save(session)
            yield store


async def found(
    store: SnapshotStore, cache: Path, query: str, reads: Reads | None = None, **options: Any
) -> tuple[SearchResult, tuple[str, ...]]:
    """One search, as a command makes it."""
    metas = await store.list()
    names = options.pop("sessions", [meta.session_id for meta in metas])
    asked = {
        "limit": 50,
        "each": 50,
        **{k: v for k, v in options.items() if k in ("limit", "each", "since", "until")},
    }
    question = SearchQuery(expression=expression(query), sessions=names, **asked)
    async with opened_index(store, cache, name="s", rebuild=options.get("rebuild", False)) as index:
        return await index.ask(question, metas, only=options.get("only"), progress=reads or Reads())


async def places(store: SnapshotStore, cache: Path, query: str, **options: Any) -> list[tuple[str, int]]:
    result, _ = await found(store, cache, query, **options)
    return [(hit.session_id, hit.number) for hit in result.hits]


def index_file(cache: Path) -> Path:
    (file,) = (file for file in cache.iterdir() if file.suffix in (".db", ".sealed"))
    return file
