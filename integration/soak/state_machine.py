"""Everything that can happen to sessions, in any order (hypothesis); a dict of words says what must be there.

Everything acknowledged is loadable, nothing deleted comes back, no lease is left, and no call hangs.
`tests/soak/test_state_machine.py` is the short form.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from weakref import WeakSet

import anyio
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RULE_MARKER,
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from integration.soak.mutations import Mutation, nothing
from integration.soak.processes import Child, Say, Silent, apart
from integration.soak.program import Case, Program, Tally
from snapshot_plugin import FilesystemStore, MemoryStore, SnapshotConfig, SnapshotManager
from snapshot_plugin.codec.sources import Passphrase
from snapshot_plugin.errors import Conflict, SessionLocked, SnapshotNotFound
from snapshot_plugin.live import schedule
from snapshot_plugin.live.lease import FileHold
from snapshot_plugin.live.place import held_alone, place_of
from snapshot_plugin.live.recovery import recover
from snapshot_plugin.live.rows import RowHold
from snapshot_plugin.live.session import LiveSession
from snapshot_plugin.live.sessions import LiveSessions
from snapshot_plugin.manager.labels import label
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.model.lineage import fork
from snapshot_plugin.model.policy import RetentionPolicy
from snapshot_plugin.model.snapshot import Message, SessionSnapshot
from snapshot_plugin.operations.encrypting import encrypt_existing
from snapshot_plugin.store import directories
from snapshot_plugin.store.engine import LogStore
from snapshot_plugin.store.hop import Deadline, in_thread
from snapshot_plugin.store.keyed import KeyedStore
from snapshot_plugin.system import forks

__all__ = ["PROGRAM", "Disk", "Memory", "Place", "Rows", "SealedDisk", "play"]

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
PATIENCE = 40.0
"""Seconds after which a call counts as a hang, on a busy machine."""
EXIT_TIMEOUT, CLOSED_WITHIN = 0.2, 8.0
KEY = "asnap-key-" + "A" * 43
SESSIONS = ("a", "b")
sessions = st.sampled_from(SESSIONS)


class Said:
    """The reducer of ``{"say": text}``."""

    running = is_long = False

    def __init__(self, base: SessionSnapshot) -> None:
        self._base = base

    def apply(self, event: Mapping[str, Any]) -> None:
        """See `Reducer`."""
        if "say" in event:
            self._base = self._base.append(Message(role="user", content=event["say"]))

    def snapshot(self, now: datetime) -> SessionSnapshot:
        """See `Reducer`."""
        return self._base.evolve(updated_at=now)


def reduced(snapshot: SessionSnapshot, records: Any) -> SessionSnapshot:
    """For recovery."""
    said = Said(snapshot.evolve(provider_type="said"))
    for record in records:
        said.apply(record.data)
    return said.snapshot(NOW)


def blank(session_id: str) -> SessionSnapshot:
    """A new session."""
    return SessionSnapshot(session_id=session_id, created_at=NOW, updated_at=NOW, provider_type="said")


def saying(word: str) -> dict[str, str]:
    """The event of a word; recovery must find out by the first record how to apply them."""
    return {"provider_type": "said", "say": word}


def said_in(snapshot: SessionSnapshot) -> list[str]:
    """The words of a session."""
    return [message.text for message in snapshot.messages]


# Places -----------------------------------------------------------------------------------------------------------


class Place:
    """A store that several objects open, and how its owners die."""

    has_leases: ClassVar[bool] = True

    def open(self) -> LogStore:
        """A new store object."""
        raise NotImplementedError

    def outlive(self, session_id: str) -> None:
        """Return once the lease of a dead owner is over."""

    def remove(self) -> None:
        """Remove everything."""


class Disk(Place):
    """A directory."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="asnap-machine-"))
        self.key: str | None = None

    def open(self) -> LogStore:
        """See `Place`."""
        return FilesystemStore(self.path / "store", key=self.key, segment_frames=4, lock_timeout=PATIENCE)

    def remove(self) -> None:
        """See `Place`."""
        shutil.rmtree(self.path, ignore_errors=True)


class SealedDisk(Disk):
    """An encrypted one."""

    def __init__(self) -> None:
        super().__init__()
        self.key = KEY


