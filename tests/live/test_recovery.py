"""Recovery: what a killed process had spooled becomes one snapshot, however often it is run."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import (
    FilesystemStore,
    InvalidSnapshot,
    MemoryStore,
    Message,
    SessionSnapshot,
    SnapshotRef,
    StoreUnavailable,
)
from snapshot_plugin.live.blocking import blocking_store, in_thread_with
from snapshot_plugin.live.lease import FilePlace, Lease, Owner, lease_of
from snapshot_plugin.live.ports import Record
from snapshot_plugin.live.recovery import Recovered, recover, recover_hold, reduce_messages, upto_of, with_upto
from snapshot_plugin.live.spool import Spool, read_spool
from snapshot_plugin.model import TextBlock, ToolCallBlock
from snapshot_plugin.operations.sessions import session_rows
from tests.manager.processes import PATIENCE, heard, output_of, python
from tests.one_loop import anyio_backend, both_loops  # noqa: F401 — pytest uses it
from tests.tries import tries

pytestmark = pytest.mark.anyio

THEN = datetime(2026, 11, 1, tzinfo=UTC)
NOW = datetime(2026, 11, 16, tzinfo=UTC)


def snapshot(session_id: str = "s", *texts: str, **fields: Any) -> SessionSnapshot:
    messages = tuple(Message(role="user", content=text) for text in texts)
    return SessionSnapshot(session_id=session_id, created_at=THEN, updated_at=THEN, messages=messages, **fields)


def said(role: str, text: str) -> dict[str, Any]:
    return {"message": {"role": role, "content": [{"type": "text", "text": text}]}}


def texts(found: SessionSnapshot) -> list[str]:
    return [f"{message.role}: {message.text}" for message in found.messages]


@pytest.fixture(params=["plain", "sealed"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FilesystemStore]:
    key = "asnap-key-" + "A" * 43 if request.param == "sealed" else None
    async with FilesystemStore(tmp_path / "store", key=key, background=False) as opened:
        yield opened


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncIterator[FilesystemStore]:
    async with FilesystemStore(tmp_path / "store", background=False) as opened:
        yield opened


def spooled(store: FilesystemStore, session_id: str, *records: dict[str, Any], after: int = 0) -> None:
    keys = store.session_keys(session_id)
    spool = Spool.open(store.session_dir(session_id), session_id=session_id, keys=keys)
    spool.truncate(after)
    for record in records:
        spool.append(record)
    spool.close()


def left_in(store: FilesystemStore, session_id: str = "s") -> list[int]:
    contents = read_spool(store.session_dir(session_id), session_id=session_id, keys=store.session_keys(session_id))
    assert contents.damage is None
    return [record.n for record in contents.records]


def die_holding(store: FilesystemStore, session_id: str) -> Owner:
    """Leave the lease as a process leaves it that was killed."""
    dead = Owner(pid=4_000_000, host="here", since=THEN)
    (store.session_dir(session_id) / ".lease").write_text(dead.model_dump_json() + "\n")
    return dead


async def triggers(store: FilesystemStore, session_id: str = "s") -> list[str]:
    return [meta.trigger for meta in await store.history(session_id)]


# --- a killed process --------------------------------------------------------------------------------------------

VICTIM = """
    import pathlib, sys, anyio
    from datetime import UTC, datetime
    from snapshot_plugin.live.lease import Lease, Owner
    from snapshot_plugin.live.recovery import with_upto
    from snapshot_plugin.live.spool import Spool
    from snapshot_plugin.model.snapshot import Message, SessionSnapshot
    from snapshot_plugin.store.filesystem import FilesystemStore

    store = FilesystemStore(pathlib.Path(sys.argv[1]), background=False)
    now = datetime.now(UTC)
    lease = Lease.acquire(store.session_dir("s"), Owner.this_process(since=now))
    spool = Spool.open(store.session_dir("s"), session_id="s")
    question = Message(role="user", content="question")
    n = spool.append({"message": question.raw()})
    head = SessionSnapshot(session_id="s", created_at=now, updated_at=now, messages=(question,))
    anyio.run(store.save, with_upto(head, n))
    spool.truncate(n)
    while True:
        print(spool.append({"append": {"text": "x"}}), flush=True)
