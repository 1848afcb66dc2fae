"""Packs in a store: what is compressed together is still found, forgotten, checked and repaired one by one."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from snapshot_plugin import FilesystemStore, RetentionPolicy, SessionSnapshot, SnapshotCorrupted, SnapshotNotFound
from snapshot_plugin.codec.pack import open_changes
from snapshot_plugin.store import rewrite
from snapshot_plugin.testing import make_message, make_snapshot
from tests.faults.support import KEY, PLAIN_AND_ENCRYPTED, flip, frames_of, segments_of, store_at
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it

pytestmark = pytest.mark.anyio
PATIENCE = 60
COUNT = 40
PACKS = [list(range(1, 10)), list(range(10, 20)), list(range(20, 29)), list(range(29, 39)), [39], [40]]
"""A session is cut into at least four packs; what is too little for a pack stands alone."""


def turn(number: int, session_id: str = "session") -> SessionSnapshot:
    """One more message of 4 KB each time."""
    texts = (f"{n} " + f"{n * 7919 % 10007} " * 700 for n in range(1, number + 1))
    return make_snapshot(*texts, session_id=session_id)


async def lived(path: Path, key: str | None = None, *, first: int = 1, last: int = COUNT, **options: Any) -> None:
    """Save turns *first* to *last*; closing the store packs them."""
    async with FilesystemStore(path, key, **options) as store:
        for number in range(first, last + 1):
            assert (await store.save(turn(number), base=number - 1)).seq == number


def inside(path: Path, key: str | None = None) -> list[list[int]]:
    """The numbers in each frame, file by file."""
    keys = store_at(path, key).session_keys("session")
    return [
        [header.hi for header, _ in open_changes(frame, session_id="session", keys=keys)]
        for segment in segments_of(path)
        for frame in frames_of(segment)
    ]


@pytest.mark.requirement("FORMAT-FRAME-PACK")
@PLAIN_AND_ENCRYPTED
async def test_a_closed_store_is_packed_and_every_snapshot_is_found(tmp_path: Path, key: str | None) -> None:
    await lived(tmp_path, key)
    assert inside(tmp_path, key) == PACKS
    assert [path.name for path in segments_of(tmp_path)] == ["0000000001-0000000040.1.snap.gz"]
    async with store_at(tmp_path, key) as store:
        for seq in range(1, COUNT + 1):
            assert await store.load("session", at=seq) == turn(seq)
        assert await store.load("session", strict=True) == turn(COUNT)
        metas = await store.history("session")
        assert [(meta.seq, meta.messages, meta.state) for meta in metas] == [
            (seq, seq, "ok") for seq in range(COUNT, 0, -1)
        ]
        assert [meta.messages for meta in await store.list()] == [COUNT]
        report = await store.check()
        assert (report.snapshots, report.findings) == (COUNT, ())
        for seq in (0, COUNT + 1):
            with pytest.raises(SnapshotNotFound):
                await store.load("session", at=seq)


async def test_small_stores_are_not_rewritten_and_nothing_runs_without_background_work(tmp_path: Path) -> None:
    await lived(tmp_path / "little", last=5)
    await lived(tmp_path / "quiet", background=False)

    for path in (tmp_path / "little", tmp_path / "quiet"):
        assert [segment.name for segment in segments_of(path)] == ["0000000001.snap.gz"]


@PLAIN_AND_ENCRYPTED
async def test_session_opened_and_closed_often_stays_in_few_files(tmp_path: Path, key: str | None) -> None:
    grown, expected = make_snapshot(), {}
    for number in range(1, 33):
        async with FilesystemStore(tmp_path, key) as store:
            grown = grown.append(make_message(f"{number * 7919} " * 12_000))
            await store.save(grown, base=number - 1)
            expected[number] = grown

    assert len(segments_of(tmp_path)) <= 4
    assert [number for numbers in inside(tmp_path, key) for number in numbers] == list(range(1, 33))
    async with store_at(tmp_path, key) as store:
        assert await store.load("session", strict=True) == grown
        assert await store.load("session", at=23) == expected[23]


async def test_closing_leaves_large_files_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "_LARGE", 1000)
    await lived(tmp_path)
    [first] = segments_of(tmp_path)
    content = first.read_bytes()
    await lived(tmp_path, first=COUNT + 1, last=2 * COUNT)

    assert len(segments_of(tmp_path)) == 2
    assert first.read_bytes() == content
    assert await store_at(tmp_path).load("session", strict=True) == turn(2 * COUNT)


async def test_save_during_another_stores_close_continues_after_the_pack(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path) as writer, store_at(tmp_path) as other:
        for number in range(1, 31):
            await writer.save(turn(number))
        assert (await other.load("session")) == turn(30)
        await writer.aclose()
        assert (await other.save(turn(31), base=30)).seq == 31
        assert (await other.save(turn(32))).seq == 32
        assert (await other.check()).findings == ()
    *packs, last_but_one, last = inside(tmp_path)
    assert (last_but_one, last) == ([31], [32])
    assert [number for pack in packs for number in pack] == list(range(1, 31))
    assert len(packs) < 10


@pytest.mark.requirement("STORE-CLOSE-BOUNDED")
async def test_closing_does_not_wait_for_queued_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packing, go_on, sync = threading.Event(), threading.Event(), os.fsync

    def hanging(fd: int) -> None:
        if threading.current_thread().name == "asnap-compact":
            packing.set()
            assert go_on.wait(PATIENCE)
        sync(fd)

    monkeypatch.setattr(os, "fsync", hanging)
    store = FilesystemStore(tmp_path, segment_frames=2)
    for session_id in ("a", "b"):
        for number in range(1, 4):
            await store.save(turn(number, session_id))
    assert await anyio.to_thread.run_sync(packing.wait, PATIENCE)
    try:
        with anyio.fail_after(PATIENCE / 4):
            await store.aclose()
    finally:
        go_on.set()
    async with store_at(tmp_path) as again:
        assert [await again.load(each, strict=True) for each in "ab"] == [turn(3, "a"), turn(3, "b")]


async def test_a_finished_segment_is_packed_while_saves_continue_in_the_next(tmp_path: Path) -> None:
    store = FilesystemStore(tmp_path, segment_frames=20)
    for number in range(1, 26):
        await store.save(turn(number))
    assert store._worker
    done = threading.Event()
    store._worker.submit(done.set)  # behind what was submitted before
    assert await anyio.to_thread.run_sync(done.wait, PATIENCE)

    assert [path.name for path in segments_of(tmp_path)] == [
        "0000000001-0000000020.1.snap.gz",
        "0000000021.snap.gz",
    ]
    opened = store._files._of("session").tail
    await store.save(turn(26))
    after = store._files._of("session").tail
    assert opened
    assert after
    assert after.frames == opened.frames + 1  # it knew where it was
    await store.aclose()


# Forgetting, damage, repair -----------------------------------------------------------------------------------


@pytest.mark.requirement("FORMAT-FRAME-PACK", "FORMAT-ROOT-REWRITE")
@PLAIN_AND_ENCRYPTED
async def test_snapshots_are_forgotten_inside_a_pack(tmp_path: Path, key: str | None) -> None:
    await lived(tmp_path, key)
    async with store_at(tmp_path, key) as store:
        before = {meta.seq: meta.root for meta in await store.history("session")}
        await store.forget("session", RetentionPolicy(keep_last=12))
        kept = list(range(29, COUNT + 1))
        assert {meta.seq: meta.root for meta in await store.history("session")} == {n: before[n] for n in kept}
        for seq in kept:
            assert await store.load("session", at=seq) == turn(seq)
        for seq in (1, 28):
            with pytest.raises(SnapshotNotFound):
                await store.load("session", at=seq)
        assert (await store.check()).findings == ()
    assert inside(tmp_path, key) == [[29], list(range(30, 39)), [39], [40]]


@pytest.mark.requirement("FORMAT-FRAME-PACK")
@PLAIN_AND_ENCRYPTED
async def test_damaged_pack_is_named_and_earlier_snapshots_are_read(tmp_path: Path, key: str | None) -> None:
    await lived(tmp_path, key)
    [segment] = segments_of(tmp_path)
    flip(segment, sum(map(len, frames_of(segment)[:3])) + 900)
    async with store_at(tmp_path, key) as store:
        found = await store.read("session")
        assert (found.ref.seq, found.snapshot, len(found.skipped)) == (28, turn(28), 1)
        with pytest.raises(SnapshotCorrupted):
            await store.load("session", strict=True)
        with pytest.raises(SnapshotCorrupted):
            await store.load("session", at=37)
        assert await store.load("session", at=7) == turn(7)
        states = {meta.seq: meta.state for meta in await store.history("session")}
        assert states == {n: "damaged" if n in PACKS[3] else "ok" for n in range(1, COUNT + 1)}
        await store.check(repair=True)
        assert (await store.check()).findings == ()
        assert [meta.seq for meta in await store.history("session")] == [COUNT + 1, *range(28, 0, -1)]
        salvaged = (await store.load("session", strict=True)).messages
        assert (salvaged[:28], salvaged[-2:]) == (turn(28).messages, turn(COUNT).messages[-2:])


@PLAIN_AND_ENCRYPTED
async def test_repair_keeps_a_full_snapshot_after_a_lost_pack(tmp_path: Path, key: str | None) -> None:
    await lived(tmp_path, key)
    [segment] = segments_of(tmp_path)
    flip(segment, 900)
    async with store_at(tmp_path, key, segment_frames=4) as store:
        assert (await store.save(turn(41))).seq == 41  # builds on nothing that cannot be read
        await store.check(repair=True)
        assert (await store.check()).findings == ()
        assert await store.load("session", strict=True) == turn(41)


async def test_packs_open_with_their_session_key_after_a_rotation(tmp_path: Path) -> None:
    await lived(tmp_path, KEY)
    async with store_at(tmp_path, KEY) as store:
        await store.rotate_key()
        await store.compact("session")
        assert await store.load("session", at=3) == turn(3)
    assert inside(tmp_path, KEY) == PACKS
