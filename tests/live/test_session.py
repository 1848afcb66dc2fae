"""A live session: what it records, saves, and decides when something goes wrong."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import (
    Fenced,
    FilesystemStore,
    InvalidInput,
    KeyMissing,
    MemoryStore,
    SessionLocked,
    SnapshotError,
    SnapshotRef,
    StoreUnavailable,
)
from snapshot_plugin.live.events import Event, SnapshotCreated, SnapshotFailed
from snapshot_plugin.live.lease import FileHold, FilePlace
from snapshot_plugin.live.session import LiveSession
from snapshot_plugin.live.sessions import LiveSessions
from snapshot_plugin.live.spool import Spool, read_spool
from snapshot_plugin.testing import Fault, FaultyStore
from tests.live.events import LONG, NOW, PATIENCE, Said, blank, reduce_said, texts

KEY = "asnap-key-" + "A" * 43


class Told:
    """Keeps what was reported."""

    def __init__(self) -> None:
        self.failures: list[tuple[str, str]] = []
        self.notices: list[str] = []
        self.saved = threading.Semaphore(0)

    def __call__(self, event: Event) -> None:
        if isinstance(event, SnapshotCreated):
            self.notices += event.notices
            self.saved.release()
        elif isinstance(event, SnapshotFailed):
            self.failures.append((event.operation, event.code))

    def wait_for_save(self) -> None:
        assert self.saved.acquire(timeout=PATIENCE)


class Gate:
    """A function that waits at its beginning until the test lets it go on."""

    def __init__(self, work: Callable[..., Any]) -> None:
        self._work, self.entered, self.opened = work, threading.Event(), threading.Event()

    def __call__(self, *args: Any) -> Any:
        self.entered.set()
        assert self.opened.wait(PATIENCE)
        return self._work(*args)


@pytest.fixture(params=["plain", "sealed"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FilesystemStore:
    key = KEY if request.param == "sealed" else None
    return FilesystemStore(tmp_path / "store", key=key, background=False)


@pytest.fixture
def told() -> Told:
    return Told()


def opened(store: Any, told: Told | None = None) -> LiveSessions:
    return LiveSessions(
        store, Said, emit=told or Told(), clock=lambda: NOW, reducers={"said": reduce_said}, flush_interval=0.01
    )


@pytest.fixture
def sessions(store: FilesystemStore, told: Told) -> Iterator[LiveSessions]:
    """Sessions that are saved only when told."""
    live = opened(store, told)
    live._context.touch = lambda _session: None
    yield live
    live.close()


@pytest.fixture
def busy_sessions(store: FilesystemStore, told: Told) -> Iterator[LiveSessions]:
    """Sessions that are saved in the background too."""
    live = opened(store, told)
    yield live
    live.close()


def again(store: FilesystemStore) -> Any:
    """Another store object for the same place, as another process has it."""
    key = KEY if (store.path / "keys").exists() else None
    return FilesystemStore(store.path, key=key).sync


def stored(store: FilesystemStore, session_id: str = "s") -> list[str]:
    return texts(again(store).read(session_id).snapshot)


def spooled(store: FilesystemStore, session_id: str = "s") -> list[dict[str, Any]]:
    found = read_spool(store.session_dir(session_id), session_id=session_id, keys=store.session_keys(session_id))
    return [record.data for record in found.records]


class FullDisk:
    """Makes every write to a spool fail while it is on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.on = False
        write = Spool._write

        def refuse(spool: Spool, data: bytes) -> None:
            if self.on:
                raise OSError(errno.ENOSPC, "No space left on device")
            write(spool, data)

        patch.setattr(Spool, "_write", refuse)


def die(sessions: LiveSessions, live: LiveSession) -> None:
    """Lose the lease as a killed process does, of which no thread goes on."""
    sessions.stop()
    for thread in (*sessions._saves._threads, sessions._flushes._thread):
        if thread is not None:
            thread.join(PATIENCE)
    hold = live._spool.hold
    assert isinstance(hold, FileHold)
    hold.lease._leave_to_parent()


