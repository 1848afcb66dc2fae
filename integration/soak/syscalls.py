"""The n-th system call fails, or is the last one: for every n until a whole life passes undisturbed.

``strace`` attaches to a process that is ready to begin and injects one fault. Writes that are short, that fail half
way, or that lie are played by a wrapper, because ``strace`` cannot do that.
"""

from __future__ import annotations

import errno
import functools
import logging
import mmap
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from integration.soak.life import STATES, STEPS, open_store, state_of
from integration.soak.mutations import Mutation, no_write_loop, nothing, written_in_place
from integration.soak.processes import PATIENCE, Child, Say, apart
from integration.soak.program import Case, Program, Tally
from integration.soak.sessions import MODES, SESSION, assess, number_of, save_version, store_at, version
from integration.soak.watched import in_one_thread
from snapshot_plugin.errors import Conflict, SnapshotError, StoreUnavailable
from snapshot_plugin.store.filesystem import FilesystemStore

__all__ = ["PROGRAM"]

_CALLS = {
    "write": "write,pwrite64",
    "fdatasync": "fdatasync",
    "fsync": "fsync",
    "openat": "openat",
    "rename": "rename,renameat,renameat2,link,linkat",
    "unlink": "unlink,unlinkat,rmdir",
    "mkdir": "mkdir,mkdirat",
    "ftruncate": "ftruncate",
}
_REFUSALS = 6
"""How often a step may be refused: strace counts calls of similar names, as unlink and unlinkat, each by itself."""
_FAULTS = {"SIGKILL": "signal=KILL", "EIO": "error=EIO", "ENOSPC": "error=ENOSPC"}


# The life of a victim ---------------------------------------------------------------------------------------------


