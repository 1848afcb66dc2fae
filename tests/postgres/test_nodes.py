"""Two nodes with one store in PostgreSQL: one dies or stops in mid-stream, the other takes its session over."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from snapshot_plugin import SessionLocked
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.live.place import place_of
from snapshot_plugin.store.postgres.address import Address
from snapshot_plugin.store.postgres.database import Database
from snapshot_plugin.store.postgres.store import PostgresStore
from snapshot_plugin.testing import make_snapshot
from tests import forkserver
from tests.acp.proxied import history, proxied, words
from tests.acp_client import PATIENCE, Client
from tests.postgres.test_live import let_lease_end, let_time_pass

COUNT = 30
_DIES_SOON = """
import os, signal, sys
from datetime import UTC, datetime
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.live.place import place_of
from snapshot_plugin.store import open_store

hold = place_of(open_store(sys.argv[1])).take("new", Owner.this_process(since=datetime.now(UTC)))
hold.append([{"update": {"content": {"text": "seen"}}}])
os.kill(os.getpid(), signal.SIGKILL)
"""


def node(url: str) -> Client:
    return proxied(url, "--no-load", "--no-resume")  # type: ignore[arg-type] # a URL in the place of a path


def asnap(url: str, *words: str, home: Path) -> subprocess.CompletedProcess[str]:
    """A command of another node: its home directory is empty."""
    command = [sys.executable, "-m", "snapshot_plugin", *words, "--store", url]
    env = {**os.environ, "HOME": str(home)}
    return forkserver.run(command, text=True, timeout=PATIENCE, env=env)


def told(url: str, *words: str, home: Path) -> Any:
    done = asnap(url, *words, "--json", home=home)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def begun(client: Client) -> str:
    client.initialize()
    session_id = client.new_session()
    client.prompt(session_id, "say first")
    client.begin_prompt(session_id, "stream 900 20")
    client.wait_for_text(f"part-{COUNT:03d}")
    return session_id


def seen_by_owner(client: Client, session_id: str) -> str:
    return client.said(session_id).removeprefix("first")


def agent_said(client: Client, session_id: str) -> str:
    _, updates = history(client, session_id)
    return "".join(text for who, text in words(updates) if who == "agent").removeprefix("first")


class TestTakeover:
    def test_node_killed_in_mid_stream_loses_nothing_seen(self, postgres_url: str) -> None:
        with node(postgres_url) as first:
            session_id = begun(first)
            seen = seen_by_owner(first, session_id)
            first.kill()
        let_lease_end(postgres_url, session_id)
        with node(postgres_url) as second:
            second.initialize()
            assert agent_said(second, session_id).startswith(seen)
            assert second.prompt(session_id, "say on") == "on"

    def test_killed_node_holds_the_session_only_until_its_lease_expires(self, postgres_url: str) -> None:
        url = f"{postgres_url}&lease=600"
        with node(url) as first:
            session_id = begun(first)
            first.kill()
        store = PostgresStore(url, background=False)
        place, us = place_of(store), Owner.this_process(since=datetime.now(UTC))
        assert place is not None
        with pytest.raises(SessionLocked, match=f"{first.process.pid}"):
            place.take(session_id, us)
        let_time_pass(url, session_id, 599.5)
        deadline = time.monotonic() + PATIENCE
        hold = None
        while hold is None:
            assert time.monotonic() < deadline
            with contextlib.suppress(SessionLocked):
                hold = place.take(session_id, us)
        assert hold.previous is not None
        assert hold.previous.pid == first.process.pid
        hold.hand_back()
        store.close()

    def test_suspended_node_waking_after_a_takeover_is_fenced_and_its_agent_killed(self, postgres_url: str) -> None:
        url = f"{postgres_url}&lease=1.5"
        with node(url) as first:
            session_id = begun(first)
            agent = children(first)[0]
            os.kill(first.process.pid, signal.SIGSTOP)
            let_lease_end(url, session_id)
            with node(url) as second:
                second.initialize()
                agent_said(second, session_id)
                assert second.prompt(session_id, "say second") == "second"
                os.kill(first.process.pid, signal.SIGCONT)
                assert first.exit_status() == 6
                assert not Path(f"/proc/{agent}/stat").exists()
                assert "took session" in first.stderr
                answer = first.received[-1].message or {}
                assert "took session" in json.dumps(answer)
                assert second.prompt(session_id, "say third") == "third"
        with node(url) as third:
            third.initialize()
            assert agent_said(third, session_id).endswith("secondthird")

    def test_one_of_two_nodes_resuming_at_once_is_refused(self, postgres_url: str) -> None:
        """At once after the owner's proper end, too: nobody waits for the time of its lease."""
        with node(postgres_url) as first:
            first.initialize()
            session_id = first.new_session()
            first.prompt(session_id, "say hello")
        with node(postgres_url) as one, node(postgres_url) as two:
            params = {"sessionId": session_id, "cwd": "/", "mcpServers": []}
            for each in (one, two):
                each.initialize()
            requests = [(each, each.begin("session/load", params)) for each in (one, two)]
            answers = [each.answer_to(request) for each, request in requests]
            assert sorted("error" in answer for answer in answers) == [False, True]


