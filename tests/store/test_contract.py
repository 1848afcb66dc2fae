"""The built-in stores keep the store contract."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import FilesystemStore, MemoryStore, SnapshotTampered
from snapshot_plugin.codec.frame import encode_frame
from snapshot_plugin.codec.keys import generate_key
from snapshot_plugin.codec.scan import scan
from snapshot_plugin.codec.sources import Passphrase
from snapshot_plugin.model.ids import dirname_of
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.store.memory import MemoryLog
from snapshot_plugin.testing import StoreContract, make_snapshot

Clock = Callable[[], datetime]


def with_a_wrong_byte(frame: bytes) -> bytes:
    """*frame* with its last byte but ten changed: inside the content, before the trailer."""
    return frame[:-10] + bytes([frame[-10] ^ 0x40]) + frame[-9:]


class TestMemoryStore(StoreContract):
    test_a_hundred_thousand_messages_are_kept = None  # type: ignore[assignment] # the plain store on disk shows it

    @pytest.fixture
    def anyio_backend(self) -> str:
        """One event loop: the stores on disk, with the same engine, run on both."""
        return "asyncio"

    @pytest.fixture
    def place(self) -> MemoryLog:
        return MemoryLog()

    def open(self, place: MemoryLog, clock: Clock) -> SnapshotStore:
        return MemoryStore(place, clock=clock)

    def damage_newest(self, place: MemoryLog, session_id: str) -> None:
        *older, newest = place._frames[session_id, ""]
        place._frames[session_id, ""] = (*older, with_a_wrong_byte(newest))


class OnDisk(StoreContract):
    def damage_newest(self, place: Path, session_id: str) -> None:
        path = max((place / "sessions" / dirname_of(session_id)).glob("*.snap.gz"))
        data = path.read_bytes()
        last = list(scan(data))[-1]
        path.write_bytes(data[: last.start] + with_a_wrong_byte(data[last.start :]))


class TestFilesystemStore(OnDisk):
    """On asyncio; the encrypted store on trio. Both loops call the same plain functions in worker threads."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    def open(self, place: Path, clock: Clock) -> SnapshotStore:
        return FilesystemStore(place, clock=clock)


class TestEncryptedFilesystemStoreOfSmallSegments(OnDisk):
    """Small segments keep the background busy with compressing finished ones."""

    test_a_hundred_thousand_messages_are_kept = None  # type: ignore[assignment] # the plain store on disk shows it

    key = Passphrase(generate_key())

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "trio"

    def open(self, place: Any, clock: Clock) -> SnapshotStore:
        return FilesystemStore(place, key=self.key, clock=clock, segment_frames=3)


@pytest.mark.anyio
async def test_strict_load_distinguishes_tampering_from_corruption(tmp_path: Path) -> None:
    """Only an encrypted store can tell, so the suite for all stores does not ask."""
    source = Passphrase(generate_key())
    async with FilesystemStore(tmp_path, key=source) as store:
        await store.save(make_snapshot("a"))
        await store.save(make_snapshot("a", "b"))
    (path,) = (tmp_path / "sessions" / "session").glob("*.snap.gz")
    data = path.read_bytes()
    last = list(scan(data))[-1]
    assert last.header is not None
    plain = encode_frame(last.header, b'{"meta":{}}\n', None)
    path.write_bytes(data[: last.start] + plain)

    async with FilesystemStore(tmp_path, key=source) as store:
        with pytest.raises(SnapshotTampered):
            await store.load("session", strict=True)
        assert await store.load("session") == make_snapshot("a")
