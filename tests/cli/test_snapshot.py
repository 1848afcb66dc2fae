from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import pytest

import tests
from snapshot_plugin.cli.commands.operate import SavedSessions
from snapshot_plugin.live.lease import Lease, Owner
from snapshot_plugin.testing import make_snapshot
from tests.acp.proxied import proxied
from tests.cli.conftest import Asnap, saved
from tests.manager.processes import heard, python

_ROOT = Path(tests.__path__[0]).parent
_MANAGER = """
    import sys, anyio
    sys.path.insert(0, sys.argv[2])
    from snapshot_plugin.manager.manager import SnapshotManager
    from snapshot_plugin.store.filesystem import FilesystemStore
    from tests.manager.sessions import Chat, quick

    async def main():
        async with FilesystemStore(sys.argv[1]) as store:
            async with SnapshotManager(store, quick(snapshot_interval=600, event_debounce=600)) as manager:
                for name in sys.argv[3:]:
                    await manager.start_auto_snapshot(Chat(name, "one"))
                print("ready", flush=True)
                await anyio.sleep_forever()

    anyio.run(main)
"""


@contextmanager
def manager_of(place: Path, *names: str) -> Iterator[int]:
    """A process that has these sessions; its pid."""
    with python(_MANAGER, place, _ROOT, *names) as process:
        assert heard(process) == "ready"
        yield process.pid


def test_every_live_session_is_saved_by_its_owner(asnap: Asnap, place: Path) -> None:
    saved(place, make_snapshot("idle", session_id="idle"))
    with manager_of(place, "a", "b") as pid:
        done = asnap("snapshot", "--all", "--tag", "release-7", "--json")

    jsonschema.validate(done.json, SavedSessions.json_schema())
    assert done.code == 0
    assert [(row["session_id"], row["status"]) for row in done.json["sessions"]] == [("a", "saved"), ("b", "saved")]
    assert {row["owner"]["pid"] for row in done.json["sessions"]} == {pid}
    listed = asnap("list", "--all", "--tag", "release-7", "--json").json
    assert {row["session_id"] for row in listed["sessions"]} == {"a", "b"}


def test_sessions_of_the_proxy_are_saved_too(asnap: Asnap, place: Path) -> None:
    with proxied(place) as client:
        client.initialize()
        session_id = client.new_session()
        client.prompt(session_id, "say hello")
        done = asnap("snapshot", "--all", "--json")
        assert done.code == 0, done.json
        assert [row["session_id"] for row in done.json["sessions"]] == [session_id]
    history = asnap("show", session_id, "--history", "--json").json["history"]
    assert [row["messages"] for row in history if "pre-deploy" in row["tags"]] == [2]


def test_unreachable_session_is_named_and_sets_the_exit_code(asnap: Asnap, place: Path) -> None:
    saved(place, make_snapshot("one", session_id="deaf"))
    deaf = Lease.acquire(place / "sessions" / "deaf", Owner.this_process(since=datetime.now(UTC)))
    try:
        with manager_of(place, "a"):
            done = asnap("snapshot", "--all", "--wait", "5s")
            assert done.code == 3
            assert "1 of 2 sessions saved" in done.err
            assert "not reachable" in done.out
        assert asnap("snapshot", "deaf").code == 1
    finally:
        deaf.release()


def test_one_session_can_be_named_and_one_without_an_owner_is_idle(asnap: Asnap, place: Path) -> None:
    saved(place, make_snapshot("one", session_id="idle"))
    with manager_of(place, "a", "b"):
        document = asnap("snapshot", "a", "--json").json
        assert [(row["session_id"], row["status"]) for row in document["sessions"]] == [("a", "saved")]
        done = asnap("snapshot", "a", "idle", "--json")
    assert done.code == 3
    assert done.json["sessions"][1]["status"] == "not_live"
    assert asnap("snapshot", "nothing-like-it").code == 4


def test_no_live_session_is_not_a_failure(asnap: Asnap, place: Path) -> None:
    saved(place, make_snapshot("one", session_id="idle"))

    done = asnap("snapshot", "--all")

    assert (done.code, done.out) == (0, "")


def test_markdown_report_escapes_titles(asnap: Asnap, place: Path) -> None:
    saved(place, make_snapshot("one", session_id="a", title="[x](javascript:1) | <b> @all"))
    held = Lease.acquire(place / "sessions" / "a", Owner.this_process(since=datetime.now(UTC)))
    try:
        lines = asnap("snapshot", "--all", "--wait", "1s", "--format", "markdown").out.splitlines()
    finally:
        held.release()

    assert lines[0] == "| session | title | status | snapshot | owner | problem |"
    assert lines[2].startswith("| a | \\[x\\](javascript\\:1) \\| \\<b\\> \\@all | not reachable |")
    assert lines[4].startswith("0 of 1 session saved as pre-deploy")


@pytest.mark.parametrize("words", [[], ["--all", "a"], ["--all", "--wait", "soon"], ["--all", "--wait", "-1s"]])
def test_invalid_command_line_is_refused(asnap: Asnap, place: Path, words: list[str]) -> None:
    saved(place, make_snapshot("one", session_id="a"))

    assert asnap("snapshot", *words).code == 2


def test_missing_store_and_missing_key_have_their_exit_codes(asnap: Asnap, place: Path) -> None:
    assert asnap("snapshot", "--all").code == 10
    saved(place, make_snapshot("one", session_id="a"), key="words")
    assert asnap("snapshot", "--all").code == 7


def test_the_proxy_is_named_as_people_know_it(asnap: Asnap, place: Path) -> None:
    with proxied(place) as client:
        client.initialize()
        name = client.new_session()
        owner = asnap("snapshot", name, "--json").json["sessions"][0]["owner"]

    assert owner["command"] == ["asnap"]
