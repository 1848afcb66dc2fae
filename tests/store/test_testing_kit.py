"""The testing kit itself: the contract suite notices broken promises, the faulty store fails as it is told."""

from __future__ import annotations

import contextlib
import inspect
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from snapshot_plugin import (
    Conflict,
    InvalidInput,
    MemoryStore,
    RetentionPolicy,
    SessionSnapshot,
    SnapshotError,
    SnapshotMeta,
    SnapshotNotFound,
    SnapshotRef,
    StoreUnavailable,
    testing,
)
from snapshot_plugin.codec.frame import Header
from snapshot_plugin.store.base import ForgetResult, SnapshotStore, Trashed
from snapshot_plugin.store.core import StoreCore
from snapshot_plugin.store.log import Segment
from snapshot_plugin.store.memory import MemoryLog
from snapshot_plugin.store.writer import SessionWriter
from snapshot_plugin.testing import (
    Fault,
    FaultyCall,
    FaultyStore,
    FixedClock,
    StoreContract,
    every,
    make_message,
    make_snapshot,
)

pytestmark = pytest.mark.anyio


# Stores that break one promise each, and the test that must notice -------------------------------------------


class Forgetful(MemoryLog):
    def append(self, session_id: str, frame: bytes, header: Header, **options: Any) -> bool:
        return False


class Unlocked(MemoryLog):
    """Lets everybody in at once, and a save into the first rewriting: `replace` loses that save."""

    saved, replacing, between = 0, threading.Event(), threading.Event()

    @contextlib.contextmanager
    def exclusively(self, session_id: str) -> Iterator[None]:
        yield

    def append(self, session_id: str, frame: bytes, header: Header, **options: Any) -> bool:
        self.saved += 1
        if self.saved > 5:  # by now there is something to rewrite
            self.replacing.wait(30)
        done = super().append(session_id, frame, header, **options)
        if self.replacing.is_set():
            self.between.set()
        return done

    def replace(self, session_id: str, old: Sequence[Segment], frames: Sequence[bytes], hi: int) -> None:
        self.replacing.set()
        self.between.wait(30)
        super().replace(session_id, old, frames, hi)


class SuspiciousLog(MemoryLog):
    """Takes a frame whose answer got lost for another writer's."""

    def append(self, session_id: str, frame: bytes, header: Header, **options: Any) -> bool:
        return super().append(session_id, frame, header, **{**options, "refused": ()})


class CarelessLog(MemoryLog):
    """Appends wherever it ends."""

    def append(self, session_id: str, frame: bytes, header: Header, **options: Any) -> bool:
        return super().append(session_id, frame, header, **{**options, "after": self.tip(session_id)})


class _Believing(StoreCore):
    def _confirm(self, writer: SessionWriter, session_id: str) -> bool:
        return False


class Overwriting(MemoryStore):
    def __init__(self, place: MemoryLog, **options: Any) -> None:
        place.__class__ = CarelessLog
        super().__init__(place, **options)
        self.core = _Believing(self)


class _Noticing(StoreCore):
    def load(self, session_id: str, **options: Any) -> SessionSnapshot:
        if tip := self._log.tip(session_id):
            self._writers._saved.put(session_id, tip)
        return super().load(session_id, **options)


