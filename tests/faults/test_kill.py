"""SIGKILL at any instant: what was acknowledged is there, whole, and nothing looks damaged."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from snapshot_plugin import FilesystemStore, SnapshotNotFound
from tests.faults.support import PLAIN_AND_ENCRYPTED, store_at, version
from tests.faults.victim import live_a_life
from tests.manager.processes import heard, python, tell
from tests.tries import some_of


@pytest.fixture(scope="module")
def executioner() -> Iterator[subprocess.Popen[str]]:
    with python("from tests.faults.victim import main; main()") as process:
        yield process


def answers(process: subprocess.Popen[str], *order: object) -> Iterator[tuple[str, int]]:
    """Give an order and hear what comes of it, until the victim is dead."""
    tell(process, json.dumps(order))
    while True:
        what, _, value = heard(process).partition(" ")
        yield what, int(value)
        if what == "ended":
            return


# At a random instant ------------------------------------------------------------------------------------------


@pytest.mark.requirement("STORE-DURABLE-KILL", "STORE-FAULT-SIGKILL")
@PLAIN_AND_ENCRYPTED
def test_kill_at_a_random_instant_of_saving_loses_nothing_acknowledged(
    tmp_path: Path, key: str | None, executioner: subprocess.Popen[str]
) -> None:
    chance = random.Random(20261116)
    for life in range(3):
        path, newest = tmp_path / str(life), 0
        for _ in range(10):
            acknowledged = _killed_while_saving(executioner, path, key, newest + 1, chance.randrange(1, 8))
            newest = anyio.run(_checked, store_at(path, key))
            assert acknowledged <= newest <= acknowledged + 1
        anyio.run(_all_there, store_at(path, key), newest)


def _killed_while_saving(
    process: subprocess.Popen[str], path: Path, key: str | None, first: int, saves: int
) -> int:
    """Kill a victim that saves as fast as it can, once it acknowledged so many; return the last one it did."""
    pid, acknowledged, heard_of = 0, first - 1, 0
    for what, value in answers(process, "save", str(path), key, first):
        if what == "pid":
            pid = value
        elif what == "did":
            assert value == acknowledged + 1
            acknowledged, heard_of = value, heard_of + 1
        else:
            assert value == signal.SIGKILL
        if pid and heard_of >= saves and what != "ended":
            os.kill(pid, signal.SIGKILL)
            saves = 1 << 30
    return acknowledged


async def _checked(store: FilesystemStore) -> int:
    """The number of the newest snapshot; its content is right, and nothing is damaged."""
    found = await store.read("session", strict=True)
    assert found.snapshot == version(found.ref.seq)
    assert (await store.check()).ok
    return found.ref.seq


async def _all_there(store: FilesystemStore, newest: int) -> None:
    assert [meta.seq for meta in await store.history("session")] == list(range(newest, 0, -1))
    for seq in range(1, newest + 1):
        assert await store.load("session", at=seq) == version(seq)


# At every step ------------------------------------------------------------------------------------------------

State = tuple[dict[int, int], int]


@pytest.mark.requirement("STORE-FAULT-SIGKILL")
@PLAIN_AND_ENCRYPTED
def test_kill_at_any_step_leaves_the_state_before_or_after_that_step(
    tmp_path: Path, key: str | None, executioner: subprocess.Popen[str]
) -> None:
    states = anyio.run(_states, tmp_path / "undisturbed", key)
    done = step = 0
    for step in some_of(itertools.count(1)):
        path = tmp_path / str(step)
        done, status = -1, 0
        for what, value in answers(executioner, "step", str(path), key, step):
            done = value if what == "did" else done
            status = value if what == "ended" else status
        if status == 0:
            break
        assert status == signal.SIGKILL
        before, after = states[max(done, 0)], states[min(done + 1, len(states) - 1)]
        anyio.run(_assert_one_of, path, key, before, after)
    assert step > 60
    assert done == len(states) - 1


async def _states(path: Path, key: str | None) -> list[State]:
    return [state async for state in live_a_life(path, key)]


async def _assert_one_of(path: Path, key: str | None, before: State, after: State) -> None:
    async with store_at(path, key) as store:
        assert await _state_of(store) in (before, after)
        assert (await store.check()).ok
        # And life goes on.
        ref = await store.save(version(9))
        assert await store.load("session", strict=True) == version(9)
        assert await store.load("session", at=ref.seq) == version(9)
        assert (await store.check()).ok


async def _state_of(store: FilesystemStore) -> State:
    trashed = len(await store.trash())
    try:
        history = await store.history("session")
    except SnapshotNotFound:
        return {}, trashed
    loaded = {meta.seq: await store.load("session", at=meta.seq) for meta in reversed(history)}
    assert (await store.load("session")) == loaded[max(loaded)]
    numbers = {seq: len(snapshot.messages) for seq, snapshot in loaded.items()}
    assert all(loaded[seq] == version(number) for seq, number in numbers.items())
    return numbers, trashed
