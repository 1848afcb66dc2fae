"""The power goes in the middle of saving: a real file system, shut down without its journal, and mounted again.

The shutdown may abort the journal under a sync that has passed the kernel's check already and that then returns as
if all were well. So an acknowledgement counts only if a second sync succeeds after it: of a file that has nothing
to write, so that it makes nothing durable.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from integration.soak.conversation import Conversation, Gone
from integration.soak.disks import Disk, loop_disk, no_loop_disk
from integration.soak.mutations import Mutation, no_directory_sync, no_flusher, no_settling, no_sync, nothing
from integration.soak.processes import Child, Say
from integration.soak.program import Case, Program, Tally
from integration.soak.sessions import MODES, SESSION, assess, save_version, store_at
from snapshot_plugin.errors import NotFound, SnapshotError
from snapshot_plugin.memory import ProjectMemory

__all__ = ["PROGRAM"]

_LARGEST = 9000
_KINDS = ("ext4", "xfs")
_LIVES = 6
"""How many power cuts one store has to live through before a new one is begun."""


# Saving snapshots ---------------------------------------------------------------------------------------------


def _save(path: Path, key: str | None, mutate: Mutation, first: int, say: Say) -> None:
    """Save, compacting in the background, until the disk is gone; acknowledge what a second sync has confirmed."""
    with _confirmed(path.parent, say) as acknowledge:
        mutate()
        anyio.run(_save_for_ever, path, key, first, acknowledge)


async def _save_for_ever(path: Path, key: str | None, first: int, acknowledge: Say) -> None:
    with contextlib.suppress(SnapshotError, OSError):
        async with store_at(path, key, background=True, segment_frames=4) as store:
            for number in range(first, sys.maxsize):
                acknowledge((await save_version(store, number, largest=_LARGEST)).seq)


@contextlib.contextmanager
def _confirmed(directory: Path, say: Say) -> Iterator[Say]:
    """Say something once a second sync has succeeded, which is not among what is taken out."""
    fd, sync = os.open(directory / "probe", os.O_RDWR | os.O_CREAT, 0o600), os.fsync
    sync(fd)

    def acknowledge(what: object) -> None:
        sync(fd)
        say(what)

    try:
        yield acknowledge
    finally:
        os.close(fd)


def _cut_while_saving(kind: str, key: str | None, mutate: Mutation, rounds: int) -> Tally:
    tally, chance = Tally(), random.Random(20261116)
    with loop_disk(kind) as disk:
        path, newest, acknowledged = disk.root / "store", 0, dict[int, int]()
        for _ in range(rounds):
            with Child(partial(_save, path, key, mutate, newest + 1)) as child:
                heard = _cut(disk, child, chance)
            acknowledged |= {seq: seq for seq in heard}
            tally.rounds += 1
            tally.acknowledged += len(heard)
            before = tally.broken
            newest = anyio.run(partial(assess, largest=_LARGEST), path, key, acknowledged, tally)
            if tally.broken > before or tally.rounds % _LIVES == 0:
                shutil.rmtree(path, ignore_errors=True)
                newest, acknowledged = 0, {}
            if mutate is not nothing and tally.broken:
                break
    return tally


def _cut(disk: Disk, child: Child, chance: random.Random) -> set[int]:
    """Let it work for a while that differs each time, cut the power, power on; return what was acknowledged."""
    heard = [line for _ in range(chance.randrange(12)) if (line := child.line()) is not None]
    until = time.perf_counter() + chance.random() * 0.004
    while time.perf_counter() < until:
        pass
    disk.power_off()
    heard += child.lines()
    child.wait()
    disk.power_cycle()
    return {int(line) for line in heard}


# Building on what a killed process left -----------------------------------------------------------------------


def _die_before_sync(path: Path, key: str | None, at: int, _say: Say) -> None:
    """Save until number *at* is written; die before it is synced, as kill -9 may have it."""
    left = itertools.count(at, -1)

    def before(sync: Callable[[int], None], fd: int) -> None:
        is_segment = Path(f"/proc/self/fd/{fd}").readlink().name.endswith(".snap.gz")
        if is_segment and next(left) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        sync(fd)

    for name in ("fsync", "fdatasync"):
        setattr(os, name, partial(before, getattr(os, name)))
    anyio.run(_save_for_ever, path, key, 1, lambda _seq: None)


def _save_one(path: Path, key: str | None, mutate: Mutation, say: Say) -> None:
    with _confirmed(path.parent, say) as acknowledge:
        mutate()
        anyio.run(_one_more, path, key, acknowledge)


async def _one_more(path: Path, key: str | None, acknowledge: Say) -> None:
    async with store_at(path, key, segment_frames=4) as store:
        number = len((await store.load(SESSION)).messages) + 1
        acknowledge((await save_version(store, number, largest=_LARGEST)).seq)


def _cut_after_kill(kind: str, key: str | None, mutate: Mutation, rounds: int) -> Tally:
    """A process is killed between writing and syncing; the next one builds on that, and then the power goes."""
    tally = Tally()
    with loop_disk(kind) as disk:
        for round_ in range(rounds):
            path = disk.root / f"store-{round_}"
            with Child(partial(_die_before_sync, path, key, 2 + round_ % 8)) as child:
                child.wait()
            with Child(partial(_save_one, path, key, mutate)) as child:
                acknowledged = {int(line): int(line) for line in child.lines()}
                disk.power_off()
            disk.power_cycle()
            tally.rounds += 1
            tally.acknowledged += len(acknowledged)
            anyio.run(partial(assess, largest=_LARGEST), path, key, acknowledged, tally)
            shutil.rmtree(path, ignore_errors=True)
            if mutate is not nothing and tally.broken:
                break
    return tally


# The project memory -------------------------------------------------------------------------------------------


def _remember(path: Path, mutate: Mutation, first: int, say: Say) -> None:
    with _confirmed(path.parent, say) as acknowledge:
        path.mkdir(exist_ok=True)
        mutate()
        anyio.run(_remember_for_ever, path, first, acknowledge)


async def _remember_for_ever(path: Path, first: int, acknowledge: Say) -> None:
    with contextlib.suppress(SnapshotError, OSError):
        async with ProjectMemory(path, state=path / "state") as memory:
            for number in range(first, sys.maxsize):
                await memory.save("notes", f"note-{number % 20}", {"number": number})
                if memory.persistence != "disk":
                    return
                acknowledge(number)


async def _recall(path: Path) -> dict[str, Any]:
    found = {}
    async with ProjectMemory(path, state=path / "state") as memory:
        for key in range(20):
            with contextlib.suppress(NotFound):
                found[f"note-{key}"] = (await memory.load("notes", f"note-{key}"))["number"]
    return found


def _cut_while_remembering(kind: str, mutate: Mutation, rounds: int) -> Tally:
    tally, chance = Tally(), random.Random(20261117)
    with loop_disk(kind) as disk:
        path, newest, kept = disk.root / "project", 0, dict[str, int]()
        for _ in range(rounds):
            with Child(partial(_remember, path, mutate, newest + 1)) as child:
                heard = _cut(disk, child, chance)
            newest = max([newest, *heard]) + 1
            kept |= {f"note-{number % 20}": number for number in sorted(heard)}
            tally.rounds += 1
            tally.acknowledged += len(heard)
            found = anyio.run(_recall, path)
            gone = {key: number for key, number in kept.items() if found.get(key, 0) < number}
            if gone:
                tally.lose(len(gone), f"entries {sorted(gone)} were acknowledged and are gone or old")
                kept = {key: found.get(key, 0) for key in kept}
            if mutate is not nothing and tally.broken:
                break
    return tally


# The proxy --------------------------------------------------------------------------------------------------------

_OLD = 4.0
"""Seconds after which what streams by must be safe: the promise is one, the rest is for a busy machine."""


def _cut_while_streaming(kind: str, mutate: Mutation, rounds: int) -> Tally:
    """Finished turns, and all but the last moments of an unfinished one, are there after a power cut."""
    tally, chance = Tally(), random.Random(20261118)
    with loop_disk(kind) as disk, tempfile.TemporaryDirectory(prefix="asnap-soak-") as folder:
        talk = Conversation(Path(folder), store=disk.root / "store", mutate=mutate)
        try:
            talk.start()
            talk.begin()
            for _ in range(rounds):
                until = _talk_and_cut(talk, disk, chance, is_long=tally.rounds % 2 == 1)
                tally.rounds += 1
                if not talk.come_back(tally, until=until) or (mutate is not nothing and tally.broken):
                    break
        finally:
            talk.end()
    return tally


def _talk_and_cut(talk: Conversation, disk: Disk, chance: random.Random, *, is_long: bool) -> float:
    """Finished turns, and one that is cut while it streams: soon, or after some seconds.

    Returns the moment before which everything must be safe.
    """
    with _confirmed(disk.root, lambda _what: None) as acknowledge:
        for _ in range(chance.randrange(3)):
            talk.hear(talk.say("say yes\nstream 30"))
            acknowledge(None)
        number = talk.say("stream 5000 2")
        if is_long:
            with contextlib.suppress(Gone):
                talk.client.answer(number, (1 + chance.random()) * _OLD)
        else:
            talk.hear_some(chance.randrange(100))
        talk.take_in()
        with contextlib.suppress(OSError):
            acknowledge(None)
        before = time.monotonic()
    disk.power_off()
    talk.end()
    disk.power_cycle()
    return before - _OLD


# ------------------------------------------------------------------------------------------------------------------


def _cases() -> Iterator[Case]:
    for kind in _KINDS:
        needs = partial(no_loop_disk, kind)
        for mode, key in MODES.items():
            yield Case(f"{kind}, {mode}", partial(_cut_while_saving, kind, key, nothing), 200, 5, needs=needs)
        yield Case(f"{kind}, after kill -9", partial(_cut_after_kill, kind, None, nothing), 40, 5, needs=needs)
        yield Case(f"{kind}, project memory", partial(_cut_while_remembering, kind, nothing), 100, 3, needs=needs)
        streaming = partial(_cut_while_streaming, kind, nothing)
        yield Case(f"{kind}, proxy", streaming, 30, 2, needs=needs)
        for mode, key in MODES.items():
            saving = partial(_cut_while_saving, kind, key, no_sync)
            yield Case(f"{kind}, {mode}", saving, 10, 10, without="sync", needs=needs)
        streaming = partial(_cut_while_streaming, kind, no_sync)
        yield Case(f"{kind}, proxy", streaming, 3, 3, without="sync", needs=needs)
        unflushed = partial(_cut_while_streaming, kind, no_flusher)
        yield Case(f"{kind}, proxy", unflushed, 6, 0, without="syncing each second", needs=needs)
        killed = partial(_cut_after_kill, kind, None, no_settling)
        left = "sync of what a killed writer left"
        yield Case(f"{kind}, after kill -9", killed, 8, 8, without=left, needs=needs)
        remembering = partial(_cut_while_remembering, kind, no_directory_sync)
        yield Case(f"{kind}, project memory", remembering, 20, 20, without="directory sync", needs=needs)


PROGRAM = Program(
    "power loss",
    "What was acknowledged is there after the power was cut in the middle of saving.",
    tuple(_cases()),
)
