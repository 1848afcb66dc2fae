"""Sessions that threads, stores and processes change at once."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import (
    Conflict,
    FilesystemStore,
    InvalidInput,
    InvalidSessionId,
    Message,
    SessionSnapshot,
    SnapshotCorrupted,
    SnapshotError,
    open_store,
)
from snapshot_plugin.codec.sources import CommandKey
from snapshot_plugin.frameworks.checkpoints import Checkpoints
from snapshot_plugin.frameworks.sessions import (
    COMPANION,
    LabelledSnapshot,
    OpenSessions,
    SharedSession,
    labelled,
    new_session,
    open_place,
    session_id_for,
    shared_session,
)
from snapshot_plugin.testing import make_message


def adding(text: str) -> Any:
    def make(head: SessionSnapshot | None) -> LabelledSnapshot:
        base = head or new_session("s", "x")
        return LabelledSnapshot(base.append(Message(role="user", content=text)), {"framework": "x"})

    return make


def texts(place: Path) -> list[str]:
    return [message.text for message in FilesystemStore(place).sync.load("s").messages]


def test_store_is_opened_once_per_place_and_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = open_place("here")
    assert open_place(tmp_path / "here") is first
    assert open_place(tmp_path / "other") is not first
    encrypted = open_place(tmp_path / "sealed", "one")
    assert open_place(tmp_path / "sealed", "one") is encrypted
    first.close()
    assert open_place("here") is not first


def test_given_store_is_used_as_is(tmp_path: Path) -> None:
    store = FilesystemStore(tmp_path)
    assert open_place(store) is open_place(store.sync) is store.sync
    with pytest.raises(InvalidInput, match="key"):
        open_place(store, "secret")


def test_session_that_another_process_deleted_and_made_anew_is_read_again(tmp_path: Path) -> None:
    here, elsewhere = FilesystemStore(tmp_path).sync, FilesystemStore(tmp_path).sync
    session = shared_session(here, "s")
    session.change(adding("ours"))
    shared_session(elsewhere, "s").delete()
    shared_session(elsewhere, "s").change(adding("theirs"))  # with the same number
    head = session.current()
    assert head is not None
    assert [message.text for message in head.messages] == ["theirs"]


@pytest.mark.requirement("STORE-SHARED-CHANGE")
def test_change_is_made_again_on_what_another_writer_saved(tmp_path: Path) -> None:
    ours, theirs = (OpenSessions(FilesystemStore(tmp_path)).session("s") for _ in range(2))
    ours.change(lambda _: new_session("s", "x").append(make_message("first")))
    seen: list[int] = []

    def late(newest: SessionSnapshot | None) -> SessionSnapshot:
        assert newest is not None
        seen.append(len(newest.messages))
        if len(seen) == 1:
            theirs.change(lambda head: head and head.append(make_message("theirs")))
        return newest.append(make_message("ours"))

    assert ours.change(late) == 3
    assert seen == [1, 2]
    assert ours.change(lambda _: None) == 3
    head = theirs.current()
    assert head is not None
    assert [message.text for message in head.messages] == ["first", "theirs", "ours"]


def test_checkpoints_that_another_process_deleted_are_not_found(tmp_path: Path) -> None:
    def labels_of(snapshot: SessionSnapshot) -> dict[str, str]:
        return {"framework": "x", "checkpoint": snapshot.messages[-1].text}

    def grown(name: str, head: SessionSnapshot | None) -> SessionSnapshot:
        change: LabelledSnapshot = adding(name)(head)
        return change.snapshot

    def saving(checkpoints: Checkpoints, *names: str) -> None:
        for name in names:
            checkpoints.save(partial(grown, name))

    stores = [FilesystemStore(tmp_path).sync, FilesystemStore(tmp_path).sync]
    ours, theirs = (Checkpoints(shared_session(store, "s"), lambda found: [labels_of(found)]) for store in stores)
    saving(ours, "1", "2")
    assert len(ours.index()) == 2
    theirs.delete()
    saving(theirs, "3", "4")
    assert ours.latest("") == "4"
    theirs.delete()
    saving(theirs, "5", "6")
    saving(ours, "7")
    assert [name for _, name in ours.index()] == ["5", "6", "7"]


@pytest.mark.parametrize("place", ["", "a\0b", b"store", None, 7, ["x"]])
def test_wrong_place_is_refused(place: Any) -> None:
    with pytest.raises(InvalidInput):
        open_place(place)


def test_key_given_as_a_list_opens_a_store(tmp_path: Path) -> None:
    first = open_place(tmp_path, CommandKey([sys.executable, "-c", "print('secret')"]))
    first.save(new_session("s", "x"))
    assert open_place(tmp_path, CommandKey([sys.executable, "-c", "print('secret')"])) is first
    with pytest.raises(InvalidInput, match="one text"):
        CommandKey("pass show agent")
    with pytest.raises(InvalidInput, match="key"):
        open_place(tmp_path, ["secret"])  # type: ignore[arg-type]


def test_memory_stores_are_not_shared() -> None:
    assert open_place("memory:") is not open_place("memory:")


def test_one_object_per_session_and_process(tmp_path: Path) -> None:
    store = open_place(tmp_path)
    assert shared_session(store, "s") is shared_session(open_place(tmp_path), "s")


def test_concurrent_changes_by_threads_and_stores_lose_nothing(tmp_path: Path) -> None:
    def work(name: int) -> None:
        store = open_place(tmp_path) if name % 2 else FilesystemStore(tmp_path).sync
        session = SharedSession(store, "s") if name == 3 else shared_session(store, "s")
        for number in range(5):
            session.change(adding(f"{name}-{number}"))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert sorted(texts(tmp_path)) == [f"{name}-{number}" for name in range(4) for number in range(5)]


def test_a_stale_object_of_the_same_store_builds_on_the_newest(tmp_path: Path) -> None:
    store = open_place(tmp_path)
    first, second = SharedSession(store, "s"), SharedSession(store, "s")
    for session, text in ((first, "a"), (second, "b"), (first, "c")):
        session.change(adding(text))
    assert texts(tmp_path) == ["a", "b", "c"]


def test_changes_by_others_are_seen_and_deleted_sessions_are_gone(tmp_path: Path) -> None:
    session, other = (SharedSession(FilesystemStore(tmp_path).sync, "s") for _ in range(2))
    session.change(adding("a"))
    other.change(adding("b"))
    found = session.current()
    assert found
    assert len(found.messages) == 2
    other.delete()
    other.delete()
    assert session.current() is None
    session.change(adding("new"))
    assert texts(tmp_path) == ["new"]


def test_session_recreated_by_others_is_not_overwritten(tmp_path: Path) -> None:
    session, other = (SharedSession(FilesystemStore(tmp_path).sync, "s") for _ in range(2))
    session.change(adding("old"))
    other.delete()
    other.change(adding("new"))
    session.change(adding("more"))
    assert texts(tmp_path) == ["new", "more"]


def test_what_others_added_is_seen_before_nothing_is_saved_or_an_error_is_raised(tmp_path: Path) -> None:
    session, other = (SharedSession(FilesystemStore(tmp_path).sync, "s") for _ in range(2))
    session.change(adding("a"))
    other.change(adding("b"))
    seen: list[int] = []

    def refuses_the_old(head: SessionSnapshot | None) -> LabelledSnapshot | None:
        seen.append(len(head.messages) if head else 0)
        if seen[-1] == 1:
            raise ValueError("too few")
        return None

    assert session.change(refuses_the_old) == 2
    assert seen == [1, 2]


def test_unchanged_session_is_not_saved(tmp_path: Path) -> None:
    session = SharedSession(open_place(tmp_path), "s")
    assert session.change(lambda _: None) == 0
    assert session.store.tip("s") is None


def test_session_that_keeps_changing_is_a_conflict(tmp_path: Path) -> None:
    session, other = (SharedSession(FilesystemStore(tmp_path).sync, "s") for _ in range(2))

    def make(head: SessionSnapshot | None) -> LabelledSnapshot:
        other.change(adding("in between"))
        change: LabelledSnapshot = adding("late")(head)
        return change

    with pytest.raises(Conflict, match="each of"):
        session.change(make)


def test_full_disk_leaves_the_session_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = SharedSession(FilesystemStore(tmp_path).sync, "s")
    session.change(adding("a"))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fdatasync", full)
        with pytest.raises(SnapshotError):
            session.change(adding("lost"))
    session.change(adding("b"))
    assert texts(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("name", ["a\nb", "", "..", "bot+memory", f"t{COMPANION}", "x~" + "0" * 24])
def test_any_name_maps_to_its_own_id(name: str) -> None:
    found = session_id_for(name)
    assert found != name
    assert session_id_for(found) != found
    assert not found.endswith((COMPANION, "+memory"))


def test_ordinary_names_are_kept_as_ids() -> None:
    assert [session_id_for(name) for name in ("trip", "user-123", "Ünï/cödé")] == ["trip", "user-123", "Ünï/cödé"]


@pytest.mark.parametrize("name", [5, None, b"x"])
def test_an_id_that_is_not_text_is_refused(name: Any) -> None:
    with pytest.raises(InvalidSessionId, match="not text"):
        session_id_for(name)


def test_renaming_a_session_keeps_its_labels_findable(tmp_path: Path) -> None:
    store = open_store(tmp_path).sync
    base = new_session("s", "x").evolve(plugins={"x": {"thread": "s"}})
    store.save(base, labels={"thread": "s"})
    assert [about["thread"] for _, about in labelled(store, "x", "thread")] == ["s"]
    store.save(store.load("s").evolve(title="renamed by hand"))
    assert [about["thread"] for _, about in labelled(store, "x", "thread")] == ["s"]
    assert list(labelled(store, "y", "thread")) == []


_WRITER = """
import sys
from pathlib import Path
from tests.frameworks.test_shared_sessions import adding
from snapshot_plugin.frameworks.sessions import open_place, shared_session
session = shared_session(open_place(Path(sys.argv[1])), "s")
for number in range(1000):
    session.change(adding(str(number)))
    print(number, flush=True)
