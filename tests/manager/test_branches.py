from __future__ import annotations

from datetime import UTC, datetime

import pytest

from snapshot_plugin import MemoryStore
from snapshot_plugin.errors import Conflict
from snapshot_plugin.manager.branches import branched, merged, save_branch
from snapshot_plugin.testing import make_message, make_snapshot

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 5, 1, tzinfo=UTC)
ROOT = make_snapshot("hello", "hi", session_id="root", metadata={"spool": {"upto": 3}, "note": "kept"})


async def test_a_branch_never_takes_the_place_of_a_session_that_is_there() -> None:
    async with MemoryStore() as store:
        await store.save(ROOT)
        new = await branched(store, "root", as_id="other", now=NOW)
        await save_branch(store, new, trigger="fork")
        with pytest.raises(Conflict):
            await save_branch(store, new.append(make_message("more")), trigger="fork")
        assert await store.load("other") == new


async def test_neither_a_branch_nor_a_merge_has_the_spool_of_what_it_came_from() -> None:
    async with MemoryStore() as store:
        await store.save(ROOT)
        new = await branched(store, "root", as_id="other", now=NOW)
        await save_branch(store, new.append(make_message("more")), trigger="fork")
        both = await merged(store, ("root", None), ("other", None), as_id="both", now=NOW)
        assert new.metadata == {"note": "kept"}
        assert both.snapshot.metadata["note"] == "kept"
        assert "spool" not in both.snapshot.metadata
        assert both.clashes == ()
