"""**Not found**, `load` at a number, `read`, `list` and `history`."""
# ruff: noqa: S101, D102 — a test suite: its names are its docstrings

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from snapshot_plugin.errors import InvalidSessionId, SnapshotNotFound
from snapshot_plugin.model.policy import RetentionPolicy
from snapshot_plugin.model.snapshot import AgentInfo, Metrics, Parent, SessionConfig
from snapshot_plugin.testing.build import make_snapshot
from snapshot_plugin.testing.clock import FixedClock
from snapshot_plugin.testing.contract.stage import Opener, Stage, facts_of

__all__ = ["Listing"]


class Listing(Stage):
    """What `list` and `history` return, and what is not found."""

    async def test_a_session_that_was_never_saved_is_not_found(self, opened: Opener) -> None:
        store = opened()
        await store.save(make_snapshot("a", session_id="another"))

        everything: list[Callable[[], Awaitable[object]]] = [
            lambda: store.load("session"),
            lambda: store.load("session", at=1),
            lambda: store.load("session", strict=True),
            lambda: store.read("session"),
            lambda: store.history("session"),
            lambda: store.delete("session"),
            lambda: store.forget("session", RetentionPolicy(keep_last=1)),
            lambda: store.check("session"),
        ]
        for ask in everything:
            with pytest.raises(SnapshotNotFound):
                await ask()
        assert [meta.session_id for meta in await store.list()] == ["another"]

    async def test_looking_for_a_session_does_not_make_one(self, opened: Opener) -> None:
        store = opened()
        with pytest.raises(SnapshotNotFound):
            await store.load("session")

        assert not await opened().list()
        assert (await opened().save(make_snapshot("a"), base=0)).seq == 1

    async def test_a_number_that_was_never_used_is_not_found(self, opened: Opener) -> None:
        store = opened()
        await store.save(make_snapshot("a"))
        await store.save(make_snapshot("a", "b"))

        for number in (-1, 0, 3, 1000):
            with pytest.raises(SnapshotNotFound):
                await store.load("session", at=number)

    async def test_a_session_id_that_no_store_can_hold_is_refused(self, opened: Opener) -> None:
        store = opened()
        for impossible in ("", ".", "..", "nul\0", "x" * 20_000, "\ud800"):
            with pytest.raises(InvalidSessionId):
                await store.save(make_snapshot("a", session_id=impossible))
            with pytest.raises(InvalidSessionId):
                await store.load(impossible)

        assert not await store.list()

    async def test_unusual_session_ids_are_kept_as_they_are(self, opened: Opener) -> None:
        store = opened()
        ids = ["a/b", "../up", ".hidden", "%2e", "with space", "Ünïcödé 🦉", "a\\b", "CON", "x" * 200]
        for session_id in ids:
            await store.save(make_snapshot(session_id, session_id=session_id))

        assert sorted(meta.session_id for meta in await opened().list()) == sorted(ids)
        for session_id in ids:
            assert (await opened().load(session_id)).messages[0].text == session_id

    async def test_read_says_where_the_snapshot_was_found(self, opened: Opener) -> None:
        store = opened()
        refs = [
            await store.save(make_snapshot("a"), trigger="interval"),
            await store.save(make_snapshot("a", "b"), trigger="exit", tags=["keep"]),
        ]

        newest, older = await opened().read("session", strict=True), await opened().read("session", at=1)

        assert newest.snapshot == make_snapshot("a", "b")
        assert (newest.ref.seq, newest.ref.root) == (2, refs[1].root)
        assert (newest.meta.seq, newest.meta.trigger, newest.meta.snapshot_tags) == (2, "exit", ("keep",))
        assert older.snapshot == make_snapshot("a")
        assert (older.ref.seq, older.ref.root, older.meta.trigger) == (1, refs[0].root, "interval")
        assert newest.skipped == older.skipped == ()

    async def test_the_list_of_an_empty_store_is_empty(self, opened: Opener) -> None:
        assert list(await opened().list()) == []
        assert list(await opened().trash()) == []
        report = await opened().check()
        assert (report.ok, report.sessions, report.snapshots) == (True, 0, 0)

    async def test_the_list_shows_the_newest_of_each_session_last_changed_first(self, opened: Opener) -> None:
        store = opened()
        base = make_snapshot("a")
        for session_id, hours in (("old", 1), ("new", 3), ("middle", 2)):
            changed = base.evolve(session_id=session_id, updated_at=base.updated_at + timedelta(hours=hours))
            await store.save(changed)
        later = make_snapshot("a", "b", session_id="old", updated_at=base.updated_at + timedelta(hours=4))
        await store.save(later)

        listed = await opened().list()

        assert [(meta.session_id, meta.seq, meta.messages) for meta in listed] == [
            ("old", 2, 2),
            ("new", 1, 1),
            ("middle", 1, 1),
        ]

    async def test_the_list_tells_what_a_session_is_about(self, opened: Opener, clock: FixedClock) -> None:
        snapshot = make_snapshot(
            "question", "answer",
            title="A title 🦉", tags=("work",), pinned=True, provider_type="acp",
            agent=AgentInfo(name="agent", version="2"), config=SessionConfig(cwd="/project"),
            metrics=Metrics(turns=1, total_tokens=42, cost=0.5),
            parent=Parent(session_id="origin", seq=3, message_index=1),
        )  # fmt: skip
        ref = await opened().save(snapshot, trigger="event", tags=["milestone"])

        (meta,) = await opened().list()

        assert (meta.session_id, meta.seq, meta.root, meta.state) == ("session", 1, ref.root, "ok")
        assert (meta.trigger, meta.snapshot_tags, meta.saved_at) == ("event", ("milestone",), clock())
        assert (meta.created_at, meta.updated_at) == (snapshot.created_at, snapshot.updated_at)
        assert (meta.title, meta.tags, meta.pinned, meta.agent) == ("A title 🦉", ("work",), True, "agent")
        assert (meta.provider_type, meta.cwd, meta.parent) == ("acp", "/project", snapshot.parent)
        assert (meta.messages, meta.turns, meta.tokens, meta.cost) == (2, 1, 42, 0.5)
        assert meta.size_bytes > 0

    async def test_history_shows_every_snapshot_newest_first(self, opened: Opener, clock: FixedClock) -> None:
        store, saved = opened(), []
        for length, trigger in ((1, "manual"), (2, "interval"), (3, "exit")):
            ref = await store.save(make_snapshot(*"abc"[:length], title=f"{length} long"), trigger=trigger)
            saved.append((ref.seq, ref.root, trigger, clock(), f"{length} long", length))
            clock.advance(timedelta(minutes=1))

        history = await opened().history("session")

        shown = [(m.seq, m.root, m.trigger, m.saved_at, m.title, m.messages) for m in history]
        assert shown == saved[::-1]
        assert {(meta.state, meta.problem) for meta in history} == {("ok", None)}

    async def test_check_reads_everything_and_finds_nothing_wrong(self, opened: Opener) -> None:
        store = opened()
        for length in (1, 2, 3):
            await store.save(make_snapshot(*"abc"[:length]))
        await store.save(make_snapshot("b", session_id="another"))

        everything, one = await opened().check(), await opened().check("another")

        assert (everything.ok, everything.repaired) == (True, ())
        assert (everything.sessions, everything.snapshots) == (2, 4)
        assert (one.ok, one.sessions, one.snapshots) == (True, 1, 1)

    async def test_repairing_what_is_whole_changes_nothing(self, opened: Opener) -> None:
        store = opened()
        await store.save(make_snapshot("a"))
        await store.save(make_snapshot("a", "b"))
        before = await opened().history("session")

        report = await opened().check(repair=True)

        assert (report.ok, report.repaired) == (True, ())
        assert facts_of(await opened().history("session")) == facts_of(before)
