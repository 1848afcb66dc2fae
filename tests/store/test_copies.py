"""Snapshots that are dropped leave a copy in the trash, and come back from there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import (
    Conflict,
    FilesystemStore,
    InvalidInput,
    MemoryStore,
    SessionSnapshot,
    SnapshotCorrupted,
    SnapshotNotFound,
    StoreUnavailable,
)
from snapshot_plugin.store.engine import LogStore
from snapshot_plugin.store.memory import MemoryLog
from snapshot_plugin.testing import make_snapshot
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it
from tests.store.test_third_party import SqliteLog
from tests.tries import tries

pytestmark = pytest.mark.anyio
Opener = Callable[[], LogStore]

LIFE = (
    make_snapshot("a", "b", "c", title="t", memory={"x": 1, "y": 1}),
    make_snapshot("a", "B", "c", title="t", memory={"x": 1, "y": 2}),
    make_snapshot("a", "B", memory={"x": 1}),
    make_snapshot("summary", "d", memory={"x": 1, "z": 3}),
    make_snapshot("summary", "d", "e", title="u", memory={"x": 1, "z": 3}),
)


@pytest.fixture(params=["memory", "files", "encrypted", "small-segments", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    place, frames = tmp_path / "store", MemoryLog()
    databases: list[SqliteLog] = []

    def in_a_database() -> LogStore:
        databases.append(SqliteLog(tmp_path / "db"))
        return LogStore(databases[-1])

    openers: dict[str, Opener] = {
        "memory": lambda: MemoryStore(frames),
        "files": lambda: FilesystemStore(place, background=False),
        "encrypted": lambda: FilesystemStore(place, key="words words words", background=False),
        "small-segments": lambda: FilesystemStore(place, background=False, segment_frames=2),
        "sqlite": in_a_database,
    }
    yield openers[request.param]
    for database in databases:
        database.close()


async def saved(store: LogStore, *snapshots: SessionSnapshot) -> None:
    for snapshot in snapshots:
        await store.save(snapshot)


async def holds(store: LogStore, expected: dict[int, SessionSnapshot]) -> None:
    assert {meta.seq for meta in await store.history("session")} == set(expected)
    for seq, snapshot in expected.items():
        assert await store.load("session", at=seq) == snapshot
    assert await store.load("session", strict=True) == expected[max(expected)]
    assert (await store.check("session")).ok


async def test_dropped_snapshots_can_be_restored(opened: Opener) -> None:
    store = opened()
    await saved(store, *LIFE)
    everything = dict(enumerate(LIFE, start=1))

    trashed = await store.drop("session", [1, 3, 4])
    await holds(opened(), {2: LIFE[1], 5: LIFE[4]})
    assert [each.token for each in await opened().trash()] == [trashed.token]

    assert tuple(await opened().undrop("session", trashed.token)) == (1, 3, 4)
    await holds(opened(), everything)
    assert tuple(await opened().undrop("session", trashed.token)) == ()


async def test_later_saves_are_kept_and_no_number_is_reused(opened: Opener) -> None:
    store = opened()
    await saved(store, *LIFE)
    trashed = await store.drop("session", [1, 2, 3, 4])
    more = make_snapshot("summary", "d", "e", "f", title="v")
    await saved(store, more)

    await opened().undrop("session", trashed.token)

    await holds(opened(), dict(enumerate((*LIFE, more), start=1)))
    assert (await store.save(LIFE[0])).seq == 7


async def test_restored_snapshots_precede_the_full_one_that_replaced_them(opened: Opener) -> None:
    store = opened()
    await saved(store, *LIFE)
    fixed = make_snapshot("summary", "d", "[redacted]")
    await saved(store, fixed)
    trashed = await store.drop("session", [1, 2, 3, 4, 5])
    once = (await store.trash())[0].token
    after = make_snapshot("summary", "d", "[redacted]", "on")
    await saved(store, after)
    await store.drop("session", [6])
    await saved(store, LIFE[0])

    await opened().undrop("session", trashed.token)

    assert once == trashed.token
    await holds(opened(), {**dict(enumerate((*LIFE, fixed), start=1)), 7: after, 8: LIFE[0]})


@pytest.mark.parametrize("seqs", [[], [5], [1, 5], [9], [0]])
async def test_head_and_unknown_snapshots_cannot_be_dropped(opened: Opener, seqs: list[int]) -> None:
    store = opened()
    await saved(store, *LIFE)

    with pytest.raises(InvalidInput):
        await store.drop("session", seqs)

    assert list(await store.trash()) == []
    await holds(opened(), dict(enumerate(LIFE, start=1)))


async def test_an_unknown_session_or_token_is_not_found(opened: Opener) -> None:
    store = opened()
    await saved(store, *LIFE)
    for wrong in (store.drop("nobody", [1]), store.undrop("nobody", "x"), store.undrop("session", "x")):
        with pytest.raises(SnapshotNotFound):
            await wrong


async def test_copy_is_not_mixed_into_another_session_that_has_none_of_its_numbers(opened: Opener) -> None:
    store = opened()
    await saved(store, *LIFE)
    await store.forget("session", seqs=[1])
    token = (await store.drop("session", [2])).token
    await store.delete("session")
    begun_again = make_snapshot("another life")
    await opened().save(begun_again)

    with pytest.raises(Conflict):
        await store.undrop("session", token)

    assert await opened().load("session") == begun_again


async def test_copy_is_not_mixed_into_another_session_of_that_id(opened: Opener) -> None:
    store = opened()
    await saved(store, *LIFE)
    trashed = await store.drop("session", [1])
    await store.delete("session")
    other = make_snapshot("another life")
    await saved(store, other)

    with pytest.raises(Conflict):
        await store.undrop("session", trashed.token)

    await holds(opened(), {1: other})


async def test_copy_can_replace_a_missing_session(opened: Opener) -> None:
    store = opened()
    await saved(store, *LIFE)
    trashed = await store.drop("session", [1, 2])
    await store.delete("session")

    assert await store.undelete(trashed.token) == "session"

    await holds(opened(), dict(enumerate(LIFE, start=1)))


async def test_purge_removes_the_copy_permanently(opened: Opener) -> None:
    store = opened()
    await saved(store, *LIFE)
    trashed = await store.drop("session", [1])

    assert [each.token for each in await store.purge(older_than=timedelta(0))] == [trashed.token]

    with pytest.raises(SnapshotNotFound):
        await store.undrop("session", trashed.token)
    await holds(opened(), dict(enumerate(LIFE[1:], start=2)))


async def test_damaged_session_is_neither_thinned_nor_restored_into(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path, background=False) as store:
        await saved(store, *LIFE[:2])
        trashed = await store.drop("session", [1])
        await saved(store, *LIFE[2:])
        newest = max((tmp_path / "sessions" / "session").glob("*.snap.gz"))
        data = bytearray(newest.read_bytes())
        data[10] ^= 0xFF
        newest.write_bytes(data)

        with pytest.raises(SnapshotCorrupted):
            await store.drop("session", [2])
        assert [each.token for each in await store.trash()] == [trashed.token]
        with pytest.raises(SnapshotCorrupted):
            await store.undrop("session", trashed.token)
    assert newest.read_bytes() == data


async def test_damaged_copy_is_not_restored(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path, background=False) as store:
        await saved(store, *LIFE)
        trashed = await store.drop("session", [1])
        [copy] = (tmp_path / "trash" / f"session.{trashed.token}").iterdir()
        data = bytearray(copy.read_bytes())
        data[-20] ^= 0xFF
        copy.write_bytes(data)

        with pytest.raises(SnapshotCorrupted):
            await store.undrop("session", trashed.token)
        await holds(store, dict(enumerate(LIFE[1:], start=2)))


async def test_only_the_growing_segment_is_copied(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path, background=False, segment_frames=2) as store:
        await saved(store, *LIFE)
        trashed = await store.drop("session", [2])
        copy = tmp_path / "trash" / f"session.{trashed.token}"
        assert {path.name: path.stat().st_nlink for path in copy.iterdir()} == {
            "0000000001.snap.gz": 1,  # the session has a rewritten range in its place
            "0000000003.snap.gz": 1,  # and so for this one, which stood next to it
            "0000000005.snap.gz": 1,
        }
        await saved(store, make_snapshot("grown"))
        grown = {path.name: path.stat().st_size for path in (tmp_path / "sessions" / "session").glob("*5.snap.gz")}
        assert grown["0000000005.snap.gz"] > (copy / "0000000005.snap.gz").stat().st_size
        assert {oct(path.stat().st_mode & 0o777) for path in copy.iterdir()} == {"0o600"}


async def test_disk_without_hard_links_gets_a_plain_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    async with FilesystemStore(tmp_path, background=False, segment_frames=2) as store:
        await saved(store, *LIFE)
        trashed = await store.drop("session", [1, 2])
        await store.undrop("session", trashed.token)
        await holds(store, dict(enumerate(LIFE, start=1)))


async def test_nothing_is_dropped_when_no_copy_can_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    async with FilesystemStore(tmp_path, background=False) as store:
        await saved(store, *LIFE)
        monkeypatch.setattr("snapshot_plugin.store.directories.replace_file", full)
        with pytest.raises(StoreUnavailable):
            await store.drop("session", [1])
        await holds(store, dict(enumerate(LIFE, start=1)))
    assert list((tmp_path / "trash").iterdir()) == []


async def test_leftovers_of_an_interrupted_copy_are_removed_later(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path, background=False) as store:
        await saved(store, *LIFE)
        trashed = await store.drop("session", [1])
        left = tmp_path / "trash" / f"session.{trashed.token}.tmp"
        (tmp_path / "trash" / f"session.{trashed.token}").rename(left)
        assert list(await store.trash()) == []

        await store.purge(older_than=timedelta(0))
        assert left.exists()
        await store.purge(older_than=timedelta(0), now=trashed.deleted_at + timedelta(hours=2))
        assert not left.exists()


_TEXT = st.lists(st.sampled_from("abcdef"), max_size=4)


@pytest.mark.parametrize("segment_frames", [2, 256])
@tries(25)
@given(data=st.data())
def test_everything_dropped_is_restored_whatever_was_saved_in_between(
    segment_frames: int, data: st.DataObject
) -> None:
    drawn = data.draw(st.lists(st.tuples(_TEXT, st.integers(0, 3)), min_size=2, max_size=7))

    async def run(place: Path) -> None:
        async with FilesystemStore(place, background=False, segment_frames=segment_frames) as store:
            lived: dict[int, SessionSnapshot] = {}
            tokens: list[str] = []
            for texts, drops in drawn:
                snapshot = make_snapshot(*texts, title=str(len(lived)))
                lived[(await store.save(snapshot)).seq] = snapshot
                numbers = [meta.seq for meta in await store.history("session")][1:]
                gone = data.draw(st.lists(st.sampled_from(numbers), max_size=drops, unique=True)) if numbers else []
                if gone:
                    tokens.append((await store.drop("session", gone)).token)
            for token in data.draw(st.permutations(tokens)):
                await store.undrop("session", token)
            await holds(store, lived)

    import tempfile  # noqa: PLC0415 — a directory for each example

    with tempfile.TemporaryDirectory() as place:
        anyio.run(run, Path(place))
