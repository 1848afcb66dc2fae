"""Several machines at one bucket, against a plain list: what was acknowledged is never lost.

Every request a machine sends waits for its turn, and a scheduler that hypothesis drives decides whose request comes
next: so each machine may stall between any two of its requests for as long as others need to save, forget, rewrite,
delete and tidy up. Answers get lost, requests fail, and some arrive long after their sender has given up. All of it
is the same each time it is run with the same choices.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from itertools import chain, cycle
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from obstore.store import MemoryStore as Objects

from snapshot_plugin import (
    Conflict,
    RetentionPolicy,
    SessionLocked,
    SessionSnapshot,
    SnapshotNotFound,
    StoreUnavailable,
)
from snapshot_plugin.store import bucket, s3
from snapshot_plugin.store.bucket import Bucket, ObjectMoved, Stored
from snapshot_plugin.store.s3 import ObjectStore
from snapshot_plugin.store.trash import purge
from snapshot_plugin.testing import FixedClock, make_snapshot
from tests.tries import tries

PATIENCE = 60
ACTIONS = ("save", "save", "save", "load", "forget", "compact", "delete", "undelete", "purge", "list")
FAULTS = ("none", "lost", "lost in the middle", "refused", "failed", "late")
EXPECTED = (Conflict, SessionLocked, SnapshotNotFound, StoreUnavailable)


class World:
    """What all machines share: the bucket, requests still under way, and the list of what was acknowledged."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.objects: Any = Objects()
        self.acknowledged: list[str] = []
        self.nothing_is_deleted = False
        self.under_way: list[Callable[[], object]] = []
        self._faults = chain(faults, cycle(["none"]))

    def fault(self) -> str:
        return next(self._faults)

    def arrives(self) -> None:
        """The oldest request under way gets there at last."""
        with contextlib.suppress(ObjectMoved):
            self.under_way.pop(0)()


class SlowBucket(Bucket):
    """A bucket at the end of a bad line."""

    def __init__(self, world: World, pause: Callable[[], None]) -> None:
        super().__init__(world.objects, name="bucket")
        self._world, self._pause = world, pause

    def get(self, path: str) -> Stored | None:
        self._pause()
        return super().get(path)

    def from_offset(self, path: str, offset: int) -> bytes | None:
        self._pause()
        return super().from_offset(path, offset)

    def names(self, path: str) -> list[str]:
        self._pause()
        return super().names(path)

    def delete(self, paths: Sequence[str]) -> None:
        self._pause()
        if self._world.fault() == "failed":
            raise StoreUnavailable("nothing was removed")
        super().delete(paths)

    def put(self, path: str, data: bytes, *, tag: str | None) -> str:
        self._pause()
        fault = self._world.fault()
        if fault == "failed":
            raise StoreUnavailable("the request did not get there")
        if fault == "late":
            self._world.under_way.append(lambda: Bucket.put(self, path, data, tag=tag))
            raise StoreUnavailable("it took too long")
        written = super().put(path, data, tag=tag)
        if fault == "refused":
            raise StoreUnavailable("it did get there, and the answer did not")
        if fault.startswith("lost"):
            if fault == "lost in the middle":
                self._pause()
            raise ObjectMoved(path)  # the library sent it once more, and that one was refused
        return written


