from __future__ import annotations

import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import (
    FilesystemStore,
    InvalidInput,
    MemoryStore,
    SessionLocked,
    SnapshotCorrupted,
    SnapshotMeta,
    SnapshotNotFound,
)
from snapshot_plugin.live.label import apply_label, carried_over, label_of
from snapshot_plugin.live.lease import Lease, Owner, lease_of
from snapshot_plugin.live.spool import Spool
from snapshot_plugin.manager.labels import checked_label, checked_name, label
from snapshot_plugin.model.ids import is_reference
from snapshot_plugin.operations.references import Target, resolve
from snapshot_plugin.testing import FixedClock, make_snapshot
from tests.manager.processes import PATIENCE, heard, python, tell
from tests.manager.sessions import AsyncChat, Chat, managing
from tests.one_loop import anyio_backend, both_loops  # noqa: F401 — pytest uses it
from tests.tries import tries

anyio_mark = pytest.mark.anyio
_SLOW = {"snapshot_interval": 600, "event_debounce": 600}
FULL = {"title": "fix auth", "tags": ["urgent", "ä b"], "pinned": True, "note": "ask Ann\nfirst"}

_ELSEWHERE = """
    import sys, anyio
    sys.path.insert(0, sys.argv[2])
    from snapshot_plugin.manager.manager import SnapshotManager
    from snapshot_plugin.store.filesystem import FilesystemStore
    from tests.manager.sessions import Chat, quick

    async def main():
        async with FilesystemStore(sys.argv[1]) as store:
            async with SnapshotManager(store, quick(snapshot_interval=600, event_debounce=600)) as manager:
                chat = Chat("far", "one")
                await manager.start_auto_snapshot(chat)
                await manager.snapshot(chat)
                print("ready", flush=True)
                await anyio.to_thread.run_sync(sys.stdin.readline)
                chat.say("two")

    anyio.run(main)
"""


def test_label_round_trips() -> None:
    snapshot = make_snapshot("hello", metadata={"mine": 1})

    labelled = apply_label(snapshot, {"op": "label", "session_id": "whatever", **FULL})

    assert label_of(labelled) == FULL
    assert (labelled.title, labelled.tags, labelled.pinned) == ("fix auth", ("urgent", "ä b"), True)
    assert labelled.metadata["mine"] == 1
    assert labelled.messages is snapshot.messages
    assert labelled.updated_at == snapshot.updated_at
    assert labelled.session_id == "session"


def test_only_named_fields_change_and_no_change_returns_the_same_object() -> None:
    labelled = apply_label(make_snapshot("hello"), FULL)

    assert label_of(apply_label(labelled, {"pinned": False})) == {**FULL, "pinned": False}
    assert apply_label(labelled, FULL) is labelled
    assert apply_label(labelled, {"op": "label"}) is labelled


def test_name_and_note_can_be_removed() -> None:
    labelled = apply_label(make_snapshot("hello"), FULL)

    for nothing in (None, "", "  "):
        wanted = checked_label({"title": nothing, "note": nothing, "tags": [], "pinned": False})
        assert apply_label(labelled, wanted) == make_snapshot("hello")


def test_typed_labels_are_normalised() -> None:
    wanted = checked_label({"title": " a b ", "tags": [" x", "y", "x "], "note": "\n two\nlines \n", "else": 1})

    assert wanted == {"title": "a b", "tags": ["x", "y"], "note": "two\nlines"}