class _Progress:
    """How many steps a victim has done, in memory that it shares: telling it takes no system call."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 1)

    @property
    def done(self) -> int:
        """The steps that were done."""
        return self._memory[0]

    def step(self) -> None:
        """One more."""
        self._memory[0] += 1


async def _live(path: Path, key: str | None, progress: _Progress) -> None:
    with in_one_thread():
        store = open_store(path, key)
        for number in range(len(STEPS)):
            await _take_step(store, number)
            progress.step()
        await store.aclose()


async def _take_step(store: FilesystemStore, number: int) -> None:
    """Do a step. If it is refused it must have changed nothing, or have happened; and then it works."""
    for _ in range(_REFUSALS):
        try:
            await STEPS[number](store)
        except StoreUnavailable:
            if (state := await state_of(store)) == STATES[number + 1]:
                return
            if state != STATES[number]:
                raise AssertionError(f"step {number} was refused and left {state}") from None
        else:
            return
    raise AssertionError(f"step {number} is refused again and again")


def _victim(path: Path, key: str | None, progress: _Progress, mutate: Mutation, start: int, _say: Say) -> None:
    mutate()
    os.read(start, 1)
    anyio.run(_live, path, key, progress)


async def _judge(path: Path, key: str | None, done: int, tally: Tally, what: str) -> None:
    """The state before the step that was under way, or the one after; no damage; and life goes on."""
    async with open_store(path, key) as store:
        state, allowed = await state_of(store), (STATES[done], STATES[min(done + 1, len(STEPS))])
        if state not in allowed:
            tally.lose(1, f"{what}: after {done} steps there is {state}, not one of {allowed}")
        if not (await store.check()).ok:
            tally.fault(f"{what}: what is left passes for damage")
        ref = await save_version(store, 9)
        if await store.load(SESSION, at=ref.seq, strict=True) != version(9):
            tally.fault(f"{what}: the next save is not what was saved")


def _one(key: str | None, mutate: Mutation, tally: Tally, *, call: str, fault: str, n: int) -> bool:
    """One life with one fault; False when the fault did not happen because there was no n-th call."""
    with tempfile.TemporaryDirectory(prefix="asnap-soak-") as folder:
        path, log, progress = Path(folder) / "store", Path(folder) / "log", _Progress()
        waiting, start = os.pipe()
        with Child(partial(_victim, path, key, progress, mutate, waiting)) as child:
            inject = f"inject={_CALLS[call]}:{_FAULTS[fault]}:when={n}"
            command = ["strace", "-qq", "-o", str(log), "-e", f"trace={_CALLS[call]}", "-e", inject]
            tracer = subprocess.Popen([*command, "-p", str(child.pid)], stderr=subprocess.DEVNULL)
            _await_tracer(child.pid)
            os.write(start, b"!")
            status = child.wait()
            tracer.wait(PATIENCE)
        os.close(waiting)
        os.close(start)
        happened = status < 0 or "INJECTED" in log.read_text(errors="replace")
        what = f"{fault} at {call} {n}"
        tally.rounds += happened
        tally.acknowledged += progress.done if happened else 0
        if status > 0:
            tally.fault(f"{what}: the process ended with {status}")
        try:
            anyio.run(_judge, path, key, progress.done, tally, what)
        except (SnapshotError, ValueError) as error:
            tally.lose(progress.done or 1, f"{what}: {error}")
        return happened


def _await_tracer(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text():
        if time.monotonic() > deadline:
            raise OSError("strace does not attach")
        time.sleep(0.001)


def _each_call(key: str | None, mutate: Mutation, fault: str, rounds: int) -> Tally:
    """Every call, every n; with fewer *rounds* than there are, n takes longer steps."""
    tally = Tally()
    step = max(1, _ALL // rounds)
    for call in _CALLS:
        n = 1
        while _one(key, mutate, tally, call=call, fault=fault, n=n):
            tally.other[f"at {call}"] += 1
            n += step
            if mutate is not nothing and tally.broken:
                return tally
    return tally


_ALL = 300
"""About how many calls a life has."""


@functools.cache
def _no_strace() -> str | None:
    if sys.platform != "linux" or shutil.which("strace") is None:
        return "strace is not installed"
    with Child(lambda _say: time.sleep(PATIENCE)) as child:
        command = ["strace", "-o", os.devnull, "-e", "trace=none", "-p", str(child.pid)]
        tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            tracer.wait(0.3)
        except subprocess.TimeoutExpired:
            tracer.terminate()
        _, said = tracer.communicate()
    return f"strace cannot attach: {said.strip()[:100]}" if "Operation not permitted" in said else None


# Writes -----------------------------------------------------------------------------------------------------------


class _Writes:
    """`os.write` and `os.pwrite` that take less than they are given, fail half way, or lie."""

    def __init__(self, chance: random.Random, kind: str) -> None:
        self._chance, self._kind = chance, kind
        self.armed = False
        self.lied = False
        for name in ("write", "pwrite"):
            setattr(os, name, partial(self._write, getattr(os, name)))

    def _write(self, real: Callable[..., int], fd: int, data: Any, *place: int) -> int:
        if not self.armed or fd <= 2 or not data:
            return real(fd, data, *place)
        some = data[: self._chance.randrange(1, len(data) + 1)]
        if self._kind == "fails half way" and self._chance.random() < 0.3:
            real(fd, some[: len(some) // 2], *place)
            raise OSError(self._chance.choice((errno.EIO, errno.ENOSPC, errno.EDQUOT)), "injected")
        written = real(fd, some, *place)
        if self._kind == "lies" and written < len(data) and self._chance.random() < 0.3:
            self.lied = True
            return len(data)
        return written


async def _save_through(path: Path, key: str | None, writes: _Writes, tally: Tally) -> None:
    acknowledged: dict[int, int] = {}
    async with store_at(path, key, segment_frames=3) as store:
        for number in range(1, 13):
            writes.armed = number > 1
            try:
                ref = await store.save(version(number, largest=2000))
                if not writes.lied:
                    acknowledged[ref.seq] = number
                    tally.acknowledged += 1
            except StoreUnavailable:
                tally.other["refused"] += 1
            except Conflict:
                tally.other["lies noticed by the next save"] += writes.lied
                break
            finally:
                writes.armed = False
            if writes.lied and number_of(await store_at(path, key).load(SESSION)) == number:
                writes.lied = False  # what it kept back does not matter here
    found = Tally()
    await assess(path, key, acknowledged, found, largest=2000)
    if writes.lied:  # a file cut off in its middle is damage, and is said to be
        tally.other["lies"] += 1
        found.wrong -= any("passes for damage" in detail for detail in found.details)
    tally.lost, tally.wrong = tally.lost + found.lost, tally.wrong + found.wrong
    tally.details += found.details[: 5 - len(tally.details)] if found.broken else []


def _writing(kind: str, key: str | None, mutate: Mutation, rounds: int) -> Tally:
    def run() -> Tally:
        logging.getLogger("snapshot_plugin").setLevel(logging.CRITICAL)
        tally, chance = Tally(), random.Random(20261116)
        mutate()
        writes = _Writes(chance, kind)
        for _ in range(rounds):
            with tempfile.TemporaryDirectory(prefix="asnap-soak-") as folder, in_one_thread():
                writes.lied = False
                anyio.run(_save_through, Path(folder) / "store", key, writes, tally)
            tally.rounds += 1
            if mutate is not nothing and tally.broken:
                break
        return tally

    return apart(run)


# ------------------------------------------------------------------------------------------------------------------


def _cases() -> Iterator[Case]:
    for mode, key in MODES.items():
        for fault in _FAULTS:
            yield Case(f"{fault}, {mode}", partial(_each_call, key, nothing, fault), _ALL, 8, needs=_no_strace)
    for mode, key in MODES.items():
        yield Case(f"short writes, {mode}", partial(_writing, "is short", key, nothing), 300, 15)
        yield Case(f"writes that fail half way, {mode}", partial(_writing, "fails half way", key, nothing), 300, 20)
    yield Case("writes that lie", partial(_writing, "lies", None, nothing), 300, 20)
    in_place = partial(_each_call, None, written_in_place, "SIGKILL")
    yield Case("SIGKILL", in_place, _ALL, _ALL, without="a new file and a rename", needs=_no_strace)
    short = partial(_writing, "is short", None, no_write_loop)
    yield Case("short writes", short, 20, 20, without="writing until all is written")


PROGRAM = Program(
    "the n-th system call",
    "Killed or refused at any call, a session is as before the step or as after it, and the next step works.",
    tuple(_cases()),
)
