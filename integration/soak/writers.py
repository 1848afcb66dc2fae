"""Several writers of one session: nothing that one of them was told is safe is undone by another."""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from integration.soak.conversation import Conversation, Gone
from integration.soak.mutations import Mutation, no_lease, no_lock, nothing
from integration.soak.processes import Child, Say
from integration.soak.program import Case, Program, Tally
from integration.soak.sessions import MODES, SESSION, store_at
from snapshot_plugin.errors import Conflict, SessionLocked, SnapshotError, SnapshotNotFound, StoreUnavailable
from snapshot_plugin.model.policy import RetentionPolicy
from snapshot_plugin.store.filesystem import FilesystemStore
from snapshot_plugin.store.segments import SegmentFiles
from snapshot_plugin.testing import make_message, make_snapshot

__all__ = ["PROGRAM"]

_WRITERS, _EACH = 8, 12


async def _add(store: FilesystemStore, text: str) -> int | None:
    """Add a message to what is there now; None if somebody else was quicker."""
    try:
        now, base = await store.load(SESSION), None
    except SnapshotNotFound:
        now, base = make_snapshot(session_id=SESSION), 0
    with contextlib.suppress(Conflict, SessionLocked):
        return (await store.save(now.append(make_message(text)), base=base)).seq
    return None


async def _all_there(path: Path, key: str | None, said: dict[str, int], tally: Tally) -> None:
    """Each text that was acknowledged is in the session, once, and its sequence number was given to it alone."""
    tally.acknowledged += len(said)
    if len(set(said.values())) < len(said):
        tally.fault("a sequence number was given out twice")
    try:
        async with store_at(path, key) as store:
            texts = [message.text for message in (await store.load(SESSION)).messages]
            damaged = not (await store.check()).ok
    except SnapshotError as error:
        tally.lose(len(said), f"the session cannot be read: {error.message}")
        return
    if missing := [text for text in said if text not in texts]:
        tally.lose(len(missing), f"{missing[:3]} were acknowledged and are gone")
    if len(set(texts)) < len(texts) or damaged:
        tally.fault("a message is there twice, or a frame is damaged")


# Eight at once ----------------------------------------------------------------------------------------------------


def _writer(path: Path, key: str | None, mutate: Mutation, name: int, say: Say) -> None:
    async def work() -> None:
        async with store_at(path, key, background=True, segment_frames=5) as store:
            for number in range(_EACH):
                while (seq := await _add(store, f"{name}.{number}")) is None:
                    pass
                say(f"{name}.{number} {seq}")

    mutate()
    with contextlib.suppress(SnapshotError):  # without the lock, what the others did may be beyond repair
        anyio.run(work)


def _eight(key: str | None, mutate: Mutation, rounds: int) -> Tally:
    tally = Tally()
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="asnap-soak-") as folder, contextlib.ExitStack() as stack:
            path = Path(folder) / "store"
            children = [
                stack.enter_context(Child(partial(_writer, path, key, mutate, name))) for name in range(_WRITERS)
            ]
            said = dict(line.split() for child in children for line in child.lines())
            anyio.run(_all_there, path, key, {text: int(seq) for text, seq in said.items()}, tally)
            if mutate is nothing and len(said) < _WRITERS * _EACH:
                tally.fault(f"only {len(said)} messages got through")
        tally.rounds += 1
        if mutate is not nothing and tally.broken:
            break
    return tally


# One that stalls --------------------------------------------------------------------------------------------------


def _stalling(path: Path, key: str | None, mutate: Mutation, where: str, go_on: int, say: Say) -> None:  # noqa: PLR0917 — bound by partial
    """Save a message, but stop in the middle: before the lock is taken, or while it is held."""
    real: Any = getattr(SegmentFiles, where)

    def stopped(*args: Any, **options: Any) -> Any:
        setattr(SegmentFiles, where, real)
        say("stopped")
        os.read(go_on, 1)
        return real(*args, **options)

    async def work() -> None:
        async with store_at(path, key, segment_frames=3) as store:
            await store.load(SESSION)
            setattr(SegmentFiles, where, stopped)
            seq = await _add(store, "stalled")
            say(seq or "refused")

    mutate()
    anyio.run(work)


