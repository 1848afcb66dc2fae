"""Searching earlier snapshots: what was dropped from a session is still found, where it was."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from snapshot_plugin import FilesystemStore, SnapshotCorrupted, SnapshotNotFound
from snapshot_plugin.search.earlier import Snapshots, search_snapshots
from snapshot_plugin.search.find import SearchQuery
from snapshot_plugin.search.query import expression
from snapshot_plugin.store.base import StoredSnapshot
from snapshot_plugin.testing import make_message, make_snapshot
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it

pytestmark = pytest.mark.anyio

FIRST = make_snapshot("ape one", "ape two", "ape three", session_id="s", title="apes")
SHORTER = FIRST.evolve(messages=(make_message("a summary"), *FIRST.messages[2:]))
EDITED = SHORTER.evolve(messages=(make_message("another ape"), *SHORTER.messages[1:]), title="birds")
SHORTEST = SHORTER.evolve(messages=(make_message("the end"),), title="birds")


async def searched(store: FilesystemStore, query: str = "ape*", *, at: int | None = None) -> Snapshots:
    with anyio.fail_after(60):
        question = SearchQuery(expression=expression(query), sessions=(), limit=50, each=50)
        return await search_snapshots(store, "s", question, at=at)


def places(result: Snapshots) -> list[tuple[int | None, int]]:
    return [(result.numbers[hit.session_id], hit.number) for hit in result.found.hits]


class Broken(FilesystemStore):
    """Cannot read its first snapshot any more."""

    async def read(self, session_id: str, *, at: int | None = None, strict: bool = False) -> StoredSnapshot:
        if at == 1:
            raise SnapshotCorrupted("the first one is damaged", session_id=session_id)
        return await super().read(session_id, at=at, strict=strict)


async def saved(store: FilesystemStore) -> None:
    for snapshot in (FIRST, SHORTER, EDITED, SHORTEST):
        await store.save(snapshot)


async def test_each_message_is_found_in_the_last_snapshot_that_had_it(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path, background=False) as store:
        await saved(store)
        result = await searched(store)
        assert places(result) == [(3, 1), (3, 2), (1, 0), (1, 1), (1, 2)]
        assert (result.found.counts, result.unreadable) == ({"s@3": 2, "s@1": 3}, ())
        assert places(await searched(store, "end OR birds")) == [(None, 0), (None, 1)]


async def test_single_snapshot_is_searched_alone(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path, background=False) as store:
        await saved(store)
        assert places(await searched(store, at=3)) == [(3, 1), (3, 2)]
        assert places(await searched(store, at=4)) == []
        with pytest.raises(SnapshotNotFound):
            await searched(store, at=9)


async def test_unreadable_snapshot_is_named_and_the_others_are_searched(tmp_path: Path) -> None:
    async with Broken(tmp_path, background=False) as store:
        await saved(store)
        result = await searched(store)
        assert (places(result), result.unreadable) == ([(3, 1), (3, 2)], ("s@1",))


async def test_secrets_of_earlier_snapshots_are_not_found(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path, background=False) as store:
        secret = "AKIA" + "IOSFODNN7EXAMPL2"
        await store.save(make_snapshot(f"key {secret}", "more", session_id="s"))
        await store.save(make_snapshot("end", session_id="s"))
        assert places(await searched(store, "key")) == [(1, 1)]
        assert places(await searched(store, secret)) == []