"""


@pytest.mark.requirement(
    "MANAGER-RECOVER-SPOOL",
    "ORBIT-TEST-CRASH",
    "ORBIT-USE-CRASH",
    "ORBIT-USE-LITTLE-LOST",
    "FORMAT-HEADER-TRIGGER",
    "MANAGER-RECOVER-LIVE",
)
async def test_recovered_snapshot_has_everything_a_killed_process_acknowledged(plain: FilesystemStore) -> None:
    with python(VICTIM, plain.path) as victim:
        acknowledged = [int(heard(victim)) for _ in range(50)]
        assert await recover(plain, now=NOW) == []
        victim.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in iter(lambda: heard(victim), "")]
        victim.wait(PATIENCE)
    (found,) = await recover(plain, now=NOW)
    assert found.problem is None
    assert found.ref is not None
    assert found.previous_owner is not None
    assert found.previous_owner.pid == victim.pid
    assert found.records - len(acknowledged) in (0, 1)
    loaded = await plain.load("s")
    assert texts(loaded) == ["user: question", "assistant: " + "x" * found.records]
    assert (loaded.updated_at, upto_of(loaded)) == (NOW, found.records + 1)
    assert await triggers(plain) == ["recovered", "manual"]


@pytest.mark.requirement("MANAGER-RECOVER-IDEMPOTENT")
async def test_recovering_twice_makes_one_snapshot(store: FilesystemStore) -> None:
    await store.save(snapshot("s", "question"))
    spooled(store, "s", said("assistant", "ans"), {"append": {"text": "wer"}})
    first, second = await recover(store, now=NOW), await recover(store, now=NOW)
    assert [(found.session_id, found.records, found.problem) for found in first] == [("s", 2, None)]
    assert second == []
    assert texts(await store.load("s")) == ["user: question", "assistant: answer"]
    assert await triggers(store) == ["recovered", "manual"]
    assert left_in(store) == []


async def test_a_session_killed_before_its_first_snapshot_is_recovered(store: FilesystemStore) -> None:
    spooled(store, "s", {"state": {"title": "hello"}}, said("user", "question"))
    die_holding(store, "s")
    (found,) = await recover(store, now=NOW)
    assert found.ref is not None
    loaded = await store.load("s")
    assert (loaded.title, texts(loaded)) == ("hello", ["user: question"])
    assert (loaded.created_at, loaded.updated_at) == (THEN, NOW)


@pytest.mark.parametrize("saved", [False, True])
async def test_a_session_with_a_long_id_is_recovered_under_that_id(store: FilesystemStore, *, saved: bool) -> None:
    session_id = "日本語の長い名前" * 20
    if saved:
        await store.save(snapshot(session_id, "before"))
    spooled(store, session_id, said("user", "question"))
    die_holding(store, session_id)
    (found,) = await recover(store, now=NOW)
    assert (found.session_id, found.records, found.problem) == (session_id, 1, None)
    loaded = await store.load(session_id)
    assert (loaded.session_id, texts(loaded)[-1]) == (session_id, "user: question")
    assert [row.session_id for row in await session_rows(store)] == [session_id]


async def test_records_contained_in_the_head_are_dropped_not_reapplied(store: FilesystemStore) -> None:
    spooled(store, "s", said("user", "one"), said("user", "two"), said("user", "three"))
    await store.save(with_upto(snapshot("s", "one", "two"), 2))
    (found,) = await recover(store, now=NOW)
    assert found.records == 1
    assert texts(await store.load("s")) == ["user: one", "user: two", "user: three"]


async def test_kill_between_save_and_truncate_recovers_nothing_twice(store: FilesystemStore) -> None:
    spooled(store, "s", said("user", "one"))
    await store.save(with_upto(snapshot("s", "one"), 1))
    dead = die_holding(store, "s")
    assert await recover(store, now=NOW) == [Recovered(session_id="s", previous_owner=dead)]
    assert await recover(store, now=NOW) == []
    assert left_in(store) == []
    assert await triggers(store) == ["manual"]


async def test_record_numbers_continue_after_recovery(store: FilesystemStore) -> None:
    spooled(store, "s", said("user", "one"))
    await recover(store, now=NOW)
    spooled(store, "s", said("user", "two"))
    await recover(store, now=NOW)
    assert texts(await store.load("s")) == ["user: one", "user: two"]


CRASHING_RECOVERY = """
    import functools, itertools, json, os, pathlib, signal, sys, anyio
    from datetime import UTC, datetime
    from snapshot_plugin.live.recovery import recover
    from snapshot_plugin.live.spool import Spool
    from snapshot_plugin.store.filesystem import FilesystemStore
    # Imported and built once, not in each of the forks.
    import anyio._backends._asyncio, isal.isal_zlib, snapshot_plugin.live.recovery
    from snapshot_plugin.model.snapshot import Message, SessionSnapshot

    now = datetime(2026, 11, 16, tzinfo=UTC)
    question = Message.model_validate({"role": "user", "content": [{"type": "text", "text": "?"}]})
    SessionSnapshot(session_id="s", created_at=now, updated_at=now, messages=(question,)).model_dump_json()
    opened = lambda path: FilesystemStore(path, background=False)

    def in_child(work):
        child = os.fork()
        if child == 0:
            try:
                work()
            finally:
                sys.stdout.flush()
                os._exit(0)
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])

    def prepare(path):
        spool = Spool.open(opened(path).session_dir("s"), session_id="s")
        for i in range(3):
            spool.append({"message": {"role": "user", "content": [{"type": "text", "text": str(i)}]}})
        spool.close()

    def crash(path, k):
        calls = itertools.count()
        for name in "open pread pwrite write rename ftruncate close fdatasync fsync dup".split():
            def replaced(*args, real=getattr(os, name), **kwargs):
                if next(calls) == k:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **kwargs)
            setattr(os, name, replaced)
        anyio.run(functools.partial(recover, opened(path), now=now))

    def report(path):
        async def look():
            store = opened(path)
            await recover(store, now=now)
            history = await store.history("s")
            loaded = await store.load("s")
            print(json.dumps([len(history), [m.text for m in loaded.messages], len(await recover(store, now=now))]))
        anyio.run(look)

    for k in itertools.count():
        path = pathlib.Path(sys.argv[1]) / str(k)
        in_child(lambda: prepare(path))
        killed = in_child(lambda: crash(path, k))
        in_child(lambda: report(path))
        if not killed:
            break