# --- the usual way -----------------------------------------------------------------------------------------------


def test_event_is_spooled_before_record_returns_and_stored_after_a_save(
    store: FilesystemStore, sessions: LiveSessions
) -> None:
    live = sessions.begin(blank(), {"provider_type": "said"})
    assert live.record({"ask": "why?"})
    assert live.record_all([{"say": "because"}, {"say": "of that"}], durable=True)
    assert spooled(store) == [{"provider_type": "said"}, {"ask": "why?"}, {"say": "because"}, {"say": "of that"}]
    outcome = live.save("manual", ("tag",))
    assert (outcome.status, outcome.seq) == ("saved", live.ref and live.ref.seq)
    assert spooled(store) == []
    assert stored(store) == ["why?", "because", "of that"] == texts(live.snapshot())


def test_checkpoint_saves_soon_in_the_background(
    store: FilesystemStore, busy_sessions: LiveSessions, told: Told
) -> None:
    live = busy_sessions.begin(blank(), {"provider_type": "said"})
    live.record({"say": "hello"})
    live.checkpoint()
    told.wait_for_save()
    while stored(store) != ["hello"]:  # the first save may have been that of the beginning
        told.wait_for_save()


def test_resumed_session_includes_its_dead_owners_spool(store: FilesystemStore) -> None:
    first = opened(store)
    live = first.begin(blank(), {"provider_type": "said"})
    live.save()
    live.record({"ask": "still there?"})
    die(first, live)
    second = opened(store)
    resumed = second.resume("s")
    assert texts(resumed.snapshot()) == ["still there?"]
    assert live.hold
    assert resumed.hold
    assert resumed.hold.epoch == live.hold.epoch + 1
    assert not resumed.running
    second.close()


def test_properly_stopped_session_is_read_once_on_resume(store: FilesystemStore) -> None:
    first = opened(store)
    first.begin(blank(), {"provider_type": "said"}).record({"ask": "why?"})
    first.close()
    counting = FaultyStore(store)
    counting.live_place = FilePlace(store)  # type: ignore[attr-defined]
    second = opened(counting)
    assert texts(second.resume("s").snapshot()) == ["why?"]
    assert [call.method for call in counting.calls] == ["read"]
    second.finish("s", save=False)
    second.stop()


def test_turn_in_progress_in_the_stored_session_ends_on_resume(store: FilesystemStore) -> None:
    class Unfinished(Said):
        def __init__(self, base: Any) -> None:
            super().__init__(base)
            self.running = bool(base.messages) and base.messages[-1].role == "user"

    sessions = LiveSessions(store, Unfinished, emit=Told(), clock=lambda: NOW)
    sessions.begin(blank(), {"ask": "hm?"})
    sessions.finish("s")
    live = sessions.resume("s")
    assert texts(live.snapshot()) == ["hm?", "(the client hung up)"]
    sessions.close()


def test_a_session_has_one_owner(store: FilesystemStore, sessions: LiveSessions) -> None:
    sessions.begin(blank(), {"say": "mine"})
    other = opened(store)
    with pytest.raises(SessionLocked):
        other.begin(blank())
    with pytest.raises(SessionLocked):
        other.resume("s")
    with pytest.raises(SessionLocked):
        other.delete("s")
    assert sessions.finish("s").status == "saved"
    assert other.resume("s").is_recorded
    other.close()


def test_an_event_that_is_not_json_is_refused_and_changes_nothing(sessions: LiveSessions) -> None:
    live = sessions.begin(blank(), {"say": "one"})
    with pytest.raises(InvalidInput):
        live.record({"say": float("nan")})
    assert texts(live.snapshot()) == ["one"]
    assert live.is_recorded


