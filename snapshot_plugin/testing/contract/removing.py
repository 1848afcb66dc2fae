"""`delete`, `trash`, `undelete`, `purge`: a deleted session can be restored until it is purged."""
# ruff: noqa: S101, D102, PLR2004 — a test suite: its names are its docstrings

from __future__ import annotations

import contextlib
from datetime import timedelta

import anyio
import pytest

from snapshot_plugin.errors import Conflict, SnapshotNotFound
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.testing.build import make_snapshot
from snapshot_plugin.testing.clock import FixedClock
from snapshot_plugin.testing.contract.stage import PATIENCE, Opener, Stage, facts_of, on_top

__all__ = ["Removing"]

_MANY = 24
_GRACE = timedelta(days=7)
_TICK = timedelta(seconds=1)


class Removing(Stage):
    """A deleted session can be restored until the grace period is over."""

    async def test_a_deleted_session_is_not_found(self, opened: Opener) -> None:
        store = opened()
        await store.save(make_snapshot("a"))
        await store.save(make_snapshot("b", session_id="another"))

        await store.delete("session")

        for witness in (store, opened()):
            assert [meta.session_id for meta in await witness.list()] == ["another"]
            with pytest.raises(SnapshotNotFound):
                await witness.load("session")
            with pytest.raises(SnapshotNotFound):
                await witness.load("session", at=1)
            with pytest.raises(SnapshotNotFound):
                await witness.history("session")
            with pytest.raises(SnapshotNotFound):
                await witness.delete("session")

    async def test_the_trash_shows_what_was_deleted_newest_first(self, opened: Opener, clock: FixedClock) -> None:
        store, deleted = opened(), []
        for session_id in ("one", "two", "one"):
            await store.save(make_snapshot("a", session_id=session_id))
            deleted.append(await store.delete(session_id))
            assert (deleted[-1].session_id, deleted[-1].deleted_at) == (session_id, clock())
            assert deleted[-1].size_bytes > 0
            clock.advance(_TICK)

        assert list(await opened().trash()) == deleted[::-1]

    async def test_an_undeleted_session_is_back_with_all_its_snapshots(self, opened: Opener) -> None:
        store = opened()
        for length in (1, 2, 3):
            await store.save(make_snapshot(*"abc"[:length]))
        before = await opened().history("session")
        token = (await store.delete("session")).token

        assert await opened().undelete(token) == "session"

        assert facts_of(await opened().history("session")) == facts_of(before)
        assert await opened().load("session", at=2) == make_snapshot("a", "b")
        assert list(await opened().trash()) == []
        assert (await store.save(await on_top(store, make_snapshot("a", "b", "c", "d")))).seq == 4

    async def test_a_session_can_only_be_brought_back_once(self, opened: Opener) -> None:
        store = opened()
        await store.save(make_snapshot("a"))
        token = (await store.delete("session")).token
        await store.undelete(token)

        for gone in (token, "never-there", ""):
            with pytest.raises(SnapshotNotFound):
                await store.undelete(gone)

    async def test_a_new_session_may_take_the_name_and_then_the_old_one_stays_out(self, opened: Opener) -> None:
        store = opened()
        await store.save(make_snapshot("old"))
        token = (await store.delete("session")).token
        assert (await store.save(make_snapshot("new"))).seq == 1

        with pytest.raises(Conflict):
            await store.undelete(token)

        assert await opened().load("session") == make_snapshot("new")
        await store.delete("session")
        assert await store.undelete(token) == "session"
        assert await opened().load("session") == make_snapshot("old")

    async def test_who_is_refused_after_the_deletion_does_not_take_the_name(self, opened: Opener) -> None:
        store, stale = opened(), opened()
        await stale.save(make_snapshot("a"))
        token = (await store.delete("session")).token
        with pytest.raises(Conflict):
            await stale.save(make_snapshot("a", "stale"))

        assert await store.undelete(token) == "session"
        assert await opened().load("session") == make_snapshot("a")

    async def test_of_two_deletions_at_once_one_finds_nothing(self, opened: Opener) -> None:
        stores = [opened() for _ in range(4)]
        outcomes: list[str] = []

        async def delete(store: SnapshotStore) -> None:
            try:
                outcomes.append((await store.delete("session")).session_id)
            except SnapshotNotFound:
                outcomes.append("not found")

        for _ in range(5):
            await opened().save(make_snapshot("a"))
            outcomes.clear()
            with anyio.fail_after(PATIENCE):
                async with anyio.create_task_group() as tasks:
                    for store in stores:
                        tasks.start_soon(delete, store)
            assert sorted(outcomes) == ["not found"] * 3 + ["session"]
        assert len(await opened().trash()) == 5

    async def test_purge_spares_what_is_still_in_its_grace_period(self, opened: Opener, clock: FixedClock) -> None:
        store = opened()
        await store.save(make_snapshot("a"))
        trashed = await store.delete("session")
        clock.advance(_GRACE - _TICK)

        assert list(await store.purge(older_than=_GRACE)) == []

        assert list(await opened().trash()) == [trashed]
        assert await store.undelete(trashed.token) == "session"

    async def test_purge_removes_for_ever_what_is_past_its_grace_period(
        self, opened: Opener, clock: FixedClock
    ) -> None:
        store = opened()
        await store.save(make_snapshot("a", session_id="older"))
        older = await store.delete("older")
        clock.advance(_GRACE)
        await store.save(make_snapshot("a", session_id="newer"))
        newer = await store.delete("newer")
        clock.advance(_TICK)

        assert list(await opened().purge(older_than=_GRACE)) == [older]

        assert list(await opened().trash()) == [newer]
        with pytest.raises(SnapshotNotFound):
            await store.undelete(older.token)

    async def test_the_trash_is_listed_and_emptied_by_several_at_once(self, opened: Opener) -> None:
        first, tokens = opened(), set()
        for number in range(_MANY):
            await first.save(make_snapshot("a", session_id=f"{number}"))
            tokens.add((await first.delete(f"{number}")).token)
        purged: list[str] = []
        back: list[str] = []
        listed: list[int] = []

        async def purge() -> None:
            purged.extend([each.token for each in await opened().purge(older_than=timedelta(0))])

        async def look() -> None:
            store = opened()
            while not listed or listed[-1]:
                listed.append(len(await store.trash()))

        async def undelete() -> None:
            store = opened()
            for entry in reversed(await store.trash()):
                with contextlib.suppress(SnapshotNotFound):
                    await store.undelete(entry.token)
                    back.append(entry.token)

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                for work in (look, undelete, purge, purge):
                    tasks.start_soon(work)
        assert sorted([*purged, *back]) == sorted(tokens)
        assert len(await opened().list()) == len(back)

    async def test_purge_has_a_grace_period_of_its_own(self, opened: Opener, clock: FixedClock) -> None:
        store = opened()
        await store.save(make_snapshot("a"))
        trashed = await store.delete("session")

        assert list(await store.purge()) == []
        assert list(await store.purge(now=clock() + timedelta(days=3650))) == [trashed]

    async def test_purge_leaves_living_sessions_alone(self, opened: Opener) -> None:
        store = opened()
        await store.save(make_snapshot("old"))
        await store.delete("session")
        await store.save(make_snapshot("new"))

        assert len(await store.purge(older_than=timedelta(0))) == 1

        assert await opened().load("session") == make_snapshot("new")

    async def test_a_deleted_session_is_restored_under_another_id_if_its_own_is_taken(self, opened: Opener) -> None:
        store = opened()
        for length in (1, 2, 3):
            await store.save(make_snapshot(*"abc"[:length]))
        token = (await store.delete("session")).token
        await store.save(make_snapshot("new"))

        assert await opened().undelete(token, session_id="old") == "old"

        assert await opened().load("session") == make_snapshot("new")
        assert await opened().load("old", at=2) == make_snapshot("a", "b", session_id="old")
        assert [meta.seq for meta in await opened().history("old")] == [3, 2, 1]
        assert list(await opened().trash()) == []

    async def test_another_id_that_is_taken_is_refused_and_the_session_stays_in_the_trash(
        self, opened: Opener
    ) -> None:
        store = opened()
        await store.save(make_snapshot("a"))
        await store.save(make_snapshot("b", session_id="other"))
        trashed = await store.delete("session")

        with pytest.raises(Conflict):
            await store.undelete(trashed.token, session_id="other")

        assert list(await opened().trash()) == [trashed]

    async def test_a_session_can_be_removed_for_ever_at_once(self, opened: Opener) -> None:
        store = opened()
        await store.save(make_snapshot("a"))
        await store.save(make_snapshot("b", session_id="deleted"))
        kept = await store.delete("deleted")

        gone = await store.delete("session", purge=True)

        assert list(await opened().trash()) == [kept]
        with pytest.raises(SnapshotNotFound):
            await opened().undelete(gone.token)
        assert (await store.save(make_snapshot("new"))).seq == 1
