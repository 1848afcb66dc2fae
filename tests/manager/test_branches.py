from __future__ import annotations

from datetime import UTC, datetime

import pytest

from snapshot_plugin import Conflict, MemoryStore
from snapshot_plugin.manager.branches import branched, merged, save_branch
from snapshot_plugin.manager.working_memory import PIN
from snapshot_plugin.testing import make_message, make_snapshot
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 5, 1, tzinfo=UTC)
ROOT = make_snapshot("hello", "hi", session_id="root", metadata={"spool": {"upto": 3}, "note": "kept"})


async def test_branch_never_replaces_an_existing_session() -> None:
    async with MemoryStore() as store:
        await store.save(ROOT)
        new = await branched(store, "root", as_id="other", now=NOW)
        await save_branch(store, new, trigger="fork")
        with pytest.raises(Conflict):
            await save_branch(store, new.append(make_message("more")), trigger="fork")
        assert await store.load("other") == new


REMEMBERING = ROOT.evolve(metadata={PIN: {"session_id": "root+memory", "seq": 1, "entries": 1, "own": "kept"}})


async def _remembering(store: MemoryStore) -> None:
    """A session whose snapshot names the first state of its memory; there is a later one."""
    await store.save(make_snapshot(session_id="root+memory", memory={"step": 1}))
    await store.save(make_snapshot(session_id="root+memory", memory={"step": 2}))
    await store.save(REMEMBERING)


def _owner(session_id: str) -> dict[str, object]:
    return {"session_id": session_id, "seq": 0}


async def test_branch_has_the_memory_at_the_fork() -> None:
    async with MemoryStore() as store:
        await store.save(ROOT.evolve(memory={"step": 1}))
        await store.save((await store.load("root")).evolve(memory={"step": 2}))
        new = await branched(store, "root", as_id="new", now=NOW, seq=1)
        made = await save_branch(store, new, trigger="fork")
        assert made == await store.load("new")
        assert (made.memory, made.metadata[PIN]) == ({"step": 1}, _owner("new"))
        assert [meta.session_id for meta in await store.list()] == ["new", "root"]


async def test_branch_has_the_memory_that_release_0_2_stored_beside_the_session() -> None:
    async with MemoryStore() as store:
        await _remembering(store)
        made = await save_branch(store, await branched(store, "root", as_id="new", now=NOW), trigger="fork")
        await store.delete("root+memory")
        assert made == await store.load("new")
        assert (made.memory, made.metadata[PIN]) == ({"step": 1}, _owner("new"))


async def test_merge_has_the_entries_that_each_branch_changed() -> None:
    async with MemoryStore() as store:
        await store.save(ROOT.evolve(memory={"both": 0, "ours": 0, "theirs": 0}))
        new = (await branched(store, "root", as_id="new", now=NOW)).append(make_message("more"))
        await save_branch(store, new.evolve(memory={"both": 0, "ours": 1, "theirs": 0}), trigger="fork")
        changed = (await store.load("root")).append(make_message("other"))
        await store.save(changed.evolve(memory={"both": 0, "ours": 0, "theirs": 2}))
        both = await merged(store, ("new", None), ("root", None), as_id="both", now=NOW)
        made = await save_branch(store, both.snapshot, trigger="merge")
        assert both.clashes == ()
        assert (made.memory, made.metadata[PIN]) == ({"both": 0, "ours": 1, "theirs": 2}, _owner("both"))


async def test_branch_uses_the_newest_memory_if_the_old_one_was_forgotten() -> None:
    async with MemoryStore() as store:
        await _remembering(store)
        await store.drop("root+memory", [1])
        made = await save_branch(store, await branched(store, "root", as_id="new", now=NOW), trigger="fork")
        assert made.memory == {"step": 2}


@pytest.mark.parametrize("pin", [{"session_id": "gone+memory", "seq": 1}, {"seq": []}, "mine"])
async def test_session_whose_memory_cannot_be_found_is_branched_without_it(pin: object) -> None:
    async with MemoryStore() as store:
        await store.save(ROOT.evolve(metadata={PIN: pin}))
        made = await save_branch(store, await branched(store, "root", as_id="new", now=NOW), trigger="fork")
        assert (made.messages, made.memory, made.metadata) == (ROOT.messages, {}, {})


async def test_branches_and_merges_do_not_inherit_a_spool() -> None:
    async with MemoryStore() as store:
        await store.save(ROOT)
        new = await branched(store, "root", as_id="other", now=NOW)
        await save_branch(store, new.append(make_message("more")), trigger="fork")
        both = await merged(store, ("root", None), ("other", None), as_id="both", now=NOW)
        assert new.metadata == {"note": "kept"}
        assert both.snapshot.metadata["note"] == "kept"
        assert "spool" not in both.snapshot.metadata
        assert both.clashes == ()
