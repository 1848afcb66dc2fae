"""Leases and spools of a store on disk keep the live contract, plain and encrypted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from snapshot_plugin import Conflict, FilesystemStore, MemoryStore, SessionLocked
from snapshot_plugin.live import spool
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.live.place import held_alone, must_be_recovered, place_of
from snapshot_plugin.live.ports import LivePlace
from snapshot_plugin.system import files
from snapshot_plugin.testing import LiveContract, make_snapshot
from tests.live.events import NOW

KEY = "asnap-key-" + "A" * 43


class TestFilePlace(LiveContract):
    key: ClassVar[str | None] = None

    def open(self, place: Any) -> LivePlace:
        found = place_of(FilesystemStore(place, key=self.key, background=False))
        assert found is not None
        return found

    def code(self, place: Any) -> str:
        return (
            "from snapshot_plugin.live.place import place_of\n"
            "from snapshot_plugin.store.filesystem import FilesystemStore\n"
            f"live_place = place_of(FilesystemStore({str(place)!r}, key={self.key!r}, background=False))\n"
        )

    @contextmanager
    def hold_sync(self, place: Any, begun: threading.Event, go_on: threading.Event) -> Iterator[None]:
        def wait(fd: int) -> None:
            begun.set()
            assert go_on.wait(60)
            files.sync_data(fd)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(spool, "sync_data", wait)
            yield

    def delete(self, place: Any, session_id: str) -> None:
        other = FilesystemStore(place, key=self.key, background=False).sync
        other.save(make_snapshot("something to delete", session_id=session_id))
        other.delete(session_id)

    def undelete(self, place: Any) -> None:
        other = FilesystemStore(place, key=self.key, background=False).sync
        other.undelete(other.trash()[-1].token)


class TestSealedFilePlace(TestFilePlace):
    key = KEY


def test_store_may_provide_its_own_live_place_or_none(tmp_path: Path) -> None:
    store = MemoryStore()
    assert place_of(store) is None
    own = place_of(FilesystemStore(tmp_path))
    store.live_place = own  # type: ignore[attr-defined]
    assert place_of(store) is own


@pytest.mark.anyio
async def test_session_is_locked_by_the_stores_own_live_place(tmp_path: Path) -> None:
    store = FilesystemStore(tmp_path / "store", background=False)
    await store.save(make_snapshot("hello", session_id="s"))
    own = place_of(FilesystemStore(tmp_path / "elsewhere", background=False))
    assert own is not None
    store.live_place = own  # type: ignore[attr-defined]
    hold = own.take("s", Owner.this_process(since=NOW))
    with pytest.raises(SessionLocked):
        async with held_alone(store, "s", lambda: NOW, to="forget it"):
            """Not reached."""
    hold.append([{"n": 1}])
    hold.release()
    async with held_alone(store, "s", lambda: NOW, to="forget it"):
        with pytest.raises(Conflict):
            await must_be_recovered(store, "s")
