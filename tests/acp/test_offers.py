"""What is offered to the client: abilities, and one list of sessions that pages without gaps."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import FilesystemStore, SnapshotMeta
from snapshot_plugin.acp.core import Core
from snapshot_plugin.acp.listing import PAGE, BadCursor, ListMethod, deleted, merged_list, page
from snapshot_plugin.acp.messages import offered
from snapshot_plugin.acp.methods import begin
from snapshot_plugin.acp.reducer import AcpReducer
from snapshot_plugin.live.sessions import LiveSessions
from tests.acp.events import BLANK

START = datetime(2026, 1, 1, tzinfo=UTC)
ALL = {"list", "resume", "fork", "close", "delete"}


def meta(session_id: str, minute: int = 0, **fields: Any) -> SnapshotMeta:
    moment = START + timedelta(minutes=minute)
    return SnapshotMeta(**{"session_id": session_id, "seq": 1, "saved_at": moment, "cwd": "/w", **fields})


def ids(sessions: list[dict[str, Any]]) -> list[str]:
    return [info["sessionId"] for info in sessions]


@pytest.mark.parametrize("capabilities", [None, {}, 5, {"sessionCapabilities": None}, {"sessionCapabilities": []}])
def test_all_session_capabilities_are_advertised_whatever_the_agent_advertises(capabilities: Any) -> None:
    result = {"protocolVersion": 1, "agentCapabilities": capabilities, "x": 1}
    shown = offered(result)
    assert shown["agentCapabilities"]["loadSession"] is True
    assert set(shown["agentCapabilities"]["sessionCapabilities"]) == ALL
    assert {key: shown[key] for key in ("protocolVersion", "x")} == {"protocolVersion": 1, "x": 1}


def test_agents_own_capabilities_are_kept() -> None:
    session = {"list": {"x": 1}, "resume": None, "rewind": {}, "_meta": {"a": 1}}
    result = {
        "agentCapabilities": {
            "loadSession": False,
            "promptCapabilities": {"image": True},
            "sessionCapabilities": session,
        }
    }
    before = json.dumps(result)
    shown = offered(result)["agentCapabilities"]
    assert shown["promptCapabilities"] == {"image": True}
    assert shown["sessionCapabilities"] == {**session, **{name: {} for name in ALL - {"list"}}}
    assert json.dumps(result) == before


def test_capability_counts_as_advertised_if_it_is_an_object() -> None:
    core = Core(view=lambda _id: BLANK, methods={})
    core.capabilities = {"sessionCapabilities": {"list": {}, "fork": None}}
    assert core.can("list")
    assert not core.can("fork")
    assert not core.can("close")
    core.capabilities = {"sessionCapabilities": 5}
    assert not core.can("list")


def test_stored_and_agent_sessions_are_listed_once_newest_first_under_our_ids() -> None:
    agents: list[dict[str, Any]] = [
        {"sessionId": "theirs", "cwd": "/w", "title": "T", "updatedAt": "2027-01-01T00:00:00Z"},
        {"sessionId": "only-theirs", "cwd": "/w", "updatedAt": "2026-01-01T01:01:30+01:00", "x": 1},
        {"sessionId": "renamed", "cwd": "/w"},
    ]
    sessions = merged_list([meta("a", 1), meta("b", 2)], agents, {"theirs": "a", "renamed": "c"}, None)
    assert ids(sessions) == ["b", "only-theirs", "a", "c"]
    assert sessions[2] == {"sessionId": "a", "cwd": "/w", "updatedAt": "2026-01-01T00:01:00.000000Z", "title": "T"}
    assert sessions[1] == agents[1]


def test_our_title_takes_precedence_over_the_agents() -> None:
    (info,) = merged_list([meta("a", title="Ours")], [{"sessionId": "a", "cwd": "/w", "title": "Theirs"}], {}, None)
    assert info["title"] == "Ours"


def test_restoration_note_is_left_out_of_titles() -> None:
    note = '<restoration-note from="asnap">\nUser: hello\n'
    mixed = {"sessionId": "x", "cwd": "/w", "title": f"go on{note}"}
    only = {"sessionId": "y", "cwd": "/w", "title": note}
    listed = {info["sessionId"]: info for info in merged_list([meta("x"), meta("y")], [mixed, only], {}, None)}
    assert listed["x"]["title"] == "go on"
    assert "title" not in listed["y"]


def test_list_can_be_limited_to_one_directory() -> None:
    agents = [{"sessionId": "c", "cwd": "/w"}, {"sessionId": "d", "cwd": "/x"}]
    ours = [meta("a"), meta("b", cwd="/x"), meta("nowhere", cwd=None)]
    assert set(ids(merged_list(ours, agents, {}, "/w"))) == {"a", "c"}
    assert merged_list(ours, agents, {}, "/nowhere") == []


@pytest.mark.parametrize(
    "nonsense", [{}, {"sessionId": 5, "cwd": "/w"}, {"sessionId": "x"}, {"sessionId": [], "cwd": 1}]
)
def test_malformed_agent_sessions_are_not_listed(nonsense: dict[str, Any]) -> None:
    assert merged_list([], [nonsense], {}, None) == []


@pytest.mark.parametrize("moment", [5, None, "yesterday", "", "9999-12-31T23:59:59-12:00", "2026-01-01T00:00:00"])
def test_malformed_times_are_ignored(moment: Any) -> None:
    assert len(merged_list([meta("a")], [{"sessionId": "x", "cwd": "/w", "updatedAt": moment}], {}, None)) == 2


def every_page(sessions: list[dict[str, Any]]) -> list[str]:
    seen: list[str] = []
    cursor = None
    while True:
        shown = page(sessions, cursor)
        assert len(shown["sessions"]) <= PAGE
        seen += ids(shown["sessions"])
        cursor = shown.get("nextCursor")
        if cursor is None:
            return seen


@pytest.mark.parametrize("count", [0, 1, PAGE, PAGE + 1, 3 * PAGE])
def test_pages_show_every_session_once(count: int) -> None:
    sessions = merged_list([meta(f"s{n}", n // 3) for n in range(count)], [], {}, None)
    assert every_page(sessions) == ids(sessions)
    assert "sessions" in page(sessions, None)


def test_paging_continues_correctly_when_sessions_appear_vanish_or_move() -> None:
    metas = {f"s{n}": meta(f"s{n}", n) for n in range(2 * PAGE)}
    first = page(merged_list(list(metas.values()), [], {}, None), None)
    last = ids(first["sessions"])[-1]
    del metas[last]
    metas["s0"], metas["new"] = meta("s0", 10_000), meta("new", 10_001)
    second = page(merged_list(list(metas.values()), [], {}, None), first["nextCursor"])
    assert set(ids(second["sessions"])) == {f"s{n}" for n in range(1, PAGE)}


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "ü",
        5,
        {},
        [],
        True,
        encoded(["other", "a", "b"]),
        encoded(["asnap", "a"]),
        encoded(["asnap", 1, 2]),
        encoded(5),
    ],
)
def test_unknown_cursor_is_refused(cursor: Any) -> None:
    with pytest.raises(BadCursor):
        page([], cursor)


def test_names_of_sessions_that_left_the_trash_are_forgotten(tmp_path: Path) -> None:
    store = FilesystemStore(tmp_path)
    sessions, listing = LiveSessions(store, AcpReducer), ListMethod(only_own=False)
    begin(sessions, "s", {})
    trashed = deleted(sessions, "s", ["s", "theirs"])
    assert trashed is not None
    assert listing._deleted(sessions) == {"s", "theirs"}
    store.sync.undelete(trashed.token)
    assert listing._deleted(sessions) == frozenset()
    assert listing._trashed == {}
    sessions.close()
