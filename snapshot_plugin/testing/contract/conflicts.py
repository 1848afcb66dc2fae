"""**Conflict**: a stale writer is refused, never acknowledged and lost."""
# ruff: noqa: S101, D102, PLR2004 — a test suite: its names are its docstrings

from __future__ import annotations

import anyio
import pytest

from snapshot_plugin.errors import Conflict, SnapshotNotFound
from snapshot_plugin.model.policy import RetentionPolicy
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.testing.build import make_snapshot
from snapshot_plugin.testing.contract.stage import PATIENCE, Opener, Stage, on_top

__all__ = ["Conflicts"]

_OTHERS = 300
"""More sessions than a store object caches."""


class Conflicts(Stage):
    """Two store objects write the same session."""

    async def test_a_writer_that_missed_a_save_is_refused_and_writes_nothing(self, opened: Opener) -> None:
        stale, other = opened(), opened()
        await stale.save(make_snapshot("a"))
        await other.save(make_snapshot("a", "other"), base=1)

        with pytest.raises(Conflict):
            await stale.save(make_snapshot("a", "stale"))

        assert await opened().load("session") == make_snapshot("a", "other")
        assert len(await opened().history("session")) == 2

    async def test_a_refused_writer_stays_refused_until_it_loads_the_newest(self, opened: Opener) -> None:
        stale, other = opened(), opened()
        await stale.save(make_snapshot("a"))
        await other.save(make_snapshot("a", "other"), base=1)
        for _ in range(2):
            with pytest.raises(Conflict):
                await stale.save(make_snapshot("a", "stale"))
        await stale.load("session", at=2)  # a number, not just "the newest"
        with pytest.raises(Conflict):
            await stale.save(make_snapshot("a", "stale"))

        await stale.load("session")  # reading changes nothing either
        with pytest.raises(Conflict):
            await stale.save(make_snapshot("a", "stale"))

        assert (await stale.save(await on_top(stale, make_snapshot("a", "other", "mine")))).seq == 3

    async def test_even_an_unchanged_save_of_a_stale_writer_is_refused(self, opened: Opener) -> None:
        stale, other = opened(), opened()
        await stale.save(make_snapshot("a"))
        await other.save(make_snapshot("a", "other"), base=1)

        with pytest.raises(Conflict):
            await stale.save(make_snapshot("a"))

    async def test_a_writer_that_loaded_before_another_one_saved_is_refused(self, opened: Opener) -> None:
        await opened().save(make_snapshot("a"))
        stale = opened()
        change = await on_top(stale, make_snapshot("a", "stale"))
        await opened().save(make_snapshot("a", "other"), base=1)

        with pytest.raises(Conflict):
            await stale.save(change)

    async def test_a_stale_writer_is_refused_after_unrelated_reads_through_the_same_store(
        self, opened: Opener
    ) -> None:
        await opened().save(make_snapshot("a"))
        shared = opened()
        change = (await shared.load("session")).append(*make_snapshot("stale").messages)
        await opened().save(make_snapshot("a", "other"), base=1)
        await shared.load("session")
        await shared.list()
        await shared.history("session")
        await shared.check()

        with pytest.raises(Conflict):
            await shared.save(change)

        assert await opened().load("session") == make_snapshot("a", "other")

    async def test_a_loaded_snapshot_is_saved_through_any_store_object_that_did_not_see_it(
        self, opened: Opener
    ) -> None:
        await opened().save(make_snapshot("a"))
        change = await on_top(opened(), make_snapshot("a", "b"))

        assert (await opened().save(change)).seq == 2
        with pytest.raises(Conflict):
            await opened().save(change.evolve(title="built on 1"))

    async def test_an_old_snapshot_is_not_saved_over_newer_ones_unless_the_base_is_named(
        self, opened: Opener
    ) -> None:
        writer = opened()
        for length in (1, 2, 3):
            await writer.save(make_snapshot(*"abc"[:length]))
        fresh = opened()
        old = await fresh.load("session", at=1)
        with pytest.raises(Conflict):
            await fresh.save(old)

        assert (await fresh.save(old, base=3)).seq == 4
        assert await opened().load("session") == make_snapshot("a")

    async def test_a_value_that_was_never_loaded_does_not_replace_a_session_that_exists(
        self, opened: Opener
    ) -> None:
        await opened().save(make_snapshot("a"))
        fresh = opened()
        await fresh.list()
        await fresh.load("session")

        for unseen in (make_snapshot("entirely", "new"), make_snapshot("a")):
            with pytest.raises(Conflict):
                await fresh.save(unseen)

        assert await opened().load("session") == make_snapshot("a")

    async def test_load_not_found_then_save_does_not_replace_another_ones_first_save(self, opened: Opener) -> None:
        slow = opened()
        with pytest.raises(SnapshotNotFound):
            await slow.load("session")
        await opened().save(make_snapshot("first"))

        with pytest.raises(Conflict):
            await slow.save(make_snapshot("second"))

        assert await opened().load("session") == make_snapshot("first")

    async def test_of_two_first_saves_at_once_one_is_refused(self, opened: Opener) -> None:
        for turn in range(5):
            outcomes: list[str] = []

            async def save(text: str, session_id: str, outcomes: list[str]) -> None:
                try:
                    await opened().save(make_snapshot(text, session_id=session_id))
                except Conflict:
                    return
                outcomes.append(text)

            with anyio.fail_after(PATIENCE):
                async with anyio.create_task_group() as tasks:
                    for text in "abcd":
                        tasks.start_soon(save, text, f"race-{turn}", outcomes)
            assert len(outcomes) == 1
            kept = await opened().load(f"race-{turn}")
            assert [message.text for message in kept.messages] == outcomes

    async def test_a_fork_builds_on_nothing(self, opened: Opener) -> None:
        store = opened()
        await store.save(make_snapshot("a"))
        fork = (await store.load("session")).evolve(session_id="fork")

        assert (await store.save(fork)).seq == 1

    async def test_a_writer_that_stalled_while_another_saved_and_forgot_is_refused(self, opened: Opener) -> None:
        stale, other = opened(), opened()
        await stale.save(make_snapshot("a"))
        for length in (2, 3, 4):
            await other.save(make_snapshot(*"abcd"[:length]), base=length - 1)
        await other.forget("session", RetentionPolicy(keep_last=1))

        with pytest.raises(Conflict):
            await stale.save(make_snapshot("a", "stale"))

        assert await opened().load("session") == make_snapshot("a", "b", "c", "d")

    async def test_a_writer_whose_session_was_deleted_is_refused(self, opened: Opener) -> None:
        stale, other = opened(), opened()
        await stale.save(make_snapshot("a"))
        await other.delete("session")

        with pytest.raises(Conflict):
            await stale.save(make_snapshot("a", "stale"))

        assert not await opened().list()

    async def test_a_writer_whose_session_was_deleted_and_begun_again_is_refused(self, opened: Opener) -> None:
        stale, other = opened(), opened()
        await stale.save(make_snapshot("a"))
        await other.delete("session")
        await other.save(make_snapshot("new"))

        with pytest.raises(Conflict):
            await stale.save(make_snapshot("a", "stale"))

        assert await opened().load("session") == make_snapshot("new")

    async def test_a_forget_by_another_store_object_is_not_a_conflict(self, opened: Opener) -> None:
        writer = opened()
        for length in (1, 2, 3):
            await writer.save(make_snapshot(*"abc"[:length]))
        await opened().forget("session", RetentionPolicy(keep_last=1))

        assert (await writer.save(make_snapshot("a", "b", "c", "d"))).seq == 4
        assert await opened().load("session") == make_snapshot("a", "b", "c", "d")

    async def test_a_stale_writer_is_refused_though_it_saved_many_other_sessions_since(
        self, opened: Opener
    ) -> None:
        stale = opened()
        await stale.save(make_snapshot("a"))
        for number in range(_OTHERS):
            await stale.save(make_snapshot(session_id=f"other-{number}"))
        await opened().save(make_snapshot("a", "other"), base=1)

        with pytest.raises(Conflict):
            await stale.save(make_snapshot("a", "stale"))

    async def test_base_zero_means_the_session_must_not_exist(self, opened: Opener) -> None:
        assert (await opened().save(make_snapshot("a"), base=0)).seq == 1

        with pytest.raises(Conflict):
            await opened().save(make_snapshot("b"), base=0)

        assert await opened().load("session") == make_snapshot("a")

    async def test_base_zero_begins_a_session_again_that_another_store_object_deleted(self, opened: Opener) -> None:
        store = opened()
        await store.save(make_snapshot("a"))
        await store.load("session")
        await opened().delete("session")

        await store.save(make_snapshot("b"), base=0)

        assert await opened().load("session") == make_snapshot("b")

    async def test_an_unchanged_save_on_a_named_base_is_what_the_next_save_builds_on(self, opened: Opener) -> None:
        store, other = opened(), opened()
        await store.save(make_snapshot("a"))
        theirs = (await other.load("session")).evolve(messages=make_snapshot("a", "b").messages)
        assert (await other.save(theirs)).seq == 2

        assert not (await store.save(make_snapshot("a", "b"), base=2)).written
        assert (await store.save(make_snapshot("a", "b", "c"))).seq == 3

    async def test_base_names_the_number_the_session_must_be_at(self, opened: Opener) -> None:
        store = opened()
        await store.save(make_snapshot("a"))
        await store.save(make_snapshot("a", "b"))
        for wrong in (0, 1, 3, -1):
            with pytest.raises(Conflict):
                await opened().save(make_snapshot("c"), base=wrong)
            with pytest.raises(Conflict):
                await store.save(make_snapshot("c"), base=wrong)

        assert (await opened().save(make_snapshot("a", "b", "c"), base=2)).seq == 3

    async def test_base_counts_more_than_what_the_store_object_saw_last(self, opened: Opener) -> None:
        behind = opened()
        await behind.save(make_snapshot("a"))
        await opened().save(make_snapshot("a", "other"), base=1)

        assert (await behind.save(make_snapshot("a", "other", "mine"), base=2)).seq == 3
        assert await opened().load("session") == make_snapshot("a", "other", "mine")

    async def test_a_wrong_base_does_not_make_a_stale_writer_a_fresh_one(self, opened: Opener) -> None:
        stale = opened()
        await stale.save(make_snapshot("a"))
        await opened().save(make_snapshot("a", "other"), base=1)
        with pytest.raises(Conflict):
            await stale.save(make_snapshot("a", "stale"), base=7)

        with pytest.raises(Conflict):
            await stale.save(make_snapshot("a", "stale"))

    async def test_of_writers_that_save_at_once_on_the_same_base_exactly_one_wins(self, opened: Opener) -> None:
        stores = [opened() for _ in range(4)]
        for base in range(5):
            winners: list[int] = []

            async def race(store: SnapshotStore, number: int, base: int, winners: list[int]) -> None:
                try:
                    await store.save(make_snapshot(f"round {base}", f"writer {number}"), base=base)
                except Conflict:
                    return
                winners.append(number)

            with anyio.fail_after(PATIENCE):
                async with anyio.create_task_group() as tasks:
                    for number, store in enumerate(stores):
                        tasks.start_soon(race, store, number, base, winners)
            assert len(winners) == 1
            assert await opened().load("session") == make_snapshot(f"round {base}", f"writer {winners[0]}")
