"""The fixtures of the suite: a place for snapshots, a clock, and store objects opened there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.testing.clock import FixedClock

__all__ = ["PATIENCE", "Opener", "Stage", "facts_of", "on_top"]

PATIENCE = 60
"""Seconds after which a call that hangs fails the test."""

Opener = Callable[[], SnapshotStore]


def facts_of(metas: Sequence[SnapshotMeta]) -> list[SnapshotMeta]:
    """The list entries without their sizes, which change when a store compresses snapshots again."""
    return [meta.evolve(size_bytes=0) for meta in metas]


async def on_top(store: SnapshotStore, snapshot: SessionSnapshot) -> SessionSnapshot:
    """*snapshot*, based on the session's newest snapshot in *store*, as after a load."""
    loaded = await store.load(snapshot.session_id)
    return loaded.evolve(**snapshot.__dict__)


@pytest.mark.anyio
class Stage:
    """The two methods that a backend implements, and the fixtures of the suite.

    Every test gets a new place and opens as many store objects there as it needs; all are closed afterwards.
    """

    def open(self, place: Any, clock: Callable[[], datetime]) -> SnapshotStore:
        """A new store object for *place* that uses *clock*."""
        raise NotImplementedError

    def damage_newest(self, place: Any, session_id: str) -> None:
        """Change one stored byte of the session's newest snapshot, without going through the store.

        Optional: without it the tests of damage are skipped.
        """
        _ = place, session_id
        pytest.skip("this backend's suite does not say how to damage a snapshot (damage_newest)")

    @pytest.fixture
    def place(self, tmp_path: Path) -> Any:
        """The place of one test's snapshots; override it to return what `open` needs."""
        return tmp_path / "store"

    @pytest.fixture
    def clock(self) -> FixedClock:
        """The clock of all store objects of one test."""
        return FixedClock()

    @pytest.fixture
    async def opened(self, place: Any, clock: FixedClock) -> AsyncIterator[Opener]:
        """Opens another store object at the same place each time it is called."""
        stores: list[SnapshotStore] = []

        def another() -> SnapshotStore:
            stores.append(self.open(place, clock))
            return stores[-1]

        yield another
        with anyio.fail_after(PATIENCE):
            for store in stores:
                await store.aclose()