"""


@pytest.mark.requirement("MANAGER-RECOVER-IDEMPOTENT")
def test_recovery_killed_at_any_step_and_rerun_makes_exactly_one_snapshot(tmp_path: Path) -> None:
    runs = [json.loads(line) for line in output_of(CRASHING_RECOVERY, tmp_path)]
    assert len(runs) > 15
    assert runs == [[1, ["0", "1", "2"], 0]] * len(runs)


# --- what is left alone ------------------------------------------------------------------------------------------


@pytest.mark.requirement("MANAGER-RECOVER-LIVE")
async def test_a_session_with_a_live_owner_is_left_alone(store: FilesystemStore) -> None:
    lease = Lease.acquire(store.session_dir("s"), Owner.this_process(since=NOW))
    spooled(store, "s", said("user", "still at work"))
    assert await recover(store, now=NOW) == []
    assert left_in(store) == [1]
    assert lease_of(store.session_dir("s")).owner == lease.owner
    lease.release()


async def test_live_session_of_a_newer_release_is_left_alone(plain: FilesystemStore) -> None:
    spooled(plain, "s", said("user", "x"))
    live = plain.session_dir("s") / "live"
    live.write_bytes(b"ASNAPSP9" + live.read_bytes()[8:])
    lease = Lease.acquire(plain.session_dir("s"), Owner.this_process(since=NOW))
    assert await recover(plain, now=NOW) == []
    lease.release()
    assert len(await recover(plain, now=NOW)) == 1


async def test_cleanly_stopped_sessions_are_neither_reported_nor_touched(store: FilesystemStore) -> None:
    await store.save(snapshot("s", "done"))
    spooled(store, "s")
    Lease.acquire(store.session_dir("s"), Owner.this_process(since=NOW)).release()
    await store.save(snapshot("t", "never spooled"))
    before = {path: path.stat().st_mtime_ns for path in sorted(store.path.rglob("*"))}
    assert await recover(store, now=NOW) == []
    assert {path: path.stat().st_mtime_ns for path in sorted(store.path.rglob("*"))} == before


@pytest.mark.requirement("MANAGER-RECOVER-NO-STOP")
async def test_crashed_session_with_nothing_to_recover_is_reported_once(store: FilesystemStore) -> None:
    await store.save(snapshot("s", "saved"))
    dead = die_holding(store, "s")
    assert await recover(store, now=NOW) == [Recovered(session_id="s", previous_owner=dead)]
    assert await recover(store, now=NOW) == []


async def test_stores_without_a_local_place_and_empty_stores_have_nothing_to_recover(tmp_path: Path) -> None:
    assert await recover(MemoryStore(), now=NOW) == []
    assert await recover(FilesystemStore(tmp_path / "new"), now=NOW) == []


# --- what goes wrong ---------------------------------------------------------------------------------------------


def explode(_snapshot: SessionSnapshot, _records: Sequence[Record]) -> SessionSnapshot:
    raise RuntimeError("a bug in a reducer")


def misname(found: SessionSnapshot, _records: Sequence[Record]) -> SessionSnapshot:
    return found.evolve(session_id="another")


def forget(_snapshot: SessionSnapshot, _records: Sequence[Record]) -> Any:
    return None


REDUCERS = {"bug": explode, "misname": misname, "forget": forget}


@pytest.mark.requirement("MANAGER-RECOVER-REST")
@pytest.mark.parametrize("kind", ["bug", "misname", "forget", "unknown", 7])
async def test_unrecoverable_session_is_reported_each_time_and_the_rest_is_recovered(
    plain: FilesystemStore, kind: object
) -> None:
    spooled(plain, "a", {"provider_type": kind}, said("user", "lost?"))
    spooled(plain, "b", said("user", "fine"))
    one, other = await recover(plain, reducers=REDUCERS, now=NOW)
    assert (one.session_id, one.ref, one.problem is None) == ("a", None, False)
    assert (other.session_id, other.problem) == ("b", None)
    (again,) = await recover(plain, reducers=REDUCERS, now=NOW)
    assert again.session_id == "a"
    assert left_in(plain, "a") == [1, 2]


@pytest.mark.requirement("MANAGER-SPOOL-ASIDE", "MANAGER-SPOOL-DAMAGE")
async def test_records_before_damage_are_recovered_and_the_damaged_file_is_quarantined(
    store: FilesystemStore,
) -> None:
    spooled(store, "s", said("user", "whole"), said("user", "damaged"))
    live = store.session_dir("s") / "live"
    whole = live.read_bytes()
    damaged = whole[:-1] + bytes([whole[-1] ^ 1])
    live.write_bytes(damaged)
    (found,) = await recover(store, now=NOW)
    assert (found.records, found.ref is None, found.problem is None) == (1, False, False)
    assert texts(await store.load("s")) == ["user: whole"]
    assert (store.session_dir("s") / "live.aside-1").read_bytes() == damaged
    assert await recover(store, now=NOW) == []


async def test_torn_last_record_is_ignored(store: FilesystemStore) -> None:
    spooled(store, "s", said("user", "whole"), said("user", "never acknowledged"))
    live = store.session_dir("s") / "live"
    live.write_bytes(live.read_bytes()[:-3])
    (found,) = await recover(store, now=NOW)
    assert (found.records, found.problem) == (1, None)


async def test_records_after_a_gap_are_not_applied(plain: FilesystemStore) -> None:
    await plain.save(with_upto(snapshot("s", "old"), 2))
    spooled(plain, "s", said("user", "after the gap"), after=5)
    (found,) = await recover(plain, now=NOW)
    assert (found.ref, found.problem is None) == (None, False)
    assert texts(await plain.load("s")) == ["user: old"]
    assert left_in(plain) == [6]


async def test_foreign_or_newer_spool_does_not_stop_the_other_recoveries(
    plain: FilesystemStore,
) -> None:
    spooled(plain, "a", said("user", "x"))
    newer = plain.session_dir("a") / "live"
    newer.write_bytes(b"ASNAPSP9" + newer.read_bytes()[8:])
    spooled(plain, "b", said("user", "fine"))
    one, other = await recover(plain, now=NOW)
    assert (one.ref, one.problem is None, other.problem) == (None, False, None)


# --- for the owner -----------------------------------------------------------------------------------------------


async def owned(store: FilesystemStore, **options: Any) -> Recovered | None:
    hold = FilePlace(store).take("s", Owner.this_process(since=NOW))
    try:
        calls = blocking_store(store)
        found, _ = await in_thread_with(calls, recover_hold, calls, "s", hold, options.get("reducers", {}), NOW)
        return found
    finally:
        hold.release()


async def test_owner_recovers_before_it_continues(store: FilesystemStore) -> None:
    assert await owned(store) is None
    spooled(store, "s", said("user", "one"))
    dead = die_holding(store, "s")
    found = await owned(store)
    assert found is not None
    assert (found.records, found.previous_owner, found.problem) == (1, dead, None)
    assert await owned(store) is None


async def test_unrecoverable_spool_is_quarantined_whole_and_numbers_continue(plain: FilesystemStore) -> None:
    await plain.save(with_upto(snapshot("s", "old"), 1))
    spooled(plain, "s", {"provider_type": "bug"}, said("user", "kept"), after=1)
    whole = (plain.session_dir("s") / "live").read_bytes()
    found = await owned(plain, reducers=REDUCERS)
    assert found is not None
    assert (found.ref, found.problem is None) == (None, False)
    assert (plain.session_dir("s") / "live.aside-1").read_bytes() == whole
    spool = Spool.open(plain.session_dir("s"), session_id="s")
    assert spool.append(said("user", "new")) == 4
    spool.close()


async def test_missing_spool_continues_after_the_heads_number(plain: FilesystemStore) -> None:
    await plain.save(with_upto(snapshot("s", "old"), 41))
    assert await owned(plain) is None
    spool = Spool.open(plain.session_dir("s"), session_id="s")
    assert spool.append(said("user", "new")) == 42
    spool.close()


class FullStore(FilesystemStore):
    async def save(self, *_args: Any, **_options: Any) -> SnapshotRef:
        raise StoreUnavailable("no space left on device")


async def test_full_disk_keeps_the_spool_for_a_later_recovery(plain: FilesystemStore) -> None:
    spooled(plain, "s", said("user", "one"))
    async with FullStore(plain.path, background=False) as full:
        with pytest.raises(StoreUnavailable):
            await owned(full)
        (found,) = await recover(full, now=NOW)
        assert (found.ref, found.problem is None) == (None, False)
    assert left_in(plain) == [1]
    (found,) = await recover(plain, now=NOW)
    assert (found.records, found.problem) == (1, None)


@both_loops
async def test_cancelled_recovery_releases_the_session(plain: FilesystemStore) -> None:
    class Stuck(FilesystemStore):
        async def save(self, *_args: Any, **_options: Any) -> SnapshotRef:
            scope.cancel()
            await anyio.sleep_forever()
            raise AssertionError

    spooled(plain, "s", said("user", "one"))
    with anyio.fail_after(PATIENCE):
        async with Stuck(plain.path, background=False) as stuck:
            with anyio.CancelScope() as scope:
                await recover(stuck, now=NOW)
    assert lease_of(plain.session_dir("s")).owner is None
    (found,) = await recover(plain, now=NOW)
    assert found.records == 1


# --- reducers ----------------------------------------------------------------------------------------------------


def count(found: SessionSnapshot, records: Sequence[Record]) -> SessionSnapshot:
    return found.evolve(title=f"{len(records)} records")


async def test_reducer_is_named_by_the_first_record_or_the_session(plain: FilesystemStore) -> None:
    spooled(plain, "a", {"provider_type": "counted"}, {"anything": 1})
    await plain.save(snapshot("b", provider_type="counted"))
    spooled(plain, "b", {"anything": 1})
    await plain.save(snapshot("c", provider_type="nobody knows"))
    spooled(plain, "c", said("user", "hello"))
    assert {f.problem for f in await recover(plain, reducers={"counted": count}, now=NOW)} == {None}
    assert (await plain.load("a")).title == "2 records"
    assert (await plain.load("b")).title == "1 records"
    assert texts(await plain.load("c")) == ["user: hello"]


def reduced(*records: dict[str, Any], start: SessionSnapshot | None = None) -> SessionSnapshot:
    return reduce_messages(start or snapshot(), [Record(n, data) for n, data in enumerate(records, 1)])


def test_messages_appends_and_state_are_applied_in_order() -> None:
    found = reduced(
        {"provider_type": "messages"},
        said("user", "q"),
        {"append": {"text": "a"}},
        {"append": {"text": "b"}},
        {"state": {"title": "t", "updated_at": "2026-11-02T00:00:00Z", "unheard_of": [1]}},
        {"append": {"text": "c"}},
        said("user", "q2"),
        {"append": {"text": "d"}},
    )
    assert texts(found) == ["user: q", "assistant: abc", "user: q2", "assistant: d"]
    assert (found.title, found.updated_at.day, found.raw()["unheard_of"]) == ("t", 2, [1])


def test_an_append_after_a_tool_call_begins_a_new_block() -> None:
    tool = ToolCallBlock(tool_call_id="1")
    start = snapshot().append(Message(role="assistant", content=(tool,)))
    found = reduced({"append": {"text": "a"}}, {"append": {"text": "b"}}, start=start)
    assert found.messages[-1].content == (tool, TextBlock(text="ab"))
    empty = reduced({"append": {"text": "a"}}, start=snapshot().append(Message(role="assistant")))
    assert texts(empty) == ["assistant: a"]


def test_existing_message_is_replaced_not_repeated() -> None:
    start = snapshot().append(
        Message(role="user", id="1", content="old"), Message(role="user", id="2", content="x")
    )
    found = reduced({"message": {"role": "user", "id": "1", "content": "new"}}, start=start)
    assert texts(found) == ["user: new", "user: x"]


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"unknown": {}},
        {"message": {}, "append": {}},
        {"append": {}},
        {"append": {"text": 1}},
        {"append": "text"},
        {"message": {"role": "nobody"}},
        {"state": {"created_at": "yesterday"}},
    ],
)
def test_invalid_record_is_refused(record: dict[str, Any]) -> None:
    with pytest.raises((InvalidSnapshot, ValueError)):
        reduced(record)


@tries(50)
@given(pieces=st.lists(st.text(max_size=5), max_size=20), cut=st.integers(0, 20))
def test_recovery_in_one_or_two_steps_gives_the_same_result(pieces: list[str], cut: int) -> None:
    records = [{"append": {"text": piece}} for piece in pieces]
    at_once = reduced(*records)
    in_two = reduced(*records[cut:], start=reduced(*records[:cut]))
    assert at_once == in_two
    assert "".join(message.text for message in at_once.messages) == "".join(pieces)
