"""An owner whose connection freezes in the middle of a save loses the session when its lease ends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import anyio
import psycopg
import pytest

from snapshot_plugin import SessionLocked
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.live.place import required_place
from snapshot_plugin.live.recovery import recover
from snapshot_plugin.live.rows import RowHold
from snapshot_plugin.store.postgres import database
from snapshot_plugin.store.postgres.address import Address
from snapshot_plugin.store.postgres.store import PostgresStore
from snapshot_plugin.testing import FixedClock, make_snapshot
from tests.postgres.freezing_proxy import FreezingProxy
from tests.postgres.test_live import let_lease_end

LEASE = 1.0
MARGIN = 8.0
"""What a busy machine may add; a lock that the server keeps takes 30 s."""
MOST_MESSAGES = 20

Work = Callable[[PostgresStore, RowHold, str], object]


def first_save(store: PostgresStore, _: RowHold, session_id: str) -> object:
    return store.sync.save(make_snapshot("a", session_id=session_id))


def later_save(store: PostgresStore, _: RowHold, session_id: str) -> object:
    return store.sync.save(make_snapshot("a", "b", "c", session_id=session_id))


def tagged_save(store: PostgresStore, _: RowHold, session_id: str) -> object:
    return store.sync.save(make_snapshot("a", "b", "c", session_id=session_id), tags=["deploy"])


def record(_: PostgresStore, hold: RowHold, session_id: str) -> object:
    return hold.append([{"message": {"role": "user", "content": session_id}}])


def compaction(store: PostgresStore, _: RowHold, session_id: str) -> None:
    store.sync.compact(session_id)


def taking(store: PostgresStore, hold: RowHold, session_id: str) -> None:
    hold.release()
    required_place(store).take(session_id, Owner.this_process(since=FixedClock()())).release()


class Round(NamedTuple):
    """How it went when the connection froze after so many messages."""

    messages: int
    was_frozen: bool
    """False: the work was done before."""
    seconds: float
    """Until the other node owned the session."""


def frozen_after(messages: int, work: Work, url: str) -> Round:
    session_id = f"session-{messages}"
    with ThreadPoolExecutor(1) as thread, FreezingProxy(f"{url}&lease={LEASE:g}") as proxy:
        store = PostgresStore(proxy.url, background=False)
        hold = required_place(store).take(session_id, Owner.this_process(since=FixedClock()()))
        assert isinstance(hold, RowHold)
        if work is not first_save:
            first_save(store, hold, session_id)
            store.sync.save(make_snapshot("a", "b", session_id=session_id))
        proxy.freeze_after(messages)
        done = thread.submit(work, store, hold, session_id)
        while not done.done() and not proxy.is_frozen.wait(0.01):
            pass
        is_done = done.done()
        seconds = 0 if is_done else until_owned(session_id, url)
        store.live_rows.let_go(session_id, hold.epoch)
    if is_done:
        assert done.exception() is None
    store.close()
    return Round(messages, not is_done, seconds)


def until_owned(session_id: str, url: str) -> float:
    other = PostgresStore(f"{url}&lease={LEASE:g}", background=False)
    began = time.monotonic()
    try:
        while time.monotonic() - began < 2 * MARGIN:
            with contextlib.suppress(SessionLocked):
                required_place(other).take(session_id, Owner.this_process(since=FixedClock()())).release()
                break
            time.sleep(0.05)  # the lease has to end, by the clock of the server
        return time.monotonic() - began
    finally:
        other.close()


@pytest.mark.requirement("MANAGER-LEASE-FROZEN")
@pytest.mark.parametrize("work", [first_save, later_save, tagged_save, record, compaction, taking])
def test_session_of_a_frozen_owner_is_free_when_its_lease_ends(work: Work, postgres_url: str) -> None:
    PostgresStore(postgres_url, background=False).sync.list()  # makes the tables
    with ThreadPoolExecutor(MOST_MESSAGES) as at_once:
        rounds = list(at_once.map(lambda n: frozen_after(n, work, postgres_url), range(1, MOST_MESSAGES + 1)))
    frozen = [each for each in rounds if each.was_frozen]
    assert frozen
    assert len(frozen) < MOST_MESSAGES, "the work may have more messages than were tried"
    late = [each for each in frozen if each.seconds > LEASE + MARGIN]
    assert not late


@pytest.mark.requirement("MANAGER-RECOVER-LOCKED")
def test_recovery_names_a_session_that_another_transaction_keeps_locked(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_LOCK_SECONDS", 0.2)
    store = PostgresStore(postgres_url, background=False)
    hold = required_place(store).take("session", Owner.this_process(since=FixedClock()()))
    hold.append([{"message": {"role": "user", "content": "word"}}])
    store.live_rows.let_go("session", hold.epoch)  # its process dies
    let_lease_end(postgres_url, "session")
    with psycopg.connect(Address.parse(postgres_url).conninfo) as locking:
        locking.execute(store._database.sql("SELECT 1 FROM {live} FOR UPDATE"))
        (found,) = anyio.run(lambda: recover(store, now=FixedClock()()))
        assert (found.session_id, found.ref) == ("session", None)
        assert found.problem is not None
        assert "lock" in found.problem
    (found,) = anyio.run(lambda: recover(store, now=FixedClock()()))
    assert (found.records, found.problem) == (1, None)
    store.close()
