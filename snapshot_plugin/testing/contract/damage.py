"""**Corrupt**: stored bytes are verified before they are used. Needs the suite's `damage_newest`."""
# ruff: noqa: S101, D102, PLR2004 — a test suite: its names are its docstrings

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest

from snapshot_plugin.errors import Conflict, Damaged
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.testing.build import make_message, make_snapshot
from snapshot_plugin.testing.contract.stage import PATIENCE, Opener, Stage, on_top

__all__ = ["Damage"]

_ROUNDS = 8
_TOLD = [f"told {number}" for number in range(8)]

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

    @pytest.mark.parametrize("is_same", [True, False], ids=["same object", "another object"])
    async def test_saves_that_race_a_repair_are_not_lost(self, opened: Opener, place: Any, is_same: bool) -> None:
        """The writer does not know of the damage, and builds on it."""
        writer = opened()
        repairer = writer if is_same else opened()
        for number in range(_ROUNDS):
            name = f"session-{number}"
            for length in (1, 2):
                await writer.save(make_snapshot(*"ab"[:length], session_id=name))
            self.damage_newest(place, name)
            with anyio.fail_after(PATIENCE):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._grow, writer, make_snapshot("a", "b", session_id=name))
                    tasks.start_soon(partial(repairer.check, name, repair=True))

            await repairer.check(name, repair=True)

            kept = [message.text for message in (await opened().load(name, strict=True)).messages]
            assert set(_TOLD) <= set(kept), kept
            assert (await opened().check(name)).ok

    async def _grow(self, writer: SnapshotStore, session: SessionSnapshot) -> None:
        for text in _TOLD:
            while True:
                try:
                    await writer.save(session := session.append(make_message(text)))
                    break
                except Conflict:
                    session = await writer.load(session.session_id)

    async def test_a_session_with_a_long_id_is_repaired(self, opened: Opener, place: Any) -> None:
        name, store = "thread/" + "Ä" * 600, opened()
        for length in (1, 2):
            await store.save(make_snapshot(*"ab"[:length], session_id=name))
        self.damage_newest(place, name)
        await store.save(make_snapshot("a", "b", "c", session_id=name))

        await opened().check(repair=True)

        assert [meta.session_id for meta in await opened().list()] == [name]
        kept = await opened().load(name, strict=True)
        assert (kept.session_id, kept.messages[-1].text) == (name, "c")
        assert (await opened().check()).ok

    async def test_other_sessions_are_as_they_were(self, opened: Opener, place: Any) -> None:
        await opened().save(make_snapshot("fine", session_id="another"))
        store = await self._hurt(opened, place)
        await store.check(repair=True)

        assert await opened().load("another", strict=True) == make_snapshot("fine", session_id="another")
        assert (await opened().check("another")).ok