class Memory(Place):
    """In this process alone: no leases, and nothing survives a death."""

    has_leases = False

    def __init__(self) -> None:
        self._store = MemoryStore()

    def open(self) -> LogStore:
        """See `Place`."""
        return MemoryStore(self._store.frames)  # type: ignore[arg-type]


class Rows(Place):
    """A schema in a PostgreSQL server."""

    def __init__(self, server: str) -> None:
        self._server, self._schema = server, f"run_{new_id()}"
        self.url = f"{server}&schema={self._schema}"

    def open(self) -> LogStore:
        """See `Place`."""
        from snapshot_plugin.store.postgres.store import PostgresStore  # noqa: PLC0415 — an extra

        return PostgresStore(self.url, key=KEY, segment_frames=4)

    def outlive(self, session_id: str) -> None:
        """See `Place`."""
        from snapshot_plugin.store.postgres.address import Address  # noqa: PLC0415 — as above
        from snapshot_plugin.store.postgres.database import Database  # noqa: PLC0415

        database = Database(Address.parse(self.url))
        database.rows("UPDATE {live} SET until = clock_timestamp() WHERE sid = %s", session_id)
        database.close()

    def remove(self) -> None:
        """See `Place`."""
        import psycopg  # noqa: PLC0415 — as above

        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{self._schema}" CASCADE'.encode())


# The machine ------------------------------------------------------------------------------------------------------


def bounded(work: Callable[..., None]) -> Callable[..., None]:
    """Do a step in a thread of its own, so that a hang is a failure."""

    @functools.wraps(work)
    def step(machine: Sessions, **given: Any) -> None:
        machine.tally.other[work.__name__] += 1
        threads = ThreadPoolExecutor(1)
        try:
            threads.submit(work, machine, **given).result(PATIENCE)
        except TimeoutError:
            raise AssertionError(f"{work.__name__} hangs") from None
        finally:
            threads.shutdown(wait=False)

    return step


class Deleted(NamedTuple):
    """A session in the trash."""

    session_id: str
    words: list[str]
    is_abandoned: bool


