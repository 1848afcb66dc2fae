"""The power goes at any step, on a disk that keeps no more than it must: the manner of SQLite's crash tests.

Every sector that was written and not synced is kept, lost or garbage, and so with the entries of directories. In
contrast to a real file system, nothing is safe by the kindness of a journal. Needs nothing but Python.
"""

from __future__ import annotations

import contextlib
import logging
import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import anyio

from integration.soak.life import STATES, STEPS, open_store, state_of
from integration.soak.mutations import (
    Mutation,
    no_directory_sync,
    no_segment_entry_sync,
    no_settling,
    no_sync,
    nothing,
)
from integration.soak.processes import apart
from integration.soak.program import Case, Program, Tally
from integration.soak.sessions import MODES, SESSION, assess, number_of, save_version, store_at
from integration.soak.watched import Ended, WatchedDisk, in_one_thread
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.keys import Keyset
from snapshot_plugin.errors import Damaged, SnapshotError, SnapshotNotFound
from snapshot_plugin.live.spool import Spool, read_spool

__all__ = ["PROGRAM", "lives"]

_LARGEST = 3000
Acknowledge = Callable[[int, int], None]
"""Takes the number something has got, and what it is."""
Work = Callable[[Path, Acknowledge], Awaitable[None]]


async def lives(
    root: Path,
    work: Work,
    steps: list[int],
    chance: random.Random,
    mutate: Mutation = nothing,
    *,
    spread: bool = False,
) -> dict[int, int]:
    """Do *work* at *root*, killed after each number of *steps* and begun again; then the power goes.

    *root* then holds what is left. Returns what was acknowledged.
    """
    acknowledged: dict[int, int] = {}
    disk = WatchedDisk(root, steps=0)
    with disk.watching(), in_one_thread():
        mutate()
        for number in steps:
            disk.steps = number
            with contextlib.suppress(Ended):
                await work(root, acknowledged.__setitem__)
    left = root.with_name("left")
    disk.tree.after_cut(left, chance, spread=spread)
    shutil.rmtree(root)
    left.rename(root)
    return acknowledged


# The store --------------------------------------------------------------------------------------------------------


async def _save(key: str | None, chance: random.Random, path: Path, acknowledge: Acknowledge) -> None:
    async with store_at(path, key, segment_frames=3) as store:
        try:
            newest = number_of((await store.read(SESSION)).snapshot)
        except (SnapshotNotFound, Damaged):  # nothing whole is there: begin anew, behind whatever is
            newest = 0
        for number in range(newest + 1, newest + 20):
            acknowledge((await save_version(store, number, largest=_LARGEST)).seq, number)
            if chance.random() < 0.1:
                await store.compact(SESSION)
            if key and chance.random() < 0.1:
                await store.rotate_key()


def _store(key: str | None, mutate: Mutation, rounds: int, *, spread: bool = False) -> Tally:
    tally, chance = Tally(), random.Random(20261116)
    with _scratch() as root:
        acknowledged: dict[int, int] = {}
        for _ in range(rounds):
            work = partial(_save, key, chance)
            steps = [chance.randrange(1, 40) for _ in range(chance.choice((1, 2, 3)))]
            heard = anyio.run(partial(lives, spread=spread), root, work, steps, chance, mutate)
            acknowledged |= heard
            tally.rounds += 1
            tally.acknowledged += len(heard)
            before = tally.broken
            anyio.run(_assess, root, key, acknowledged, tally, spread)
            if tally.broken > before or tally.rounds % 5 == 0:
                shutil.rmtree(root)
                root.mkdir()
                acknowledged = {}
            if mutate is not nothing and tally.broken:
                break
    return tally


async def _assess(root: Path, key: str | None, acknowledged: dict[int, int], tally: Tally, spread: bool) -> None:
    """As `assess`; what garbage was left where nothing was acknowledged may be called damage, and is counted."""
    if not (root / "STORE.json").exists() and not acknowledged:
        return
    found = Tally()
    await assess(root, key, acknowledged, found, largest=_LARGEST)
    tally.other["garbage seen and reported"] += found.wrong
    wrong = [detail for detail in found.details if "passes for damage" not in detail]
    if spread:
        tally.other["acknowledged snapshots that shared a garbled sector"] += found.lost
        wrong = [detail for detail in wrong if "gone" not in detail and "cannot be read" not in detail]
    else:
        tally.lost += found.lost
    tally.wrong += sum("content" in detail or "never saved" in detail for detail in wrong)
    tally.details += wrong[: 5 - len(tally.details)]


# A whole life -----------------------------------------------------------------------------------------------------


async def _steps(key: str | None, path: Path, acknowledge: Acknowledge) -> None:
    store = open_store(path, key)
    for number, step in enumerate(STEPS, 1):
        await step(store)
        acknowledge(number, number)


