"""Spool, lease and manager together: what was seen survives, and is there exactly once."""

from __future__ import annotations

import errno
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from snapshot_plugin import FilesystemStore, InvalidInput, MemoryStore, SnapshotManager, StoreUnavailable
from snapshot_plugin.codec.keys import generate_key
from snapshot_plugin.live.lease import FileHold, lease_of
from snapshot_plugin.live.spool import Spool, read_spool
from snapshot_plugin.manager.events import SessionRecovered, SnapshotCreated, SnapshotFailed
from snapshot_plugin.model import SessionSnapshot
from snapshot_plugin.operations.undo import Operation, take_back
from tests.manager.processes import PATIENCE, heard, python
from tests.manager.sessions import AsyncChat, Chat, managing

pytestmark = pytest.mark.anyio
_KEY = generate_key()
_SLOW = {"snapshot_interval": 600, "event_debounce": 600}


def said(text: str) -> dict[str, Any]:
    return {"message": {"role": "user", "content": text}}


def spooled(store: FilesystemStore, session_id: str = "chat") -> list[int]:
    directory, keys = store.session_dir(session_id), store.session_keys(session_id)
    return [record.n for record in read_spool(directory, session_id=session_id, keys=keys).records]


def die(manager: SnapshotManager) -> None:
    """Leave everything as ``kill -9`` does: the lock gone, no last save, no proper stop."""
    for managed in manager._sessions._held.values():
        hold = managed.live._spool.hold
        assert isinstance(hold, FileHold)
        hold.lease._leave_to_parent()
        managed.live._spool.hold = None
    manager._sessions._auto.clear()