class Sessions(RuleBasedStateMachine):
    """Sessions of one place. `words` says what was acknowledged, for each session that exists."""

    place_of_one_run: ClassVar[Callable[[], Place]] = Disk
    tally: ClassVar[Tally] = Tally()

    def __init__(self) -> None:
        super().__init__()
        self.place = type(self).place_of_one_run()
        self.store = self.place.open()
        self.process = LiveSessions(self.store, Said, reducers={"said": reduced}, clock=lambda: NOW)
        self.words: dict[str, list[str]] = {}
        self.abandoned: set[str] = set()
        self.trash: dict[str, Deleted] = {}
        self.count = 0
        self.costly: set[str] = set()

    # What the rules share

    def _word(self) -> str:
        self.count += 1
        return f"word {self.count}"

    def _is_stored(self, session_id: str) -> bool:
        return self.store.sync.tip(session_id) is not None

    def _is_free(self, session_id: str) -> bool:
        """Whether the session is stored, and nobody's."""
        return (
            session_id not in self.process.open and session_id not in self.abandoned and self._is_stored(session_id)
        )

    def _died(self, session_id: str) -> None:
        self.place.outlive(session_id)
        self.abandoned.add(session_id)

    def _leave_out_empty(self) -> None:
        """Sessions in which nothing was ever said, and that were never saved, are no sessions."""
        empty = [each for each, words in self.words.items() if not words and each not in self.process.open]
        for session_id in empty:
            if not self._is_stored(session_id):
                del self.words[session_id]
                self.abandoned.discard(session_id)

    def _is_first(self, step: str) -> bool:
        """Whether a step that takes seconds is tried: once in a run."""
        is_first = step not in self.costly
        self.costly.add(step)
        return is_first

    # Live sessions

    @rule(session_id=sessions)
    @bounded
    def begin_or_resume(self, session_id: str) -> None:
        self._live(session_id)

    def _live(self, session_id: str) -> LiveSession:
        try:
            live = self.process.resume(session_id)
        except SnapshotNotFound:
            assert not self.words.get(session_id), "a session is gone"
            live = self.process.begin(blank(session_id))
        self.words.setdefault(session_id, [])
        self.abandoned.discard(session_id)
        return live

    @rule(session_id=sessions, durable=st.booleans(), count=st.integers(1, 3))
    @bounded
    def record(self, session_id: str, durable: bool, count: int) -> None:
        live = self._live(session_id)
        for word in [self._word() for _ in range(count)]:
            is_kept = live.record(saying(word), durable=durable)
            assert is_kept or not self.place.has_leases, live.trouble
            self.words[session_id].append(word)
            self.tally.acknowledged += 1

    @rule(session_id=sessions)
    @bounded
    def save(self, session_id: str) -> None:
        if live := self.process.open.get(session_id):
            outcome = live.save("manual")
            assert outcome.status in ("saved", "unchanged"), outcome

    @rule(session_id=sessions)
    @bounded
    def checkpoint(self, session_id: str) -> None:
        if live := self.process.open.get(session_id):
            live.checkpoint()

    @rule(session_id=sessions)
    @bounded
    def finish(self, session_id: str) -> None:
        if session_id in self.process.open:
            self.process.finish(session_id)
            if not self._is_stored(session_id):
                assert self.words.pop(session_id) == []

    @rule(session_id=sessions)
    @bounded
    def die(self, session_id: str) -> None:
        """End an owner as the kernel does: its files are closed, and nothing is written."""
        if self.place.has_leases and (live := self.process.open.pop(session_id, None)):
            self.process._saves.forget(live)  # noqa: SLF001 — a dead process saves nothing
            with live._saving:  # noqa: SLF001 — nor has it a save under way
                hold = live.hold
                if isinstance(hold, FileHold):
                    hold.lease._leave_to_parent()  # noqa: SLF001
                    hold._spool.close()  # noqa: SLF001
                elif isinstance(hold, RowHold):
                    hold._leave_to_parent()  # noqa: SLF001
                    hold._rows.let_go(session_id, hold.epoch)  # noqa: SLF001
                live._is_closed = True  # noqa: SLF001
            self._died(session_id)

    @rule(session_id=sessions, count=st.integers(0, 3), durable=st.booleans())
    @bounded
    def die_elsewhere(self, session_id: str, count: int, durable: bool) -> None:
        """A process takes the session, records, and is killed."""
        if not self.place.has_leases or session_id in self.process.open:
            return
        words = [self._word() for _ in range(count)]

        def own(say: Say) -> None:
            process = LiveSessions(self.place.open(), Said, reducers={"said": reduced}, clock=lambda: NOW)
            try:
                live = process.resume(session_id)
            except SnapshotNotFound:
                live = process.begin(blank(session_id))
            say("taken")
            for word in words:
                assert live.record(saying(word), durable=durable)
                say(word)
            threading.Event().wait()

        self.words.setdefault(session_id, [])
        with Child(own) as child:
            assert child.line(PATIENCE) == "taken"
            for _ in words:
                self.words[session_id].append(child.line(PATIENCE) or "nothing: it has ended")
        self._died(session_id)

    @rule()
    @bounded
    def recover(self) -> None:
        done = anyio.run(partial(recover, self.store, reducers={"said": reduced}, now=NOW))
        assert not [each.problem for each in done if each.problem]
        self.abandoned.clear()
        self._leave_out_empty()

    # Stored sessions

    @rule(session_id=sessions, in_loop=st.booleans())
    @bounded
    def append(self, session_id: str, in_loop: bool) -> None:
        if session_id in self.process.open or session_id in self.abandoned:
            return
        word = self._word()
        before = self.store.sync.load(session_id) if self._is_stored(session_id) else blank(session_id)
        longer = before.append(Message(role="user", content=word))
        if in_loop:
            anyio.run(self.store.save, longer)
        else:
            self.store.sync.save(longer)
        self.words.setdefault(session_id, []).append(word)
        self.tally.acknowledged += 1

    @rule(session_id=sessions)
    @bounded
    def delete(self, session_id: str) -> None:
        self._delete(session_id)

    def _delete(self, session_id: str) -> None:
        if session_id in self.process.open:
            if self.place.has_leases:
                assert anyio.run(self._is_refused, session_id)
        elif self._is_stored(session_id):
            trashed = self.store.sync.delete(session_id)
            is_abandoned = session_id in self.abandoned
            self.abandoned.discard(session_id)
            self.trash[trashed.token] = Deleted(session_id, self.words.pop(session_id), is_abandoned)

    @rule(session_id=sessions)
    @bounded
    def delete_and_begin_anew(self, session_id: str) -> None:
        self._delete(session_id)
        live, word = self._live(session_id), self._word()
        assert live.record(saying(word)) or not self.place.has_leases
        self.words[session_id].append(word)

    async def _is_refused(self, session_id: str) -> bool:
        try:
            async with held_alone(self.store, session_id, lambda: NOW, to="forget it"):
                return False
        except SessionLocked:
            return True

    @rule(which=st.integers(0, 9))
    @bounded
    def undelete(self, which: int) -> None:
        if not self.trash:
            return
        token = sorted(self.trash)[which % len(self.trash)]
        session_id, words, is_abandoned = self.trash[token]
        is_live = session_id in self.process.open
        if is_live and not self.place.has_leases:
            return
        is_taken = is_live or bool(self.words.get(session_id)) or self._is_stored(session_id)
        try:
            self.store.sync.undelete(token)
        except (Conflict, SessionLocked):
            assert is_taken
            return
        assert not is_taken, "a session was brought back over another"
        self.words[session_id] = words
        self.abandoned.discard(session_id)
        if is_abandoned:
            self._died(session_id)
        del self.trash[token]

    @rule()
    @bounded
    def purge(self) -> None:
        gone = self.store.sync.purge(older_than=timedelta(0), now=datetime.now(UTC) + timedelta(days=1))
        assert {each.token for each in gone} >= set(self.trash)
        self.trash.clear()

    @rule(session_id=sessions)
    @bounded
    def forget(self, session_id: str) -> None:
        if self._is_stored(session_id):
            self.store.sync.forget(session_id, RetentionPolicy(keep_last=1))

    @rule(session_id=sessions)
    @bounded
    def drop_and_undo(self, session_id: str) -> None:
        if self._is_free(session_id) and len(seqs := self._seqs(session_id)) > 1:
            token = self.store.sync.drop(session_id, seqs[1:]).token
            assert self._seqs(session_id) == seqs[:1]
            self.store.sync.undrop(session_id, token)
            assert self._seqs(session_id) == seqs

    def _seqs(self, session_id: str) -> list[int]:
        return [meta.seq for meta in self.store.sync.history(session_id)]

    @rule(session_id=sessions)
    @bounded
    def rename(self, session_id: str) -> None:
        if session_id not in self.process.open and self._is_stored(session_id):
            title = self._word()
            anyio.run(partial(label, self.store, session_id, lambda _: {"title": title}, clock=lambda: NOW))
            assert self.store.sync.load(session_id).title == title

    @rule(session_id=sessions)
    @bounded
    def compact(self, session_id: str) -> None:
        if self._is_stored(session_id):
            self.store.sync.compact(session_id)

    @rule()
    @bounded
    def rotate_the_key(self) -> None:
        if isinstance(self.store, KeyedStore) and self.store.has_key:
            anyio.run(self.store.rotate_key)

    @rule()
    @bounded
    def encrypt(self) -> None:
        if (
            isinstance(self.place, Disk)
            and self.place.key is None
            and not self.process.open
            and not self.abandoned
            and self._is_first("encrypt")
        ):
            self.store.sync.list()  # it is there
            self.store.close()
            anyio.run(encrypt_existing, self.place.path / "store", Passphrase(KEY))
            self.place.key = KEY
            self._reopen()

    @rule(session_id=sessions)
    @bounded
    def fork_a_session(self, session_id: str) -> None:
        other = next(each for each in SESSIONS if each != session_id)
        if self._is_free(session_id) and other not in self.words:
            read = self.store.sync.read(session_id)
            self.store.sync.save(fork(read.snapshot, session_id=other, seq=read.ref.seq, now=NOW), base=0)
            self.words[other] = list(self.words[session_id])

    @rule(session_id=sessions)
    @bounded
    def archive(self, session_id: str) -> None:
        if self._is_free(session_id):
            elsewhere = MemoryStore().sync
            elsewhere.put_in(session_id, self.store.sync.take_out(session_id))
            assert said_in(elsewhere.load(session_id)) == self.words[session_id]

    # The process, and what is below it

    @rule()
    @bounded
    def close(self) -> None:
        self.process.close()
        self._leave_out_empty()
        self.store.close()
        self._reopen()

    def _reopen(self) -> None:
        self.store = self.place.open()
        self.process = LiveSessions(self.store, Said, reducers={"said": reduced}, clock=lambda: NOW)

    @rule(session_id=sessions)
    @bounded
    def fork_the_process(self, session_id: str) -> None:
        """A child reads, and cannot write to its parent's live sessions, whatever locks other threads hold."""
        expected, live = list(self.words.get(session_id, ())), self.process.open.get(session_id)
        is_free = self._is_free(session_id)

        def use(say: Say) -> None:
            for meta in self.store.sync.list():
                self.store.sync.page(meta.session_id)
            self.store.sync.save(blank("of a child").append(Message(role="user", content="hello")))
            self.store.sync.delete("of a child", purge=True)
            if is_free:
                assert said_in(self.store.sync.load(session_id)) == expected
            if live is not None:
                assert not live.record({"say": "by a child"}, durable=self.place.has_leases)
            say("done")

        with _every_lock_taken(), Child(use) as child:
            assert child.line(PATIENCE / 2) == "done"

    @rule()
    @bounded
    def hang_the_disk(self) -> None:
        """A manager whose disk hangs closes at its `exit_timeout`, and what it recorded is there."""
        if "a" in self.process.open or not isinstance(self.place, Disk) or not self._is_first("hang"):
            return
        word = self._word()

        def own(say: Say) -> None:
            anyio.run(partial(_close_on_a_hanging_disk, self.place.open(), word, say))

        self.words.setdefault("a", [])
        with Child(own) as child:
            assert child.line(PATIENCE) == "recorded"
            self.words["a"].append(word)
            assert child.line(CLOSED_WITHIN) == "closed"
        self._died("a")

    @rule()
    @bounded
    def lock_a_session(self) -> None:
        """While another writer keeps one session locked, the others are saved."""
        if not isinstance(self.place, Disk) or not self._is_first("lock"):
            return
        locked, other = (self._live(each) for each in SESSIONS)
        locked.save("manual")
        before = self.store.sync.tip(SESSIONS[1])
        with (self.place.path / "store" / "sessions" / SESSIONS[0] / ".lock").open("rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            for live in (locked, other):
                word = self._word()
                assert live.record(saying(word))
                self.words[live.session_id].append(word)
                live.checkpoint()
                time.sleep(0.01)  # the locked one is due first
            enough = time.monotonic() + CLOSED_WITHIN
            while self.store.sync.tip(SESSIONS[1]) == before:
                assert time.monotonic() < enough, "a locked session delays another"
                time.sleep(0.02)

    # What must hold

    @invariant()
    @bounded
    def everything_acknowledged_is_there(self) -> None:
        for session_id, words in self.words.items():
            if live := self.process.open.get(session_id):
                assert said_in(live.snapshot()) == words
            elif session_id not in self.abandoned:
                assert said_in(self.store.sync.load(session_id)) == words

    @invariant()
    @bounded
    def nothing_deleted_is_back(self) -> None:
        listed = {meta.session_id for meta in self.store.sync.list()}
        assert listed <= set(self.words), "a session is back"
        assert set(self.trash) <= {each.token for each in self.store.sync.trash()}

    def teardown(self) -> None:
        """Every owner ends, and everything is as it was acknowledged; no lease is left."""
        try:
            self._end()
            self.tally.rounds += 1
        finally:
            self.place.remove()

    @bounded
    def _end(self) -> None:
        self.process.close()
        store = self.place.open()
        done = anyio.run(partial(recover, store, reducers={"said": reduced}, now=NOW))
        assert not [each.problem for each in done if each.problem]
        for session_id, words in self.words.items():
            if words:
                assert said_in(store.sync.load(session_id, strict=True)) == words
        assert store.sync.check().ok
        if place := place_of(store):
            assert (dict(place.owners()), list(place.abandoned())) == ({}, [])
        store.close()
        self.store.close()


@contextlib.contextmanager
def _every_lock_taken() -> Iterator[None]:
    """Have another thread hold every lock of the package that is free."""
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        locks = [each for each in (*forks._locks, *_kept) if hasattr(each, "acquire")]  # noqa: SLF001
        taken = [each for each in locks if each.acquire(blocking=False)]
        held.set()
        go_on.wait(PATIENCE)
        for each in taken:
            each.release()

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    held.wait(PATIENCE)
    try:
        yield
    finally:
        go_on.set()
        thread.join(PATIENCE)


async def _close_on_a_hanging_disk(store: LogStore, word: str, say: Say) -> None:
    config = SnapshotConfig(snapshot_interval=600, event_debounce=600, exit_timeout=EXIT_TIMEOUT)
    async with SnapshotManager(store, config, reducers={"said": reduced}) as manager:
        recording = manager.recording(Said)
        try:
            live = await in_thread(recording.resume, "a")
        except SnapshotNotFound:
            live = await in_thread(recording.begin, blank("a"))
        assert live.record(saying(word))
        say("recorded")
        os.fsync = os.fdatasync = lambda _fd: threading.Event().wait()  # type: ignore[assignment]
        await manager.close()
    say("closed")
    os._exit(0)  # as the process would end


# Running it -------------------------------------------------------------------------------------------------------


def play(place: Callable[[], Place], examples: int, *, steps: int = 30, only: Sequence[str] = ()) -> Tally:
    """Run the machine, with all rules or *only* some; raises `AssertionError` if a promise is broken."""
    rules = [name for name, each in vars(Sessions).items() if hasattr(each, RULE_MARKER)]
    hidden = {name: None for name in rules if only and name not in only}
    about = {"place_of_one_run": staticmethod(place), "tally": Tally()}
    machine = type("Machine", (Sessions,), {**hidden, **about})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )
    tally: Tally = machine.tally  # type: ignore[attr-defined]
    return tally


