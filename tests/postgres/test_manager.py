"""The manager and what is built on it work in PostgreSQL as on a disk."""

from __future__ import annotations

from typing import Any

import pytest

from snapshot_plugin import (
    Fenced,
    SessionLocked,
    SessionSnapshot,
    SnapshotManager,
    create_or_resume_session,
    persistent_session,
)
from snapshot_plugin.store.postgres.store import PostgresStore
from snapshot_plugin.testing import make_snapshot
from tests.postgres.test_live import let_lease_end

pytestmark = pytest.mark.anyio


class Agent:
    def __init__(self) -> None:
        self.history: list[Any] = []


class Session:
    """An author's session."""

    session_id = "session"

    def __init__(self, *texts: str) -> None:
        self.texts = texts

    def snapshot(self) -> Any:
        return make_snapshot(*self.texts)


async def test_an_agent_remembers_on_another_node(postgres_url: str) -> None:
    here, there = Agent(), Agent()
    async with persistent_session(here, agent_id="helper", store=postgres_url):
        here.history.append({"role": "user", "content": "remember the pelican"})
    async with persistent_session(there, agent_id="helper", store=postgres_url) as kept:
        assert kept.report.found
        assert "pelican" in str(there.history)


class Provider:
    """Starts sessions, and loads them."""

    async def create_session(self, session_id: str, config: Any) -> Session:
        _ = session_id, config
        return Session("begun")

    async def load_session(self, session_id: str, config: Any, snapshot: SessionSnapshot) -> Session:
        _ = session_id, config
        return Session(*(message.text for message in snapshot.messages))

    async def stop_session(self, session: Session) -> None:
        _ = session


async def test_session_is_created_on_one_node_and_resumed_on_another(postgres_url: str) -> None:
    async with PostgresStore(postgres_url) as here, SnapshotManager(here) as manager:
        session, report = await create_or_resume_session(Provider(), "session", None, manager)
        assert report.grade == "fresh"
        session.texts = ("begun", "told on the first node")
        await manager.snapshot(session)
    async with PostgresStore(postgres_url) as there, SnapshotManager(there) as manager:
        session, report = await create_or_resume_session(Provider(), "session", None, manager)
        assert (report.grade, report.messages) == ("native-load", 2)
        assert session.texts[-1] == "told on the first node"


async def test_session_of_another_node_is_locked_until_its_lease_ends_then_the_old_owner_is_fenced(
    postgres_url: str,
) -> None:
    async with (
        PostgresStore(f"{postgres_url}&lease=600") as one,  # it is not renewed before the test is over
        PostgresStore(postgres_url) as two,
        SnapshotManager(one) as first,
        SnapshotManager(two) as second,
        first.leasing("session") as managed,
    ):
        await first.snapshot(Session("a"))
        await managed.try_to_take()
        with pytest.raises(SessionLocked):
            await second.snapshot(Session("a", "b"))
        let_lease_end(postgres_url, "session")
        await second.snapshot(Session("a", "by the second"))
        with pytest.raises(Fenced):
            await first.snapshot(Session("a", "by the first"))
        assert "second" in str(await two.load("session"))
