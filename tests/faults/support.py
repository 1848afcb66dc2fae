"""What the fault tests share: small sessions, keys that open at once, and frames to cut up and forge."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import (
    FilesystemStore,
    SessionSnapshot,
    SnapshotCorrupted,
    SnapshotError,
    SnapshotRef,
    SnapshotTampered,
)
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.frame import encode_frame, open_frame
from snapshot_plugin.codec.keys import generate_key
from snapshot_plugin.codec.scan import scan
from snapshot_plugin.model.snapshot import origin_of
from snapshot_plugin.store.base import StoredSnapshot
from snapshot_plugin.store.core import StoreCore
from snapshot_plugin.testing import make_snapshot

KEY = generate_key(random=lambda size: b"k" * size)
"""A generated key: it opens in no time, where a passphrase takes scrypt."""

PLAIN_AND_ENCRYPTED = pytest.mark.parametrize("key", [None, KEY], ids=["plain", "encrypted"])


class _Loading(StoreCore):
    """Saves as a caller does that loads a session before saving it for the first time."""

    def __init__(self, store: FilesystemStore) -> None:
        super().__init__(store)
        self._loaded_at: dict[str, int] = {}

    def save(self, snapshot: SessionSnapshot, *, base: int | None = None, **options: Any) -> SnapshotRef:
        session_id = snapshot.session_id
        if base is None and origin_of(snapshot) is None and self._writers._saved.get(session_id) is None:
            if not self._writers._writers.get(session_id):
                self._loaded_at[session_id] = self._writers._opened(session_id, None).seq
            base = self._loaded_at[session_id]
        return super().save(snapshot, base=base, **options)


def store_at(path: Path, key: str | None = None, **options: Any) -> FilesystemStore:
    """A new store object, as another process would have one. It compacts only when told to."""
    store = FilesystemStore(path, key, **{"background": False, **options})
    store.core = _Loading(store)
    return store


def version(number: int, session_id: str = "session") -> SessionSnapshot:
    """The session as it is at its *number*-th save: one message more each time."""
    return make_snapshot(*(f"message {n}" for n in range(1, number + 1)), session_id=session_id)


def on_top_of(loaded: SessionSnapshot, number: int) -> SessionSnapshot:
    """A loaded session with the content of that `version`: a save of it builds on what was loaded."""
    return loaded.evolve(messages=version(number, loaded.session_id).messages)


async def filled(
    path: Path, key: str | None = None, *, count: int = 3, session_id: str = "session", **options: Any
) -> Path:
    """Save `version` 1 to *count*; return the newest segment."""
    async with store_at(path, key, **options) as store:
        for number in range(1, count + 1):
            assert (await store.save(version(number, session_id))).seq == number
    return segments_of(path, session_id)[-1]


def names_in(directory: Path) -> list[str]:
    """What a directory holds."""
    return sorted(path.name for path in directory.iterdir())


def segments_of(path: Path, session_id: str = "session") -> list[Path]:
    """The session's files that hold frames, by name."""
    return sorted((path / "sessions" / session_id).glob("*.snap.gz"))


def frames_of(segment: Path) -> list[bytes]:
    """The frames of an undamaged segment."""
    data = segment.read_bytes()
    pieces = list(scan(data))
    assert all(piece.kind == "frame" for piece in pieces)
    return [data[piece.start : piece.end] for piece in pieces]


def forged(
    frame: bytes, keys: SessionKeys | None = None, *, to: SessionKeys | None = None, **changes: Any
) -> bytes:
    """The frame with parts of its header changed, and a checksum or seal (*to*) that fits them."""
    header, payload = open_frame(frame, session_id="session", keys=keys)
    return encode_frame(header._replace(**changes), payload, to)


def outcome(store: FilesystemStore, session_id: str = "session") -> StoredSnapshot | SnapshotError:
    """What is read, without an event loop: a snapshot, or an error of ours. Anything else is raised."""
    try:
        return store.sync.read(session_id, strict=False)
    except SnapshotError as error:
        return error


def every_flip(path: Path, bits: Iterable[int] | None = None) -> Iterator[int]:
    """Let one bit of the file after the other be wrong; tell the place of its byte. In the end all are right.

    Args:
        path: the file.
        bits: take only these.
    """
    with path.open("r+b", buffering=0) as file:
        data = file.read()
        for bit in range(8 * len(data)) if bits is None else bits:
            at, right = bit // 8, data[bit // 8]
            os.pwrite(file.fileno(), bytes([right ^ 1 << bit % 8]), at)
            yield at
            os.pwrite(file.fileno(), bytes([right]), at)


def flip(path: Path, at: int) -> bytes:
    """Make one bit wrong; return the new content."""
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)
    return bytes(data)


async def assert_falls_back(path: Path, key: str | None, seq: int, kind: str) -> None:
    """Snapshot *seq* is read, what was skipped is named, strict mode and check refuse, and saving goes on."""
    async with store_at(path, key) as store:
        found = await store.read("session")
        assert (found.ref.seq, found.snapshot) == (seq, version(seq))
        assert kind in {finding.kind for finding in found.skipped}
        with pytest.raises(SnapshotTampered if kind == "tampered" else SnapshotCorrupted):
            await store.read("session", strict=True)
        assert not (await store.check()).ok
    async with store_at(path, key) as store:
        saved = await store.save(version(9))
        assert saved.seq > seq
        await store.check(repair=True)
        assert (await store.check()).findings == ()
        assert await store.load("session", strict=True) == version(9)
        assert await store.load("session", at=seq) == version(seq)