"""


def test_killed_writer_loses_nothing_acknowledged(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WRITER, str(tmp_path)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout
        confirmed = [writer.stdout.readline().strip() for _ in range(5)]
        writer.kill()  # somewhere in its sixth call, or between two
        confirmed += writer.stdout.read().split()
    kept = texts(tmp_path)
    assert kept[: len(confirmed)] == confirmed
    assert len(kept) <= len(confirmed) + 1
    shared_session(open_place(tmp_path), "s").change(adding("after"))
    assert texts(tmp_path) == [*kept, "after"]


def test_first_read_is_lines_and_the_next_one_is_kept(tmp_path: Path) -> None:
    shared_session(open_place(tmp_path), "s").change(adding("one"))
    session = SharedSession(FilesystemStore(tmp_path).sync, "s")
    found = session.first_lines()
    assert found
    assert (found.session.messages, len(found.messages)) == ((), 1)
    assert session.first_lines() is None
    current = session.current()
    assert current
    assert [message.text for message in current.messages] == ["one"]
    session.change(adding("two"))
    assert texts(tmp_path) == ["one", "two"]


def test_change_after_first_lines_sees_what_another_writer_saved_meanwhile(tmp_path: Path) -> None:
    shared_session(open_place(tmp_path), "s").change(adding("one"))
    session = SharedSession(FilesystemStore(tmp_path).sync, "s")
    assert session.first_lines()
    SharedSession(FilesystemStore(tmp_path).sync, "s").change(adding("two"))
    session.change(adding("three"))
    assert texts(tmp_path) == ["one", "two", "three"]


def test_first_lines_of_a_missing_session_are_none(tmp_path: Path) -> None:
    session = SharedSession(open_place(tmp_path), "s")
    assert session.first_lines() is None
    assert session.current() is None


def test_first_lines_of_a_damaged_session_fall_back_with_a_warning_or_raise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = shared_session(open_place(tmp_path), "s")
    writer.change(adding("one"))
    writer.change(adding("two"))
    (segment,) = (tmp_path / "sessions" / "s").glob("*.snap.gz")
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-20] + bytes([whole[-20] ^ 1]) + whole[-19:])
    found = SharedSession(FilesystemStore(tmp_path).sync, "s").first_lines()
    assert found
    assert len(found.messages) == 1
    assert "skipped damage" in caplog.text
    segment.write_bytes(whole[:700] + bytes([whole[700] ^ 1]) + whole[701:])
    with pytest.raises(SnapshotCorrupted):
        SharedSession(FilesystemStore(tmp_path).sync, "s").first_lines()