class Attentive(MemoryStore):
    """Takes whatever was read for what a save builds on."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.core = _Noticing(self)


class Eager(MemoryStore):
    async def save(self, snapshot: SessionSnapshot, **options: Any) -> SnapshotRef:
        return await super().save(snapshot, **{**options, "tags": options.get("tags") or ["always"]})


class Tagless(MemoryStore):
    async def save(self, snapshot: SessionSnapshot, **options: Any) -> SnapshotRef:
        return await super().save(snapshot, **{**options, "tags": ()})


class Baseless(MemoryStore):
    async def save(self, snapshot: SessionSnapshot, **options: Any) -> SnapshotRef:
        return await super().save(snapshot, **{**options, "base": None})


class Torn(MemoryStore):
    async def save(self, snapshot: SessionSnapshot, **options: Any) -> SnapshotRef:
        await super().save(snapshot.evolve(title="half"))
        await anyio.lowlevel.checkpoint()
        return await super().save(snapshot, **options)


class Strange(MemoryStore):
    async def save(self, snapshot: SessionSnapshot, **options: Any) -> SnapshotRef:
        known = {name: value for name, value in snapshot.raw().items() if name in type(snapshot).model_fields}
        return await super().save(SessionSnapshot.model_validate(known), **options)


class Lax(MemoryStore):
    async def load(self, session_id: str, *, at: int | None = None, strict: bool = False) -> SessionSnapshot:
        try:
            return await super().load(session_id, at=at)
        except SnapshotError:
            return await super().load(session_id)


class Unordered(MemoryStore):
    async def list(self, *, labels: Mapping[str, str] | None = None) -> Sequence[SnapshotMeta]:
        return sorted(await super().list(), key=lambda meta: meta.session_id)

    async def history(self, session_id: str, *, labels: Mapping[str, str] | None = None) -> Sequence[SnapshotMeta]:
        return (await super().history(session_id))[::-1]


class Graceless(MemoryStore):
    async def purge(self, **_options: Any) -> Sequence[Trashed]:
        return await super().purge(older_than=timedelta(0))


class Trashless(MemoryStore):
    async def delete(self, session_id: str, *, purge: bool = False) -> Trashed:
        trashed = await super().delete(session_id)
        await super().purge(older_than=timedelta(0))
        return trashed


class Earnest(MemoryStore):
    async def forget(
        self,
        session_id: str,
        policy: RetentionPolicy | None = None,
        *,
        seqs: Collection[int] = (),
        dry_run: bool = False,
    ) -> ForgetResult:
        result = await super().forget(session_id, policy)
        return result.evolve(dry_run=dry_run)


class Hoarding(MemoryStore):
    async def forget(
        self,
        session_id: str,
        policy: RetentionPolicy | None = None,
        *,
        seqs: Collection[int] = (),
        dry_run: bool = False,
    ) -> ForgetResult:
        result = await super().forget(session_id, policy, dry_run=True)
        return result.evolve(dry_run=dry_run)


class Undying(MemoryStore):
    async def aclose(self) -> None: ...


class Silent(MemoryStore):
    async def save(self, snapshot: SessionSnapshot, **options: Any) -> SnapshotRef:
        return replace(await super().save(snapshot, **options), notices=())


def suspicious(place: MemoryLog, **options: Any) -> SnapshotStore:
    place.__class__ = SuspiciousLog
    return MemoryStore(place, **options)


def unlocked(place: MemoryLog, **options: Any) -> SnapshotStore:
    if not isinstance(place, Unlocked):
        place.__class__ = Unlocked
        vars(place).update(replacing=threading.Event(), between=threading.Event())
    return MemoryStore(place, **options)


BROKEN: list[tuple[Callable[..., SnapshotStore], str]] = [
    (Overwriting, "test_a_writer_that_missed_a_save_is_refused_and_writes_nothing"),
    (Overwriting, "test_a_writer_whose_session_was_deleted_is_refused"),
    (Overwriting, "test_even_an_unchanged_save_of_a_stale_writer_is_refused"),
    (Eager, "test_an_unchanged_session_writes_nothing"),
    (Tagless, "test_snapshot_tags_make_even_an_unchanged_session_be_saved"),
    (Attentive, "test_a_stale_writer_is_refused_after_unrelated_reads_through_the_same_store"),
    (Attentive, "test_a_value_that_was_never_loaded_does_not_replace_a_session_that_exists"),
    (Baseless, "test_base_names_the_number_the_session_must_be_at"),
    (Torn, "test_every_save_gets_the_next_number_and_stays_loadable_under_it"),
    (Torn, "test_a_cancelled_save_leaves_the_old_snapshot_or_the_new_one"),
    (Strange, "test_fields_and_blocks_of_unknown_kinds_round_trip"),
    (Lax, "test_a_number_that_was_never_used_is_not_found"),
    (Unordered, "test_the_list_shows_the_newest_of_each_session_last_changed_first"),
    (Unordered, "test_history_shows_every_snapshot_newest_first"),
    (Graceless, "test_purge_spares_what_is_still_in_its_grace_period"),
    (Trashless, "test_an_undeleted_session_is_back_with_all_its_snapshots"),
    (Earnest, "test_a_dry_run_decides_the_same_and_changes_nothing"),
    (Hoarding, "test_forgetting_drops_what_the_policy_does_not_keep_and_says_why"),
    (Undying, "test_a_closed_store_refuses_to_save_and_writes_nothing"),
    (unlocked, "test_a_save_that_races_compact_is_not_lost"),
    (suspicious, "test_a_save_is_repeated_after_its_answer_got_lost"),
    (Silent, "test_a_huge_tool_output_is_kept_whole_and_noticed"),
]


async def run_one(name: str, broken: Callable[..., SnapshotStore], place: MemoryLog) -> None:
    """One test of the suite, with its fixtures filled in by hand."""
    clock, suite = FixedClock(), StoreContract()
    test = getattr(suite, name)
    with pytest.MonkeyPatch.context() as monkeypatch:
        given = {
            "opened": lambda: broken(place, clock=clock), "clock": clock, "place": place,
            "monkeypatch": monkeypatch, "anyio_backend_name": "trio",
        }  # fmt: skip
        await test(**{fixture: given[fixture] for fixture in inspect.signature(test).parameters})


@pytest.mark.requirement("STORE-KIT")
@pytest.mark.parametrize(("broken", "name"), BROKEN)
async def test_suite_detects_a_broken_promise(broken: Callable[..., SnapshotStore], name: str) -> None:
    await run_one(name, MemoryStore, MemoryLog())

    with pytest.raises((AssertionError, pytest.fail.Exception, SnapshotError, BaseExceptionGroup)):
        await run_one(name, broken, MemoryLog())


async def test_suite_detects_a_store_that_acknowledges_but_does_not_keep() -> None:
    with pytest.raises(SnapshotNotFound):
        await run_one(
            "test_a_saved_snapshot_is_what_another_store_object_loads", MemoryStore, Forgetful()
        )  # fmt: skip


async def test_suite_skips_damage_tests_for_backends_that_cannot_damage() -> None:
    with pytest.raises(pytest.skip.Exception):
        await run_one("test_if_nothing_is_whole_loading_raises", MemoryStore, MemoryLog())


# The faulty store ------------------------------------------------------------------------------------------


def grown(length: int) -> SessionSnapshot:
    return make_snapshot(*(f"{n}" for n in range(length)))


@pytest.mark.requirement("STORE-KIT-FAULTY")
async def test_every_third_save_fails_and_leaves_nothing() -> None:
    full = Fault(error=StoreUnavailable("full"))
    store = FaultyStore(MemoryStore(), every(3, full, "save"))
    outcomes = []
    for length in range(1, 7):
        try:
            outcomes.append((await store.save(grown(length))).seq)
        except StoreUnavailable:
            outcomes.append(0)

    assert outcomes == [1, 2, 0, 3, 4, 0]
    assert await store.load("session") == grown(5)


async def test_fault_after_the_call_loses_the_response_but_not_the_effect() -> None:
    store = FaultyStore(MemoryStore(), every(1, Fault(error=TimeoutError(), after=True), "save", "delete"))

    with pytest.raises(TimeoutError):
        await store.save(grown(1))
    assert await store.load("session") == grown(1)
    with pytest.raises(TimeoutError):
        await store.delete("session")
    assert not await store.list()


async def test_fault_script_sees_each_call_and_can_be_replaced() -> None:
    unlucky = Fault(error=Conflict("not today"))
    store = FaultyStore(MemoryStore(), lambda call: unlucky if call.session_id == "unlucky" else None)
    await store.save(make_snapshot("a"))
    with pytest.raises(Conflict):
        await store.save(make_snapshot("a", session_id="unlucky"))
    with pytest.raises(Conflict):
        await store.history("unlucky")
    store.script = lambda _call: None

    await store.save(make_snapshot("a", session_id="unlucky"))

    assert store.calls == [
        FaultyCall("save", 1, "session"),
        FaultyCall("save", 2, "unlucky"),
        FaultyCall("history", 1, "unlucky"),
        FaultyCall("save", 3, "unlucky"),
    ]


@pytest.mark.parametrize("after", [False, True])
async def test_held_call_waits_until_released(after: bool) -> None:
    gate = anyio.Event()
    inner = MemoryStore()
    store = FaultyStore(inner, every(1, Fault(hold=gate, after=after), "save"))
    saved: list[SnapshotRef] = []

    async def save() -> None:
        saved.append(await store.save(grown(1)))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(save)
            while not (await inner.list() if after else store.calls):
                await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            assert (bool(await inner.list()), saved) == (after, [])
            gate.set()
    assert [ref.seq for ref in saved] == [1]


@pytest.mark.requirement("STORE-KIT-FAULTY")
async def test_every_method_can_be_made_to_fail() -> None:
    methods = [
        name
        for name in vars(SnapshotStore)
        if not name.startswith("_") and name not in ("aclose", "sync", "capabilities")
    ]
    store = FaultyStore(MemoryStore(), every(1, Fault(error=StoreUnavailable("down")), *methods))
    policy = RetentionPolicy(keep_last=1)
    arguments: dict[str, tuple[Any, ...]] = {
        "save": (grown(1),),
        "forget": ("s", policy),
        "undelete": ("token",),
        "changes": ("s", 1),
        "walk": ("s", [1]),
    }
    for name in methods:
        needs_session = name in ("load", "read", "history", "delete", "salvage", "tip", "page", "section")
        with pytest.raises(StoreUnavailable):
            await getattr(store, name)(*arguments.get(name, ("s",) if needs_session else ()))
        with pytest.raises(StoreUnavailable):
            getattr(store.sync, name)(*arguments.get(name, ("s",) if needs_session else ()))

    assert [call.method for call in store.calls if call.number == 1] == methods
    assert len(methods) == 17


@pytest.mark.parametrize(("count", "methods"), [(0, ("save",)), (-1, ("save",)), (1, ())])
def test_schedule_that_never_fires_is_refused(count: int, methods: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput):
        every(count, Fault(), *methods)


# Clock, builders, imports ----------------------------------------------------------------------------------


def test_clock_stands_still_until_moved() -> None:
    clock = FixedClock(datetime(2026, 5, 1, tzinfo=UTC))

    assert clock() == clock() == datetime(2026, 5, 1, tzinfo=UTC)
    assert clock.advance(timedelta(days=1)) == clock() == datetime(2026, 5, 2, tzinfo=UTC)
    assert clock.advance(timedelta(days=-2)) == clock() == datetime(2026, 4, 30, tzinfo=UTC)


def test_a_clock_without_a_time_zone_is_refused() -> None:
    with pytest.raises(InvalidInput):
        FixedClock(datetime(2026, 5, 1))  # noqa: DTZ001 — the point of this test


def test_builders_are_deterministic() -> None:
    session = make_snapshot("hi", "hello", "bye", title="t")

    assert session == make_snapshot("hi", "hello", "bye", title="t")
    assert [(message.role, message.text) for message in session.messages] == [
        ("user", "hi"),
        ("assistant", "hello"),
        ("user", "bye"),
    ]
    longer = session.append(make_message("ok", role="assistant"))  # stamps updated_at
    assert longer.evolve(updated_at=session.updated_at) == make_snapshot("hi", "hello", "bye", "ok", title="t")


def test_kit_exports_its_documented_names() -> None:
    assert all(getattr(testing, name) for name in testing.__all__)
    with pytest.raises(AttributeError):
        _ = testing.no_such_thing


def test_kit_loads_without_pytest_and_names_what_the_suite_needs() -> None:
    code = """
        import sys
        sys.modules["pytest"] = None
        from snapshot_plugin import testing
        from snapshot_plugin.errors import MissingExtra
        assert testing.FaultyStore and testing.FixedClock
        try:
            testing.StoreContract
        except MissingExtra as error:
            print(error.code, error.hint)
    """
    out = subprocess.run(
        [sys.executable, "-c", inspect.cleandoc(code)], capture_output=True, text=True, check=True, timeout=60
    ).stdout

    assert out.split(maxsplit=1)[0] == "missing_extra"
    assert "pytest" in out
