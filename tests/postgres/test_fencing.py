"""Owners that were overtaken, records that a crash of the server cost, and leases that are renewed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from snapshot_plugin import Fenced, Message, SessionSnapshot, StoreUnavailable
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.live.place import place_of
from snapshot_plugin.live.recovery import recover, upto_of
from snapshot_plugin.live.rows import RowHold
from snapshot_plugin.live.sessions import LiveSessions
from snapshot_plugin.model.ids import short_id
from snapshot_plugin.store.postgres.live_rows import LiveRows
from snapshot_plugin.store.postgres.outcomes import LostConnection
from snapshot_plugin.store.postgres.store import PostgresStore
from snapshot_plugin.testing import FixedClock, make_snapshot
from tests.postgres.test_live import let_lease_end

PATIENCE = 60
_LONG = "&lease=600"
"""No thread renews such a lease before the test is over, just after `let_lease_end`."""


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(postgres_url + _LONG, background=False)
    yield store
    store.close()


@pytest.fixture
def other(postgres_url: str) -> Iterator[PostgresStore]:
    """The store as another node opens it."""
    other = PostgresStore(postgres_url + _LONG, background=False)
    yield other
    other.close()


def taken(store: PostgresStore, session_id: str = "session") -> RowHold:
    place = place_of(store)
    assert place is not None
    hold = place.take(session_id, Owner.this_process(since=FixedClock()()))
    assert isinstance(hold, RowHold)
    return hold


class TestOvertaken:
    def test_every_write_of_a_fenced_owner_fails(
        self, store: PostgresStore, other: PostgresStore, postgres_url: str
    ) -> None:
        store.sync.save(make_snapshot("a"))
        hold = taken(store)
        told: list[str] = []
        hold.watch(lambda: told.append("overtaken"))
        hold.append([{"n": 1}])
        let_lease_end(postgres_url, "session")
        new = taken(other)
        assert new.epoch > hold.epoch
        with pytest.raises(Fenced):
            store.sync.save(make_snapshot("a", "by the old owner"))
        for write in (lambda: hold.append([{"n": 2}]), hold.flush, lambda: hold.truncate(1)):
            with pytest.raises(Fenced):
                write()
        assert told == ["overtaken"]
        assert [record.data for record in new.unsaved(0)] == [{"n": 1}]
        assert other.sync.load("session") == make_snapshot("a")
        hold.release()
        assert not new.is_fenced
        new.release()

    def test_lease_renewal_detects_a_takeover(self, other: PostgresStore, postgres_url: str) -> None:
        store = PostgresStore(f"{postgres_url}&lease=0.5", background=False)
        hold = taken(store)
        told: list[str] = []
        hold.watch(lambda: told.append("overtaken"))
        store.live_rows.let_go("session", hold.epoch)  # the process was stopped: it renews nothing
        let_lease_end(postgres_url, "session")
        taken(other)
        hold.begin()  # and woke
        until(lambda: bool(told))
        store.close()

    def test_idle_lease_is_renewed(self, postgres_url: str) -> None:
        store = PostgresStore(f"{postgres_url}&lease=0.5", background=False)
        hold = taken(store)

        def ends() -> Any:
            return store._database.rows("SELECT until FROM {live}")[0][0]

        first = ends()
        until(lambda: ends() > first)
        hold.release()
        store.close()

    def test_recreated_session_is_not_a_takeover(self, store: PostgresStore, other: PostgresStore) -> None:
        hold = taken(store)
        told: list[str] = []
        hold.watch(lambda: told.append("overtaken"))
        store.sync.save(make_snapshot("a"))
        other.sync.delete("session")
        with pytest.raises(Fenced):
            hold.append([{"n": 1}])
        assert told == []
        again = taken(store)
        assert (again.last, again.previous) == (0, None)
        store.sync.save(make_snapshot("a", "b"), base=0)
        again.release()

    def test_live_session_reports_a_takeover_and_keeps_the_new_owners_snapshot(
        self, store: PostgresStore, other: PostgresStore, postgres_url: str
    ) -> None:
        told: list[str] = []
        old = LiveSessions(store, Words)
        old._context.touch = lambda _session: None  # a save in the background would prolong the lease
        old.overtaken = lambda live: told.append(live.session_id)
        live = old.begin(empty(), {"word": "one"})
        live.save()
        live.record({"word": "two"}, durable=True)
        let_lease_end(postgres_url, "session")
        new = LiveSessions(other, Words, reducers={"words": reduce_words})
        resumed = new.resume("session")
        resumed.record({"word": "three"}, durable=True)
        resumed.save()
        live.record({"word": "zombie"})
        assert told == ["session"]
        assert live.save().status == "failed"
        assert old.close()[0].status == "failed"
        new.close()
        assert said(other.sync.load("session")) == ["one", "two", "three"]

    def test_save_without_a_renewing_thread_reports_the_takeover(
        self, store: PostgresStore, other: PostgresStore, postgres_url: str
    ) -> None:
        old = LiveSessions(store, Words)
        live = old.begin(empty(), {"word": "one"})
        live.save()
        store.live_rows.let_go("session", live.hold.epoch)  # type: ignore[union-attr] # it renews nothing
        let_lease_end(postgres_url, "session")
        new = LiveSessions(other, Words, reducers={"words": reduce_words})
        new.resume("session")
        told: list[str] = []
        old.overtaken = lambda live: told.append(live.session_id)
        live.must_be_saved()
        assert [live.save().code, live.save().code] == ["fenced", "fenced"]
        assert told == ["session"]
        old.close()
        new.close()

    def test_killed_session_with_a_long_id_is_recovered_under_that_id(
        self, store: PostgresStore, other: PostgresStore, postgres_url: str
    ) -> None:
        session_id, old = "long" * 100, LiveSessions(store, Words)
        old._context.touch = lambda _session: None  # as above
        old.begin(empty(session_id), {"word": "one"})
        let_lease_end(postgres_url, short_id(session_id))
        (found,) = anyio.run(lambda: recover(other, reducers={"words": reduce_words}, now=datetime.now(UTC)))
        assert (found.records, found.problem) == (1, None)
        loaded = other.sync.load(session_id)
        assert (loaded.session_id, said(loaded)) == (session_id, ["one"])


class TestSpool:
    def test_records_lost_in_a_server_crash_are_detected(self, store: PostgresStore) -> None:
        """Streamed records are committed without waiting for the disk; a power cut of the server may cost some."""
        hold = taken(store)
        hold.append([{"n": 1}, {"n": 2}, {"n": 3}])
        store._database.rows("DELETE FROM {spool} WHERE n = 3")
        store._database.rows("UPDATE {live} SET last = 2")
        with pytest.raises(StoreUnavailable, match="lost"):
            hold.append([{"n": 4}])
        hold.truncate(4)  # a snapshot contains all of them
        assert hold.append([{"n": 5}]) == 5
        hold.release()
        assert [record.n for record in taken(store).unsaved(4)] == [5]

    def test_session_is_recorded_again_after_a_server_crash_lost_records(self, store: PostgresStore) -> None:
        sessions = LiveSessions(store, Words)
        live = sessions.begin(empty(), {"word": "one"})
        for word in ("two", "three", "four"):
            assert live.save().status == "saved"
            assert live.record({"word": word})
        store._database.rows("DELETE FROM {spool}")
        store._database.rows("UPDATE {live} SET last = last - 1")
        assert not live.record({"word": "five"})
        assert live.save().status == "saved"
        assert live.record({"word": "six"})
        sessions.close()
        assert said(store.sync.load("session")) == ["one", "two", "three", "four", "five", "six"]

    @pytest.mark.parametrize("arrives", [True, False])
    def test_records_with_a_lost_response_are_never_applied_twice(
        self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, arrives: bool
    ) -> None:
        sessions = LiveSessions(store, Words)
        live = sessions.begin(empty(), {"word": "one"})
        append = LiveRows.append

        def lost(rows: LiveRows, *args: Any) -> None:
            if arrives:
                append(rows, *args)
            raise LostConnection("the connection broke")

        monkeypatch.setattr(LiveRows, "append", lost)
        assert not live.record({"word": "two"})
        monkeypatch.undo()
        assert live.save().status == "saved"
        assert live.record({"word": "three"})
        live.close(save=False)  # as if killed: nothing more is saved
        sessions.stop()
        others = LiveSessions(store, Words, reducers={"words": reduce_words})
        assert said(others.resume("session").snapshot()) == ["one", "two", "three"]
        others.close()

    def test_record_that_does_not_open_is_quarantined_with_those_after_it(self, postgres_url: str) -> None:
        store = PostgresStore(postgres_url, key="asnap-key-" + "A" * 43, background=False)
        hold = taken(store)
        hold.append([{"n": n} for n in (1, 2, 3)])
        hold.release()
        store._database.rows("UPDATE {spool} SET body = set_byte(body, 60, get_byte(body, 60) # 1) WHERE n = 2")
        again = taken(store)
        assert [record.n for record in again.unsaved(0)] == [1]
        assert again.damage is not None
        assert store._database.rows("SELECT n FROM {spool} WHERE token LIKE 'aside%%' ORDER BY n") == [(2,), (3,)]
        assert again.append([{"n": "again"}]) == 2
        again.release()
        store.close()

    def test_spool_is_trashed_and_restored_with_its_session(self, store: PostgresStore) -> None:
        store.sync.save(make_snapshot("a"))
        hold = taken(store)
        hold.append([{"n": 1}])
        hold.release()
        token = store.sync.delete("session").token
        assert place_of(store).abandoned() == []  # type: ignore[union-attr]
        store.sync.undelete(token)
        assert [record.data for record in taken(store).unsaved(0)] == [{"n": 1}]


class Words:
    """A reducer whose messages are the words of its events."""

    running = False
    is_long = False

    def __init__(self, snapshot: SessionSnapshot) -> None:
        self._snapshot = snapshot

    def apply(self, event: Any) -> None:
        if "word" in event:
            self._snapshot = self._snapshot.append(Message(role="user", content=event["word"]))

    def snapshot(self, now: Any) -> SessionSnapshot:
        return self._snapshot.evolve(updated_at=now)


def reduce_words(snapshot: SessionSnapshot, records: Any) -> SessionSnapshot:
    words = Words(snapshot)
    for record in records:
        words.apply(record.data)
    return words._snapshot.evolve(provider_type="words")


def empty(session_id: str = "session") -> SessionSnapshot:
    now = FixedClock()()
    return SessionSnapshot(session_id=session_id, provider_type="words", created_at=now, updated_at=now)


def said(snapshot: SessionSnapshot) -> list[str]:
    assert upto_of(snapshot) >= 0
    return [message.text for message in snapshot.messages]


def until(is_so: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)  # the server's clock has to go on
