"""Races: acknowledged saves survive concurrent writers."""
# ruff: noqa: S101, D102 — a test suite: its names are its docstrings

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from snapshot_plugin.errors import Conflict, SnapshotError, SnapshotNotFound, StoreUnavailable
from snapshot_plugin.model.policy import RetentionPolicy
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.store.engine import LogStore
from snapshot_plugin.testing.build import make_snapshot
from snapshot_plugin.testing.contract.stage import PATIENCE, Opener, Stage

__all__ = ["Races"]

_ROUNDS = 12
_LONG = "a long answer " * 4000


class Races(Stage):
    """Two store objects write at the same time."""

    async def test_a_save_that_races_compact_is_not_lost(self, opened: Opener) -> None:
        tidy = opened()
        if not hasattr(tidy, "compact"):
            pytest.skip("this store does not compact")
        await self._beside(opened, lambda: tidy.compact("session"))

    async def test_a_save_that_races_forget_is_not_lost(self, opened: Opener) -> None:
        tidy = opened()
        await self._beside(opened, lambda: tidy.forget("session", RetentionPolicy(keep_last=2)), keeps_all=False)

    async def _beside(self, opened: Opener, work: Callable[[], Awaitable[Any]], *, keeps_all: bool = True) -> None:
        """Save repeatedly while *work* runs repeatedly: each acknowledged save must stay."""
        writer, texts, finished = opened(), [_LONG], anyio.Event()
        await writer.save(make_snapshot(*texts))

        async def save() -> None:
            for number in range(2, _ROUNDS + 2):
                texts.append(f"{number} {_LONG}")
                assert (await writer.save(make_snapshot(*texts))).seq == number
                await anyio.lowlevel.checkpoint()
            finished.set()

        async def disturb() -> None:
            while not finished.is_set():
                await work()

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(save)
                tasks.start_soon(disturb)
        fresh = opened()
        assert await fresh.load("session", strict=True) == make_snapshot(*texts)
        assert (await fresh.check()).ok
        if keeps_all:
            assert len(await fresh.history("session")) == _ROUNDS + 1

    async def test_a_save_that_races_delete_is_in_the_trash_or_refused(self, opened: Opener) -> None:
        for turn in range(_ROUNDS):
            session_id = f"race-{turn}"
            outcome: dict[str, Any] = {}
            writer, other = opened(), opened()
            await writer.save(make_snapshot("a", session_id=session_id))

            async def save(store: SnapshotStore, session_id: str, outcome: dict[str, Any]) -> None:
                try:
                    outcome["saved"] = (await store.save(make_snapshot("a", "b", session_id=session_id))).seq
                except Conflict:
                    outcome["saved"] = None

            async def delete(store: SnapshotStore, session_id: str, outcome: dict[str, Any]) -> None:
                outcome["token"] = (await store.delete(session_id)).token

            with anyio.fail_after(PATIENCE):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(save, writer, session_id, outcome)
                    tasks.start_soon(delete, other, session_id, outcome)
            with pytest.raises(SnapshotNotFound):
                await opened().load(session_id)
            await opened().undelete(outcome["token"])
            count = 2 if outcome["saved"] else 1
            assert len((await opened().load(session_id)).messages) == count

    async def test_a_save_is_repeated_after_its_answer_got_lost(
        self, opened: Opener, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The save succeeded but its answer was lost: the retry must not conflict with it."""
        store = opened()
        if not isinstance(store, LogStore):
            pytest.skip("only a store over a FrameLog is given a log that loses answers")
        await store.save(make_snapshot("a"))
        append = store.frames.append

        def append_unheard(*args: Any, **options: Any) -> bool:
            append(*args, **options)
            raise StoreUnavailable("the connection broke before the answer came")

        with monkeypatch.context() as patch:
            patch.setattr(store.frames, "append", append_unheard)
            with pytest.raises(StoreUnavailable):
                await store.save(make_snapshot("a", "b"))
        again = await store.save(make_snapshot("a", "b"))
        assert await opened().load("session") == make_snapshot("a", "b")
        assert again.seq in {2, 3}
        assert (await store.save(make_snapshot("a", "b", "c"))).seq == again.seq + 1
        assert (await opened().check()).ok

    async def test_a_save_that_was_cancelled_can_be_repeated(self, opened: Opener) -> None:
        store = opened()
        await store.save(make_snapshot("a"))
        moments = (1, 2, 4, 8, 16, 64)
        for turn, moment in enumerate(moments, start=2):
            text = [f"{number}" for number in range(turn)]
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(store.save, make_snapshot(*text))
                    for _ in range(moment):
                        await anyio.lowlevel.checkpoint()
                    scope.cancel()
            try:
                await store.save(make_snapshot(*text))
            except SnapshotError as error:
                raise AssertionError("a repeated save was refused") from error
            assert await opened().load("session") == make_snapshot(*text)
