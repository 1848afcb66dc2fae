"""Bytes that are not what was written: each bit flipped, frames swapped, doubled, put back, brought in."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio

from integration.soak.mutations import Mutation, no_chain, no_checksum, nothing
from integration.soak.processes import apart
from integration.soak.program import Case, Program, Tally
from integration.soak.sessions import MODES, SESSION, number_of, store_at, version
from integration.soak.watched import in_one_thread
from snapshot_plugin.codec.scan import scan
from snapshot_plugin.errors import SnapshotError

__all__ = ["PROGRAM"]

_SAVES = 4


async def _filled(path: Path, key: str | None, *, largest: int = 60) -> None:
    async with store_at(path, key, segment_frames=2) as store:
        for number in range(1, _SAVES + 1):
            await store.save(version(number, largest=largest))


async def _look(path: Path, key: str | None, *, largest: int = 60) -> tuple[int | None, bool]:
    """Which version is read (0: none, None: one that was never saved), and whether anybody is told of damage."""
    try:
        async with store_at(path, key, create=False) as store:
            found = await store.read(SESSION)
            told = bool(found.skipped) or not (await store.check()).ok
    except SnapshotError:
        return 0, True
    number = number_of(found.snapshot)
    is_right = found.snapshot == version(number, largest=largest) and found.ref.seq == number
    return (number if is_right else None), told


# Bits -------------------------------------------------------------------------------------------------------------


async def _flip_each(path: Path, key: str | None, step: int, tally: Tally, *, once: bool) -> None:
    with in_one_thread():
        await _filled(path, key)
        for file in _files(path):
            data = file.read_bytes()
            for bit in range(0, 8 * len(data), step):
                _put(file, bit // 8, data[bit // 8] ^ 1 << bit % 8)
                number, told = await _look(path, key)
                _put(file, bit // 8, data[bit // 8])
                tally.rounds += 1
                tally.acknowledged += 1
                tally.other["told" if told else "without effect, in STORE.json"] += 1
                what = f"bit {bit} of {file.relative_to(path)}"
                _judge(tally, number, told, what)
                if not told and file.name != "STORE.json":
                    tally.fault(f"{what}: nobody is told")
                if once and tally.broken:
                    return


def _judge(tally: Tally, number: int | None, told: bool, what: str) -> None:
    if number is None:
        tally.fault(f"{what}: something is read that was never saved")
    elif not told and number != _SAVES:
        tally.lose(_SAVES - number, f"{what}: version {number} is read, and nothing is said")


def _put(file: Path, at: int, byte: int) -> None:
    fd = os.open(file, os.O_WRONLY)
    os.pwrite(fd, bytes([byte]), at)
    os.close(fd)


def _bits(key: str | None, mutate: Mutation, rounds: int) -> Tally:
    """*rounds* is the number of bits to flip, spread evenly; as many as there are, or more, for all."""

    def run() -> Tally:
        tally = Tally()
        mutate()
        with tempfile.TemporaryDirectory(prefix="asnap-soak-") as folder:
            size = anyio.run(_size, Path(folder) / "measure", key)
            step = max(1, size * 8 // rounds) | 1
            once = mutate is not nothing
            anyio.run(partial(_flip_each, once=once), Path(folder) / "store", key, step, tally)
        return tally

    return apart(run)


async def _size(path: Path, key: str | None) -> int:
    await _filled(path, key)
    return sum(len(file.read_bytes()) for file in _files(path))


def _files(path: Path) -> list[Path]:
    return sorted(each for each in path.rglob("*") if each.is_file() and each.stat().st_size)


# Frames -----------------------------------------------------------------------------------------------------------


def _segments(path: Path) -> list[Path]:
    return sorted((path / "sessions" / SESSION).glob("*.snap.gz"))


def _frames(segment: Path) -> list[bytes]:
    data = segment.read_bytes()
    return [data[piece.start : piece.end] for piece in scan(data)]


def _mix(path: Path, foreign: list[bytes], chance: random.Random) -> str:
    """Swap, double, put back or bring in a whole frame; say what was done."""
    segments = _segments(path)
    places = [(segment, at) for segment in segments for at in range(len(_frames(segment)))]
    one, two = chance.sample(places, 2)
    deed = chance.choice(("swapped", "doubled", "put back", "brought in"))
    frames = {segment: _frames(segment) for segment in segments}
    if deed == "swapped":
        (a, at), (b, there) = one, two
        frames[a][at], frames[b][there] = frames[b][there], frames[a][at]
    elif deed == "doubled":
        frames[one[0]].insert(one[1], frames[one[0]][one[1]])
    elif deed == "put back":  # an old one behind the newest
        frames[segments[-1]].append(frames[segments[0]][0])
    else:
        frames[one[0]][one[1]] = chance.choice(foreign)
    for segment, content in frames.items():
        segment.write_bytes(b"".join(content))
    return f"{deed}: {one[1] + 1} of {one[0].name}"


async def _mix_each(place: Path, key: str | None, rounds: int, tally: Tally, *, once: bool) -> None:
    chance, path, again = random.Random(20261116), place / "store", place / "again"
    with in_one_thread():
        await _filled(path, key)
        # The same numbers in another history of the same store.
        shutil.copytree(path, again)
        shutil.rmtree(again / "sessions" / SESSION)
        await _filled(again, key, largest=61)
        foreign = [frame for segment in _segments(again) for frame in _frames(segment)]
        whole = {segment: segment.read_bytes() for segment in _segments(path)}
        for _ in range(rounds):
            deed = _mix(path, foreign, chance)
            number, told = await _look(path, key)
            for segment, data in whole.items():
                segment.write_bytes(data)
            tally.rounds += 1
            tally.acknowledged += 1
            tally.other[deed.partition(":")[0]] += 1
            _judge(tally, number, told, deed)
            if once and tally.broken:
                return


def _mixed(key: str | None, mutate: Mutation, rounds: int) -> Tally:
    def run() -> Tally:
        tally = Tally()
        mutate()
        with tempfile.TemporaryDirectory(prefix="asnap-soak-") as folder:
            anyio.run(partial(_mix_each, once=mutate is not nothing), Path(folder), key, rounds, tally)
        return tally

    return apart(run)


def _cases() -> Iterator[Case]:
    for mode, key in MODES.items():
        yield Case(f"every bit, {mode}", partial(_bits, key, nothing), 1 << 30, 1000)
        yield Case(f"frames, {mode}", partial(_mixed, key, nothing), 1000, 100)
    yield Case("every bit", partial(_bits, None, no_checksum), 1 << 30, 1 << 30, without="the checksum")
    yield Case("frames", partial(_mixed, None, no_chain), 300, 300, without="the chain of roots")


PROGRAM = Program(
    "corruption",
    "Stored bytes that were changed are never believed, and whatever that costs is said.",
    tuple(_cases()),
)
