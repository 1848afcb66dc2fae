"""No id or name can be taken for another one, wherever it comes from."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from snapshot_plugin import FilesystemStore, InvalidSessionId, SnapshotManager
from snapshot_plugin.manager.ports import adapt
from snapshot_plugin.testing import make_snapshot
from tests.acp_client import Client
from tests.cli.conftest import Asnap, saved


@pytest.fixture
def bundled(asnap: Asnap, home: Path) -> Callable[..., Path]:
    """Make a bundle elsewhere, of a session with this id and title."""

    def make(session_id: str, title: str = "from elsewhere") -> Path:
        elsewhere, file = home / "elsewhere", home / "theirs.asnap"
        saved(elsewhere, make_snapshot("their words", session_id=session_id, title=title))
        assert asnap("export", f"id:{session_id}", "-o", file, "--store", elsewhere).code == 0
        return file

    return make


@pytest.mark.requirement("TRUST-PART")
@pytest.mark.parametrize("suffix", ["+memory", "+subgraphs"])
def test_an_import_never_becomes_a_hidden_part_of_a_session(
    suffix: str, bundled: Callable[..., Path], place: Path, asnap: Asnap
) -> None:
    saved(place, make_snapshot("mine", session_id="victim"))
    file = bundled(f"victim{suffix}")

    told = asnap("import", file)
    assert (told.code, "hidden part" in told.err) == (0, True)
    [row] = asnap("import", file, "--json").json["sessions"]
    assert (row["outcome"], row["source_id"]) == ("already_there", f"victim{suffix}")
    listed = {each["session_id"] for each in asnap("list", "--all", "--json").json["sessions"]}
    assert listed == {"victim", row["session_id"]}

    asnap("forget", "victim", "--yes")
    assert asnap("show", row["session_id"]).code == 0


@pytest.mark.requirement("TRUST-PART")
def test_nobody_can_choose_the_id_of_a_hidden_part(bundled: Callable[..., Path], place: Path, asnap: Asnap) -> None:
    saved(place, make_snapshot("mine", session_id="victim"))

    async def chosen() -> None:
        async with FilesystemStore(place) as store, SnapshotManager(store) as manager:
            with pytest.raises(InvalidSessionId):
                await manager.fork("victim", as_id="other+memory")
            state = make_snapshot("mine", session_id="victim+memory")
            with pytest.raises(InvalidSessionId):
                await manager.snapshot(adapt(state, lambda live: live))
            assert len(await store.list()) == 1

    anyio.run(chosen)
    file = bundled("theirs")
    assert asnap("import", file, "--as", "victim+memory").code == 2
    assert asnap("import", file, "--as", "latest").code == 2


@pytest.fixture
def captured(place: Path) -> None:
    """A store with a session that is called ``latest``, one that is called as a snapshot, and two newer ones."""
    before, after = datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC)
    for name in ("latest", "tag:deploy", "mine@1"):
        saved(place, make_snapshot("their words", session_id=name, updated_at=datetime(2026, 1, 1, tzinfo=UTC)))
    saved(place, make_snapshot("tagged", session_id="tagged", tags=("deploy",), updated_at=before))
    for words in (["mine"], ["mine", "newer"]):
        saved(place, make_snapshot(*words, session_id="mine", updated_at=after))


@pytest.mark.requirement("TRUST-REFERENCE")
@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize(
    ("ref", "session_id", "seq"),
    [
        ("latest", "mine", 2),
        ("latest~1", "tagged", 1),
        ("tag:deploy", "tagged", 1),
        ("mine@1", "mine", 1),
        ("id:latest", "latest", 1),
        ("id:latest@1", "latest", 1),
        ("id:tag:deploy", "tag:deploy", 1),
        ("id:mine@1", "mine@1", 1),
        ("id:mine@2", "mine", 2),
    ],
)
def test_a_reference_means_the_same_whatever_sessions_are_called(
    ref: str, session_id: str, seq: int, asnap: Asnap
) -> None:
    shown = asnap("show", ref, "--json").json

    assert (shown["session"]["session_id"], shown["snapshot"]) == (session_id, seq)


AGENT = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    result = {
        "initialize": {"protocolVersion": 1, "agentCapabilities": {}},
        "session/new": {"sessionId": "latest"},
        "session/prompt": {"stopReason": "end_turn"},
    }[asked["method"]]
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@pytest.mark.requirement("TRUST-REFERENCE")
def test_an_agent_may_call_its_session_latest_and_captures_nothing(home: Path, place: Path, asnap: Asnap) -> None:
    (home / "agent.py").write_text(AGENT)
    proxy = [sys.executable, "-m", "snapshot_plugin", "run", "--store", str(place), "--"]
    with Client([*proxy, sys.executable, str(home / "agent.py")]) as client:
        client.initialize()
        assert client.new_session() == "latest"
        client.prompt("latest", "their words")
    saved(place, make_snapshot("mine", session_id="mine", updated_at=datetime(2100, 1, 1, tzinfo=UTC)))

    assert asnap("show", "latest", "--json").json["session"]["session_id"] == "mine"
    assert asnap("show", "id:latest", "--json").json["session"]["session_id"] == "latest"


@pytest.mark.requirement("TRUST-REFERENCE")
@pytest.mark.usefixtures("captured")
def test_forget_latest_forgets_the_newest_session_and_the_one_called_latest_can_be_forgotten(asnap: Asnap) -> None:
    assert asnap("forget", "latest", "--yes").code == 0
    assert "mine" not in asnap("list", "--all", "--ids").out.split()

    assert asnap("forget", "id:latest", "--yes").code == 0
    assert set(asnap("list", "--all", "--ids").out.split()) == {"id:tag:deploy", "id:mine@1", "tagged"}


@pytest.mark.requirement("TRUST-REFERENCE")
@pytest.mark.usefixtures("captured")
def test_what_a_list_or_hint_calls_a_session_leads_to_it(asnap: Asnap) -> None:
    for row in asnap("list", "--all", "--json").json["sessions"]:
        assert asnap("show", row["short_id"], "--json").json["session"]["session_id"] == row["session_id"]

    assert "--session id:latest" in asnap("resume", "id:latest", "--with", "true", "--print").out


@pytest.mark.requirement("TRUST-REFERENCE")
def test_the_title_of_an_import_does_not_hide_a_session_whose_id_begins_so(
    bundled: Callable[..., Path], place: Path, asnap: Asnap
) -> None:
    saved(place, make_snapshot("mine", session_id="01jd7abcdefg"))
    asnap("import", bundled("theirs", title="01jd7a"))

    refused = asnap("forget", "01jd7a", "--yes")
    assert refused.code == 2
    assert "01jd7abcdefg" in refused.err
    assert "theirs" in refused.err


@pytest.mark.requirement("TRUST-REFERENCE")
@pytest.mark.parametrize("name", ["latest", "latest~3", "tag:x", "mine@1", "id:x"])
def test_a_reference_cannot_become_a_name(name: str, place: Path, asnap: Asnap) -> None:
    saved(place, make_snapshot("mine", session_id="mine"))

    assert asnap("rename", "mine", name).code == 2