def test_concurrent_saves_are_coalesced(store: FilesystemStore, sessions: LiveSessions) -> None:
    live = sessions.begin(blank(), {"say": "one"})
    asked = threading.Semaphore(0)

    class Lock:
        """Tells who waits for it."""

        def __init__(self) -> None:
            self.inner = threading.Lock()

        def __enter__(self) -> None:
            asked.release()
            self.inner.acquire()

        def __exit__(self, *_error: object) -> None:
            self.inner.release()

    live._saving = Lock()  # type: ignore[assignment]
    with live._saving:
        waiting = [threading.Thread(target=live.save) for _ in range(8)]
        for thread in waiting:
            thread.start()
        for _ in range(9):
            assert asked.acquire(timeout=PATIENCE)
        live.record({"say": "two"})
    for thread in waiting:
        thread.join(PATIENCE)
    assert len(again(store).history("s")) == 1


def test_labels_of_a_live_session_survive_a_kill(store: FilesystemStore) -> None:
    first = opened(store)
    live = first.begin(blank(), {"provider_type": "said"})
    live.relabel({"title": "named", "pinned": True})
    with pytest.raises(InvalidInput):
        live.relabel({"tags": "no list"})
    die(first, live)
    second = opened(store)
    resumed = second.resume("s")
    assert (resumed.snapshot().title, resumed.snapshot().pinned) == ("named", True)
    second.close()


def test_list_and_newest_show_the_current_state_of_live_sessions(sessions: LiveSessions) -> None:
    live = sessions.begin(blank(), {"ask": "one"})
    live.record({"say": "two"})
    assert texts(sessions.newest("s").snapshot) == ["one", "two"]
    live.record({"say": "three"})
    assert [meta.messages for meta in sessions.list()] == [3]
    assert (sessions.has("s"), sessions.has("t"), sessions.has("")) == (True, False, False)


def test_newest_has_what_the_store_refuses_to_save(store: FilesystemStore, told: Told) -> None:
    faulty = FaultyStore(store)
    sessions = opened(faulty, told)
    live = sessions.begin(blank())
    live.record({"say": "one"})
    assert live.save().status == "saved"
    live.record({"say": "two"})
    faulty.script = lambda call: Fault(error=StoreUnavailable("full")) if call.method == "save" else None
    assert texts(sessions.newest("s").snapshot) == ["one", "two"]
    sessions.close()


def test_deleted_session_is_closed_and_moved_to_the_trash(sessions: LiveSessions) -> None:
    sessions.begin(blank(), {"say": "one"}).save()
    assert sessions.delete("s") is not None
    assert sessions.delete("s") is None
    assert (sessions.has("s"), [each.session_id for each in sessions.store.trash()]) == (False, ["s"])


def test_newest_has_what_another_owner_has_only_spooled(store: FilesystemStore, sessions: LiveSessions) -> None:
    elsewhere = opened(store)
    elsewhere._context.touch = lambda _session: None
    live = elsewhere.begin(blank(), {"provider_type": "said", "ask": "one"})
    assert texts(sessions.newest("s").snapshot) == ["one"]
    assert sessions.newest("s").seq == 0
    live.save()
    live.record({"say": "two"})
    newest = sessions.newest("s")
    assert (texts(newest.snapshot), newest.seq, newest.saved) == (["one", "two"], 1, 1)
    elsewhere.close()


def gated_resume(sessions: LiveSessions) -> Gate:
    """Store a session whose next resume waits, in the middle, until the gate is opened."""
    sessions.begin(blank(), {"say": "one"})
    sessions.finish("s")
    sessions._reducer = gate = Gate(Said)
    return gate


def test_threads_that_resume_one_session_at_once_get_the_same_live_session(
    store: FilesystemStore, sessions: LiveSessions
) -> None:
    made = gated_resume(sessions)
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(sessions.resume, "s")
        assert made.entered.wait(PATIENCE)
        others = [threads.submit(sessions.resume, "s"), threads.submit(sessions.resume, "s")]
        made.opened.set()
        live = first.result(PATIENCE)
        assert [other.result(PATIENCE) for other in others] == [live, live]
    live.record({"say": "two"})
    assert live.is_recorded