def _tried(place: Callable[[], Place], mutate: Mutation, rounds: int, *, only: Sequence[str] = ()) -> Tally:
    def work() -> Tally:
        mutate()
        try:
            return play(place, rounds, only=only)
        except (AssertionError, ExceptionGroup, Silent) as error:
            found = Tally(rounds=1, acknowledged=1)
            at = traceback.extract_tb(error.__traceback__)[-1]
            found.fault(f"{type(error).__name__}: {error} ({at.name}: {at.line})"[:300])
            return found

    return apart(work, patience=48 * 3600)


def _in_postgres(rounds: int) -> Tally:
    from tests.postgres_server import server_url  # noqa: PLC0415 — brings much

    with server_url() as server:
        return _tried(lambda: Rows(server), nothing, rounds)


def _without_postgres() -> str | None:
    try:
        import psycopg  # noqa: F401, PLC0415 — an extra
    except ImportError:
        return "psycopg is not installed"
    return None


def undelete_over_live() -> None:
    """Fault 7: a deleted session comes back over a live one."""
    directories._nobody_at = lambda _place, _id: contextlib.nullcontext()  # type: ignore[assignment,return-value] # noqa: SLF001


def waiting_without_end() -> None:
    """Fault 14: closing waits for a disk that hangs."""
    Deadline.set = lambda _self, _seconds: None  # type: ignore[method-assign,assignment]