def _life(key: str | None, mutate: Mutation, rounds: int) -> Tally:
    """All that can happen to a session: after the cut it is as after the last step that was done, or the next."""
    tally, chance = Tally(), random.Random(20261118)
    for _ in range(rounds):
        with _scratch() as root:
            heard = anyio.run(lives, root, partial(_steps, key), [chance.randrange(1, 120)], chance, mutate)
            done = len(heard)
            tally.rounds += 1
            tally.acknowledged += done
            anyio.run(_assess_life, root, key, done, tally)
        if mutate is not nothing and tally.broken:
            break
    return tally


async def _assess_life(root: Path, key: str | None, done: int, tally: Tally) -> None:
    allowed = (STATES[done], STATES[min(done + 1, len(STEPS))])
    try:
        async with open_store(root, key) as store:
            state = await state_of(store)
    except (SnapshotError, ValueError) as error:
        tally.lose(max(1, done), f"after {done} steps: {error}")
        return
    if state not in allowed:
        tally.lose(1, f"after {done} steps there is {state}, not one of {allowed}")


# The spool --------------------------------------------------------------------------------------------------------


class _SpoolLife:
    """A spool in use: records are appended, flushed, and dropped once a snapshot contains them; owners change."""

    def __init__(self, keys: SessionKeys | None, chance: random.Random) -> None:
        self._keys, self._chance = keys, chance
        self.contained = 0
        """Up to here a snapshot has them."""
        self.promised = 0
        """Up to here they were flushed."""

    async def work(self, root: Path, acknowledge: Acknowledge) -> None:
        spool = self._opened(root)
        try:
            for _ in range(30):
                number = spool.append({"text": "x" * self._chance.randrange(900)})
                if self._chance.random() < 0.4:
                    spool.flush()
                    self.promised = number
                    acknowledge(number, number)
                if self._chance.random() < 0.3:
                    some = self._chance.randrange(self.contained, number + 1)
                    self.contained = self._chance.choice((some, number))
                    spool.truncate(self.contained)
                if self._chance.random() < 0.1:
                    spool.close()
                    spool = self._opened(root)
        finally:
            spool._leave_to_parent()  # noqa: SLF001 — the files of a killed process are closed

    def _opened(self, root: Path) -> Spool:
        spool = Spool.open(root, session_id=SESSION, keys=self._keys)
        spool.truncate(self.contained)
        return spool

    def missing(self, root: Path) -> set[int]:
        """What was promised and is not there."""
        left = read_spool(root, session_id=SESSION, keys=self._keys)
        there = {record.n for record in left.records}
        return set(range(self.contained + 1, self.promised + 1)) - there


def _spool(key: str | None, mutate: Mutation, rounds: int) -> Tally:
    tally, chance = Tally(), random.Random(20261117)
    keys = SessionKeys(Keyset.new(), store_id="store", session_id=SESSION) if key else None
    for _ in range(rounds):
        with _scratch() as root:
            life = _SpoolLife(keys, chance)
            for _cut in range(3):
                steps = [chance.randrange(1, 60) for _ in range(chance.choice((1, 2)))]
                tally.acknowledged += len(anyio.run(lives, root, life.work, steps, chance, mutate))
                tally.rounds += 1
                if gone := life.missing(root):
                    tally.lose(len(gone), f"records {sorted(gone)} were flushed and are gone")
                    break
        if mutate is not nothing and tally.broken:
            break
    return tally


# ------------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="asnap-soak-") as folder:
        root = Path(folder).resolve() / "disk"
        root.mkdir()
        yield root


def _quietly(work: Callable[[int], Tally], rounds: int) -> Tally:
    def run() -> Tally:
        logging.getLogger("snapshot_plugin").setLevel(logging.ERROR)
        return work(rounds)

    return apart(run)


def _cases() -> Iterator[Case]:
    def case(name: str, work: Callable[[int], Tally], rounds: int, quick: int, without: str | None = None) -> Case:
        return Case(name, partial(_quietly, work), rounds, quick, without)

    for mode, key in MODES.items():
        yield case(f"store, {mode}", partial(_store, key, nothing), 1000, 40)
        yield case(f"a whole life, {mode}", partial(_life, key, nothing), 1000, 40)
        yield case(f"spool, {mode}", partial(_spool, key, nothing), 1000, 40)
    whole = partial(_store, None, nothing, spread=True)
    yield case("store, garbage spreads to whole sectors", whole, 300, 10)
    yield case("store", partial(_store, None, no_sync), 100, 100, "sync")
    yield case("store", partial(_store, None, no_segment_entry_sync), 500, 500, "directory sync for a new segment")
    yield case("store", partial(_store, None, no_settling), 500, 500, "sync of what a killed writer left")
    yield case("a whole life", partial(_life, None, no_directory_sync), 200, 200, "directory sync")
    yield case("spool", partial(_spool, None, no_sync), 100, 100, "sync")


PROGRAM = Program(
    "garbled sectors",
    "What was acknowledged is there when all else that was written is kept, lost or garbage, sector by sector.",
    tuple(_cases()),
)