@pytest.fixture(params=[None, _KEY], ids=["plain", "encrypted"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FilesystemStore]:
    async with FilesystemStore(tmp_path / "store", key=request.param) as opened:
        yield opened


_LIFE = """
    import os, sys, anyio
    sys.path.insert(0, sys.argv[3])
    from snapshot_plugin.manager.config import SnapshotConfig
    from snapshot_plugin.manager.manager import SnapshotManager
    from snapshot_plugin.store.filesystem import FilesystemStore
    from tests.manager.sessions import Chat

    async def main():
        async with FilesystemStore(sys.argv[1], key=sys.argv[2] or None) as store:
            async with SnapshotManager(store, SnapshotConfig(snapshot_interval=600)) as manager:
                chat = Chat("chat", "one")
                await manager.start_auto_snapshot(chat)
                await manager.snapshot(chat)
                for text in ("two", "three"):
                    assert manager.record("chat", {"message": {"role": "user", "content": text}})
                    chat.say(text)
                print("seen", flush=True)
                await anyio.sleep_forever()

    anyio.run(main)
"""


async def _live_and_be_killed(store: FilesystemStore, key: str) -> None:
    with python(_LIFE, store.path, key, Path(__file__).parents[2]) as process:
        assert heard(process) == "seen"
        process.send_signal(signal.SIGKILL)
        assert process.wait(PATIENCE) == -signal.SIGKILL


@pytest.mark.requirement("MANAGER-SPOOL-SEALED", "MANAGER-SPOOL-ASIDE")
async def test_plain_spool_in_an_encrypted_store_is_put_aside_unread(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path, key=_KEY) as store:
        await store.save(Chat("chat", "one").snapshot())
        spool = Spool.open(store.session_dir("chat"), session_id="chat")
        spool.append(said("smuggled in"))
        spool.close()
        planted = (store.session_dir("chat") / "live").read_bytes()
        await SnapshotManager(store).recover()
        assert [message.text for message in (await store.load("chat")).messages] == ["one"]
        assert [path.read_bytes() for path in store.session_dir("chat").glob("live.aside-*")] == [planted]


@pytest.mark.requirement("MANAGER-SPOOL-VERSION")
async def test_spool_of_a_newer_release_is_reported_and_left_alone(store: FilesystemStore) -> None:
    await store.save(Chat("chat", "one").snapshot())
    live = store.session_dir("chat") / "live"
    Spool.open(live.parent, session_id="chat", keys=store.session_keys("chat")).close()
    newer = b"ASNAPSP3" + live.read_bytes()[8:] + b"what only that release can read"
    live.write_bytes(newer)
    for _ in range(2):
        [found] = await SnapshotManager(store).recover()
        assert (found.session_id, found.records, found.problem is None) == ("chat", 0, False)
    assert live.read_bytes() == newer
    assert [message.text for message in (await store.load("chat")).messages] == ["one"]


@pytest.mark.requirement(
    "MANAGER-SPOOL-KILL",
    "MANAGER-RECOVER-SPOOL",
    "MANAGER-EVENT-RECOVERED",
    "ORBIT-USE-CRASH",
    "ORBIT-USE-LITTLE-LOST",
    "ORBIT-TEST-CRASH",
    "MANAGER-LEASE-KILL",
    "MANAGER-SPOOL-SEALED",
)
@pytest.mark.parametrize("first_step", ["recover", "restore", "attach"])
async def test_kill_9_loses_nothing_recorded(store: FilesystemStore, first_step: str) -> None:
    key = _KEY if store.session_keys("chat") else ""
    await _live_and_be_killed(store, key)
    assert (b"three" in (store.session_dir("chat") / "live").read_bytes()) == (not key)
    assert lease_of(store.session_dir("chat")).died is not None
    async with managing(store, **_SLOW) as (manager, diary):
        if first_step == "recover":
            assert [(found.session_id, found.records) for found in await manager.recover()] == [("chat", 2)]
            assert await manager.recover() == []
        if first_step == "attach":
            await manager.start_auto_snapshot(Chat("chat", snapshot=await store.load("chat")))
            await manager.stop_auto_snapshot("chat")
        found = await manager.restore("chat", at=None if first_step == "restore" else 2)
    assert [message.text for message in found.snapshot.messages] == ["one", "two", "three"]
    assert found.meta.trigger == "recovered"
    assert [event.records for event in diary.of(SessionRecovered)] == [2]


@pytest.mark.requirement("ORBIT-USE-LONG")
async def test_resumed_session_continues_recording_without_duplicates(store: FilesystemStore) -> None:
    for life in range(3):
        async with managing(store, **_SLOW) as (manager, _):
            before = (await manager.restore("chat")).snapshot if life else None
            chat = Chat("chat", snapshot=before)
            await manager.start_auto_snapshot(chat)
            for word in ("a", "b"):
                assert manager.record("chat", said(word))
                chat.say(word)
            await manager.snapshot(chat)
            assert manager.record("chat", said("c"))
            chat.say("c")
            die(manager)
    async with managing(store) as (manager, _):
        found = await manager.restore("chat")
    assert [message.text for message in found.snapshot.messages] == ["a", "b", "c"] * 3


async def test_records_after_an_undo_survive_a_kill(store: FilesystemStore) -> None:
    chat = Chat("chat")
    async with managing(store, **_SLOW) as (manager, _):
        await manager.start_auto_snapshot(chat)
        for word in ("a", "b", "c"):
            assert manager.record("chat", said(word))
            chat.say(word)
            await manager.snapshot(chat)
    back = {"do": "revert", "session_id": "chat", "seq": 2}
    await take_back(store, Operation(id="1", at=datetime.now(UTC), kind="import", summary="", steps=(back,)))
    async with managing(store, **_SLOW) as (manager, _):
        chat = Chat("chat", snapshot=(await manager.restore("chat")).snapshot)
        assert chat.said == ["a", "b"]
        await manager.start_auto_snapshot(chat)
        assert manager.record("chat", said("after"))
        die(manager)
    async with managing(store) as (manager, _):
        found = await manager.restore("chat")
    assert [message.text for message in found.snapshot.messages] == ["a", "b", "after"]


async def test_snapshot_truncates_the_spool_and_names_the_last_record_it_contains(store: FilesystemStore) -> None:
    chat = Chat("chat")
    async with managing(store, **_SLOW) as (manager, _):
        await manager.start_auto_snapshot(chat)
        for word in ("a", "b", "c"):
            assert manager.record("chat", said(word))
        assert spooled(store) == [1, 2, 3]
        await manager.snapshot(chat)
        assert spooled(store) == []
        assert manager.record("chat", said("d"))
        assert spooled(store) == [4]
    assert (await store.load("chat")).metadata["spool"] == {"upto": 4}


async def test_records_appended_during_a_save_stay_in_the_spool(store: FilesystemStore) -> None:
    chat = Chat("chat")
    real = store.sync.save

    def save(snapshot: SessionSnapshot, **options: Any) -> Any:
        assert manager.record("chat", said("meanwhile"))
        return real(snapshot, **options)

    async with managing(store, **_SLOW) as (manager, _):
        await manager.start_auto_snapshot(chat)
        assert manager.record("chat", said("before"))
        store.sync.save = save  # type: ignore[method-assign]
        await manager.snapshot(chat)
        store.sync.save = real  # type: ignore[method-assign]
        assert spooled(store) == [2]
        assert (await store.load("chat")).metadata["spool"] == {"upto": 1}


class Streaming(AsyncChat):
    """Records while it is asked for its snapshot, the first few times."""

    def __init__(self, times: int) -> None:
        super().__init__("chat")
        self.times = times
        self.record: Any = None

    async def snapshot(self) -> SessionSnapshot:
        snapshot = await super().snapshot()
        if self.asked <= self.times:
            self.record("chat", said("late"))
        return snapshot


@pytest.mark.parametrize(("times", "asked", "upto"), [(0, 1, 0), (1, 2, 1), (2, 3, 2), (9, 3, 2)])
async def test_async_session_is_captured_again_if_records_arrived_meanwhile(
    tmp_path: Path, times: int, asked: int, upto: int
) -> None:
    chat = Streaming(times)
    async with FilesystemStore(tmp_path) as store, managing(store, **_SLOW) as (manager, _):
        chat.record = manager.record
        await manager.start_auto_snapshot(chat)
        await manager.snapshot(chat)
        assert chat.asked == asked
        assert (await store.load("chat")).metadata.get("spool", {"upto": 0}) == {"upto": upto}


@pytest.mark.requirement("MANAGER-SPOOL-FULL")
async def test_after_a_refused_record_nothing_is_spooled_until_a_snapshot_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = Chat("chat")
    real = Spool._write

    def full(_spool: Spool, _data: bytes) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    async with FilesystemStore(tmp_path) as store, managing(store, snapshot_interval=600) as (manager, diary):
        await manager.start_auto_snapshot(chat)
        await diary.wait_for(SnapshotCreated)
        monkeypatch.setattr(Spool, "_write", full)
        assert not manager.record("chat", said("lost?"))
        chat.say("lost?")
        monkeypatch.setattr(Spool, "_write", real)
        assert not manager.record("chat", said("after the gap"))
        chat.say("after the gap")
        assert spooled(store) == []
        await diary.wait_for(SnapshotCreated, 2)
        await manager.snapshot(chat)
        assert manager.record("chat", said("spooled again"))
        assert len((await store.load("chat")).messages) == 2
    assert [event.operation for event in diary.of(SnapshotFailed)] == ["spool"]


@pytest.mark.parametrize("gap_is", ["new", "old"])
async def test_record_refused_during_a_save_is_spooled_once_the_save_has_closed_the_gap(
    store: FilesystemStore, monkeypatch: pytest.MonkeyPatch, gap_is: str
) -> None:
    """The snapshot on its way does not hold it: recovered with what came after it, it would be a word left out."""
    chat = Chat("chat")
    real, real_write = store.sync.save, Spool._write

    def full(_spool: Spool, _data: bytes) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    def say(word: str) -> bool:
        chat.say(word)
        return manager.record("chat", said(word))

    def save(snapshot: SessionSnapshot, **options: Any) -> Any:
        if gap_is == "new":
            monkeypatch.setattr(Spool, "_write", full)
        assert not say("refused meanwhile")
        monkeypatch.setattr(Spool, "_write", real_write)
        return real(snapshot, **options)

    async with managing(store, **_SLOW) as (manager, _):
        await manager.start_auto_snapshot(chat)
        if gap_is == "old":
            monkeypatch.setattr(Spool, "_write", full)
            assert not say("refused before")
            monkeypatch.setattr(Spool, "_write", real_write)
        store.sync.save = save  # type: ignore[method-assign]
        await manager.snapshot(chat)
        store.sync.save = real  # type: ignore[method-assign]
        assert say("spooled again")
        die(manager)
    async with managing(store) as (manager, _):
        found = await manager.restore("chat")
    assert [message.text for message in found.snapshot.messages] == chat.said


class Refusing(AsyncChat):
    """Has a record refused while it is asked for its snapshot, the first time, and does not put it in."""

    record: Any = None

    async def snapshot(self) -> SessionSnapshot:
        snapshot = await super().snapshot()
        if self.asked == 1:
            self.record()
        return snapshot


async def test_async_session_is_captured_again_if_a_record_was_refused_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = Refusing("chat")
    real = Spool._write

    def refused() -> None:
        def full(_spool: Spool, _data: bytes) -> None:
            raise OSError(errno.ENOSPC, "no space left")

        monkeypatch.setattr(Spool, "_write", full)
        assert not manager.record("chat", said("late"))
        monkeypatch.setattr(Spool, "_write", real)

    async with FilesystemStore(tmp_path) as store, managing(store, **_SLOW) as (manager, _):
        chat.record = refused
        await manager.start_auto_snapshot(chat)
        await manager.snapshot(chat)
        assert chat.asked == 2
        assert manager.record("chat", said("spooled again"))


async def test_records_are_flushed_within_the_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed, times, here = anyio.Event(), 0, anyio.lowlevel.current_token()
    real = Spool.flush

    def flush(spool: Spool) -> None:
        nonlocal times
        times += 1
        real(spool)
        anyio.from_thread.run_sync(flushed.set, token=here)

    async with (
        FilesystemStore(tmp_path) as store,
        managing(store, spool_flush_interval=0.01, **_SLOW) as (manager, _),
    ):
        await manager.start_auto_snapshot(Chat("chat"))
        monkeypatch.setattr(Spool, "flush", flush)
        assert manager.record("chat", said("a"))
        assert manager.record("chat", said("b"))
        with anyio.fail_after(PATIENCE):
            await flushed.wait()
        assert times == 1
        monkeypatch.setattr(Spool, "flush", real)


async def test_failed_flush_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_spool: Spool) -> None:
        raise StoreUnavailable("I/O error")

    async with (
        FilesystemStore(tmp_path) as store,
        managing(store, spool_flush_interval=0.01, **_SLOW) as (manager, diary),
    ):
        await manager.start_auto_snapshot(Chat("chat"))
        monkeypatch.setattr(Spool, "flush", broken)
        assert manager.record("chat", said("a"))
        await diary.wait_for(SnapshotFailed, where=lambda event: event.operation == "spool")


