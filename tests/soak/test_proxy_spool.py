"""The proxy's write-ahead: flushed within a second, and without gaps when the disk refused for a while."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from snapshot_plugin.adapters.acp.flusher import Flusher
from snapshot_plugin.adapters.acp.journal import Journal, Journals, recover_all
from snapshot_plugin.errors import StoreUnavailable
from snapshot_plugin.live.spool import Spool
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.filesystem import FilesystemStore
from snapshot_plugin.testing import make_snapshot

PATIENCE = 30


def test_what_was_announced_is_flushed_and_then_nothing_happens() -> None:
    flushed = threading.Semaphore(0)
    flusher = Flusher(flushed.release, interval=0.01)
    assert not flushed.acquire(timeout=0.05)
    for _ in range(3):
        flusher.wake()
        flusher.wake()
        assert flushed.acquire(timeout=PATIENCE)
    assert not flushed.acquire(timeout=0.05)


@pytest.fixture
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as opened:
        yield opened


@pytest.fixture
def journals(tmp_path: Path, portal: BlockingPortal, monkeypatch: pytest.MonkeyPatch) -> Journals:
    """Snapshots are made when a test says so; that one was asked for is noted in `asked_to_save`."""
    monkeypatch.setattr(Journals, "_schedule", lambda _journals, journal: asked_to_save.append(journal))
    asked_to_save.clear()
    return Journals(FilesystemStore(tmp_path), portal)


asked_to_save: list[Journal] = []


@pytest.fixture
def journal(journals: Journals, portal: BlockingPortal) -> Journal:
    journal = journals.begin(make_snapshot(provider_type="acp"), {"prompt": [{"type": "text", "text": "go"}]})
    portal.call(journal.save, journals.store)
    journal._scheduled = False
    asked_to_save.clear()
    return journal


def chunk(text: str) -> dict[str, Any]:
    return {"update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}}


def test_a_chunk_is_synced_soon_without_a_durability_point(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = threading.Event()
    monkeypatch.setattr(Spool, "flush", lambda _spool: synced.set())
    journal.record(chunk("a"))
    assert synced.wait(PATIENCE)


def recovered_after_kill(path: Path, journal: Journal) -> str:
    journal.lease._leave_to_parent()

    async def recovered() -> SessionSnapshot:
        async with FilesystemStore(path) as store:
            await recover_all(store)
            return await store.load("session")

    return anyio.run(recovered).messages[-1].text


def test_after_the_disk_refused_nothing_is_written_ahead_until_a_snapshot_has_all_of_it(
    tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.record(chunk("one "))
    with monkeypatch.context() as patch:
        patch.setattr(Spool, "append", refuse)
        journal.record(chunk("two "))
    journal.record(chunk("three"))
    assert asked_to_save == [journal]
    # A gap in the middle would be worse than an end that is missing.
    assert recovered_after_kill(tmp_path, journal) == "one "


def test_once_a_snapshot_has_all_of_it_writing_ahead_goes_on(
    tmp_path: Path, portal: BlockingPortal, journals: Journals, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Spool, "append", refuse)
        journal.record(chunk("one "))
    journal.record(chunk("two "))
    portal.call(journal.save, journals.store)
    journal.record(chunk("three"))
    assert recovered_after_kill(tmp_path, journal) == "one two three"


def refuse(*_args: object) -> int:
    raise StoreUnavailable("full")
