"""`forget`: dropped snapshots are gone, and kept ones are unchanged."""
# ruff: noqa: S101, D102, PLR2004 — a test suite: its names are its docstrings

from __future__ import annotations

from datetime import timedelta

import pytest

from snapshot_plugin.errors import InvalidInput, SnapshotNotFound
from snapshot_plugin.model.policy import RetentionPolicy
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.testing.build import make_snapshot
from snapshot_plugin.testing.clock import FixedClock
from snapshot_plugin.testing.contract.stage import Opener, Stage, facts_of, on_top

__all__ = ["Forgetting"]

_LAST_TWO = RetentionPolicy(keep_last=2)

_LIFE = (
    make_snapshot("a", "b", "c", title="t", memory={"x": 1, "y": 1}),
    make_snapshot("a", "B", "c", title="t", memory={"x": 1, "y": 2}),
    make_snapshot("a", "B", memory={"x": 1}),
    make_snapshot("summary", "d", memory={"x": 1, "z": 3}),
    make_snapshot("summary", "d", "e", title="u", memory={"x": 1, "z": 3}),
    make_snapshot("summary", "d", "e", "f", title="u", memory={"z": 3}),
    make_snapshot("again", "d", "e", "f"),
)
"""A history with appends, edits, a truncation, a summary, and sections that are added, changed and removed."""


class Forgetting(Stage):
    """What `forget` drops and keeps."""

    async def _lived(self, store: SnapshotStore, *tagged: int) -> None:
        for seq, snapshot in enumerate(_LIFE, start=1):
            await store.save(snapshot, tags=["keep"] if seq in tagged else ())

    async def _holds(self, store: SnapshotStore, expected: dict[int, SessionSnapshot]) -> None:
        assert [meta.seq for meta in await store.history("session")] == sorted(expected, reverse=True)
        for seq, snapshot in expected.items():
            assert await store.load("session", at=seq) == snapshot
        assert await store.load("session") == expected[max(expected)]
        assert (await store.check("session")).ok

    async def test_forgetting_drops_what_the_policy_does_not_keep_and_says_why(self, opened: Opener) -> None:
        store = opened()
        await self._lived(store)

        result = await store.forget("session", _LAST_TWO)

        assert (result.session_id, result.dry_run, result.forgotten) == ("session", False, (1, 2, 3, 4, 5))
        assert {d.seq: set(d.reasons) for d in result.decisions if d.keep} == {6: {"last"}, 7: {"head", "last"}}
        await self._holds(opened(), {6: _LIFE[5], 7: _LIFE[6]})
        for seq in result.forgotten:
            with pytest.raises(SnapshotNotFound):
                await opened().load("session", at=seq)

    @pytest.mark.parametrize("kept", [(7,), (1, 7), (2, 4, 6, 7), (3, 4, 7), (1, 2, 3, 7), (5, 6, 7)])
    async def test_what_stays_keeps_number_content_root_and_tags(
        self, opened: Opener, kept: tuple[int, ...]
    ) -> None:
        store = opened()
        await self._lived(store, *kept)
        before = {meta.seq: meta for meta in await store.history("session")}

        await opened().forget("session", RetentionPolicy(keep_tags=("keep",)))

        await self._holds(opened(), {seq: _LIFE[seq - 1] for seq in kept})
        for meta in await opened().history("session"):
            old = before[meta.seq]
            assert (meta.root, meta.snapshot_tags, meta.saved_at) == (old.root, old.snapshot_tags, old.saved_at)
            assert (meta.trigger, meta.title, meta.messages) == (old.trigger, old.title, old.messages)

    async def test_a_dry_run_decides_the_same_and_changes_nothing(self, opened: Opener) -> None:
        store = opened()
        await self._lived(store)
        before = await store.history("session")

        trial = await store.forget("session", _LAST_TWO, dry_run=True)

        assert trial.dry_run
        assert facts_of(await opened().history("session")) == facts_of(before)
        await self._holds(opened(), dict(enumerate(_LIFE, start=1)))
        real = await store.forget("session", _LAST_TWO)
        assert (real.decisions, real.dry_run) == (trial.decisions, False)

    async def test_saves_continue_after_forget(self, opened: Opener) -> None:
        store = opened()
        await self._lived(store)
        await store.forget("session", RetentionPolicy(keep_last=1))
        longer = make_snapshot("again", "d", "e", "f", "g")

        assert (await store.save(longer)).seq == 8
        assert (await opened().save(_LIFE[0], base=8)).seq == 9

        await self._holds(opened(), {7: _LIFE[6], 8: longer, 9: _LIFE[0]})

    async def test_an_unchanged_session_writes_nothing_after_forgetting(self, opened: Opener) -> None:
        store = opened()
        await self._lived(store)
        await store.forget("session", RetentionPolicy(keep_last=1))

        for writer in (store, opened()):
            again = await writer.save(await on_top(writer, _LIFE[-1]))
            assert (again.seq, again.written) == (7, False)

    async def test_forgetting_again_and_again_ends_well(self, opened: Opener) -> None:
        store, lived = opened(), {}
        for number in range(12):
            lived[number + 1] = make_snapshot(*(f"{n}" for n in range(number)), title=f"{number}")
            await store.save(lived[number + 1])
            await store.forget("session", RetentionPolicy(keep_last=3))
            await self._holds(opened(), {seq: lived[seq] for seq in range(max(1, number - 1), number + 2)})

        assert (await store.forget("session", RetentionPolicy(keep_last=3))).forgotten == ()

    async def test_a_pinned_session_forgets_nothing(self, opened: Opener) -> None:
        store = opened()
        for length in (1, 2, 3):
            await store.save(make_snapshot(*"abc"[:length], pinned=True))

        assert (await store.forget("session", RetentionPolicy(keep_last=1))).forgotten == ()
        assert len(await opened().history("session")) == 3

    async def test_age_is_counted_by_the_stores_clock(self, opened: Opener, clock: FixedClock) -> None:
        store = opened()
        for snapshot in _LIFE:
            await store.save(snapshot)
            clock.advance(timedelta(days=1))

        result = await opened().forget("session", RetentionPolicy(keep_within=timedelta(days=3)))

        assert result.forgotten == (1, 2, 3, 4)
        await self._holds(opened(), {5: _LIFE[4], 6: _LIFE[5], 7: _LIFE[6]})

    async def test_other_sessions_are_left_alone(self, opened: Opener) -> None:
        store = opened()
        await self._lived(store)
        for length in (1, 2):
            await store.save(make_snapshot(*"ab"[:length], session_id="another"))

        await store.forget("session", RetentionPolicy(keep_last=1))

        assert len(await opened().history("another")) == 2

    async def test_named_snapshots_are_forgotten(self, opened: Opener) -> None:
        store = opened()
        await self._lived(store)
        would = await store.forget("session", seqs=[2, 5], dry_run=True)
        assert would.forgotten == (5, 2)
        assert len(await store.history("session")) == len(_LIFE)

        await store.forget("session", seqs=[2, 5])

        await self._holds(opened(), {seq: _LIFE[seq - 1] for seq in (1, 3, 4, 6, 7)})

    async def test_the_newest_snapshot_and_unknown_numbers_cannot_be_forgotten(self, opened: Opener) -> None:
        store = opened()
        await self._lived(store)
        for wrong in ([7], [8], [0], []):
            with pytest.raises(InvalidInput):
                await store.forget("session", seqs=wrong)

        assert len(await opened().history("session")) == len(_LIFE)
