"""A store object that sees ever new sessions does not keep ever more of them in memory."""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import pytest
from obstore.store import MemoryStore as Objects

from snapshot_plugin import FilesystemStore
from snapshot_plugin.codec import frame
from snapshot_plugin.store.bucket import Bucket
from snapshot_plugin.store.engine import StoreLimits
from snapshot_plugin.store.s3 import ObjectStore
from snapshot_plugin.store.sync import SyncStore
from snapshot_plugin.testing import make_snapshot

COUNT = 40
"""More than any of the caches holds, as the tests set them."""


def sessions(store: SyncStore) -> Iterator[None]:
    """What a host does with a session: save it, look at it, read it, and never come back."""
    for number in count():
        name = f"session-{number}"
        store.save(make_snapshot("hello", session_id=name))
        store.page(name)
        store.load(name)
        yield


def growth(work: Iterator[None]) -> float:
    """How many bytes each step costs for good, once the caches are full."""
    tracemalloc.start()
    try:
        held = []
        for _ in range(2):
            list(islice(work, COUNT))
            frame._read.cache_clear()  # bounded too, by more than the test has sessions
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
        return (held[1] - held[0]) / COUNT
    finally:
        tracemalloc.stop()


@pytest.mark.requirement("TERMINAL-PERF-MEMORY")
def test_unused_sessions_use_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for bound in ("segments._KNOWN", "writer._TIPS"):
        monkeypatch.setattr(f"snapshot_plugin.store.{bound}", 8)
    for sync in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, sync, lambda _fd: None)  # many new sessions, on a disk that may be busy
    limits = StoreLimits(heads=8, page_bytes=32 << 10)

    with FilesystemStore(tmp_path, limits=limits, background=False).sync as store:
        assert growth(sessions(store)) < 800


def test_a_bucket_keeps_no_lock_of_a_session_that_nobody_saves() -> None:
    with ObjectStore(Bucket(Objects(), name="memory"), background=False).sync as store:
        list(islice(sessions(store), 3))
        assert len(store.store.frames._locks) == 0  # type: ignore[attr-defined]