def children(client: Client) -> list[int]:
    path = Path(f"/proc/{client.process.pid}/task/{client.process.pid}/children")
    return [int(pid) for pid in path.read_text().split()]


class TestCommandsOnAnotherNode:
    @pytest.fixture
    def session_id(self, postgres_url: str) -> str:
        store = PostgresStore(postgres_url, background=False)
        store.sync.save(make_snapshot("pelican", session_id="birds"))
        store.close()
        return "birds"

    def test_sessions_are_listed_found_shown_and_resumed(
        self, postgres_url: str, session_id: str, tmp_path: Path
    ) -> None:
        listed = told(postgres_url, "list", "--all", home=tmp_path)["sessions"]
        assert [row["session_id"] for row in listed] == [session_id]
        assert "pelican" in asnap(postgres_url, "search", "pelican", home=tmp_path).stdout
        resumed = told(postgres_url, "resume", session_id, "--with", "some-agent", home=tmp_path)
        assert resumed["command"][:4] == ["asnap", "run", "--store", postgres_url]

    def test_session_is_tagged_forked_compared_and_explained(
        self, postgres_url: str, session_id: str, tmp_path: Path
    ) -> None:
        here, there = tmp_path / "here", tmp_path / "there"
        told(postgres_url, "tag", session_id, "water", home=here)
        told(postgres_url, "fork", session_id, home=here)
        rows = told(postgres_url, "list", "--all", home=there)["sessions"]
        assert {row["parent"] for row in rows} == {None, session_id}
        assert "water" in rows[-1]["tags"] + rows[0]["tags"]
        versions = f"{session_id}@1", f"{session_id}@2"
        for command in (("diff", *versions), ("why", session_id), ("stats",), ("doctor",)):
            ran = asnap(postgres_url, *command, home=there)
            assert ran.returncode == 0, ran.stderr

    @pytest.mark.usefixtures("session_id")
    def test_doctor_says_what_a_failover_would_lose(self, postgres_url: str, tmp_path: Path) -> None:
        findings = told(postgres_url, "doctor", home=tmp_path)["findings"]
        assert any("synchronous_standby_names" in each["what"] for each in findings)

    def test_forgotten_session_is_restored_with_undo_on_another_machine(
        self, postgres_url: str, session_id: str, tmp_path: Path
    ) -> None:
        here, there = tmp_path / "here", tmp_path / "there"
        told(postgres_url, "rename", session_id, "Water birds", home=here)
        told(postgres_url, "forget", session_id, "--yes", home=here)
        assert told(postgres_url, "list", "--all", home=there)["sessions"] == []
        told(postgres_url, "undo", home=there)
        (row,) = told(postgres_url, "list", "--all", home=there)["sessions"]
        assert row["title"] == "Water birds"

    def test_session_of_a_killed_node_is_recovered(self, postgres_url: str, tmp_path: Path) -> None:
        with node(postgres_url) as first:
            session_id = begun(first)
            first.kill()
        let_lease_end(postgres_url, session_id)
        recovered = told(postgres_url, "recover", home=tmp_path)["sessions"]
        assert [each["session_id"] for each in recovered] == [session_id]
        assert recovered[0]["records"] > 0
        assert told(postgres_url, "recover", home=tmp_path)["sessions"] == []

    def test_session_that_died_before_its_first_snapshot_is_listed_as_ended(
        self, postgres_url: str, tmp_path: Path
    ) -> None:
        """As on a disk: its words are only in the spool, and ``asnap recover`` makes a snapshot of them."""
        died = subprocess.run([sys.executable, "-c", _DIES_SOON, postgres_url], check=False, timeout=PATIENCE)
        assert died.returncode == -signal.SIGKILL
        (row,) = told(postgres_url, "list", "--all", home=tmp_path)["sessions"]
        assert (row["session_id"], row["seq"], bool(row["live"])) == ("new", 0, True)
        let_lease_end(postgres_url, "new")
        (row,) = told(postgres_url, "list", "--all", home=tmp_path)["sessions"]
        assert (row["session_id"], row["ended_unexpectedly"], row["next"]) == ("new", True, "asnap recover")

    def test_live_sessions_are_saved_before_a_deploy_and_may_not_be_forgotten(
        self, postgres_url: str, tmp_path: Path
    ) -> None:
        with node(postgres_url) as client:
            session_id = begun(client)
            saved = told(postgres_url, "snapshot", "--all", home=tmp_path)
            assert [(each["session_id"], each["status"]) for each in saved["sessions"]] == [(session_id, "saved")]
            (row,) = told(postgres_url, "list", "--all", home=tmp_path)["sessions"]
            assert row["live"]["pid"] == client.process.pid
            assert asnap(postgres_url, "forget", session_id, "--yes", home=tmp_path).returncode == 6

    def test_owners_on_other_nodes_save_and_rename_through_the_database(
        self, postgres_url: str, tmp_path: Path
    ) -> None:
        url = f"{postgres_url}&lease=6"
        with node(url) as client:
            session_id = begun(client)
            move_owner(url, "another-node")
            (saved,) = told(url, "snapshot", "--all", "--tag", "deploy", home=tmp_path)["sessions"]
            assert (saved["session_id"], saved["status"], saved["owner"]["host"]) == (
                session_id,
                "saved",
                "another-node",
            )
            told(url, "rename", session_id, "Named from afar", home=tmp_path)
            (row,) = told(url, "list", "--all", home=tmp_path)["sessions"]
            assert row["title"] == "Named from afar"

    def test_unresponsive_owner_is_named(self, postgres_url: str, tmp_path: Path) -> None:
        url = f"{postgres_url}&lease=600"
        with node(url) as client:
            begun(client)
            move_owner(url, "another-node")
            os.kill(client.process.pid, signal.SIGSTOP)
            ran = asnap(url, "snapshot", "--all", "--wait", "1s", "--json", home=tmp_path)
            os.kill(client.process.pid, signal.SIGCONT)
            (missed,) = json.loads(ran.stdout)["sessions"]
            assert (ran.returncode, missed["status"]) == (1, "not_reachable")


def move_owner(url: str, host: str) -> None:
    """Have the database believe that the owner runs on another machine."""
    database = Database(Address.parse(url))
    database.rows(
        "UPDATE {live} SET owner = jsonb_set(owner::jsonb, '{{host}}', to_jsonb(%s::text))::text"
        " WHERE owner IS NOT NULL",
        host,
    )
    database.close()


def test_clean_release_is_announced_and_the_session_can_be_taken_immediately(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, background=False)
    place, us = place_of(store), Owner.this_process(since=datetime.now(UTC))
    assert place is not None
    hold = place.take("session", us)
    with psycopg.connect(Address.parse(postgres_url).conninfo, autocommit=True) as listening:
        listening.execute(f'LISTEN "{store.live_rows.channel}"'.encode())
        hold.release()
        (told_of,) = listening.notifies(timeout=PATIENCE, stop_after=1)
    assert told_of.payload == "session"
    again = place.take("session", us)
    assert again.epoch > hold.epoch
    again.release()
    store.close()