def locks_of_the_parent() -> None:
    """Fault 18: a forked child finds locks taken."""

    def kept(made: Any) -> Any:
        _kept.add(made)
        return made

    forks._renewed = kept  # noqa: SLF001


_kept: WeakSet[Any] = WeakSet()
"""Locks that are not renewed."""


def one_save_at_a_time() -> None:
    """Fault 18: a session that waits for a lock delays the others."""
    schedule._MOST_SAVES = 1  # type: ignore[misc] # noqa: SLF001


_WITHOUT: dict[Mutation, tuple[str, ...]] = {
    undelete_over_live: ("append", "delete_and_begin_anew", "finish", "undelete"),
    waiting_without_end: ("record", "finish", "hang_the_disk"),
    locks_of_the_parent: ("append", "fork_the_process"),
    one_save_at_a_time: ("record", "lock_a_session"),
}
"""The mends that are taken out, and the rules that are left then. All rules find each too, in some hundred runs."""


def _cases() -> Iterator[Case]:
    for name, place in (("plain", Disk), ("encrypted", SealedDisk), ("in memory", Memory)):
        yield Case(f"any order, {name}", partial(_tried, place, nothing), 10_000, 20)
    yield Case("any order, PostgreSQL", _in_postgres, 10_000, 10, needs=_without_postgres)
    for mutate, only in _WITHOUT.items():
        without = (mutate.__doc__ or "").strip(".").lower()
        tried = partial(_tried, Disk, mutate, only=only)
        yield Case("any order", tried, 500, 100, without=f"the mend of {without}")


PROGRAM = Program(
    "state_machine",
    "Whatever happens to sessions, in whatever order: what was acknowledged is there, what was deleted stays "
    "deleted, no lease is left, and no call hangs.",
    tuple(_cases()),
)
