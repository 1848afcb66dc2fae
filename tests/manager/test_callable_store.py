"""A store of three functions: what it acknowledged is in the caller's storage, for other processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from snapshot_plugin import Conflict, SnapshotNotFound, StoreUnavailable
from snapshot_plugin.manager.callable_store import CallableStore
from snapshot_plugin.store.sync import SyncStore
from snapshot_plugin.testing import make_message, make_snapshot

Table = dict[str, dict[str, Any]]
SESSION = make_snapshot("a", "b", memory={"n": 1})


def opened(table: Table) -> SyncStore:
    """A new store object over *table*, as another process would have one."""
    return CallableStore(table.__setitem__, table.get, lambda name: table.pop(name, None)).sync


@pytest.fixture
def table() -> Table:
    table: Table = {}
    opened(table).save(SESSION)
    return table


@pytest.mark.parametrize(
    "read",
    [
        lambda store: store.load("session") == SESSION,
        lambda store: store.page("session").total == 2,
        lambda store: store.section("session", "memory", "n") == 1,
        lambda store: store.walk("session", [1]) == [SESSION],
        lambda store: len(store.lines("session").messages) == 2,
        lambda store: len(store.take_out("session")) == 1,
        lambda store: store.check("session").ok,
        lambda store: store.tip("session").seq == 1,
    ],
)
def test_another_process_reads_a_session_in_every_way(table: Table, read: Callable[[SyncStore], bool]) -> None:
    assert read(opened(table))


def test_an_undeleted_session_is_stored_again(table: Table) -> None:
    store = opened(table)
    trashed = store.delete("session")
    assert not table
    store.undelete(trashed.token)
    assert opened(table).load("session") == SESSION
    trashed = store.delete("session")
    store.undelete(trashed.token, session_id="other")
    assert [message.text for message in opened(table).load("other").messages] == ["a", "b"]


def test_an_imported_session_is_stored(table: Table) -> None:
    elsewhere: Table = {}
    opened(elsewhere).put_in("session", opened(table).take_out("session"))

    assert opened(elsewhere).load("session") == SESSION


def test_a_session_whose_deletion_failed_is_still_there_and_can_be_deleted(table: Table) -> None:
    is_down = True

    def delete(name: str) -> None:
        if is_down:
            raise OSError("down")
        del table[name]

    store = CallableStore(table.__setitem__, table.get, delete).sync
    with pytest.raises(StoreUnavailable):
        store.delete("session")
    assert store.load("session") == SESSION
    is_down = False
    store.delete("session")
    with pytest.raises(SnapshotNotFound):
        opened(table).load("session")


def test_a_save_continues_what_another_process_stored(table: Table) -> None:
    store = opened(table)
    longer = store.load("session").append(make_message("c"))
    assert store.save(longer).seq == 2
    assert opened(table).load("session") == longer


def test_words_of_another_process_are_seen_and_a_stale_save_conflicts(table: Table) -> None:
    here, elsewhere = opened(table), opened(table)
    stale = here.load("session")
    elsewhere.save(elsewhere.load("session").append(make_message("theirs")))

    with pytest.raises(Conflict):
        here.save(stale.append(make_message("lost")))
    here.save(here.load("session").append(make_message("ours")))
    for store in (here, elsewhere, opened(table)):
        assert [message.text for message in store.load("session").messages] == ["a", "b", "theirs", "ours"]
        assert store.page("session").total == 4


def test_a_first_save_does_not_replace_what_another_process_stored(table: Table) -> None:
    with pytest.raises(Conflict):
        opened(table).save(make_snapshot("other"))
    here = opened(table)
    assert here.tip("new") is None
    opened(table).save(make_snapshot("theirs", session_id="new"))
    with pytest.raises(Conflict):
        here.save(make_snapshot("ours", session_id="new"))
    assert here.load("new").messages[0].text == "theirs"


def test_a_session_that_another_process_deleted_is_gone_here_too(table: Table) -> None:
    here = opened(table)
    loaded = here.load("session")
    opened(table).delete("session")
    assert here.list() == []
    with pytest.raises(SnapshotNotFound):
        here.load("session")
    with pytest.raises(Conflict):
        here.save(loaded.append(make_message("c")))
    assert not table


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_save_that_failed_is_tried_again(table: Table, is_stored: bool) -> None:
    is_down = True

    def save(name: str, state: dict[str, Any]) -> None:
        if is_stored or not is_down:
            table[name] = state
        if is_down:
            raise OSError("no answer")

    store = CallableStore(save, table.get, table.pop).sync
    longer = store.load("session").append(make_message("c", metadata={"large": 10**4299}))
    with pytest.raises(StoreUnavailable):
        store.save(longer)
    is_down = False
    store.save(longer)
    assert opened(table).load("session") == longer
    store.save(longer.append(make_message("d")))
    assert opened(table).load("session").messages[-1].text == "d"