def test_session_that_is_being_resumed_is_finished_afterwards(
    store: FilesystemStore, sessions: LiveSessions
) -> None:
    made = gated_resume(sessions)
    with ThreadPoolExecutor(2) as threads:
        resumed = threads.submit(sessions.resume, "s")
        assert made.entered.wait(PATIENCE)
        finished = threads.submit(sessions.finish, "s")
        made.opened.set()
        resumed.result(PATIENCE)
        assert finished.result(PATIENCE).status == "saved"
    assert "s" not in sessions.open
    assert FilePlace(store).owner("s") is None


def test_session_that_is_being_finished_is_resumed_afterwards(
    store: FilesystemStore, sessions: LiveSessions
) -> None:
    live = sessions.begin(blank(), {"say": "one"})
    closing = Gate(lambda _session: None)
    sessions._context.forget = closing
    with ThreadPoolExecutor(2) as threads:
        finished = threads.submit(sessions.finish, "s")
        assert closing.entered.wait(PATIENCE)
        resumed = threads.submit(sessions.resume, "s")
        closing.opened.set()
        assert finished.result(PATIENCE).status == "saved"
        assert resumed.result(PATIENCE) is not live
    assert sessions.open["s"].is_recorded


def test_session_that_stays_busy_is_refused_in_time(sessions: LiveSessions) -> None:
    sessions.begin(blank(), {"say": "one"})
    sessions.patience = 0.0
    closing = Gate(lambda _session: None)
    sessions._context.forget = closing
    with ThreadPoolExecutor(1) as threads:
        finished = threads.submit(sessions.finish, "s")
        assert closing.entered.wait(PATIENCE)
        with pytest.raises(SessionLocked, match="being opened or closed"):
            sessions.resume("s")
        assert sessions.finish("s").status == "timeout"
        closing.opened.set()
        assert finished.result(PATIENCE).status == "saved"


def test_a_fork_is_saved_before_its_first_event(store: FilesystemStore, sessions: LiveSessions) -> None:
    said = Said(blank())
    said.apply({"say": "before"})
    live = sessions.begin(said.snapshot(NOW), {"provider_type": "said"})
    assert stored(store) == ["before"]
    assert live.is_recorded


# --- the spool refuses -------------------------------------------------------------------------------------------


