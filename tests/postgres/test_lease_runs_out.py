"""A node that cannot reach the database stops before another node can own its session."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from snapshot_plugin import SnapshotManager
from snapshot_plugin.live.place import place_of
from snapshot_plugin.manager.events import SnapshotFailed
from snapshot_plugin.store.postgres.store import PostgresStore
from tests.acp.proxied import history, words
from tests.acp_client import PATIENCE, Client
from tests.postgres.line import Line, line_to
from tests.postgres.test_nodes import children, node

pytestmark = pytest.mark.requirement("MANAGER-LEASE-EXPIRES")
LEASE = 1.5
WORK = "stream 5 10\ntool\n" * 200
"""Words and tools for several lease times."""


@pytest.fixture
def line(postgres_url: str) -> Iterator[tuple[Line, str]]:
    """The line of the first node; others reach the server directly."""
    with line_to(f"{postgres_url}&lease={LEASE}") as found:
        yield found


def working(client: Client) -> tuple[str, int | str]:
    """A session whose agent streams words and runs tools; and the prompt it works on."""
    client.initialize()
    session_id = client.new_session()
    prompt = client.begin_prompt(session_id, WORK)
    client.wait_for_update("tool_call", toolCallId="call-3")
    return session_id, prompt


def taken_over(client: Client, session_id: str) -> list[dict[str, Any]]:
    """The session as another node has it, once that can load it."""
    client.initialize()
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = client.answer_to(client.begin("session/load", load(session_id)))
        if "error" not in answer:
            break
        assert "locked" in json.dumps(answer) or "belongs to" in json.dumps(answer), answer
        assert time.monotonic() < deadline
        time.sleep(0.02)  # until the server's clock has reached the end of the lease
    return history(client, session_id)[1]


def load(session_id: str) -> dict[str, Any]:
    return {"sessionId": session_id, "cwd": "/", "mcpServers": []}


def tools(updates: list[dict[str, Any]]) -> list[str]:
    return [update["toolCallId"] for update in updates if update["sessionUpdate"] == "tool_call"]


def said(updates: list[dict[str, Any]]) -> str:
    return "".join(text for who, text in words(updates) if who == "agent")


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@pytest.mark.parametrize("fault", ["cut", "freeze"])
def test_node_without_its_database_pauses_the_agent_and_shows_nothing_that_is_not_in_the_session(
    line: tuple[Line, str], postgres_url: str, fault: str
) -> None:
    way, through = line
    with node(through) as first, node(f"{postgres_url}&lease={LEASE}") as second:
        session_id, prompt = working(first)
        agent = children(first)[0]
        getattr(way, fault)()
        kept = taken_over(second, session_id)
        assert is_stopped(agent)
        way.mend()
        assert first.exit_status() == 6
        assert "took session" in json.dumps(first.answer_to(prompt))
        assert said(kept).startswith(first.said(session_id))
        assert set(tools(first.updates(session_id))) <= set(tools(kept))


def test_node_that_wakes_after_a_takeover_shows_nothing_that_is_not_in_the_session(postgres_url: str) -> None:
    url = f"{postgres_url}&lease={LEASE}"
    with node(url) as first, node(url) as second:
        session_id, prompt = working(first)
        os.kill(first.process.pid, signal.SIGSTOP)
        kept = taken_over(second, session_id)
        os.kill(first.process.pid, signal.SIGCONT)
        assert first.exit_status() == 6
        assert "took session" in json.dumps(first.answer_to(prompt))
        assert said(kept).startswith(first.said(session_id))
        assert set(tools(first.updates(session_id))) <= set(tools(kept))


@pytest.mark.parametrize("fault", ["cut", "freeze"])
def test_agent_goes_on_once_the_database_answers_again(
    line: tuple[Line, str], postgres_url: str, fault: str
) -> None:
    way, through = line
    with node(through) as first:
        session_id, prompt = working(first)
        agent = children(first)[0]
        getattr(way, fault)()
        until(lambda: is_stopped(agent))
        told = first.wait_for_update("session_info_update")
        assert told["_meta"]["asnap"]["recorded"] is False
        way.mend()
        assert first.answer_to(prompt)["result"]["stopReason"] == "end_turn"
        shown = first.updates(session_id)
        first.wait_for_update("session_info_update", _meta={"asnap": {"recorded": True}})
    with node(postgres_url) as second:
        second.initialize()
        kept = history(second, session_id)[1]
    assert said(kept) == said(shown)
    assert tools(kept) == tools(shown)


@pytest.mark.anyio
async def test_manager_tells_that_the_lease_ran_out_before_another_node_can_own_the_session(
    line: tuple[Line, str], postgres_url: str
) -> None:
    way, through = line
    failures: list[SnapshotFailed] = []
    async with PostgresStore(through) as store, SnapshotManager(store) as manager:
        manager.events.subscribe(failures.append, SnapshotFailed)
        async with manager.leasing("session") as managed:
            await managed.take()
            assert await manager.spool("session", {"append": {"text": "one"}})
            assert manager.seconds_left("session") > 0
            way.cut()
            with anyio.fail_after(PATIENCE):
                while not any(event.operation == "lease" for event in failures):
                    assert not await anyio.to_thread.run_sync(is_free, postgres_url)
                    await anyio.sleep(0.01)
            assert manager.seconds_left("session") <= 0
            assert not await manager.spool("session", {"append": {"text": "two"}})
            way.mend()
            await anyio.to_thread.run_sync(until, lambda: manager.seconds_left("session") > 0)
    assert manager.seconds_left("session") == 0


def is_free(url: str) -> bool:
    """Whether another node could own the session now."""
    store = PostgresStore(url, background=False)
    place = place_of(store)
    assert place is not None
    try:
        return place.owner("session") is None
    finally:
        store.close()
