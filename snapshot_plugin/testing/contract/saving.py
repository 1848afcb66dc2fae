"""**Durable on return**, **Order**, **Unchanged**: what a save leaves behind."""
# ruff: noqa: S101, D102, PLR2004 — a test suite: its names are its docstrings

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import anyio

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.model.meta import SnapshotRef
from snapshot_plugin.store.engine import LogStore
from snapshot_plugin.testing.build import make_message, make_snapshot
from snapshot_plugin.testing.clock import FixedClock
from snapshot_plugin.testing.contract.stage import PATIENCE, Opener, Stage, on_top

__all__ = ["Saving"]


class Saving(Stage):
    """What a save leaves behind, seen by the same and by other store objects."""

    async def test_a_saved_snapshot_is_what_another_store_object_loads(self, opened: Opener) -> None:
        snapshot = make_snapshot("hello", "hi")

        ref = await opened().save(snapshot)

        assert (ref.session_id, ref.seq, ref.written) == ("session", 1, True)
        assert ref.size_bytes > 0
        assert ref.notices == ()
        assert await opened().load("session") == snapshot

    async def test_every_save_gets_the_next_number_and_stays_loadable_under_it(self, opened: Opener) -> None:
        store = opened()
        growing = [make_snapshot(*"abcd"[:length]) for length in range(1, 5)]

        refs = [await store.save(snapshot) for snapshot in growing]

        assert [ref.seq for ref in refs] == [1, 2, 3, 4]
        assert [await opened().load("session", at=seq) for seq in (1, 2, 3, 4)] == growing

    async def test_a_store_opened_later_continues_the_numbers(self, opened: Opener) -> None:
        await opened().save(make_snapshot("a"))

        store = opened()
        assert (await store.save(await on_top(store, make_snapshot("a", "b")))).seq == 2
        assert (await opened().save(make_snapshot("a", "b", "c"), base=2)).seq == 3

    async def test_sessions_count_for_themselves(self, opened: Opener) -> None:
        store = opened()
        await store.save(make_snapshot("a", session_id="one"))

        assert (await store.save(make_snapshot("b", session_id="two"))).seq == 1
        assert (await store.load("one")).messages[0].text == "a"
        assert (await store.load("two")).messages[0].text == "b"

    async def test_session_ids_that_differ_only_in_case_are_different_sessions(self, opened: Opener) -> None:
        store = opened()
        await store.save(make_snapshot("small", session_id="name"))
        await store.save(make_snapshot("large", session_id="Name"))

        assert (await opened().load("name")).messages[0].text == "small"
        assert (await opened().load("Name")).messages[0].text == "large"

    async def test_any_edit_of_the_conversation_is_kept(self, opened: Opener) -> None:
        store, reader = opened(), opened()
        edits = [
            make_snapshot("a", "b", "c", "d"),
            make_snapshot("a", "B", "c", "d"),
            make_snapshot("a", "B"),
            make_snapshot("summary", "B"),
            make_snapshot("summary", "B", "B", "B"),
            make_snapshot(),
            make_snapshot("new"),
        ]
        for edit in edits:
            await store.save(edit)
            assert await reader.load("session") == edit
        assert [await reader.load("session", at=seq) for seq in range(1, 8)] == edits

    async def test_any_change_of_the_state_is_kept(self, opened: Opener) -> None:
        store, reader = opened(), opened()
        plain = make_snapshot("a")
        changes = [
            plain.evolve(title="first", memory={"facts": [1, 2], "notes": "x"}),
            plain.evolve(title="second", memory={"facts": [1, 2], "notes": "y"}),
            plain.evolve(memory={"facts": [1, 2]}, plugins={"facts": None}),
            plain.evolve(metadata={"": {}, "empty": [], "deep": {"a": {"b": [None, True, 0.5]}}}),
            plain,
        ]
        for change in changes:
            await store.save(change)
            assert await reader.load("session") == change
        assert [await reader.load("session", at=seq) for seq in range(1, 6)] == changes

    async def test_equal_content_has_an_equal_root_whatever_came_before(
        self, opened: Opener, clock: FixedClock
    ) -> None:
        store, snapshot = opened(), make_snapshot("a", title="t")
        first = await store.save(snapshot)
        other = await store.save(make_snapshot("b"))
        clock.advance(timedelta(hours=1))
        later = snapshot.evolve(updated_at=snapshot.updated_at + timedelta(hours=1))
        again = await store.save(later, trigger="exit", tags=["again"])

        assert first.root == again.root != other.root

    async def test_numbers_grow_though_the_clock_runs_backwards(self, opened: Opener, clock: FixedClock) -> None:
        store = opened()
        for length in (1, 2, 3):
            await store.save(make_snapshot(*"abc"[:length]))
            clock.advance(timedelta(hours=-2))

        history = await opened().history("session")
        assert [meta.seq for meta in history] == [3, 2, 1]
        assert history[0].saved_at < history[1].saved_at < history[2].saved_at
        assert len((await opened().load("session")).messages) == 3

    async def test_saves_happen_in_the_order_in_which_they_were_called(self, opened: Opener) -> None:
        store = opened()
        called = [anyio.Event() for _ in range(13)]
        numbers: dict[int, int] = {}

        async def save(length: int) -> None:
            await called[length - 1].wait()
            called[length].set()  # no other task runs before the call below has started
            numbers[length] = (await store.save(make_snapshot(*"abcdefghijkl"[:length]))).seq

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                for length in range(1, 13):
                    tasks.start_soon(save, length)
                called[0].set()
        assert numbers == {length: length for length in range(1, 13)}

    async def test_an_unchanged_session_writes_nothing(self, opened: Opener) -> None:
        store, snapshot = opened(), make_snapshot("a", "b", title="same", memory={"k": 1})
        first = await store.save(snapshot)

        again = await store.save(make_snapshot("a", "b", title="same", memory={"k": 1}))

        assert (again.seq, again.root, again.written) == (first.seq, first.root, False)
        assert len(await store.history("session")) == 1

    async def test_a_later_updated_at_alone_is_not_a_change(self, opened: Opener) -> None:
        store, snapshot = opened(), make_snapshot("a")
        await store.save(snapshot)

        touched = snapshot.evolve(updated_at=snapshot.updated_at + timedelta(hours=1))

        assert not (await store.save(touched)).written

    async def test_an_unchanged_session_writes_nothing_through_a_store_opened_later(self, opened: Opener) -> None:
        snapshot = make_snapshot("a", "b", title="same", metadata={"k": [1]})
        first = await opened().save(snapshot)

        again = await opened().save(snapshot, base=1)

        assert (again.seq, again.root, again.written) == (first.seq, first.root, False)

    async def test_an_unchanged_session_writes_nothing_however_often_it_changed_before(
        self, opened: Opener
    ) -> None:
        store = opened()
        for number in range(60):
            await store.save(make_snapshot("a", title=f"{number}" * 1000))

        store = opened()
        again = await store.save(await on_top(store, make_snapshot("a", title="59" * 1000)))

        assert (again.seq, again.written) == (60, False)

    async def test_snapshot_tags_make_even_an_unchanged_session_be_saved(self, opened: Opener) -> None:
        store, snapshot = opened(), make_snapshot("a")
        first = await store.save(snapshot)

        tagged = await store.save(snapshot, tags=["release", "v1"])

        assert (tagged.seq, tagged.root, tagged.written) == (2, first.root, True)
        assert (await opened().history("session"))[0].snapshot_tags == ("release", "v1")
        assert await opened().load("session") == snapshot

    async def test_what_changed_decides_the_size_not_how_long_the_session_is(self, opened: Opener) -> None:
        store = opened()
        long = make_snapshot(*(f"message number {n} of a long session" for n in range(2000)))
        whole = await store.save(long.evolve(memory={"large": list(range(20_000))}))

        small: list[SnapshotRef] = []
        for number in range(3):
            long = long.append(make_message(f"one more {number}"))
            small.append(await store.save(long.evolve(memory={"large": list(range(20_000))})))

        assert max(ref.size_bytes for ref in small) < whole.size_bytes / 20

    async def test_the_largest_tags_that_are_accepted_can_be_rewritten(self, opened: Opener) -> None:
        store, session, size = opened(), make_snapshot("x" * 20_000), 66_000
        await store.save(session)
        for step in (100, 1):  # as close to the limit as it gets
            session = session.append(make_message("y" * 5000))
            while True:
                with suppress(InvalidInput):
                    await store.save(session, tags=["t" * size])
                    break
                size -= step
            size += step - 1

        if isinstance(store, LogStore):
            await store.compact("session")
        await store.forget("session", seqs=[1])

        assert await opened().load("session", strict=True) == session
        assert max(len(tag) for meta in await opened().history("session") for tag in meta.snapshot_tags) > 60_000
