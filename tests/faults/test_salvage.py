"""Damage costs what is damaged: one pack at most, never the session."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from snapshot_plugin import SessionSnapshot, SnapshotCorrupted
from snapshot_plugin.codec.frame import read_header
from snapshot_plugin.store.segments import SegmentFiles
from snapshot_plugin.testing import make_snapshot
from tests.faults.support import PLAIN_AND_ENCRYPTED, flip, frames_of, segments_of, store_at
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it

pytestmark = pytest.mark.anyio

COUNT = 200
Packed = Callable[[Path, str | None], Path]


def _version(number: int) -> SessionSnapshot:
    return make_snapshot(*(f"message {n}: {n * 7919 % 1000003} " * 20 for n in range(1, number + 1)))


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    """Copies a store whose one session has all snapshots in packs; it is made once for each key."""

    @functools.cache
    def made(key: str | None) -> Path:
        path = tmp_path_factory.mktemp("packed")
        with store_at(path, key).sync as store:
            everything = _version(COUNT)
            for number in range(1, COUNT + 1):
                store.save(everything.evolve(messages=everything.messages[:number]))
            store.compact("session")
        return path

    def copied(path: Path, key: str | None) -> Path:
        shutil.copytree(made(key), path, dirs_exist_ok=True)
        (segment,) = segments_of(path)
        return segment

    return copied


def _numbers(snapshot: SessionSnapshot) -> set[int]:
    return {int(m.text.split()[1][:-1]) for m in snapshot.messages if m.text.startswith("message")}


@PLAIN_AND_ENCRYPTED
@pytest.mark.parametrize("how", ["repair", "salvage"])
def test_one_flipped_bit_anywhere_costs_at_most_one_pack(
    tmp_path: Path, packed: Packed, key: str | None, how: str
) -> None:
    segment = packed(tmp_path / "store", key)
    frames, start = frames_of(segment), 0
    whole = segment.read_bytes()
    assert len(frames) >= 4
    for frame in frames:
        for inside in (12, 40, len(frame) // 2, len(frame) - 3):
            segment.write_bytes(whole)
            flip(segment, start + inside)
            with store_at(tmp_path / "store", key).sync as store:
                if how == "repair":
                    report = store.check(repair=True)
                    assert report.repaired
                else:
                    store.salvage("session")
                found = store.read("session")
                kept = _numbers(found.snapshot)
                assert len(kept) >= COUNT - 1.7 * COUNT / len(frames)
                if found.snapshot.metadata.get("salvaged"):
                    assert found.meta.snapshot_tags == ("salvaged",)
                    gaps = [m for m in found.snapshot.messages if "missing here" in m.text]
                    assert len(gaps) == (1 if kept != set(range(1, COUNT + 1)) else 0)
                assert store.list()[0].session_id == "session"
                if how == "repair":
                    assert store.check().ok
                    assert store.quarantined("session")
                longer = found.snapshot.append(*make_snapshot("on we go").messages)
                store.save(longer)
                assert store.load("session", strict=True) == longer
            for path in segment.parent.rglob("*.snap.gz*"):
                path.unlink()
        start += len(frame)


async def test_a_plain_pack_is_salvaged_up_to_the_flipped_bit(tmp_path: Path, packed: Packed) -> None:
    segment = packed(tmp_path, None)
    first, second, *_ = frames_of(segment)
    pack = read_header(second)[0].pack
    flip(segment, len(first) + len(second) * 3 // 4)

    async with store_at(tmp_path) as store:
        with pytest.raises(SnapshotCorrupted):
            await store.load("session", strict=True)
        await store.salvage("session")
        found = _numbers(await store.load("session", strict=True))

    assert len(found) > COUNT - pack / 2  # all of them where the bit was not in a message


async def test_a_frame_whose_summary_is_damaged_keeps_its_messages(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.save(_version(3))
    (segment,) = segments_of(tmp_path)
    flip(segment, segment.read_bytes().index(b'{"meta"'))  # no root covers the summary

    async with store_at(tmp_path) as store:
        await store.check(repair=True)

        assert _numbers(await store.load("session", strict=True)) == {1, 2, 3}
        assert (await store.check()).ok


async def test_intact_session_has_nothing_to_salvage(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.save(_version(3))
        assert await store.salvage("session") is None
        assert len(await store.history("session")) == 1


async def test_quarantined_snapshots_are_listed_and_salvaged(tmp_path: Path, packed: Packed) -> None:
    segment = packed(tmp_path, None)
    aside = segment.parent / "quarantine"
    aside.mkdir()
    segment.rename(aside / segment.name)

    async with store_at(tmp_path) as store:
        assert await store.list() == []
        assert [finding.session_id for finding in await store.quarantined()] == ["session"]
        assert await store.salvage("session") is not None
        assert _numbers(await store.load("session")) == set(range(1, COUNT + 1))


@pytest.mark.parametrize("reason", ["tagged", "pinned"])
async def test_a_pinned_or_tagged_snapshot_is_read_back_before_it_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    tail = SegmentFiles.tail

    def rotten(self: SegmentFiles, session_id: str) -> bytes | None:
        frame = tail(self, session_id)
        return frame and frame[:-1] + b"?"

    async with store_at(tmp_path) as store:
        await store.save(_version(1))
        monkeypatch.setattr(SegmentFiles, "tail", rotten)
        snapshot = _version(2).evolve(pinned=reason == "pinned")
        tags = ["pre-deploy"] if reason == "tagged" else []
        with pytest.raises(SnapshotCorrupted):
            await store.save(snapshot, tags=tags)
        await store.save(_version(2).evolve(title="an ordinary one is not"))
        monkeypatch.undo()
        assert (await store.save(snapshot, tags=tags)).seq == 3
        assert await store.load("session", strict=True) == snapshot
