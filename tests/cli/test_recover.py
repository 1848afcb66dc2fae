from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import anyio
import jsonschema
import pytest

from snapshot_plugin import FilesystemStore
from snapshot_plugin.cli.commands.operate import Recovery
from snapshot_plugin.live.lease import Lease, Owner
from snapshot_plugin.testing import make_snapshot
from tests.cli.conftest import Asnap, saved
from tests.manager.processes import heard, python

_KILLED = """
    import sys, datetime, anyio
    from snapshot_plugin.store.filesystem import FilesystemStore
    from snapshot_plugin.live.lease import Lease, Owner
    from snapshot_plugin.live.spool import Spool

    store = FilesystemStore(sys.argv[1], background=False)
    directory = store.session_dir(sys.argv[2])
    lease = Lease.acquire(directory, Owner.this_process(since=datetime.datetime.now(datetime.UTC)))
    spool = Spool.open(directory, session_id=sys.argv[2])
    spool.append({"provider_type": "acp", "new": {"cwd": "/p"}})
    spool.append({"prompt": [{"type": "text", "text": "hello"}]})
    spool.append({"update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "wor"}}})
    print("ready", flush=True)
    sys.stdin.read()
"""


def _killed(place: Path, session_id: str) -> None:
    with python(_KILLED, place, session_id) as process:
        assert heard(process) == "ready"


def test_killed_process_is_recovered_into_one_snapshot(asnap: Asnap, place: Path) -> None:
    saved(place, make_snapshot("fine", session_id="fine"))
    _killed(place, "cut-off")

    document = asnap("recover", "--json").json

    jsonschema.validate(document, Recovery.json_schema())
    (row,) = document["sessions"]
    assert (row["session_id"], row["records"], row["snapshot"], row["problem"]) == ("cut-off", 3, 1, None)
    messages = asnap("show", "cut-off", "--json").json["messages"]
    assert [message["pieces"][0]["text"] for message in messages] == ["hello", "wor"]
    assert asnap("recover", "--json").json["sessions"] == []


@pytest.mark.requirement("MANAGER-RECOVER-LIVE")
def test_owned_session_is_left_alone(asnap: Asnap, place: Path) -> None:
    saved(place, make_snapshot("one", session_id="fine"))
    with python(_KILLED, place, "s") as process:
        assert heard(process) == "ready"
        spool = (place / "sessions" / "s" / "live").read_bytes()
        assert asnap("recover", "--json").json["sessions"] == []
        assert (place / "sessions" / "s" / "live").read_bytes() == spool
    assert [row["records"] for row in asnap("recover", "--json").json["sessions"]] == [3]


@pytest.mark.requirement("MANAGER-RECOVER-REST")
def test_unrecoverable_session_is_reported_with_its_exit_code(asnap: Asnap, place: Path) -> None:
    _killed(place, "cut-off")
    _killed(place, "other")
    spool = place / "sessions" / "cut-off" / "live"
    spool.write_bytes(spool.read_bytes().replace(b"hello", b"hellO"))

    done = asnap("recover")

    assert done.code == 3
    assert "not all recovered" in done.out
    assert len(asnap("show", "other", "--json").json["messages"]) == 2


def test_report_is_a_table_for_a_ticket(asnap: Asnap, place: Path) -> None:
    async def title() -> None:
        async with FilesystemStore(place, background=False) as store:
            await store.save((await store.load("a")).evolve(title="<img src=x> | `evil`"))

    _killed(place, "a")
    asnap("recover")
    anyio.run(title)
    _killed_again = Lease.acquire(place / "sessions" / "a", Owner.this_process(since=datetime.now(UTC)))
    _killed_again._leave_to_parent()

    lines = asnap("recover", "--format", "markdown").out.splitlines()

    assert lines[0] == "| session | title | records | outcome | owner |"
    assert "\\<img src=x\\> \\| \\`evil\\`" in lines[2]


def test_nothing_to_recover_and_no_store_are_not_errors(asnap: Asnap, place: Path) -> None:
    assert asnap("recover").code == 10
    saved(place, make_snapshot("one", session_id="s"))
    done = asnap("recover")
    assert (done.code, done.out) == (0, "")
    assert asnap("recover", "-q").err == ""


def test_an_encrypted_store_needs_its_key(asnap: Asnap, place: Path) -> None:
    saved(place, make_snapshot("one", session_id="s"), key="words")

    assert asnap("recover").code == 7