class Machine:
    """Lives through its actions in a thread of its own, and stops before each request until it may go on."""

    def __init__(self, world: World, number: int, actions: Sequence[str]) -> None:
        self._world, self._number, self._actions = world, number, actions
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self.is_done = False
        self.problem: BaseException | None = None
        self._store = ObjectStore(
            SlowBucket(world, self._pause), clock=FixedClock(), background=False, ledger_bytes=900
        )
        self._texts: tuple[str, ...] = ()
        self._loaded: SessionSnapshot | None = None
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def go_on(self) -> None:
        """Let it send one request."""
        self._go.release()
        assert self._stopped.acquire(timeout=PATIENCE)

    def _pause(self) -> None:
        self._stopped.release()
        assert self._go.acquire(timeout=PATIENCE)

    def _live(self) -> None:
        self._go.acquire(timeout=PATIENCE)
        try:
            for index, action in enumerate(self._actions):
                try:
                    getattr(self, action)(f"{self._number}.{index}")
                except EXPECTED as error:
                    if isinstance(error, Conflict | SnapshotNotFound):
                        self._look()
        except EXPECTED:
            pass
        except BaseException as problem:  # noqa: BLE001 — raised again where pytest sees it
            self.problem = problem
        self.is_done = True
        self._stopped.release()

    def _do(self, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return self._store.prepared(partial(work, *args, **options))

    def _look(self) -> None:
        self._texts = ()
        self.load("")

    def save(self, name: str) -> None:
        texts = (*self._texts, name)
        made = make_snapshot(*texts)
        value = self._loaded.evolve(messages=made.messages) if self._loaded else made
        ref = self._do(self._store.core.save, value, base=None if self._texts else 0)
        self._texts, self._loaded = texts, value
        assert ref.written
        self._world.acknowledged.append(name)

    def load(self, name: str) -> None:
        before = set(self._world.acknowledged)
        try:
            found = self._do(self._store.core.read, "session", strict=True)
        except SnapshotNotFound:
            self._texts, self._loaded = (), None
        else:
            self._texts = tuple(message.text for message in found.snapshot.messages)
            self._loaded = found.snapshot
        if self._world.nothing_is_deleted:
            assert before <= set(self._texts)

    def forget(self, name: str) -> None:
        self._do(self._store.core.forget, "session", RetentionPolicy(keep_last=1))

    def compact(self, name: str) -> None:
        self._do(self._store.core.compact, "session")

    def delete(self, name: str) -> None:
        self._do(self._store.core.delete, "session")
        self._texts, self._loaded = (), None

    def undelete(self, name: str) -> None:
        for trashed in self._do(self._store.core.trash)[:1]:
            self._do(self._store.core.undelete, trashed.token)
        self._look()

    def purge(self, name: str) -> None:
        """Nothing is old enough; what no ledger names goes."""
        self._do(lambda: purge(self._store.frames, older_than=timedelta(days=1), now=FixedClock()()))

    def list(self, name: str) -> None:
        assert {meta.state for meta in self._do(self._store.core.list)} <= {"ok"}


def run(world: World, machines: Sequence[Machine], choices: Iterator[tuple[int, int]]) -> None:
    while waiting := [machine for machine in machines if not machine.is_done]:
        who, how_long = next(choices)
        if world.under_way and how_long % 3 == 0:
            world.arrives()
        machine = waiting[who % len(waiting)]
        for _ in range(how_long):
            if not machine.is_done:
                machine.go_on()
    while world.under_way:
        world.arrives()
    for machine in machines:
        if machine.problem:
            raise machine.problem


def everything_in(world: World) -> set[str]:
    """The messages of the session as it is, and of all that is in the trash."""
    store = ObjectStore(Bucket(world.objects, name="bucket"), background=False)
    found: set[str] = set()

    def read() -> None:
        texts = [
            message.text
            for message in store.prepared(partial(store.core.read, "session", strict=True)).snapshot.messages
        ]
        assert len(texts) == len(set(texts))
        found.update(texts)
        assert store.prepared(store.core.check).ok
        store.prepared(partial(store.core.delete, "session"))
        store.core._writers.forget("session")

    if store.prepared(store.frames.sessions):
        read()
    for trashed in store.prepared(store.core.trash):
        store.prepared(partial(store.core.undelete, trashed.token))
        read()
    store.prepared(lambda: purge(store.frames, older_than=timedelta(days=999), now=FixedClock()()))
    assert store.frames.leftovers("session") == []
    return found


@pytest.fixture(autouse=True)
def one_request_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket, "_AT_ONCE", 1)
    monkeypatch.setattr(s3, "_PAUSES", (0, 0))


@pytest.mark.requirement("ORBIT-FUTURE-CLOUD")
@tries(300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    plans=st.lists(st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=7), min_size=2, max_size=3),
    choices=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 20)), max_size=40),
    faults=st.lists(st.sampled_from(("none",) * 4 + FAULTS), max_size=20),
)
@example(  # what is forgotten was decided of a session that was deleted and begun again meanwhile
    plans=[
        ["save", "save", "save", "save", "load", "delete", "save"],
        ["save", "load", "save", "save", "compact"],
        ["forget"],
    ],
    choices=[(1, 17), (0, 13), (1, 14), (0, 15), (2, 7), (1, 5), (0, 2)],
    faults=[],
)
def test_acknowledged_saves_are_never_lost(
    plans: list[list[str]], choices: list[tuple[int, int]], faults: list[str]
) -> None:
    world = World(("none", "none", "none", *faults))
    world.nothing_is_deleted = not any("delete" in actions for actions in plans)
    machines = [Machine(world, number, actions) for number, actions in enumerate(plans)]

    run(world, machines, chain(choices, cycle([(0, 3), (1, 2), (2, 4)])))

    assert set(world.acknowledged) <= everything_in(world)