async def test_failed_truncate_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_spool: Spool, _upto: int) -> None:
        raise StoreUnavailable("I/O error")

    chat = Chat("chat")
    async with FilesystemStore(tmp_path) as store, managing(store, **_SLOW) as (manager, diary):
        await manager.start_auto_snapshot(chat)
        assert manager.record("chat", said("a"))
        chat.say("a")
        with monkeypatch.context() as patched:
            patched.setattr(Spool, "truncate", broken)
            await manager.snapshot(chat)
    async with FilesystemStore(tmp_path) as store, managing(store) as (manager, _):
        assert [m.text for m in (await manager.restore("chat")).snapshot.messages] == ["a"]
    assert [event.operation for event in diary.of(SnapshotFailed)] == ["spool"]


async def test_a_record_that_is_not_json_is_refused(store: FilesystemStore) -> None:
    async with managing(store) as (manager, _):
        await manager.start_auto_snapshot(Chat("chat"))
        with pytest.raises(InvalidInput):
            manager.record("chat", {"bytes": b"raw"})
        assert manager.record("chat", said("fine"))


async def test_record_without_a_spool_or_a_live_session_reports_it_is_not_durable(tmp_path: Path) -> None:
    async with managing(MemoryStore()) as (manager, _):
        await manager.start_auto_snapshot(Chat("chat"))
        assert not manager.record("chat", said("a"))
    async with FilesystemStore(tmp_path) as store, managing(store) as (manager, _):
        assert not manager.record("nobody", said("a"))


async def test_clean_stop_releases_the_session_and_leaves_nothing_to_recover(store: FilesystemStore) -> None:
    chat = Chat("chat")
    async with managing(store, **_SLOW) as (manager, _):
        await manager.start_auto_snapshot(chat)
        owner = lease_of(store.session_dir("chat")).owner
        assert owner is not None
        assert owner.control is not None
        assert manager.record("chat", said("a"))
        chat.say("a")
    assert lease_of(store.session_dir("chat")).owner is None
    async with managing(store) as (manager, _):
        assert await manager.recover() == []