def test_after_a_failed_write_nothing_is_spooled_until_a_snapshot_covers_the_gap(
    store: FilesystemStore, sessions: LiveSessions, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    live = sessions.begin(blank(), {"say": "one"})
    live.save()
    disk.on = True
    assert not live.record({"say": "two"})
    disk.on = False
    assert not live.record({"say": "three"})
    assert spooled(store) == []
    assert live.trouble is not None
    assert live.trouble.code == "store_unavailable"
    assert told.failures == [("spool", "store_unavailable")]
    assert live.save().status == "saved"
    assert live.record({"say": "four"})
    assert live.trouble is None
    assert (stored(store), spooled(store)) == (["one", "two", "three"], [{"say": "four"}])


def test_events_that_arrive_during_the_save_that_closes_a_gap_are_spooled_after_it(
    store: FilesystemStore, sessions: LiveSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, live = FullDisk(monkeypatch), sessions.begin(blank())
    disk.on = True
    assert not live.record({"say": "refused"})
    disk.on = False
    save = store.sync.save

    def slow(*args: Any, **options: Any) -> SnapshotRef:
        assert not live.record({"say": "meanwhile"}), "until it is saved, the spool has a gap"
        return save(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(sessions.store, "save", slow)
        assert live.save().status == "saved"
    assert live.is_recorded
    assert live.record({"say": "later"})
    assert [event["say"] for event in spooled(store)] == ["meanwhile", "later"]
    die(sessions, live)
    found = opened(store)
    assert texts(found.resume("s").snapshot()) == ["refused", "meanwhile", "later"]
    found.close()


def test_failed_write_triggers_a_background_save(
    store: FilesystemStore, sessions: LiveSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[LiveSession] = []
    disk = FullDisk(monkeypatch)
    live = sessions.begin(blank(), {"say": "one"})
    live.save_scheduled()
    sessions._context.touch = asked.append
    disk.on = True
    for text in ("two", "three"):
        live.record({"say": text})
    disk.on = False
    assert asked == [live]
    assert live.save_scheduled()
    assert (stored(store), live.is_recorded) == (["one", "two", "three"], True)


def test_a_long_turn_is_saved_in_parts(store: FilesystemStore, sessions: LiveSessions) -> None:
    asked: list[LiveSession] = []
    live = sessions.begin(blank(), {"say": "one"})
    live.save_scheduled()
    sessions._context.touch = asked.append
    live.record({"say": "two"})
    assert asked == []
    live.record({"say": "x" * (LONG + 1)})
    live.record({"say": "three"})
    assert asked == [live]
    assert live.save_scheduled()
    assert (stored(store)[-1], spooled(store)) == ("three", [])


def test_durable_event_the_spool_refuses_is_saved_before_record_returns(
    store: FilesystemStore, sessions: LiveSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    live = sessions.begin(blank(), {"say": "one"})
    disk.on = True
    assert live.record({"say": "two"}, durable=True)
    assert stored(store) == ["one", "two"]


def test_a_store_without_a_live_place_saves_durable_events_at_once() -> None:
    store = MemoryStore()
    sessions = opened(store)
    live = sessions.begin(blank(), {"say": "one"})
    assert not live.record({"say": "two"})
    assert texts(store.sync.read("s").snapshot) == ["one"]
    assert sessions.finish("s").status == "saved"
    assert texts(store.sync.read("s").snapshot) == ["one", "two"]
    sessions.close()


@pytest.mark.parametrize("error", [StoreUnavailable, KeyMissing])
def test_failing_lease_is_retried_at_every_event_and_reported_once(
    store: FilesystemStore,
    sessions: LiveSessions,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
    error: type[SnapshotError],
) -> None:
    asked: list[str] = []

    def refuse(_place: FilePlace, session_id: str, _owner: object) -> None:
        asked.append(session_id)
        raise error("read-only", session_id=session_id)

    take = FilePlace.take
    monkeypatch.setattr(FilePlace, "take", refuse)
    live = sessions.begin(blank())
    for text in ("one", "two"):
        assert not live.record({"say": text})
    assert len(asked) == 3
    assert told.failures == [("spool", error.code)]
    assert live.trouble is not None
    monkeypatch.setattr(FilePlace, "take", take)
    assert not live.record({"say": "three"})  # leased now, and the first two are in no spool
    assert live.save().status == "saved"
    assert live.record({"say": "four"})
    assert (stored(store), spooled(store)) == (["one", "two", "three"], [{"say": "four"}])
    assert live.is_recorded


# --- others write ------------------------------------------------------------------------------------------------


def test_rename_by_another_process_is_kept_by_the_next_save(
    store: FilesystemStore, sessions: LiveSessions, told: Told
) -> None:
    live = sessions.begin(blank(), {"say": "one"})
    live.save()
    script = again(store)
    found = script.read("s")
    script.save(found.snapshot.evolve(title="renamed"), base=found.ref.seq)
    live.record({"say": "two"})
    assert live.save().status == "saved"
    assert again(store).read("s").snapshot.title == "renamed"
    assert stored(store) == ["one", "two"]
    assert told.notices == [f"snapshot {found.ref.seq + 1} is by another writer; saved on top of it"]
    live.record({"say": "three"})
    assert live.save().status == "saved"
    assert again(store).read("s").snapshot.title == "renamed"
    assert len(told.notices) == 1


def test_session_deleted_elsewhere_is_recreated_from_memory(
    store: FilesystemStore, sessions: LiveSessions, told: Told
) -> None:
    live = sessions.begin(blank(), {"say": "one"})
    live.save()
    again(store).delete("s")
    live.record({"say": "two"})
    assert live.save().status == "saved"
    assert stored(store) == ["one", "two"]
    assert told.notices == ["it was deleted while it was live, and was saved again from memory"]
    assert FilePlace(store).owner("s") is not None
    live.save("again")
    live.record({"say": "three"})
    live.save()
    assert live.record({"say": "four"}, durable=True)
    assert (stored(store), spooled(store)) == (["one", "two", "three"], [{"say": "four"}])


def test_durable_event_after_a_delete_elsewhere_is_not_lost_in_the_trash(
    store: FilesystemStore, sessions: LiveSessions
) -> None:
    live = sessions.begin(blank(), {"say": "one"})
    live.save()
    again(store).delete("s")
    assert live.record({"say": "two"}, durable=True)
    assert stored(store) == ["one", "two"]


def test_session_recreated_by_another_owner_is_not_overwritten(
    store: FilesystemStore, sessions: LiveSessions, told: Told
) -> None:
    live = sessions.begin(blank(), {"say": "ours"})
    live.save()
    again(store).delete("s")
    other = opened(store)
    other.begin(blank(), {"say": "theirs"}).save()
    live.record({"say": "more of ours"})
    assert (live.save().code, stored(store)) == ("locked", ["theirs"])
    other.close()
    assert (live.save().code, stored(store)) == ("fenced", ["theirs"])
    assert (live.save().code, stored(store)) == ("fenced", ["theirs"])
    assert isinstance(live._spool.fenced, Fenced)
    third = opened(store)
    assert texts(third.resume("s").snapshot()) == ["theirs"]
    third.close()


def test_fully_damaged_stored_session_is_rewritten_from_memory(
    store: FilesystemStore, sessions: LiveSessions, told: Told
) -> None:
    live = sessions.begin(blank(), {"say": "one"})
    live.save()
    for segment in store.session_dir("s").glob("*.snap.gz"):
        segment.write_bytes(b"\0" * segment.stat().st_size)
    live.record({"say": "two"})
    assert live.save().status == "saved"
    assert stored(store) == ["one", "two"]


# --- the end -----------------------------------------------------------------------------------------------------


def test_failed_last_save_keeps_the_spool_and_is_reported(
    store: FilesystemStore, sessions: LiveSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = sessions.begin(blank(), {"provider_type": "said"})
    live.save()
    live.record({"say": "unsaved"})

    with monkeypatch.context() as patch:
        patch.setattr(store.core, "save", full)
        outcome = sessions.finish("s")
    assert (outcome.status, outcome.code) == ("failed", "store_unavailable")
    assert outcome.problem.endswith("; its spool is kept")
    assert spooled(store) == [{"say": "unsaved"}]
    second = opened(store)
    assert texts(second.resume("s").snapshot()) == ["unsaved"]
    second.close()


def full(*_args: object, **_options: object) -> None:
    raise StoreUnavailable("full")


def test_failed_last_save_does_not_promise_a_spool_that_refused_the_words(
    store: FilesystemStore, sessions: LiveSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, live = FullDisk(monkeypatch), sessions.begin(blank(), {"provider_type": "said"})
    live.save()
    disk.on = True
    assert not live.record({"say": "refused"})
    monkeypatch.setattr(store.core, "save", full)
    outcome = sessions.finish("s")
    assert outcome.status == "failed"
    assert "spool is kept" not in outcome.problem
    assert "lost" in outcome.problem


def test_closed_session_refuses_saves(sessions: LiveSessions) -> None:
    live = sessions.begin(blank(), {"say": "one"})
    assert sessions.finish("s").status == "saved"
    assert live.save().status == "not_live"
    assert sessions.finish("s").status == "not_live"