@pytest.mark.parametrize(
    "request_",
    [
        {"title": 7},
        {"tags": "urgent"},
        {"tags": [3]},
        {"tags": None},
        {"pinned": 1},
        {"pinned": None},
        {"note": ["a"]},
    ],
)
def test_invalid_label_is_refused(request_: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        apply_label(make_snapshot("a"), request_)


@pytest.mark.parametrize(
    "request_",
    [
        {"title": "two\nlines"},
        {"title": "\x1b[31mred"},
        {"title": "x" * 201},
        {"tags": [""]},
        {"tags": ["a\tb"]},
        {"tags": [str(number) for number in range(101)]},
        {"note": "x" * 16_001},
    ],
)
def test_reserved_labels_are_refused_from_users_but_can_be_restored(request_: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        checked_label(request_)

    assert label_of(apply_label(make_snapshot("a"), request_)).items() >= request_.items()


_LINE = st.text(max_size=40)
_LABEL = st.fixed_dictionaries(
    {},
    optional={
        "title": st.none() | _LINE,
        "tags": st.lists(_LINE, max_size=4),
        "pinned": st.booleans(),
        "note": st.none() | st.text(max_size=40),
    },
)


@tries(60)
@given(
    st.one_of(
        st.from_regex(r"\A(latest|tag:|a)?[~@: a]?([0-9]{0,3}|[0-9]{5000})\Z"),
        st.text("latesg:~@01 ", min_size=1, max_size=12),
        st.sampled_from(["latest", "latest~2", "tag:x", "name@3", "name@x", "Latest", "x@" + "9" * 30]),
    )
)
def test_a_name_is_accepted_if_it_finds_the_session_and_refused_if_it_means_something_else(name: str) -> None:
    """`checked_name` and the commands read a name alike."""
    other = SnapshotMeta(session_id="other", seq=9, saved_at=datetime(2026, 1, 2, tzinfo=UTC), tags=("x",))
    try:
        checked = checked_name(name)
    except InvalidInput:
        if len(name) <= 200:
            assert is_reference(name.strip())
        return
    if checked is not None:
        named = SnapshotMeta(session_id="session", seq=1, saved_at=datetime(2026, 1, 1, tzinfo=UTC), title=checked)
        assert resolve(checked, [other, named]) == Target(named)


@given(_LABEL, _LABEL)
def test_previous_label_restores_everything(first: dict[str, Any], second: dict[str, Any]) -> None:
    before = apply_label(make_snapshot("a", metadata={"k": 1}), first)
    after = apply_label(before, second)

    assert apply_label(after, label_of(before)) == before
    assert apply_label(after, second) is after


def test_only_a_missing_label_is_carried_over() -> None:
    before = apply_label(make_snapshot("a"), FULL)

    assert carried_over(before, make_snapshot("b")) == FULL
    assert carried_over(before, make_snapshot("b", title="own", tags=("own",))) == {
        "pinned": True,
        "note": "ask Ann\nfirst",
    }
    assert carried_over(make_snapshot("a"), before) == {}


# On a store ------------------------------------------------------------------------------------------------------


@anyio_mark
async def test_idle_session_is_labelled_in_a_new_snapshot(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path) as store:
        await store.save(make_snapshot("a"))
        done = await label(store, "session", lambda _: {"title": "new", "pinned": True})

        assert (done.seq, done.changed, done.owner) == (2, True, None)
        assert done.step == {"do": "label", "session_id": "session", "title": None, "pinned": False}
        [newest, _] = await store.history("session")
        assert (newest.title, newest.pinned, newest.trigger) == ("new", True, "label")

        again = await label(store, "session", lambda _: {"title": "new"})
        assert (again.seq, again.changed) == (2, False)
        assert len(await store.history("session")) == 2


@anyio_mark
async def test_label_function_sees_the_current_session() -> None:
    store = MemoryStore()
    await store.save(make_snapshot("a", tags=("old",)))

    done = await label(store, "session", lambda now: {"tags": [*now.tags, "new"]})

    assert done.after["tags"] == ["old", "new"]
    assert (await store.load("session")).tags == ("old", "new")


@anyio_mark
async def test_an_unknown_session_is_not_found_and_leaves_no_trace(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path) as store:
        with pytest.raises(SnapshotNotFound):
            await label(store, "nobody", lambda _: {"title": "x"})

    assert list((tmp_path / "sessions").iterdir()) == []


@anyio_mark
async def test_damaged_session_is_not_labelled(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path) as store:
        await store.save(make_snapshot("a"))
        await store.save(make_snapshot("a", "b"))
    [file] = (tmp_path / "sessions" / "session").glob("*.snap.gz")
    data = bytearray(file.read_bytes())
    data[-12] ^= 1
    file.write_bytes(data)

    async with FilesystemStore(tmp_path) as store:
        with pytest.raises(SnapshotCorrupted):
            await label(store, "session", lambda _: {"title": "x"})
    assert file.read_bytes() == data


@anyio_mark
@both_loops
async def test_concurrent_labels_are_never_lost_silently(tmp_path: Path) -> None:
    refused: list[str] = []
    async with FilesystemStore(tmp_path) as store:
        await store.save(make_snapshot("a"))

    async def tag(name: str) -> None:
        async with FilesystemStore(tmp_path) as store:
            try:
                await label(store, "session", lambda now: {"tags": [*now.tags, name]})
            except SessionLocked:
                refused.append(name)

    names = [f"t{number}" for number in range(6)]
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(tag, name)

    async with FilesystemStore(tmp_path) as store:
        assert sorted([*(await store.load("session")).tags, *refused]) == names


@anyio_mark
async def test_spool_of_a_dead_process_is_recoverable_after_a_label(tmp_path: Path) -> None:
    clock = FixedClock()
    async with FilesystemStore(tmp_path) as store:
        await store.save(make_snapshot("a"))
        directory = store.session_dir("session")
        spool = Spool.open(directory, session_id="session", keys=None)
        spool.append({"append": {"text": "said before it died"}})
        spool.close()
        dead = Owner(pid=1, host="gone", since=clock())
        Lease.acquire(directory, dead)._leave_to_parent()

        await label(store, "session", lambda _: {"title": "named"}, clock=clock)

        assert lease_of(directory).died == dead
        async with managing(store) as (manager, _):
            [recovered] = await manager.recover()
        assert recovered.records == 1
        found = await store.load("session")
        assert (found.title, found.messages[-1].text) == ("named", "said before it died")


# Live sessions ---------------------------------------------------------------------------------------------------


@anyio_mark
async def test_live_session_is_labelled_by_its_owner_permanently(tmp_path: Path) -> None:
    with python(_ELSEWHERE, tmp_path, Path(__file__).parents[2]) as process:
        assert heard(process) == "ready"
        async with FilesystemStore(tmp_path) as store:
            done = await label(store, "far", lambda _: FULL, timeout=PATIENCE)
            assert done.owner is not None
            assert done.owner.pid == process.pid
            assert label_of(await store.load("far")) == FULL
        tell(process, "go on")
        process.wait(PATIENCE)

    async with FilesystemStore(tmp_path) as store:
        after = await store.load("far")
    assert [message.text for message in after.messages] == ["one", "two"]
    assert label_of(after) == FULL


@anyio_mark
async def test_session_of_an_unreachable_owner_is_not_labelled(tmp_path: Path) -> None:
    clock = FixedClock()
    async with FilesystemStore(tmp_path) as store:
        await store.save(make_snapshot("a"))
        lease = Lease.acquire(store.session_dir("session"), Owner.this_process(since=clock()))

        with pytest.raises(SessionLocked) as caught:
            await label(store, "session", lambda _: {"title": "x"})

        assert str(lease.owner.pid) in caught.value.message
        assert "2026-01-01" in caught.value.message
        assert (await store.load("session")).title is None
        lease.release()


@anyio_mark
async def test_suspended_owner_is_not_waited_for_indefinitely(tmp_path: Path) -> None:
    with python(_ELSEWHERE, tmp_path, Path(__file__).parents[2]) as process:
        assert heard(process) == "ready"
        process.send_signal(signal.SIGSTOP)
        async with FilesystemStore(tmp_path) as store:
            with anyio.fail_after(PATIENCE), pytest.raises(SessionLocked):
                await label(store, "far", lambda _: FULL, timeout=0.2)


@anyio_mark
@both_loops
async def test_label_arriving_during_a_save_is_kept() -> None:
    store, chat = MemoryStore(), AsyncChat("chat")
    async with managing(store, **_SLOW) as (manager, _):
        await manager.start_auto_snapshot(chat)
        await manager.snapshot(chat)
        live = manager._sessions.get("chat")
        assert live is not None
        chat.hold = anyio.Event()
        chat.state = chat.state.evolve(current_task="busy")
        asked = chat.asked
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(manager.snapshot, chat)
                while chat.asked == asked:
                    await anyio.lowlevel.checkpoint()
                live.relabel({"title": "meanwhile"})
                chat.hold.set()
            await manager.snapshot(chat)
            assert (await store.load("chat")).title == "meanwhile"
            seq = (await store.read("chat")).ref.seq
            await manager.snapshot(chat)
            assert (await store.read("chat")).ref.seq == seq


@anyio_mark
async def test_restored_session_without_label_support_keeps_its_labels() -> None:
    store = MemoryStore()
    await store.save(apply_label(make_snapshot("a", session_id="chat"), FULL))
    async with managing(store, **_SLOW) as (manager, _):
        found = await manager.restore("chat")
        chat = Chat("chat", "a", "b")
        await manager.start_auto_snapshot(chat, baseline=found)
        await manager.snapshot(chat)

    after = await store.load("chat")
    assert len(after.messages) == 2
    assert label_of(after) == FULL


@anyio_mark
async def test_a_bad_label_is_refused_and_changes_nothing() -> None:
    store = MemoryStore()
    async with managing(store, **_SLOW) as (manager, _):
        await manager.start_auto_snapshot(Chat("chat", "a"))
        live = manager._sessions.get("chat")
        assert live is not None
        with pytest.raises(InvalidInput):
            live.relabel({"title": "fine", "tags": "no list"})
    assert label_of(await store.load("chat"))["title"] is None
