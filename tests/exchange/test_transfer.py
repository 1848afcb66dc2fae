from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin import (
    Conflict,
    FilesystemStore,
    InvalidSnapshotVersion,
    MemoryStore,
    RetentionPolicy,
    SnapshotCorrupted,
    SnapshotNotFound,
)
from snapshot_plugin.codec.frame import encode_frame
from snapshot_plugin.store.engine import LogStore
from snapshot_plugin.store.memory import MemoryLog
from snapshot_plugin.store.transfer import Copied, verified
from snapshot_plugin.testing import make_message, make_snapshot
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it

pytestmark = pytest.mark.anyio

SESSION = "Session/ä"


async def filled(store: LogStore, *, upto: int = 5) -> None:
    snapshot = make_snapshot("one", "two", session_id=SESSION, title="Words", memory={"a": [1]})
    await store.save(snapshot, tags=["start"])
    for number in range(upto - 1):
        snapshot = snapshot.append(make_message(f"more {number}"), metadata={"number": number})
        await store.save(snapshot, trigger="event", tags=["even"] if number % 2 else [])


def seen(metas: Sequence[object]) -> list[dict[str, object]]:
    kept = ("seq", "saved_at", "trigger", "snapshot_tags", "title", "messages", "updated_at")
    return [{name: getattr(meta, name) for name in kept} for meta in metas]


@pytest.mark.parametrize("key", [None, "correct horse"])
async def test_transferred_session_has_the_same_snapshots(tmp_path: Path, key: str | None) -> None:
    async with FilesystemStore(tmp_path / "a") as first, FilesystemStore(tmp_path / "b", key=key) as second:
        await filled(first)
        copies = await first.take_out(SESSION)
        await second.put_in(SESSION, copies)

        assert seen(await second.history(SESSION)) == seen(await first.history(SESSION))
        for seq in (1, 3, 5):
            assert await second.load(SESSION, at=seq) == await first.load(SESSION, at=seq)
        assert (await second.check()).findings == ()
        assert await second.take_out(SESSION) == copies


async def test_transferred_session_can_be_continued(tmp_path: Path) -> None:
    async with MemoryStore() as first, FilesystemStore(tmp_path / "b") as second:
        await filled(first)
        await second.put_in(SESSION, await first.take_out(SESSION))
        snapshot = (await second.load(SESSION)).append(make_message("on"))
        ref = await second.save(snapshot)

        assert ref.seq == 6
        assert (await second.check()).ok


async def test_forgotten_snapshots_stay_forgotten_and_numbers_are_kept(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path / "a") as first, MemoryStore() as second:
        await filled(first)
        await first.forget(SESSION, RetentionPolicy(keep_last=1, keep_tags=("even",)))
        await second.put_in(SESSION, await first.take_out(SESSION))

        assert [meta.seq for meta in await second.history(SESSION)] == [5, 3]


async def test_existing_session_is_not_touched() -> None:
    async with MemoryStore() as first, MemoryStore() as second:
        await filled(first)
        await second.save(make_snapshot("mine", session_id=SESSION))
        with pytest.raises(Conflict):
            await second.put_in(SESSION, await first.take_out(SESSION))

        assert (await second.load(SESSION)).messages[0].text == "mine"


def flip_a_bit(store: Path) -> None:
    (file,) = store.glob("sessions/*/*.snap.gz")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


async def test_damaged_session_is_not_transferred_as_whole(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path) as store:
        await filled(store)
        flip_a_bit(tmp_path)
        with pytest.raises(SnapshotCorrupted):
            await store.take_out(SESSION)


async def test_snapshots_under_the_wrong_name_are_damage(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path) as store:
        await filled(store)
        (file,) = [path async for path in anyio.Path(tmp_path).glob("sessions/*/*.snap.gz")]
        await file.rename(file.with_name("0000000002.snap.gz"))
        with pytest.raises(SnapshotCorrupted):
            await store.take_out(SESSION)


async def test_content_that_does_not_match_its_root_is_damage() -> None:
    first, *_ = await copied()
    frames = MemoryLog()
    forged = first.header._replace(root="0" * 64)
    frames.append(SESSION, encode_frame(forged, first.payload, None), forged, after=None)
    async with MemoryStore(frames) as store:
        with pytest.raises(SnapshotCorrupted):
            await store.take_out(SESSION)


async def test_unknown_session_is_not_found() -> None:
    async with MemoryStore() as store:
        with pytest.raises(SnapshotNotFound):
            await store.take_out("nobody")


async def copied() -> list[Copied]:
    async with MemoryStore() as store:
        await filled(store)
        return list(await store.take_out(SESSION))


async def test_snapshot_changed_in_transit_is_detected() -> None:
    copies = await copied()
    assert verified(copies).messages[-1].text == "more 3"
    for place, copy in enumerate(copies):
        edited = copy._replace(payload=copy.payload.replace(b"more", b"less").replace(b"one", b"eno"))
        with pytest.raises(SnapshotCorrupted):
            verified([*copies[:place], edited, *copies[place + 1 :]])


async def test_gap_is_detected() -> None:
    copies = await copied()
    for missing in (0, 2):
        with pytest.raises(SnapshotCorrupted):
            verified(copies[:missing] + copies[missing + 1 :])


@pytest.mark.parametrize("lie", [{"full": False}, {"lo": 2, "hi": 2}])
async def test_session_must_begin_with_a_full_snapshot(lie: dict[str, Any]) -> None:
    first, *_ = await copied()
    assert verified([first]).session_id == SESSION
    with pytest.raises(SnapshotCorrupted):
        verified([first._replace(header=first.header._replace(**lie))])


async def test_hostile_transfer_cannot_break_the_session_list() -> None:
    copies = await copied()
    bad = copies[-1]._replace(header=copies[-1].header._replace(t="yesterday"))
    with pytest.raises(SnapshotCorrupted):
        verified([*copies[:-1], bad])


async def test_snapshots_of_a_newer_release_are_refused() -> None:
    copies = await copied()
    for place in (1, len(copies) - 1):
        newer = copies[place]._replace(header=copies[place].header._replace(v=99))
        with pytest.raises(InvalidSnapshotVersion):
            verified([*copies[:place], newer, *copies[place + 1 :]])
