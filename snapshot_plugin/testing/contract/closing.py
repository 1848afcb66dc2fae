"""`aclose`, and ``async with``."""
# ruff: noqa: S101, D102 — a test suite: its names are its docstrings

from __future__ import annotations

import pytest

from snapshot_plugin.errors import StoreUnavailable
from snapshot_plugin.testing.build import make_snapshot
from snapshot_plugin.testing.contract.stage import Opener, Stage

__all__ = ["Closing"]


class Closing(Stage):
    """A closed store object can no longer be used; the stored sessions can."""

    async def test_a_closed_store_refuses_to_save_and_writes_nothing(self, opened: Opener) -> None:
        store = opened()
        await store.save(make_snapshot("a"))
        await store.aclose()

        with pytest.raises(StoreUnavailable):
            await store.save(make_snapshot("a", "b"))

        assert await opened().load("session") == make_snapshot("a")

    async def test_closing_twice_or_before_any_use_does_no_harm(self, opened: Opener) -> None:
        store = opened()
        await store.aclose()
        await store.aclose()

    async def test_leaving_the_context_closes_the_store(self, opened: Opener) -> None:
        async with opened() as store:
            await store.save(make_snapshot("a"))

        with pytest.raises(StoreUnavailable):
            await store.save(make_snapshot("a", "b"))

    async def test_a_store_object_outlives_the_closing_of_another(self, opened: Opener) -> None:
        one, other = opened(), opened()
        await one.save(make_snapshot("a"))
        await one.aclose()

        assert (await other.save(make_snapshot("a", "b"), base=1)).seq == len("ab")
