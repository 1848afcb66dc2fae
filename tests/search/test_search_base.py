"""Searching reads, and reading changes nothing: a stale writer is refused whatever was searched meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_plugin import Conflict, FilesystemStore
from snapshot_plugin.testing import make_message, make_snapshot
from tests.search.searching import found

pytestmark = pytest.mark.anyio


async def test_a_stale_writer_gets_conflict_after_a_search_refreshed_its_index(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path / "store") as ours, FilesystemStore(tmp_path / "store") as theirs:
        await theirs.save(make_snapshot("one", session_id="s"))
        loaded = await ours.load("s")
        await theirs.save((await theirs.load("s")).append(make_message("theirs")))

        await found(ours, tmp_path / "cache", "theirs")
        with pytest.raises(Conflict):
            await ours.save(loaded.append(make_message("ours, stale")))
        assert (await theirs.load("s")).messages[-1].text == "theirs"