async def _meanwhile(path: Path, key: str | None, round_: int, said: dict[str, int]) -> None:
    """The other one saves, and in most rounds rewrites, as far as it is let."""
    async with store_at(path, key, segment_frames=3, lock_timeout=0.2) as store:
        for number in range(3):
            if (seq := await _add(store, f"other {number}")) is not None:
                said[f"other {number}"] = seq
        with contextlib.suppress(SessionLocked, StoreUnavailable):
            if round_ % 3 == 1:
                await store.compact(SESSION)
            if round_ % 3:
                await store.forget(SESSION, RetentionPolicy(keep_last=2))


def _stalled(key: str | None, mutate: Mutation, rounds: int) -> Tally:
    tally = Tally()
    for round_ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="asnap-soak-") as folder:
            path, said = Path(folder) / "store", dict[str, int]()
            anyio.run(_begun, path, key, said, round_ % 5)
            where = ("exclusively", "_settle")[round_ // 2 % 2]  # the latter comes after the end was compared
            waiting, go_on = os.pipe()
            with Child(partial(_stalling, path, key, mutate, where, waiting)) as child:
                child.line()
                anyio.run(_meanwhile, path, key, round_, said)
                os.write(go_on, b"!")
                answer = child.line()
            os.close(waiting)
            os.close(go_on)
            if answer == "refused":
                tally.other["the stalled one was refused"] += 1
            elif answer is not None:
                tally.other["the stalled one was acknowledged"] += 1
                said["stalled"] = int(answer)
            anyio.run(_all_there, path, key, said, tally)
        tally.rounds += 1
        if mutate is not nothing and tally.broken:
            break
    return tally


async def _begun(path: Path, key: str | None, said: dict[str, int], count: int) -> None:
    async with store_at(path, key, segment_frames=3) as store:
        for number in range(count + 1):
            said[f"first {number}"] = await _add(store, f"first {number}") or 0


# Two proxies ------------------------------------------------------------------------------------------------------


def _two_proxies(mutate: Mutation, rounds: int) -> Tally:
    """While one proxy has the session, another is refused; the first goes on; when it dies, the other gets all."""
    tally, chance = Tally(), random.Random(20261116)
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="asnap-soak-") as folder:
            first, second = (Conversation(Path(folder), mutate=mutate) for _ in range(2))
            try:
                first.start()
                first.begin()
                first.hear(first.say("say one"))
                second.session_id = first.session_id
                second.start()
                number = first.say("stream 300 1")
                first.hear_some(chance.randrange(60))
                with contextlib.suppress(Gone):
                    second.load()
                    tally.fault("two proxies have the same session")
                first.hear(number)
                first.kill("both")
                second.kill("both")
                tally.rounds += 1
                first.come_back(tally)
            finally:
                first.end()
                second.end()
    return tally


# ------------------------------------------------------------------------------------------------------------------


def _cases() -> Iterator[Case]:
    def each(name: str, work: Callable[..., Tally], rounds: int, quick: int) -> Iterator[Case]:
        for mode, key in MODES.items():
            yield Case(f"{name}, {mode}", partial(work, key, nothing), rounds, quick)
        yield Case(name, partial(work, None, no_lock), 20, 20, without="the lock")

    yield from each("eight at once", _eight, 10, 1)
    yield from each("one that stalls", _stalled, 100, 4)
    yield Case("two proxies", partial(_two_proxies, nothing), 10, 1)
    yield Case("two proxies", partial(_two_proxies, no_lease), 1, 1, without="the lease")


PROGRAM = Program(
    "writers",
    "Of several writers of one session none undoes what another was told is safe; who comes too late is refused.",
    tuple(_cases()),
)
