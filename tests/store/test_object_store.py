"""The store in a bucket keeps the store contract, from several machines and over a bad line."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore as Objects

from snapshot_plugin import (
    Conflict,
    InvalidSnapshotVersion,
    RetentionPolicy,
    SessionLocked,
    SessionSnapshot,
    SnapshotCorrupted,
    StoreNotFound,
    StoreUnavailable,
    WrongKey,
)
from snapshot_plugin.codec.frame import read_header
from snapshot_plugin.codec.keys import generate_key
from snapshot_plugin.codec.sources import Passphrase
from snapshot_plugin.store import s3, small_files
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.store.bucket import Bucket, ObjectMoved, Stored
from snapshot_plugin.store.ledger import Ledger
from snapshot_plugin.store.s3 import ObjectStore
from snapshot_plugin.store.trash import purge
from snapshot_plugin.testing import StoreContract, make_snapshot
from tests.object_servers import spoil_newest, spoilt
from tests.store.s3_server import BUCKET, running

Clock = Callable[[], datetime]
pytestmark = pytest.mark.anyio


def stored(objects: Any, path: str) -> bytes:
    return obstore.get(objects, path).bytes().to_bytes()


def names(objects: Any) -> list[str]:
    return sorted(meta["path"] for page in obstore.list(objects) for meta in page)


@pytest.mark.requirement("ORBIT-FUTURE-CLOUD")
class TestEncryptedObjectStoreOfSmallLedgers(StoreContract):
    """Small ledgers give away their frames all the time, and keep the background busy with compressing them.

    Objects are in memory. `integration/objects` runs the contract on a plain store, on servers that are not ours.
    """

    test_a_hundred_thousand_messages_are_kept = None  # type: ignore[assignment] # the store on disk shows it

    key = Passphrase(generate_key())

    @pytest.fixture
    def place(self) -> Any:
        return Objects()

    @pytest.fixture
    def anyio_backend(self) -> str:
        """One event loop: the plain store of `integration/objects` runs on the other."""
        return "trio"

    def open(self, place: Any, clock: Clock) -> SnapshotStore:
        return ObjectStore(Bucket(place, name="memory"), key=self.key, clock=clock, ledger_bytes=1500)

    def damage_newest(self, place: Any, session_id: str) -> None:
        spoil_newest(place, session_id)


# Writers that stall


class Line(Bucket):
    """A bucket where something happens just before, or just after, the next request of a kind."""

    def __init__(self, objects: Any) -> None:
        super().__init__(objects, name="bucket")
        self.before: dict[str, Callable[[], object]] = {}
        self.after: dict[str, Callable[[], object]] = {}
        self.asked: list[str] = []

    def _happen(self, hooks: dict[str, Callable[[], object]], what: str) -> None:
        self.asked += [what] if hooks is self.before else []
        for kind in [kind for kind in hooks if what.startswith(kind)]:
            hooks.pop(kind)()

    def get(self, path: str) -> Stored | None:
        self._happen(self.before, f"get {path}")
        return super().get(path)

    def put(self, path: str, data: bytes, *, tag: str | None) -> str:
        self._happen(self.before, f"put {path}")
        written = super().put(path, data, tag=tag)
        self._happen(self.after, f"put {path}")
        return written


class Machine:
    """A store object, its line to the bucket, and plain calls for what is to happen in the middle of a request."""

    def __init__(self, objects: Any, *, ledger_bytes: int = 100_000) -> None:
        self.line = Line(objects)
        self.store = ObjectStore(self.line, background=False, ledger_bytes=ledger_bytes)
        self.loaded: SessionSnapshot | None = None

    def do(self, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return self.store.prepared(partial(work, *args, **options))

    def save(self, *texts: str) -> Any:
        """What was loaded last, with these messages."""
        snapshot = make_snapshot(*texts)
        if self.loaded is not None:
            snapshot = self.loaded.evolve(**snapshot.__dict__)
        return self.do(self.store.core.save, snapshot)

    def load(self) -> list[str]:
        found = self.do(self.store.core.read, "session", strict=True)
        self.loaded = found.snapshot
        return [message.text for message in found.snapshot.messages]

    def forget(self) -> None:
        self.do(self.store.core.forget, "session", RetentionPolicy(keep_last=1))

    def compact(self) -> None:
        self.do(self.store.core.compact, "session")

    def purge(self) -> None:
        self.do(lambda: purge(self.store.frames, older_than=timedelta(days=1), now=datetime.now().astimezone()))

    def numbers(self) -> list[int]:
        assert self.do(self.store.core.check, "session").ok
        return [meta.seq for meta in self.do(self.store.core.history, "session")]


@pytest.fixture
def objects() -> Any:
    return Objects()


def lose_the_answer() -> None:
    raise ObjectMoved("the library sent it once more, and that one was refused")


def fail() -> None:
    raise StoreUnavailable("the line is dead")


@pytest.mark.requirement("ORBIT-FUTURE-CLOUD")
def test_stalled_writer_is_refused_after_saves_forgets_and_rewrites_by_others(objects: Any) -> None:
    slow, quick = Machine(objects), Machine(objects, ledger_bytes=700)
    slow.save("a")

    def meanwhile() -> None:
        assert quick.load() == ["a"]
        quick.save("a", "b")
        quick.forget()
        quick.compact()
        quick.purge()

    slow.line.before["put sessions/"] = meanwhile
    with pytest.raises(Conflict):
        slow.save("a", "mine")

    assert quick.load() == ["a", "b"]
    assert slow.load() == ["a", "b"]
    assert slow.save("a", "b", "mine").seq == 3


def test_writer_is_not_blocked_by_rewrites_of_its_base(objects: Any) -> None:
    writer, other = Machine(objects), Machine(objects)
    writer.save("a")
    writer.save("a", "b")

    writer.line.before["put sessions/"] = other.compact
    assert writer.save("a", "b", "c").seq == 3

    assert writer.numbers() == [3, 2, 1]


def test_save_during_a_forget_by_another_machine_is_kept(objects: Any) -> None:
    writer, other = Machine(objects), Machine(objects)
    writer.save("a")
    writer.save("a", "b")

    other.line.before["put sessions/"] = lambda: writer.save("a", "b", "c")
    other.forget()

    assert writer.load() == ["a", "b", "c"]
    assert other.numbers() == [3]


def test_objects_of_a_stalled_writer_are_not_referenced_after_cleanup(objects: Any) -> None:
    writer, other = Machine(objects, ledger_bytes=700), Machine(objects)
    writer.save("a")

    writer.line.before["put sessions/"] = other.purge  # it finds an object that no ledger names
    assert writer.save("a", "b").seq == 2

    assert other.load() == ["a", "b"]
    assert other.numbers() == [2, 1]
    assert other.store.frames.leftovers("session") == []


def test_writer_retries_when_its_base_is_rewritten_during_the_read(objects: Any) -> None:
    writer, other, third = Machine(objects), Machine(objects), Machine(objects)
    long = "".join(generate_key() for _ in range(1500))
    writer.save(long)

    def rewritten() -> None:
        other.compact()
        writer.line.before["get frames/"] = third.compact

    writer.line.before["put sessions/"] = rewritten
    assert writer.save(long, "b").seq == 2

    assert third.load() == [long, "b"]


def test_reader_retries_when_an_object_is_replaced_during_the_read(objects: Any) -> None:
    reader, writer = Machine(objects), Machine(objects, ledger_bytes=700)
    for texts in ("a", "ab", "abc"):
        writer.save(*texts)

    reader.line.before["get frames/"] = writer.forget

    assert reader.load() == ["a", "b", "c"]


# Answers that get lost


@pytest.mark.parametrize("others", [0, 1, 5, 9])
def test_save_with_a_lost_response_is_acknowledged_once(objects: Any, others: int) -> None:
    writer, other = Machine(objects), Machine(objects)
    writer.save("a")

    def lost() -> None:
        for number in range(others):
            other.save(*other.load(), f"{number}")
        lose_the_answer()

    writer.line.after["put sessions/"] = lost
    ref = writer.save("a", "b")

    assert (ref.seq, ref.written) == (2, True)
    assert writer.numbers() == [*range(2 + others, 0, -1)]
    if others:
        with pytest.raises(Conflict):
            writer.save("a", "b", "c")
    else:
        assert writer.save("a", "b", "c").seq == 3


def test_old_save_with_a_lost_response_is_found_by_its_frame(objects: Any) -> None:
    """The ledger remembers only its last eight versions."""
    writer, other = Machine(objects, ledger_bytes=700), Machine(objects)
    writer.save("a")

    def lost() -> None:
        for number in range(12):
            other.save(*other.load(), f"{number}")
        lose_the_answer()

    writer.line.after["put sessions/"] = lost
    assert writer.save("a", "b").seq == 2

    assert other.numbers() == [*range(14, 0, -1)]


@pytest.mark.parametrize("is_tidied_away", [False, True])
def test_upload_with_a_lost_response_is_found_or_repeated(objects: Any, is_tidied_away: bool) -> None:
    writer, other = Machine(objects, ledger_bytes=700), Machine(objects)
    writer.save("a")

    def lost() -> None:
        if is_tidied_away:
            other.purge()
        lose_the_answer()

    writer.line.after["put frames/"] = lost
    assert writer.save("a", "b").seq == 2

    assert other.numbers() == [2, 1]


def test_another_machines_save_is_the_base_once_loaded(objects: Any) -> None:
    one, other = Machine(objects), Machine(objects)
    one.save("a")
    other.load()
    other.save("a", "b")

    assert one.load() == ["a", "b"]
    assert one.save("a", "b", "c").seq == 3


def test_unanswered_save_is_replaced_by_the_next(objects: Any) -> None:
    writer = Machine(objects)
    writer.save("a")
    writer.line.after["put sessions/"] = fail
    with pytest.raises(StoreUnavailable):
        writer.save("a", "b")

    assert writer.save("a", "b", "c").seq == 2
    assert writer.load() == ["a", "b", "c"]
    assert writer.numbers() == [2, 1]


@pytest.mark.parametrize("rewrite", [Machine.forget, Machine.compact])
def test_unanswered_save_counts_once_others_have_rewritten_it(
    objects: Any, rewrite: Callable[[Machine], None]
) -> None:
    writer, other = Machine(objects), Machine(objects)
    writer.save("a")
    writer.line.after["put sessions/"] = fail
    with pytest.raises(StoreUnavailable):
        writer.save("a", "b")
    rewrite(other)

    with pytest.raises(Conflict):
        writer.save("a", "b", "c")
    assert writer.load() == ["a", "b"]
    assert writer.save("a", "b", "c").seq == 3


@pytest.mark.parametrize("rewrite", [Machine.forget, Machine.compact])
def test_unanswered_save_is_not_rewritten_once_another_replaced_it(
    objects: Any, rewrite: Callable[[Machine], None]
) -> None:
    writer, other = Machine(objects), Machine(objects)
    writer.save("a")
    writer.line.after["put sessions/"] = fail
    with pytest.raises(StoreUnavailable):
        writer.save("a", "b")

    other.line.before["put sessions/"] = lambda: writer.save("a", "c")
    rewrite(other)

    assert writer.load() == other.load() == ["a", "c"]


def test_two_machines_creating_the_store_share_it(objects: Any) -> None:
    one, other = Machine(objects), Machine(objects)
    one.line.before["put STORE.json"] = lambda: other.save("a")

    assert one.load() == ["a"]
    assert one.store.store_id == other.store.store_id


# What it costs


def test_save_takes_one_request(objects: Any) -> None:
    writer = Machine(objects)
    writer.save("a")
    writer.line.asked.clear()

    writer.save("a", "b")
    writer.save("a", "b", "c")

    assert writer.line.asked == ["put sessions/session"] * 2


async def test_small_idle_sessions_are_one_object_each(objects: Any) -> None:
    async with ObjectStore(Bucket(objects, name="memory")) as store:
        for number in range(3):
            for length in range(1, 60):
                await store.save(make_snapshot(*["text " * 99] * length, session_id=f"{number}"))
    assert names(objects) == ["STORE.json", "sessions/0", "sessions/1", "sessions/2"]
    assert len(stored(objects, "sessions/0")) < 32 << 10


def test_objects_of_a_session_that_is_saved_all_the_time_are_merged(objects: Any) -> None:
    """Merging the part that grows as well would be in vain each time. What the process made is not read again."""
    texts = [random.Random(number).randbytes(600).hex() for number in range(80)]
    writer, another = Machine(objects, ledger_bytes=3000), Machine(objects)
    for length in range(1, len(texts)):
        writer.save(*texts[:length])
    pieces = len([name for name in names(objects) if name.startswith("frames/")])
    another.load()

    def at_the_next_look() -> None:
        writer.line.before["get sessions/session"] = lambda: another.save(*texts)

    writer.line.before["get sessions/session"] = at_the_next_look
    writer.line.asked.clear()
    writer.do(writer.store._compact_quietly, "session")

    (merged,) = [name for name in names(objects) if name.startswith("frames/")]
    assert pieces > 20
    assert [asked for asked in writer.line.asked if asked.startswith("get frames")] == [f"get {merged}"]
    assert another.load() == texts
    assert writer.numbers() == list(range(len(texts), 0, -1))


def test_check_reads_objects_that_its_own_process_made(objects: Any) -> None:
    writer = Machine(objects, ledger_bytes=1500)
    for length in range(1, 8):
        writer.save(*["text " * 40] * length)
    piece = next(name for name in names(objects) if name.startswith("frames/"))
    obstore.put(objects, piece, spoilt(stored(objects, piece)))

    assert not writer.do(writer.store.core.check, "session").ok


async def test_a_large_snapshot_is_still_one_conditional_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with running() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        async with s3.open_url(f"s3://{BUCKET}") as store:
            await store.save(make_snapshot("x" * (12 << 20)))
            assert [request.method for request in server.requests if request.key == "sessions/session"][-1:] == [
                "PUT"
            ]
        async with s3.open_url(f"s3://{BUCKET}") as store:
            assert len((await store.load("session")).messages[0].text) == 12 << 20


# The trash and what is left behind


async def test_copy_in_the_trash_shares_and_protects_objects(objects: Any) -> None:
    store = ObjectStore(Bucket(objects, name="memory"), background=False, ledger_bytes=700)
    for texts in ("a", "ab", "abc"):
        await store.save(make_snapshot(*texts))
    kept = await store.drop("session", [1, 2])
    assert [meta.seq for meta in await store.history("session")] == [3]

    assert await store.undrop("session", kept.token) == (1, 2)
    assert await store.load("session", at=1) == make_snapshot("a")

    gone = await store.purge(older_than=timedelta(0))
    assert [entry.token for entry in gone] == [kept.token]
    assert (await store.check()).findings == ()
    assert await store.load("session", strict=True) == make_snapshot("a", "b", "c")


async def test_purge_removes_unreferenced_objects(objects: Any) -> None:
    store = ObjectStore(Bucket(objects, name="memory"), background=False)
    await store.save(make_snapshot("a"))
    for session_id in ("session", "never-saved"):
        obstore.put(objects, f"frames/{session_id}/0000000001-left.snap.gz", b"left by a crash")
    assert [finding.kind for finding in (await store.check()).findings] == ["leftover"]

    assert await store.purge() == []

    assert not [name for name in names(objects) if name.startswith("frames/")]
    assert (await store.check()).findings == ()
    assert await store.load("session") == make_snapshot("a")


async def test_deleted_session_is_gone_permanently_after_a_purge(objects: Any) -> None:
    store = ObjectStore(Bucket(objects, name="memory"), background=False)
    await store.save(make_snapshot("a secret of some kind"))
    await store.delete("session")
    assert len([name for name in names(objects) if name.startswith("frames/")]) == 1

    await store.purge(older_than=timedelta(0))

    assert not [name for name in names(objects) if name.startswith("frames/")]
    assert b"secret" not in stored(objects, "sessions/session")
    assert await store.list() == []
    assert (await store.save(make_snapshot("new"))).seq == 1


async def test_compacting_an_unknown_session_does_nothing(objects: Any) -> None:
    async with ObjectStore(Bucket(objects, name="memory")) as store:
        await store.compact("nobody")
        assert await store.list() == []
    assert names(objects) == ["STORE.json"]


# Damage


def test_damaged_ledger_is_reported_and_affects_no_other_session(objects: Any) -> None:
    machine = Machine(objects)
    machine.save("a")
    obstore.put(
        objects, "sessions/other", stored(objects, "sessions/session").replace(b",1,1,false,", b",2,2,false,")
    )

    listed = {meta.session_id: meta.state for meta in machine.do(machine.store.core.list)}
    assert listed == {"session": "ok", "other": "damaged"}
    assert [finding.session_id for finding in machine.store.sync.check(repair=True).findings] == ["other"]
    with pytest.raises(SnapshotCorrupted):
        machine.do(machine.store.core.read, "other")
    with pytest.raises(SnapshotCorrupted):
        machine.do(machine.store.core.save, make_snapshot("b", session_id="other"))
    obstore.put(objects, "frames/other/0000000001-x.snap.gz", b"it may be named in the ledger")
    machine.purge()
    assert "frames/other/0000000001-x.snap.gz" in names(objects)


def test_ledger_of_a_newer_release_is_refused(objects: Any) -> None:
    machine = Machine(objects)
    machine.save("a")
    newer = Ledger().encoded()
    line = newer.partition(b"\n")[0].replace(b'"format":1', b'"format":2')
    obstore.put(objects, "sessions/other", line + b"\n" + _sum(line) + b"\n")

    with pytest.raises(InvalidSnapshotVersion):
        machine.do(machine.store.core.read, "other")
    assert {meta.session_id: meta.state for meta in machine.do(machine.store.core.list)} == {
        "session": "ok",
        "other": "too_new",
    }


def _sum(line: bytes) -> bytes:
    from hashlib import sha256  # noqa: PLC0415 — beside its only use

    return sha256(line).hexdigest().encode()


async def test_store_without_its_marker_is_not_recreated(objects: Any) -> None:
    async with ObjectStore(Bucket(objects, name="memory")) as store:
        await store.save(make_snapshot("a"))
    obstore.delete(objects, "STORE.json")

    with pytest.raises(SnapshotCorrupted):
        await ObjectStore(Bucket(objects, name="memory")).list()
    assert "STORE.json" not in names(objects)


async def test_store_is_not_created_unless_requested(objects: Any) -> None:
    with pytest.raises(StoreNotFound):
        await ObjectStore(Bucket(objects, name="memory"), create=False).list()
    assert names(objects) == []


# Keys


@pytest.mark.requirement("ORBIT-FUTURE-CLOUD")
async def test_encrypted_store_is_unreadable_in_the_bucket(objects: Any) -> None:
    async with ObjectStore(Bucket(objects, name="memory"), key=generate_key(), ledger_bytes=900) as store:
        for length in (1, 2, 3):
            await store.save(make_snapshot(*["a secret"] * length, title="secret too"))
        await store.delete("session")
    assert names(objects)[1] == "STORE.json" or "keys.json" in names(objects)
    assert not [name for name in names(objects) if b"secret" in stored(objects, name)]


async def test_a_rotated_key_is_noticed_within_a_minute(objects: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source = generate_key()
    writer, other = (ObjectStore(Bucket(objects, name="memory"), key=source) for _ in range(2))
    await writer.save(make_snapshot("a"))
    await other.rotate_key()
    await writer.save(make_snapshot("a", "b"))
    keys = other.session_keys("session")
    assert keys
    assert last_kid(writer) != keys.primary  # it was looked at a moment ago
    monkeypatch.setattr(small_files, "_KEYS_SECONDS", 0.0)
    await writer.save(make_snapshot("a", "b", "c"))
    assert last_kid(writer) == keys.primary


def last_kid(store: ObjectStore) -> str:
    return read_header(store.frames.tail("session") or b"")[0].kid


async def test_another_machine_continues_after_a_key_rotation(objects: Any) -> None:
    source = Passphrase(generate_key())
    one = ObjectStore(Bucket(objects, name="memory"), key=source)
    other = ObjectStore(Bucket(objects, name="memory"), key=source)
    await one.save(make_snapshot("a"))
    await other.load("session")

    await one.rotate_key()
    await one.save(make_snapshot("a", "b"))

    assert await other.load("session", strict=True) == make_snapshot("a", "b")
    assert (await other.save(make_snapshot("a", "b", "c"), base=2)).seq == 3
    with pytest.raises(WrongKey):
        await ObjectStore(Bucket(objects, name="memory"), key=generate_key()).list()


def test_one_of_two_concurrent_key_changes_is_refused_and_no_key_is_lost(objects: Any) -> None:
    source, second, third = (Passphrase(generate_key()) for _ in range(3))
    lines = [Line(objects), Line(objects)]
    one, other = (ObjectStore(line, key=source).keychain for line in lines)
    now = datetime.now().astimezone()

    lines[0].before["put keys.json"] = lambda: other.add(source, second, now=now)
    with pytest.raises(SessionLocked):
        one.add(source, third, now=now)

    assert one.unlock(second) == one.unlock(source)
    assert one.add(source, third, now=now).id in {slot.id for slot in one.slots()}
    assert len(one.slots()) == 3


def test_key_change_with_a_lost_response_is_applied(objects: Any) -> None:
    source, second = Passphrase(generate_key()), Passphrase(generate_key())
    line = Line(objects)
    line.after["put keys.json"] = lose_the_answer
    chain = ObjectStore(line, key=source).keychain

    line.after["put keys.json"] = lose_the_answer
    chain.add(source, second, now=datetime.now().astimezone())
    assert len(chain.slots()) == 2


async def test_session_can_be_put_in_after_a_delete_but_not_twice(objects: Any) -> None:
    one, other = (ObjectStore(Bucket(objects, name="memory")) for _ in range(2))
    await one.save(make_snapshot("a"))
    copies: Sequence[Any] = await one.take_out("session")
    await other.delete("session")

    await one.put_in("session", copies)
    with pytest.raises(Conflict):
        await other.put_in("session", copies)

    assert await other.load("session") == make_snapshot("a")
