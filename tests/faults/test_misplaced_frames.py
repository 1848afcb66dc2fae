"""Frames that are well-formed and do not belong: moved, renamed, doubled, or of another store."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from snapshot_plugin import RetentionPolicy, SessionSnapshot, SnapshotCorrupted, SnapshotTampered
from snapshot_plugin.codec.frame import open_frame
from snapshot_plugin.codec.scan import scan
from snapshot_plugin.testing import make_snapshot
from tests.faults.support import (
    KEY,
    PLAIN_AND_ENCRYPTED,
    assert_falls_back,
    filled,
    forged,
    frames_of,
    names_in,
    segments_of,
    store_at,
    version,
)
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it

pytestmark = pytest.mark.anyio


# Moved within a session ---------------------------------------------------------------------------------------

Frames = list[bytes]


@pytest.mark.requirement("FORMAT-HEADER-LO-HI", "FORMAT-THREAT-EDIT", "FORMAT-READ-DAMAGE")
@PLAIN_AND_ENCRYPTED
@pytest.mark.parametrize(
    ("move", "seq"),
    [
        (lambda a, b, c, d: [a, b, d, c], 2),
        (lambda a, b, c, d: [a, b, d], 2),
        (lambda a, b, c, d: [a, b, c, d, a], 4),
        (lambda a, b, c, d: [a, b, c, d, b], 4),
        (lambda a, b, c, d: [a, b, c, d, d], 4),
        (lambda a, b, c, d: [a, b, b, c, d], 2),
        (lambda a, b, c, d: [a, b, c, a], 3),
    ],
    ids=["swapped", "dropped", "first again", "second again", "last again", "doubled", "last replaced by first"],
)
async def test_reordered_frames_are_detected_and_no_old_frame_becomes_the_newest(
    tmp_path: Path, key: str | None, move: Callable[..., Frames], seq: int
) -> None:
    segment = await filled(tmp_path, key, count=4)
    _write(segment, move(*frames_of(segment)))
    await assert_falls_back(tmp_path, key, seq, "corrupted")


@PLAIN_AND_ENCRYPTED
@pytest.mark.parametrize("again", range(4))
async def test_repair_does_not_salvage_a_replayed_old_frame(tmp_path: Path, key: str | None, again: int) -> None:
    segment = await filled(tmp_path, key, count=4)
    frames = frames_of(segment)
    _write(segment, [*frames, frames[again]])
    async with store_at(tmp_path, key) as store:
        assert not (await store.check(repair=True)).ok
        assert await store.load("session", strict=True) == version(4)
        assert [meta.seq for meta in await store.history("session")] == [4, 3, 2, 1]


@PLAIN_AND_ENCRYPTED
@pytest.mark.parametrize(
    ("segment", "name"), [(0, "0000000009.snap.gz"), (1, "0000000002.snap.gz"), (1, "0000000009.snap.gz")]
)
async def test_renumbered_segment_is_detected_and_repair_discards_nothing(
    tmp_path: Path, key: str | None, segment: int, name: str
) -> None:
    await filled(tmp_path, key, count=4, segment_frames=2)
    _rename(segments_of(tmp_path)[segment], name)
    before = {_content(path) for path in segments_of(tmp_path)}
    async with store_at(tmp_path, key) as store:
        with pytest.raises(SnapshotCorrupted):
            await store.load("session", strict=True)
        assert not (await store.check()).ok
        await store.check(repair=True)
        assert (await store.check()).findings == ()
    after = b"".join(_content(path) for path in (tmp_path / "sessions").rglob("*.snap.gz"))
    assert all(frame in after for data in before for frame in _split(data))


@PLAIN_AND_ENCRYPTED
async def test_frame_copied_to_a_new_segment_does_not_become_the_newest(tmp_path: Path, key: str | None) -> None:
    segment = await filled(tmp_path, key)
    _write(segment.with_name("0000000004.snap.gz"), frames_of(segment)[:1])
    await assert_falls_back(tmp_path, key, 3, "corrupted")


@pytest.mark.requirement("FORMAT-ROOT-CHAIN")
@PLAIN_AND_ENCRYPTED
async def test_lost_segment_is_detected_and_forget_does_not_merge_across_the_gap(
    tmp_path: Path, key: str | None
) -> None:
    notes: dict[str, str] = {}
    async with store_at(tmp_path, key, segment_frames=2) as store:
        for number in "123456":
            notes[number] = f"learned in {number}"
            await store.save(make_snapshot(memory=notes))
    _remove(segments_of(tmp_path)[1])
    async with store_at(tmp_path, key) as store:
        assert not (await store.check()).ok
        before = names_in(tmp_path / "sessions" / "session")
        with pytest.raises(SnapshotCorrupted):
            await store.forget("session", RetentionPolicy(keep_last=1))
        assert names_in(tmp_path / "sessions" / "session") == before
        found = await store.read("session")
        assert (set(found.snapshot.memory), bool(found.skipped)) == ({"1", "2"}, True)


def rewritten(number: int) -> SessionSnapshot:
    """A session whose one long message changes each time, so that now and then a frame holds it all again."""
    return make_snapshot(f"{number} " * 20_000)


async def _filled_with_a_full_frame_inside(path: Path, key: str | None) -> tuple[Frames, int]:
    """The frames of one segment, and the index of the full one among them that is not the first."""
    async with store_at(path, key) as store:
        for number in range(1, 7):
            await store.save(rewritten(number))
        keys = store.session_keys("session")
    frames = frames_of(segments_of(path)[0])
    full = [i for i, frame in enumerate(frames) if open_frame(frame, session_id="session", keys=keys)[0].full]
    assert len(full) == 2
    assert 1 < full[1] < len(frames) - 1
    return frames, full[1]


@PLAIN_AND_ENCRYPTED
async def test_replayed_full_frame_does_not_become_the_newest(tmp_path: Path, key: str | None) -> None:
    frames, full = await _filled_with_a_full_frame_inside(tmp_path, key)
    _write(segments_of(tmp_path)[0], [*frames, frames[full]])
    async with store_at(tmp_path, key) as store:
        found = await store.read("session")
        assert (found.ref.seq, found.snapshot) == (6, rewritten(6))
        assert [finding.kind for finding in found.skipped] == ["corrupted"]
        for seq in range(1, 7):
            assert await store.load("session", at=seq) == rewritten(seq)
        assert not (await store.check()).ok
        await store.check(repair=True)
        assert (await store.check()).findings == ()
        assert [meta.seq for meta in await store.history("session")] == list(range(6, 0, -1))


@PLAIN_AND_ENCRYPTED
async def test_damage_before_a_full_frame_loses_nothing_after_it(tmp_path: Path, key: str | None) -> None:
    frames, full = await _filled_with_a_full_frame_inside(tmp_path, key)
    frames[1] = frames[1][:-20] + bytes(20)
    _write(segments_of(tmp_path)[0], frames)
    async with store_at(tmp_path, key) as store:
        assert await store.load("session", strict=True) == rewritten(6)
        assert not (await store.check()).ok
        await store.check(repair=True)
        assert (await store.check()).findings == ()
        kept = [1, *range(full + 1, 7)]
        assert [meta.seq for meta in await store.history("session")] == kept[::-1]
        for seq in kept:
            assert await store.load("session", at=seq, strict=True) == rewritten(seq)


# Moved between sessions and stores ----------------------------------------------------------------------------


@pytest.mark.requirement("FORMAT-HEADER-SID", "STORE-FAULT-SWAPPED", "FORMAT-SEAL-MOVED", "FORMAT-THREAT-EDIT")
@PLAIN_AND_ENCRYPTED
async def test_a_frame_of_another_session_is_refused(tmp_path: Path, key: str | None) -> None:
    mine = await filled(tmp_path, key, count=2)
    theirs = await filled(tmp_path, key, count=3, session_id="other")
    _write(mine, [*frames_of(mine), frames_of(theirs)[2]])
    await assert_falls_back(tmp_path, key, 2, "tampered" if key else "corrupted")


@pytest.mark.requirement("FORMAT-HEADER-SID", "FORMAT-SEAL-MOVED", "FORMAT-THREAT-EDIT")
@PLAIN_AND_ENCRYPTED
async def test_a_session_directory_under_another_name_is_refused(tmp_path: Path, key: str | None) -> None:
    segment = await filled(tmp_path, key)
    shutil.copytree(segment.parent, segment.parent.with_name("copy"))
    async with store_at(tmp_path, key) as store:
        with pytest.raises(SnapshotTampered if key else SnapshotCorrupted):
            await store.load("copy")
        states = {meta.session_id: meta.state for meta in await store.list()}
        assert states == {"session": "ok", "copy": "damaged"}
        assert {finding.session_id for finding in (await store.check()).findings} == {"copy"}
        assert await store.load("session", strict=True) == version(3)


@pytest.mark.requirement("FORMAT-SEAL-PLAIN", "FORMAT-THREAT-PLAIN", "STORE-CORRUPT-TAMPERED")
@pytest.mark.parametrize("position", ["only", "newest"])
async def test_a_plain_frame_in_an_encrypted_store_is_tampering(tmp_path: Path, position: str) -> None:
    plain = frames_of(await filled(tmp_path / "plain", count=3))
    segment = await filled(tmp_path, KEY, count=2)
    _write(segment, plain[:1] if position == "only" else [*frames_of(segment), plain[2]])
    if position == "newest":
        await assert_falls_back(tmp_path, KEY, 2, "tampered")
    else:
        await _assert_nothing_opens(tmp_path, KEY)


@pytest.mark.parametrize("position", ["only", "newest"])
async def test_an_encrypted_frame_in_a_plain_store_is_tampering(tmp_path: Path, position: str) -> None:
    sealed = frames_of(await filled(tmp_path / "sealed", KEY, count=3))
    segment = await filled(tmp_path, count=2)
    _write(segment, sealed[:1] if position == "only" else [*frames_of(segment), sealed[2]])
    if position == "newest":
        await assert_falls_back(tmp_path, None, 2, "tampered")
    else:
        await _assert_nothing_opens(tmp_path, None)


async def test_a_frame_of_another_store_with_the_same_key_is_tampering(tmp_path: Path) -> None:
    theirs = frames_of(await filled(tmp_path / "other", KEY, count=3))
    segment = await filled(tmp_path, KEY, count=2)
    async with store_at(tmp_path / "other", KEY) as other, store_at(tmp_path, KEY) as store:
        stolen = forged(theirs[2], other.session_keys("session"), to=other.session_keys("session"))
        mine = store.session_keys("session")
        assert mine
        # Even with our key's id written on it.
        stolen = stolen.replace(
            open_frame(theirs[2], session_id="session", keys=other.session_keys("session"))[0].kid.encode(),
            mine.primary.encode(),
        )
    _write(segment, [*frames_of(segment), stolen])
    await assert_falls_back(tmp_path, KEY, 2, "tampered")


async def _assert_nothing_opens(path: Path, key: str | None) -> None:
    async with store_at(path, key) as store:
        for at in (None, 1):
            with pytest.raises(SnapshotTampered):
                await store.load("session", at=at)
        assert [meta.state for meta in await store.list()] == ["damaged"]
        assert [finding.kind for finding in (await store.check()).findings] == ["tampered"]


def _write(path: Path, frames: Frames) -> None:
    path.write_bytes(b"".join(frames))


def _split(data: bytes) -> Frames:
    return [data[piece.start : piece.end] for piece in scan(data)]


def _content(path: Path) -> bytes:
    return path.read_bytes()


def _rename(path: Path, name: str) -> None:
    path.rename(path.with_name(name))


def _remove(path: Path) -> None:
    path.unlink()
