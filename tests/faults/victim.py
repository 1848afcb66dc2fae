"""A process that is told to die. It forks one victim for each order, so that none has to import anything first.

Orders come as lines of JSON: what to do, the store's path and key, and a number. Answers go out as lines: ``pid``,
one ``did`` for each thing that was acknowledged, and ``ended`` with the victim's status.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio

from snapshot_plugin import RetentionPolicy
from tests.faults.support import store_at, version

FRAMES = 2
"""How many frames a segment takes, so that a few saves meet every path through the code."""


async def save_for_ever(path: Path, key: str | None, first: int) -> None:
    """Save `version` *first* and on, compacting in the background, until somebody ends it."""
    async with store_at(path, key, background=True, segment_frames=5) as store:
        for number in range(first, sys.maxsize):
            ref = await store.save(version(number))
            _say("did", ref.seq)


async def live_a_life(path: Path, key: str | None) -> AsyncIterator[tuple[dict[int, int], int]]:
    """All that can happen to a session; after each step, its snapshots (seq: version) and the size of the trash."""
    async with store_at(path, key, segment_frames=FRAMES) as store:
        yield {}, 0
        for number in (1, 2, 3):
            await store.save(version(number))
            yield {n: n for n in range(1, number + 1)}, 0
        await store.compact("session")
        yield {1: 1, 2: 2, 3: 3}, 0
        await store.save(version(4))
        yield {1: 1, 2: 2, 3: 3, 4: 4}, 0
        await store.forget("session", RetentionPolicy(keep_last=2))
        yield {3: 3, 4: 4}, 0
        await store.save(version(5))
        yield {3: 3, 4: 4, 5: 5}, 0
        token = (await store.delete("session")).token
        yield {}, 1
        await store.undelete(token)
        yield {3: 3, 4: 4, 5: 5}, 0
        await store.delete("session")
        yield {}, 1
        await store.save(version(7))
        yield {1: 7}, 1
        await store.purge(older_than=timedelta(0))
        yield {1: 7}, 0


async def die_at_step(path: Path, key: str | None, step: int) -> None:
    """Live a life, and die at the *step*-th touch of the disk."""
    _Fate(path, step)
    done = 0
    async for _ in live_a_life(path, key):
        _say("did", done)
        done += 1


class _Fate:
    """Counts what changes the disk, and ends this process at the *left*-th: before it, or amid a write."""

    def __init__(self, path: Path, left: int) -> None:
        self._path, self._left = str(path), left
        real = os.write
        for name in ("fsync", "fdatasync"):
            setattr(os, name, self._before(getattr(os, name)))
        os.write = lambda fd, data: self._half(real, fd, data)
        sys.addaudithook(self._audit)

    def _step(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def _before(self, real: Callable[[Any], None]) -> Callable[[Any], None]:
        def sync(fd: Any) -> None:
            self._step()
            real(fd)

        return sync

    def _half(self, real: Callable[[int, Any], int], fd: int, data: Any) -> int:
        if fd > 2 and self._left == 1:
            real(fd, data[: len(data) // 2])
        if fd > 2:
            self._step()
        return real(fd, data)

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        changes = event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate") or (
            event == "open" and args[2] & os.O_CREAT
        )
        if changes and str(args[0]).startswith(self._path):
            self._step()


def _say(what: str, value: int) -> None:
    os.write(1, f"{what} {value}\n".encode())


VICTIMS = {"save": save_for_ever, "step": die_at_step}


def main() -> None:
    """Take orders until there are no more."""
    for order in sys.stdin:
        what, path, key, number = json.loads(order)
        pid = os.fork()
        if not pid:
            anyio.run(VICTIMS[what], Path(path), key, number)
            os._exit(0)
        _say("pid", pid)
        _say("ended", os.waitpid(pid, 0)[1])
