"""Partial reads: `tip`, `page`, `section`, `changes`, `walk`, and labels."""
# ruff: noqa: S101, D102, PLR2004 — a test suite: its names are its docstrings

from __future__ import annotations

from typing import Any

import pytest

from snapshot_plugin.errors import Conflict, InvalidInput, SnapshotNotFound
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.testing.build import make_snapshot
from snapshot_plugin.testing.contract.stage import Opener, Stage

__all__ = ["Parts"]

_TEXTS = [f"message {number}" for number in range(30)]


class Parts(Stage):
    """Reading less than a whole snapshot, or more than one."""

    async def _grown(self, store: SnapshotStore) -> None:
        for length in range(1, len(_TEXTS) + 1):
            await store.save(make_snapshot(*_TEXTS[:length], metadata={"length": length, "same": "always"}))

    async def test_the_tip_changes_with_every_save_and_with_nothing_else(self, opened: Opener) -> None:
        store = opened()
        assert await store.tip("session") is None
        await store.save(make_snapshot("a"))
        first = await opened().tip("session")
        assert first is not None
        assert first.seq == 1
        await opened().load("session")
        assert await opened().tip("session") == first

        await store.save(make_snapshot("a", "b"))

        second = await opened().tip("session")
        assert second is not None
        assert (second.seq, second.id != first.id) == (2, True)

    async def test_a_page_has_the_messages_asked_for(self, opened: Opener) -> None:
        store = opened()
        await self._grown(store)
        for reader in (store, opened()):
            page = await reader.page("session", start=10, count=5)
            assert [message.text for message in page.messages] == _TEXTS[10:15]
            assert (page.seq, page.start, page.total) == (30, 10, 30)
            newest = await reader.page("session", count=4)
            assert ([message.text for message in newest.messages], newest.start) == (_TEXTS[-4:], 26)
            older = await reader.page("session", at=7, start=5, count=40)
            assert ([message.text for message in older.messages], older.total) == (_TEXTS[5:7], 7)
            assert (await reader.page("session", start=99)).messages == ()

    async def test_a_page_shows_what_was_saved_since_the_last_one(self, opened: Opener) -> None:
        store, reader = opened(), opened()
        await store.save(make_snapshot("a"))
        assert (await reader.page("session")).total == 1
        await store.save(make_snapshot("a", "b"))
        assert (await reader.page("session")).total == 2
        await store.delete("session")
        with pytest.raises(SnapshotNotFound):
            await reader.page("session")

    async def test_a_page_that_cannot_be_is_refused(self, opened: Opener) -> None:
        store = opened()
        await store.save(make_snapshot("a"))
        for start, count in ((-1, 5), (0, -1)):
            with pytest.raises(InvalidInput):
                await store.page("session", start=start, count=count)
        with pytest.raises(SnapshotNotFound):
            await store.page("session", at=9)
        with pytest.raises(SnapshotNotFound, match="snapshot 0"):
            await store.load("session", at=0)

    async def test_one_section_is_read_alone(self, opened: Opener) -> None:
        await self._grown(opened())

        assert await opened().section("session", "metadata", "length") == 30
        assert await opened().section("session", "metadata", "length", at=4) == 4
        assert await opened().section("session", "metadata", "missing") is None

    async def test_a_walk_reads_many_snapshots_that_share_their_messages(self, opened: Opener) -> None:
        store = opened()
        await self._grown(store)
        seqs = [30, 3, 17]

        found = await opened().walk("session", seqs)

        assert [len(snapshot.messages) for snapshot in found] == seqs
        assert found == [await store.load("session", at=seq) for seq in seqs]
        assert found[0].messages[0] is found[1].messages[0] is found[2].messages[0]
        assert await store.walk("session", []) == []
        with pytest.raises(SnapshotNotFound):
            await store.walk("session", [1, 99])

    async def test_what_a_walk_returns_is_saved_only_on_top_of_itself(self, opened: Opener) -> None:
        await self._grown(opened())
        fresh = opened()
        older, newest = await fresh.walk("session", [29, 30])

        with pytest.raises(Conflict):
            await fresh.save(older.evolve(title="stale"))

        assert (await fresh.save(newest.evolve(title="fine"))).seq == 31

    async def test_parts_of_a_forgotten_snapshot_are_gone(self, opened: Opener) -> None:
        store, other = opened(), opened()
        for length in (1, 2, 3, 4):
            await store.save(make_snapshot(*"abcd"[:length], memory={"n": length}))
        for reader in (store, other):
            assert (await reader.page("session", at=2)).total == 2
            assert await reader.section("session", "memory", "n", at=3) == 3

        await store.forget("session", seqs=[2, 3])

        for reader in (store, other):
            with pytest.raises(SnapshotNotFound):
                await reader.page("session", at=2)
            with pytest.raises(SnapshotNotFound):
                await reader.section("session", "memory", "n", at=3)
            assert (await reader.page("session", at=4)).total == 4

    async def test_labels_find_a_snapshot_and_are_not_tags(self, opened: Opener) -> None:
        store = opened()
        await store.save(make_snapshot("a"), labels={"checkpoint": "1", "kind": "graph"})
        await store.save(make_snapshot("a"), labels={"checkpoint": "2", "kind": "graph"})
        await store.save(make_snapshot("b", session_id="plain"))

        (found,) = await opened().history("session", labels={"checkpoint": "1"})

        assert (found.seq, dict(found.labels)) == (1, {"checkpoint": "1", "kind": "graph"})
        assert (found.snapshot_tags, found.tags) == ((), ())
        assert [meta.session_id for meta in await opened().list(labels={"kind": "graph"})] == ["session"]
        assert [meta.seq for meta in await opened().history("session", labels={"kind": "graph"})] == [2, 1]
        assert list(await opened().list(labels={"kind": "other"})) == []

    async def test_labels_may_have_the_names_of_the_format(self, opened: Opener) -> None:
        store = opened()
        names = ("sum", "root", "id", "labels", "frame", '"', "\ud83d", "")
        for seq, name in enumerate(names, start=1):
            await store.save(make_snapshot(*"abcdefgh"[:seq]), labels={name: "0" * 64})
            assert (await opened().load("session")).messages[-1].text == "abcdefgh"[seq - 1]
        assert [dict(meta.labels) for meta in await opened().history("session")] == [
            {name: "0" * 64} for name in reversed(names)
        ]
        assert (await opened().check()).ok

    @pytest.mark.parametrize(
        "about",
        [{"labels": {"turn": 3}}, {"labels": {3: "x"}}, {"trigger": None}, {"tags": [5]}, {"tags": "one"}],
    )
    async def test_what_is_said_about_a_snapshot_is_text_or_refused(self, opened: Opener, about: Any) -> None:
        store = opened()
        await store.save(make_snapshot("a"))
        with pytest.raises(InvalidInput, match="are text"):
            await store.save(make_snapshot("a", "b"), base=1, **about)
        assert (await opened().load("session")) == make_snapshot("a")
