"""The disk is full, by bytes or by inodes, and later it is not: nothing is lost, and the next save catches up."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio

from integration.soak.conversation import Conversation
from integration.soak.disks import no_small_disk, small_disk
from integration.soak.mutations import Mutation, nothing, refusals_ignored
from integration.soak.processes import apart
from integration.soak.program import Case, Program, Tally
from integration.soak.sessions import MODES, SESSION, assess, store_at, version
from snapshot_plugin.errors import Conflict, StoreUnavailable
from snapshot_plugin.store.filesystem import FilesystemStore

__all__ = ["PROGRAM"]

_LARGEST = 2000


@contextlib.contextmanager
def _full_of_bytes(disk: Path, spare: int) -> Iterator[None]:
    """No more than *spare* bytes are free meanwhile."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (4096, 64, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)
        file.truncate(max(0, file.tell() - spare))
    yield
    ballast.unlink()


@contextlib.contextmanager
def _full_of_files(disk: Path, spare: int) -> Iterator[None]:
    """No more than *spare* files can be made meanwhile."""
    ballast = disk / "ballast"
    ballast.mkdir()
    made = []
    with contextlib.suppress(OSError):
        for number in range(1 << 20):
            path = ballast / str(number)
            path.touch()
            made.append(path)
    for path in made[:spare]:
        path.unlink()
    yield
    for path in made[spare:]:
        path.unlink()
    ballast.rmdir()


_KINDS = {
    "bytes": ("size=256k", _full_of_bytes, 16_000),
    "inodes": ("size=4m,nr_inodes=64", _full_of_files, 8),
}


class _Writer:
    """Saves the next version, and remembers what was acknowledged."""

    def __init__(self, store: FilesystemStore, tally: Tally) -> None:
        self.store, self._tally = store, tally
        self.acknowledged: dict[int, int] = {}
        self._number = 0

    async def save(self) -> bool:
        """False if the disk refused."""
        self._number += 1
        try:
            ref = await self.store.save(version(self._number, largest=_LARGEST))
        except StoreUnavailable:
            self._tally.other["refused"] += 1
            return False
        self.acknowledged[ref.seq] = self._number
        self._tally.acknowledged += 1
        return True


async def _round(disk: Path, kind: str, key: str | None, chance: random.Random, tally: Tally) -> None:
    _, full, most = _KINDS[kind]
    path = disk / "store"
    async with store_at(path, key, segment_frames=chance.choice((2, 256))) as store:
        writer = _Writer(store, tally)
        for _ in range(3):
            await writer.save()
        with full(disk, chance.randrange(most)):
            for _ in range(40):
                if not await writer.save() and chance.random() < 0.3:
                    break
            if chance.random() < 0.5:
                with contextlib.suppress(StoreUnavailable):
                    await store.compact(SESSION)
        if not await writer.save():
            tally.fault("there is room again, and a save is refused")
        tally.other["caught up"] += 1
    await assess(path, key, writer.acknowledged, tally, largest=_LARGEST)


def _store(kind: str, key: str | None, mutate: Mutation, rounds: int) -> Tally:
    def run() -> Tally:
        tally, chance = Tally(), random.Random(20261116)
        mutate()
        for _ in range(rounds):
            with small_disk(_KINDS[kind][0]) as disk:
                try:
                    anyio.run(_round, disk, kind, key, chance, tally)
                except Conflict as error:
                    tally.fault(f"nobody else writes, and yet: {error.message}")
            tally.rounds += 1
            if mutate is not nothing and tally.broken:
                break
        return tally

    return apart(run)


def _proxy(rounds: int) -> Tally:
    """The user goes on talking while the disk is full. Once there is room all is kept, in spite of a kill."""
    tally, chance = Tally(), random.Random(20261117)
    for _ in range(rounds):
        with small_disk("size=512k") as disk, tempfile.TemporaryDirectory(prefix="asnap-soak-") as folder:
            talk = Conversation(Path(folder), store=disk / "store")
            try:
                talk.start()
                talk.begin()
                talk.hear(talk.say("say before"))
                with _full_of_bytes(disk, chance.randrange(2000)):
                    for _turn in range(3):
                        talk.hear(talk.say("stream 300\ntool"))
                talk.hear(talk.say("say after"))
                talk.hear(talk.say("stream 50 20\nsay and after that"))
                number = talk.say("stream 100 1")
                talk.hear_some(chance.randrange(60))
                talk.kill("both")
                tally.rounds += 1
                tally.other["prompts answered"] += number - 3
                talk.come_back(tally)
            finally:
                talk.end()
    return tally


def _cases() -> Iterator[Case]:
    for kind in _KINDS:
        for mode, key in MODES.items():
            yield Case(f"{kind}, {mode}", partial(_store, kind, key, nothing), 100, 8, needs=no_small_disk)
    yield Case("bytes, proxy", _proxy, 10, 1, needs=no_small_disk)
    ignored = partial(_store, "bytes", None, refusals_ignored)
    yield Case("bytes", ignored, 10, 10, without="telling what the disk refused", needs=no_small_disk)


PROGRAM = Program(
    "full disk",
    "What was acknowledged is there, what was refused was said to be, and with room again a save catches up.",
    tuple(_cases()),
)
