"""**Corrupt**: stored bytes are verified before they are used. Needs the suite's `damage_newest`."""
# ruff: noqa: S101, D102, PLR2004 — a test suite: its names are its docstrings

from __future__ import annotations

from typing import Any

import pytest

from snapshot_plugin.errors import Damaged
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.testing.build import make_snapshot
from snapshot_plugin.testing.contract.stage import Opener, Stage, on_top

__all__ = ["Damage"]

_WHOLE, _LOST = make_snapshot("a", "b"), make_snapshot("a", "b", "damaged soon")


class Damage(Stage):
    """The newer of two snapshots has a changed byte."""

    async def _hurt(self, opened: Opener, place: Any) -> SnapshotStore:
        writer = opened()
        await writer.save(_WHOLE)
        await writer.save(_LOST)
        self.damage_newest(place, "session")
        return opened()

    async def test_loading_falls_back_to_the_newest_that_is_whole(self, opened: Opener, place: Any) -> None:
        store = await self._hurt(opened, place)

        found = await store.read("session")

        assert (found.snapshot, found.ref.seq) == (_WHOLE, 1)
        assert [finding.session_id for finding in found.skipped] == ["session"]
        assert found.skipped[0].is_damage
        assert await store.load("session") == _WHOLE

    async def test_strict_loading_and_a_named_number_raise_instead(self, opened: Opener, place: Any) -> None:
        store = await self._hurt(opened, place)

        with pytest.raises(Damaged):
            await store.load("session", strict=True)
        with pytest.raises(Damaged):
            await store.read("session", at=2)
        assert await store.load("session", at=1, strict=True) == _WHOLE

    async def test_if_nothing_is_whole_loading_raises(self, opened: Opener, place: Any) -> None:
        await opened().save(_WHOLE)
        self.damage_newest(place, "session")

        with pytest.raises(Damaged):
            await opened().load("session")

    async def test_damage_is_listed_and_never_left_out(self, opened: Opener, place: Any) -> None:
        store = await self._hurt(opened, place)

        (listed,) = await store.list()
        newest, older = await store.history("session")

        assert (listed.session_id, listed.state) == ("session", "damaged")
        assert listed.problem
        assert [(newest.seq, newest.state), (older.seq, older.state)] == [(2, "damaged"), (1, "ok")]

    async def test_check_finds_the_damage_and_changes_nothing(self, opened: Opener, place: Any) -> None:
        store = await self._hurt(opened, place)

        for _ in range(2):
            report = await store.check()
            assert (report.ok, report.repaired) == (False, ())
            assert {finding.session_id for finding in report.findings} == {"session"}
        assert (await store.history("session"))[0].state == "damaged"

    async def test_repair_keeps_what_is_whole(self, opened: Opener, place: Any) -> None:
        store = await self._hurt(opened, place)

        report = await store.check(repair=True)

        assert report.repaired
        assert (await opened().check()).ok
        assert await opened().load("session", strict=True) == _WHOLE
        assert [meta.seq for meta in await opened().history("session")] == [1]

    @pytest.mark.parametrize("repaired", [False, True])
    async def test_saves_continue_after_damage_with_a_new_number(
        self, opened: Opener, place: Any, repaired: bool
    ) -> None:
        store = await self._hurt(opened, place)
        await store.check(repair=repaired)
        again = make_snapshot("a", "b", "again")

        ref = await store.save(await on_top(store, again))

        assert ref.seq == 3
        assert await opened().load("session", strict=True) == again
        assert await opened().load("session", at=1) == _WHOLE
        longer = make_snapshot("a", "b", "again", "and more")
        assert (await store.save(longer)).seq == 4
        assert await opened().load("session", strict=True) == longer

    async def test_other_sessions_are_as_they_were(self, opened: Opener, place: Any) -> None:
        await opened().save(make_snapshot("fine", session_id="another"))
        store = await self._hurt(opened, place)
        await store.check(repair=True)

        assert await opened().load("another", strict=True) == make_snapshot("fine", session_id="another")
        assert (await opened().check("another")).ok
