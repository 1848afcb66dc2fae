from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from snapshot_plugin import (
    Conflict,
    FilesystemStore,
    MemoryStore,
    Message,
    SessionLocked,
    SnapshotCorrupted,
    SnapshotNotFound,
)
from snapshot_plugin.live.lease import Lease, Owner
from snapshot_plugin.live.spool import Spool
from snapshot_plugin.model import ToolCallBlock
from snapshot_plugin.model.redact import redact
from snapshot_plugin.operations.secrets import find_secrets, take_secrets_out
from snapshot_plugin.operations.undo import Operation, take_back
from snapshot_plugin.testing import FaultyStore, FixedClock, make_snapshot
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it

pytestmark = pytest.mark.anyio

TOKEN = "ghp_" + "a1B2" * 9
OTHER = "AKIA" + "ABCD1234" * 2


async def test_kinds_places_and_every_snapshot_that_holds_one_are_found() -> None:
    store = MemoryStore()
    await store.save(make_snapshot("clean"))
    await store.save(make_snapshot("clean", f"token {TOKEN}"))
    await store.save(make_snapshot("clean", f"token {TOKEN}", f"key {OTHER}"))
    await store.save(make_snapshot("clean", f"key {OTHER}", memory={"m": {"password": "hunter2x"}}))

    found = await find_secrets(store, "session")

    assert dict(found.kinds) == {"aws-access-key-id": 1, "github-token": 1, "password": 1}
    assert found.snapshots == (2, 3, 4)
    assert {(each.kind, each.path) for each in found.places} == {
        ("aws-access-key-id", "$.messages[1].content[0].text"),
        ("password", "$.memory.m.password"),
    }
    assert TOKEN not in repr(found)
    assert OTHER not in repr(found)


async def test_a_clean_session_is_clean_whatever_its_ids_look_like() -> None:
    store = MemoryStore()
    call = ToolCallBlock(tool_call_id=TOKEN, title="ls")
    snapshot = make_snapshot("a", agent_session_id=TOKEN)
    await store.save(snapshot.append(Message(role="assistant", content=(call,))))
    await store.save(snapshot.append(Message(role="assistant", content=(call,))).evolve(title="t"))

    assert (await find_secrets(store, "session")).is_clean
    assert (await take_secrets_out(store, "session")).steps == ()
    assert len(await store.history("session")) == 2


async def test_agents_own_session_id_is_not_a_secret() -> None:
    store = MemoryStore()
    await store.save(make_snapshot("a", agent_session_id=TOKEN))
    await store.save(make_snapshot("a", OTHER, agent_session_id=TOKEN))

    found = await find_secrets(store, "session")

    assert (found.snapshots, dict(found.kinds)) == ((2,), {"aws-access-key-id": 1})


@pytest.mark.parametrize("segment_frames", [2, 256])
async def test_secrets_are_taken_out_of_everything_but_the_trash(tmp_path: Path, segment_frames: int) -> None:
    async with FilesystemStore(tmp_path, background=False, segment_frames=segment_frames) as store:
        clean, dirty = make_snapshot("clean"), make_snapshot("clean", f"token {TOKEN}", "on", title=TOKEN)
        await store.save(clean)
        await store.save(dirty)
        await store.save(dirty.evolve(current_task="go on"))

        fixed = await take_secrets_out(store, "session")

        assert (fixed.snapshot, fixed.dropped) == (4, (2, 3))
        assert await store.load("session") == redact(dirty.evolve(current_task="go on"))[0]
        assert await store.load("session", at=1) == clean
        assert (await find_secrets(store, "session")).is_clean
        assert (await store.check("session")).ok
        [newest, _] = await store.history("session")
        assert newest.trigger == "redact"
        frames = [await store.take_out("session")]
        assert TOKEN.encode() not in b"".join(copy.payload for copies in frames for copy in copies)

        await store.purge(older_than=timedelta(0))
        assert not any(path.is_file() for path in (tmp_path / "trash").rglob("*"))


async def test_secret_only_in_old_snapshots_is_removed_there() -> None:
    store = MemoryStore()
    await store.save(make_snapshot("a", TOKEN))
    await store.save(make_snapshot("a", "summary"))

    found = await find_secrets(store, "session")
    assert (found.places, found.snapshots, dict(found.kinds)) == ((), (1,), {"github-token": 1})

    fixed = await take_secrets_out(store, "session")
    assert (fixed.snapshot, fixed.dropped) == (2, (1,))
    assert [meta.seq for meta in await store.history("session")] == [2]


async def test_fix_can_be_undone() -> None:
    store = MemoryStore()
    states = [make_snapshot("a"), make_snapshot("a", TOKEN), make_snapshot("a", TOKEN, "b")]
    for state in states:
        await store.save(state)
    fixed = await take_secrets_out(store, "session")
    done = Operation(id="1", at=FixedClock()(), kind="secrets", summary="", steps=fixed.steps)

    assert all(each.is_done for each in await take_back(store, done))

    assert await store.load("session") == states[-1]
    for seq, state in enumerate(states, start=1):
        assert await store.load("session", at=seq) == state
    assert (await store.check("session")).ok


async def test_live_and_unrecovered_sessions_are_left_alone(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path, background=False) as store:
        await store.save(make_snapshot(TOKEN))
        directory = store.session_dir("session")
        lease = Lease.acquire(directory, Owner.this_process(since=FixedClock()()))
        with pytest.raises(SessionLocked):
            await take_secrets_out(store, "session")
        lease.release()

        spool = Spool.open(directory, session_id="session")
        spool.append({"append": {"text": TOKEN}})
        spool.close()
        with pytest.raises(Conflict):
            await take_secrets_out(store, "session")
        assert len(await store.history("session")) == 1


async def test_damaged_history_is_reported_and_the_fix_is_not_claimed_complete(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path, background=False) as store:
        await store.save(make_snapshot("a"))
    [file] = (tmp_path / "sessions" / "session").glob("*.snap.gz")
    data = bytearray(file.read_bytes())
    data[-12] ^= 1
    file.write_bytes(data)

    async with FilesystemStore(tmp_path, background=False) as store:
        await store.save(make_snapshot(TOKEN))
        found = await find_secrets(store, "session")
        assert found.problem
        assert [each.kind for each in found.places] == ["github-token"]
        with pytest.raises(SnapshotCorrupted):
            await take_secrets_out(store, "session")
        assert (await store.load("session")).messages[0].text == TOKEN


async def test_quarantined_files_are_named(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path, background=False) as store:
        await store.save(make_snapshot("a"))
        (store.session_dir("session") / "quarantine").mkdir()
        (store.session_dir("session") / "live.aside-1").write_bytes(b"x")

        assert (await find_secrets(store, "session")).not_searched == ("live.aside-1", "quarantine")


async def test_an_unknown_session_is_not_found() -> None:
    with pytest.raises(SnapshotNotFound):
        await find_secrets(MemoryStore(), "nobody")


async def test_any_store_can_be_searched() -> None:
    store = FaultyStore(MemoryStore())
    await store.save(make_snapshot("a", TOKEN))
    await store.save(make_snapshot("a", OTHER))
    await store.save(make_snapshot("a"))

    found = await find_secrets(store, "session")

    assert (found.snapshots, sorted(found.kinds)) == ((1, 2), ["aws-access-key-id", "github-token"])
