"""`asnap snapshot --all` and renames ask owners on other nodes, through the database."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from snapshot_plugin.store.postgres.address import Address
from snapshot_plugin.store.postgres.database import Database
from tests.acp_client import PATIENCE
from tests.postgres.test_nodes import asnap, move_owner, told

MANY = 320
"""More than the threads of an asking process can wait for at once."""
_NODE = """
import sys
import anyio
from snapshot_plugin import SnapshotManager
from snapshot_plugin.store import open_store
from snapshot_plugin.testing import make_snapshot

class Session:
    def __init__(self, number):
        self.session_id = f"session-{number:03d}"
    def snapshot(self):
        return make_snapshot("hello", session_id=self.session_id)

async def main():
    async with open_store(sys.argv[1]) as store, SnapshotManager(store) as manager:
        for number in range(int(sys.argv[2])):
            await manager.start_auto_snapshot(Session(number), 3600)
        print("ready", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)

anyio.run(main)
"""


@contextlib.contextmanager
def node(url: str, sessions: int) -> Iterator[None]:
    """A process that owns so many sessions, on what the database takes for another machine."""
    command = [sys.executable, "-c", _NODE, url, str(sessions)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        move_owner(url, "another-node")
        try:
            yield
        finally:
            process.stdin.close()


def requests(url: str) -> int:
    """How many sessions have a request."""
    database = Database(Address.parse(url))
    ((count,),) = database.rows("SELECT count(*) FROM {live} WHERE asked IS NOT NULL")
    database.close()
    return int(count)


@pytest.mark.requirement("MANAGER-ALL-KILLED")
def test_killed_asker_does_not_block_later_ones(postgres_url: str, tmp_path: Path) -> None:
    url = f"{postgres_url}&lease=6"
    with node(url, 2):
        command = [sys.executable, "-m", "snapshot_plugin", "snapshot", "--all", "--store", url]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, env={**os.environ, "HOME": str(tmp_path)}
        ) as asker:
            deadline = time.monotonic() + PATIENCE
            while not requests(url):
                assert time.monotonic() < deadline
                assert asker.poll() is None
            asker.send_signal(signal.SIGKILL)
        ran = asnap(url, "snapshot", "--all", "--json", home=tmp_path)
        assert ran.returncode == 0, ran.stdout
        told(url, "rename", "session-001", "Named from afar", home=tmp_path)


@pytest.mark.requirement("MANAGER-ALL-MANY")
def test_hundreds_of_sessions_on_another_node_are_saved_in_one_go(postgres_url: str, tmp_path: Path) -> None:
    url = f"{postgres_url}&lease=9"
    with node(url, MANY):
        ran = asnap(url, "snapshot", "--all", "--wait", "15s", "--json", home=tmp_path)
        outcomes = [each["status"] for each in json.loads(ran.stdout)["sessions"]]
        assert outcomes == ["saved"] * MANY
        assert ran.returncode == 0
