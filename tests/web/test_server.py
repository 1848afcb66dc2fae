"""``asnap ui`` as a process, while an agent runs, is killed, and a store is encrypted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest

from snapshot_plugin import FilesystemStore, SnapshotConfig
from snapshot_plugin.testing import make_snapshot
from snapshot_plugin.web import site as site_module
from snapshot_plugin.web.site import Site
from tests import forkserver
from tests.acp_client import AGENT, Client

PATIENCE = 60.0
pytestmark = pytest.mark.usefixtures("environ")


class Browser:
    """What a page can ask of a running server."""

    def __init__(self, address: str) -> None:
        self.base, _, self.token = address.partition("#token=")
        self.origin = "/".join(self.base.split("/")[:3])

    def ask(self, path: str, method: str = "GET", body: Any = None) -> Any:
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        data = json.dumps(body or {}).encode() if method != "GET" else None
        request = urllib.request.Request(f"{self.origin}/api/v1/{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)

    def until(self, path: str, fits: Callable[[Any], bool]) -> Any:
        """Ask until the answer fits."""
        end = time.monotonic() + PATIENCE
        while not fits(found := self.ask(path)):
            assert time.monotonic() < end, found
            time.sleep(0.02)
        return found


@contextmanager
def serving(
    place: Path | str, *words: str, opens: bool = False, **environ: str
) -> Iterator[tuple[Browser, subprocess.Popen[str]]]:
    line = [sys.executable, "-m", "snapshot_plugin", "ui", *words, "--store", str(place)]
    line += [] if opens else ["--no-open"]
    process = forkserver.Popen(line, stdout=subprocess.PIPE, text=True, env={**os.environ, **environ})
    assert process.stdout
    try:
        yield Browser(process.stdout.readline().strip()), process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)
        process.stdout.close()


def test_first_line_is_the_address_of_the_named_session(place: Path) -> None:
    FilesystemStore(place, background=False).sync.save(make_snapshot("hi", session_id="a/b c", title="odd"), base=0)
    with serving(place, "odd") as (browser, _):
        name = quote(quote("a/b c", safe=""), safe="")
        assert browser.base.startswith("http://127.0.0.1:")
        assert browser.base.endswith(f"/s/{name}")
        assert browser.ask(f"sessions/{name}/messages")["total"] == 1


def test_missing_store_and_taken_port_are_reported(place: Path) -> None:
    line = [sys.executable, "-m", "snapshot_plugin", "ui", "--no-open", "--json", "--store"]
    missing = forkserver.run([*line, str(place)], text=True, timeout=60)
    assert missing.returncode == 10
    FilesystemStore(place, background=False).sync.save(make_snapshot("hi"), base=0)
    with serving(place) as (browser, _):
        port = browser.origin.rpartition(":")[2]
        taken = [*line, str(place), "--port", port]
        refused = forkserver.run(taken, text=True, timeout=60)
        assert refused.returncode != 0
        assert port in json.loads(refused.stderr.splitlines()[-1])["message"]


def test_encrypted_store_opens_with_the_key_from_the_environment(place: Path) -> None:
    key = "a passphrase of several words"
    FilesystemStore(place, key=key, background=False).sync.save(make_snapshot("a needle"), base=0)
    with serving(place, ASNAP_PASSPHRASE=key) as (browser, _):
        assert browser.ask("about")["encrypted"]
        assert browser.ask("search?q=needle")["total_hits"] == 1


@contextmanager
def running(store: Path | str) -> Iterator[tuple[Browser, Client, str]]:
    """A page, and an agent in the middle of a turn in this store; the last word of it is in the spool alone."""
    command = [sys.executable, "-m", "snapshot_plugin", "run", "--store", str(store), "--", *AGENT]
    with Client(command) as client:
        client.initialize()
        session_id = client.new_session()
        client.prompt(session_id, "say the first words")
        with serving(store) as (browser, _):
            rows = browser.until("sessions", lambda found: any(row["live"] for row in found["sessions"]))
            (name,) = [row["session_id"] for row in rows["sessions"] if row["live"]]
            # The save of the first turn is not to take the next words along.
            browser.until(f"sessions/{name}/messages", lambda page: not page["messages"][-1]["spooled"])
            client.begin_prompt(session_id, "say a needle in the spool\nslow-tool 60")
            client.wait_for(lambda message: "needle" in json.dumps(message))
            yield browser, client, name


def test_a_live_session_in_a_database_is_seen_with_its_spool_and_renamed(postgres_url: str) -> None:
    with running(postgres_url) as (browser, _, name):
        page = browser.until(f"sessions/{name}/messages", lambda found: "needle" in json.dumps(found["messages"]))
        assert page["messages"][-1]["spooled"]
        done = browser.ask(f"sessions/{name}", "PATCH", {"title": "renamed while live"})
        assert browser.ask(f"operations/{done['operation']}/undo", "POST")["told"]


@pytest.mark.requirement("ORBIT-FUTURE-BROWSER")
def test_a_live_session_is_seen_renamed_and_recoverable_after_its_process_was_killed(place: Path) -> None:
    with running(place) as (browser, client, name):
        page = browser.until(f"sessions/{name}/messages", lambda found: "needle" in json.dumps(found["messages"]))
        assert page["messages"][-1]["spooled"]
        done = browser.ask(f"sessions/{name}", "PATCH", {"title": "renamed while live"})
        assert done["live_pid"] == client.process.pid
        assert browser.ask(f"operations/{done['operation']}/undo", "POST")["told"]
        client.process.kill()
        client.process.wait(PATIENCE)
        browser.until("sessions", lambda found: any(r["ended_unexpectedly"] for r in found["sessions"]))
        assert "needle" in json.dumps(browser.ask(f"sessions/{name}/messages"))


def test_change_made_elsewhere_is_announced_within_a_second(place: Path) -> None:
    store = FilesystemStore(place, background=False)
    store.sync.save(make_snapshot("one", session_id="watched"), base=0)
    with serving(place) as (browser, _):
        headers = {"authorization": f"Bearer {browser.token}"}
        request = urllib.request.Request(f"{browser.origin}/api/v1/events", headers=headers)
        with urllib.request.urlopen(request, timeout=PATIENCE) as events:
            assert json.loads(events.readline())["type"] == "alive"
            assert json.loads(events.readline()) == {"type": "store", "problem": None}
            store.sync.save(make_snapshot("one", "two", session_id="watched"), base=1)
            changed = json.loads(events.readline())
            (row,) = changed.pop("rows")
            assert changed == {"type": "changed", "sessions": ["watched"]}
            assert row in browser.ask("sessions")["sessions"]
            store.sync.delete("watched")
            assert json.loads(events.readline()) == {"type": "gone", "sessions": ["watched"]}


def test_missing_extra_is_named(place: Path) -> None:
    program = (
        "import sys\nsys.modules['uvicorn'] = None\nfrom snapshot_plugin.cli import main\n"
        f"main(['ui', '--json', '--store', {str(place)!r}])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert json.loads(done.stderr.splitlines()[-1])["next"] == "pip install 'snapshot-plugin[ui]'"


def test_browser_is_opened_without_the_token_on_its_command_line(place: Path, tmp_path: Path) -> None:
    FilesystemStore(place, background=False).sync.save(make_snapshot("hi"), base=0)
    program, seen = tmp_path / "browser", tmp_path / "seen"
    program.write_text(
        f'#!/bin/sh\necho "$1" > {seen}.new && cp "${{1#file://}}" {seen}.page && mv {seen}.new {seen}\n'
    )
    program.chmod(0o700)
    with serving(place, opens=True, BROWSER=f"{program} %s") as (browser, _):
        end = time.monotonic() + PATIENCE
        while not seen.exists():
            assert time.monotonic() < end
            time.sleep(0.02)
        assert browser.token not in seen.read_text()
        assert browser.token in Path(f"{seen}.page").read_text()
        page = Path(seen.read_text().strip().removeprefix("file://"))
        assert page.parent.stat().st_mode & 0o077 == 0
    assert not page.exists()


@pytest.mark.anyio
async def test_change_during_an_update_of_the_index_is_indexed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(FilesystemStore(tmp_path), SnapshotConfig(storage_path=str(tmp_path)), environ={})
    updates: list[str] = []
    done = anyio.Event()

    async def update(*_: object) -> None:
        updates.append("update")
        if len(updates) == 1:
            site.index_soon()
        else:
            done.set()

    monkeypatch.setattr(site_module, "index_all", update)
    site.index_soon()
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(site.keep_indexed)
            await done.wait()
            tasks.cancel_scope.cancel()
    assert len(updates) == 2
