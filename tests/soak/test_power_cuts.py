"""A disk that keeps only what it must, and a power cut after each step: what was acknowledged is there."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from integration.soak.disk_model import Change, Directory, File, Tree
from integration.soak.garbler import lives
from integration.soak.life import STATES, STEPS, open_store, state_of
from integration.soak.mutations import Mutation, no_segment_entry_sync, no_settling, nothing
from integration.soak.program import Tally
from integration.soak.sessions import KEY, SESSION, assess, number_of, save_version, store_at
from snapshot_plugin import SnapshotNotFound
from snapshot_plugin.live import spool as spool_module
from snapshot_plugin.live.spool import Spool, read_spool
from snapshot_plugin.store import segments
from snapshot_plugin.system.files import sync_dir

MANY = 10_000


class Worst(random.Random):
    """Chance at its worst: whatever may be lost is lost; with *entries*, all but what happened in directories.

    With *garbled*, a write that was not synced leaves garbage instead of nothing.
    """

    def __init__(self, *, entries: bool = False, garbled: bool = False) -> None:
        super().__init__()
        self._random = 1.0 if entries else 0.0
        self._fate = "garble" if garbled else "drop"

    def random(self) -> float:
        return self._random

    def choice(self, seq: Any) -> Any:
        return self._fate if "drop" in seq else seq[0]


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    root = tmp_path / "disk"
    root.mkdir()
    return root


# The model itself -------------------------------------------------------------------------------------------------


def after_the_worst(tree: Tree, place: Path) -> dict[str, bytes]:
    tree.after_cut(place, Worst(), spread=False)
    return {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()}


def test_file_exists_once_it_and_its_directory_were_synced(tmp_path: Path) -> None:
    for synced, left in [("", {}), ("file", {}), ("directory", {"a": b""}), ("both", {"a": b"words"})]:
        tree, file = Tree(), File()
        tree.change(Change(new=((tree.top, "a", file),)))
        file.write(0, b"words")
        if synced in ("file", "both"):
            file.sync()
        if synced in ("directory", "both"):
            tree.sync(tree.top)
        assert after_the_worst(tree, tmp_path / (synced or "none")) == left


def test_rename_is_atomic_across_both_directories(tmp_path: Path) -> None:
    tree, inner, file = Tree(), Directory(), File()
    tree.change(Change(new=((tree.top, "d", inner),)))
    tree.change(Change(new=((tree.top, "a", file),)))
    tree.sync(tree.top)
    tree.change(Change(gone=((tree.top, "a"),), new=((inner, "b", file),)))
    tree.sync(inner)
    assert after_the_worst(tree, tmp_path / "left") == {}
    assert (tmp_path / "left" / "d" / "b").exists()


def test_unsynced_write_may_leave_any_of_its_sectors() -> None:
    seen = set()
    for seed in range(60):
        file = File(bytearray(b"a" * 1024), b"a" * 1024)
        file.write(512, b"b" * 512)
        content = file.after_cut(random.Random(seed), spread=False)
        assert content[:512] == b"a" * 512
        seen.add({b"a": "dropped", b"b": "kept"}.get(content[512:513] * (len(set(content[512:])) == 1), "garbled"))
    assert seen == {"dropped", "kept", "garbled"}


# The store --------------------------------------------------------------------------------------------------------


def one_more(key: str | None) -> Callable[..., Any]:
    async def save(path: Path, acknowledge: Callable[[int, int], None]) -> None:
        async with store_at(path, key, segment_frames=2) as store:
            try:
                number = number_of(await store.load(SESSION)) + 1
            except SnapshotNotFound:
                number = 1
            acknowledge((await save_version(store, number)).seq, number)

    return save


def lost_after_kill_and_cut(disk: Path, key: str | None, mutate: Mutation) -> int:
    """Save twice; kill the third save after each of its steps; save once more; cut the power."""
    lost = 0
    for step in range(1, 16):
        place = disk / str(step)
        place.mkdir()
        acknowledged = anyio.run(lives, place, one_more(key), [MANY, MANY, step, MANY], Worst(), mutate)
        tally = Tally()
        anyio.run(assess, place, key, acknowledged, tally)
        assert len(acknowledged) >= 3
        lost += tally.lost
    return lost


@pytest.mark.requirement("FORMAT-WRITE-NEW-SEGMENT")
@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "encrypted"])
def test_save_on_top_of_a_killed_writers_frame_survives_a_power_cut(disk: Path, key: str | None) -> None:
    assert lost_after_kill_and_cut(disk, key, nothing) == 0


@pytest.mark.parametrize("mutate", [no_settling, no_segment_entry_sync])
def test_without_the_extra_sync_such_a_save_is_lost(
    disk: Path, monkeypatch: pytest.MonkeyPatch, mutate: Mutation
) -> None:
    monkeypatch.setattr(segments.SegmentFiles, "_settle", segments.SegmentFiles._settle)
    monkeypatch.setattr(segments, "sync_dir", sync_dir)
    assert lost_after_kill_and_cut(disk, None, mutate) > 0


def test_frame_sealed_with_a_killed_processs_key_is_readable_after_a_power_cut(disk: Path) -> None:
    async def rotate(path: Path, _acknowledge: Callable[[int, int], None]) -> None:
        await store_at(path, KEY).rotate_key()

    for step in range(1, 12):
        place = disk / str(step)
        place.mkdir()
        works = iter([one_more(KEY), rotate, one_more(KEY)])

        async def work(path: Path, acknowledge: Callable[[int, int], None], works: Any = works) -> None:
            await next(works)(path, acknowledge)

        acknowledged = anyio.run(lives, place, work, [MANY, step, MANY], Worst())
        assert len(acknowledged) == 2
        tally = Tally()
        anyio.run(assess, place, KEY, acknowledged, tally)
        assert tally.broken == 0, tally.details


@pytest.mark.requirement("STORE-DURABLE-POWER", "FORMAT-WRITE-REWRITE")
def test_power_cut_after_any_step_leaves_the_result_of_that_step(disk: Path) -> None:
    for done in range(1, len(STEPS) + 1):
        place = disk / str(done)
        place.mkdir()

        async def live(path: Path, acknowledge: Callable[[int, int], None], done: int = done) -> None:
            store = open_store(path, None)
            for step in STEPS[:done]:
                await step(store)
            acknowledge(done, done)

        assert anyio.run(lives, place, live, [MANY], Worst()) == {done: done}
        assert anyio.run(state_of, open_store(place, None)) == STATES[done]


# The spool --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MANAGER-SPOOL-POWER")
@pytest.mark.parametrize("garbled", [False, True])
@pytest.mark.parametrize("entries", [False, True])
def test_flushed_records_survive_a_power_cut_after_a_truncate(disk: Path, *, entries: bool, garbled: bool) -> None:
    async def work(root: Path, acknowledge: Callable[[int, int], None]) -> None:
        spool = Spool.open(root, session_id=SESSION)
        for number in range(1, 6):
            spool.append({"i": number})
        spool.flush()
        acknowledge(5, 5)
        spool.append({"i": 6})
        spool.truncate(3)

    assert anyio.run(lives, disk, work, [MANY], Worst(entries=entries, garbled=garbled)) == {5: 5}
    there = {record.n for record in read_spool(disk, session_id=SESSION).records}
    assert there >= {4, 5}


@pytest.mark.requirement("MANAGER-SPOOL-POWER")
@pytest.mark.parametrize("garbled", [False, True])
@pytest.mark.parametrize("entries", [False, True])
def test_flushed_record_in_the_second_file_survives_although_the_first_was_emptied(
    disk: Path, *, entries: bool, garbled: bool
) -> None:
    Spool.open(disk, session_id=SESSION).close()  # whose header says that the second file does not count

    async def work(root: Path, acknowledge: Callable[[int, int], None]) -> None:
        spool = Spool.open(root, session_id=SESSION)
        spool.append({"i": 1})
        spool.append({"i": 2})
        spool.truncate(1)
        spool.append({"i": 3})
        spool.truncate(2)
        spool.flush()
        acknowledge(3, 3)

    assert anyio.run(lives, disk, work, [MANY], Worst(entries=entries, garbled=garbled)) == {3: 3}
    assert [record.n for record in read_spool(disk, session_id=SESSION).records] == [3]


def test_concurrent_flush_waits_for_the_one_in_progress(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncing, go_on, done = (threading.Event() for _ in range(3))
    spool = Spool.open(disk, session_id=SESSION)

    def slow(_fd: int) -> None:
        syncing.set()
        assert go_on.wait(30)

    monkeypatch.setattr(spool_module, "sync_data", slow)
    spool.append({})
    first = threading.Thread(target=spool.flush)

    def flush_too() -> None:
        spool.flush()
        done.set()

    second = threading.Thread(target=flush_too)
    first.start()
    assert syncing.wait(30)
    second.start()
    assert not done.wait(0.05)
    spool.append({})  # whoever appends does not wait
    go_on.set()
    first.join(30)
    second.join(30)
    assert done.is_set()
    spool.close()
