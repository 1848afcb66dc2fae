"""Leases and spools of a store on disk keep the live contract, plain and encrypted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from snapshot_plugin.live import spool
from snapshot_plugin.live.place import place_of
from snapshot_plugin.live.ports import LivePlace
from snapshot_plugin.live.steps import sync_face
from snapshot_plugin.store import files
from snapshot_plugin.store.filesystem import FilesystemStore
from snapshot_plugin.store.memory import MemoryStore
from snapshot_plugin.testing import LiveContract, make_snapshot

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
        other = sync_face(FilesystemStore(place, key=self.key, background=False))
        other.save(make_snapshot("something to delete", session_id=session_id))
        other.delete(session_id)


class TestSealedFilePlace(TestFilePlace):
    key = KEY


def test_store_may_provide_its_own_live_place_or_none(tmp_path: Path) -> None:
    store = MemoryStore()
    assert place_of(store) is None
    own = place_of(FilesystemStore(tmp_path))
    store.live_place = own  # type: ignore[attr-defined]
    assert place_of(store) is own
