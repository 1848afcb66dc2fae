from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from starlette.testclient import TestClient

from snapshot_plugin import FilesystemStore
from snapshot_plugin.cli.commands.setup import schemas
from snapshot_plugin.operations.sessions import SessionRow
from snapshot_plugin.testing import make_snapshot
from snapshot_plugin.web.site import Site
from tests.web.conftest import Opened

ODD = "a%25252Fb%252520c%252540d"
"""Encoded once more than a real server needs: the test client decodes twice."""
SCHEMAS = schemas()


def got(client: TestClient, path: str, **query: Any) -> Any:
    answer = client.get(f"/api/v1/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def sent(client: TestClient, method: str, path: str, body: object = None) -> Any:
    answer = client.request(method, f"/api/v1/{path}", json=body or {})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        ("sessions", "list"),
        ("sessions/one", "show"),
        ("sessions/one/history", "show"),
        ("diff?a=one", "diff"),
        ("diff?a=one&b=a/b c@d", "diff"),
        ("search?q=needle", "search"),
        ("stats?by=agent", "stats"),
        ("operations", "undo"),
        ("trash", "purge"),
        ("sessions/one/export?form=markdown&about=1", "export"),
    ],
)
def test_api_answers_match_the_json_output_of_the_cli(client: TestClient, path: str, schema: str) -> None:
    jsonschema.validate(client.get(f"/api/v1/{path}").json(), SCHEMAS[schema])


def test_sessions_are_filtered_and_paged(client: TestClient) -> None:
    assert {row["session_id"] for row in got(client, "sessions")["sessions"]} == {"one", "a/b c@d"}
    assert [row["title"] for row in got(client, "sessions", tag="old")["sessions"]] == ["odd"]
    assert [row["title"] for row in got(client, "sessions", tag="night")["sessions"]] == ["first"], (
        "an earlier one has it"
    )
    first = got(client, "sessions", limit=1)["sessions"]
    rest = got(client, "sessions", limit=5, after=first[0]["session_id"])["sessions"]
    assert len(first) == len(rest) == 1
    assert first != rest


def test_session_with_an_unusual_id_is_reachable(client: TestClient) -> None:
    assert got(client, f"sessions/{ODD}")["session"]["title"] == "odd"
    assert got(client, f"sessions/{ODD}/messages")["total"] == 2


def test_messages_are_paged_and_unchanged(client: TestClient) -> None:
    page = got(client, "sessions/one/messages", **{"from": 2, "limit": 2})
    assert [m["number"] for m in page["messages"]] == [2, 3]
    assert page["total"] == 4
    assert got(client, "sessions/one/messages", at=1)["total"] == 2


def test_long_text_is_truncated_and_available_in_full_by_number(opened: Opened, place: Path) -> None:
    store = FilesystemStore(place, background=False)
    store.sync.save(make_snapshot("x" * 100_000, session_id="long"), base=0)
    client = opened()
    (message,) = got(client, "sessions/long/messages")["messages"]
    assert message["content"][0]["length"] == 100_000
    assert len(message["content"][0]["text"]) < 30_000
    (whole,) = got(client, "sessions/long/messages/1")["messages"]
    assert len(whole["content"][0]["text"]) == 100_000


def test_missing_message_is_named(client: TestClient) -> None:
    answer = client.get("/api/v1/sessions/one/messages/9")
    assert answer.status_code == 400
    assert "has no message 9" in answer.json()["message"]


@pytest.mark.parametrize(
    "path", ["sessions/nope", "sessions/nope/messages", "sessions/nope/history", "diff?a=nope"]
)
def test_an_unknown_session_is_not_found_with_the_next_command(client: TestClient, path: str) -> None:
    answer = client.get(f"/api/v1/{path}")
    assert answer.status_code == 404
    jsonschema.validate(answer.json(), SCHEMAS["error"])
    assert answer.json()["next"].startswith("asnap list")


@pytest.mark.parametrize("path", ["sessions/one?at=x", "sessions/one/messages?limit=x", "stats?by=moon", "diff"])
def test_invalid_query_is_reported(client: TestClient, path: str) -> None:
    assert client.get(f"/api/v1/{path}").status_code == 400


class _SiteThatForgets(Site):
    """Another process deletes each session after its name was found and before its row is."""

    async def rows(self) -> list[SessionRow]:
        return []


def test_session_deleted_between_two_lookups_is_not_found(client: TestClient, opened: Opened) -> None:
    answer = opened(_SiteThatForgets).get("/api/v1/sessions/one")
    assert (answer.status_code, answer.json()["code"]) == (404, "snapshot_not_found")


def test_every_change_is_undone_by_its_operation(client: TestClient) -> None:
    done = sent(client, "PATCH", "sessions/one", {"title": "renamed"})
    assert done["changed"]
    assert got(client, "sessions/one")["session"]["title"] == "renamed"
    sent(client, "POST", f"operations/{done['operation']}/undo")
    assert got(client, "sessions/one")["session"]["title"] == "first"


@pytest.mark.parametrize(
    ("wish", "field", "value"),
    [
        ({"add_tags": ["x", "y"]}, "tags", ["x", "y"]),
        ({"pinned": True}, "pinned", True),
    ],
)
def test_labels_are_changed(client: TestClient, wish: dict[str, Any], field: str, value: object) -> None:
    sent(client, "PATCH", "sessions/one", wish)
    assert got(client, "sessions/one")["session"][field] == value


def test_a_note_is_written(client: TestClient) -> None:
    sent(client, "PATCH", "sessions/one", {"note": "waits"})
    assert got(client, "sessions/one")["about"]["note"] == "waits"


@pytest.mark.parametrize(
    "body",
    [b"[]", b"nonsense", b"{}", b'{"title": 3}', b'{"purge": true}', b'{"add_tags": [3]}', b'{"title": "latest"}'],
)
def test_invalid_change_changes_nothing(client: TestClient, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    assert client.patch("/api/v1/sessions/one", content=body, headers=headers).status_code == 400
    assert got(client, "operations")["operations"] == []


def test_fork_begins_at_a_message_and_can_be_undone(client: TestClient) -> None:
    new = sent(client, "POST", "sessions/one/fork", {"messages": 1, "at": 1})
    assert (new["messages"], new["parent_seq"]) == (1, 1)
    sent(client, "PATCH", "sessions/one", {"title": "done in another tab"})
    sent(client, "POST", f"operations/{new['operation']}/undo")
    assert {row["session_id"] for row in got(client, "sessions")["sessions"]} == {"one", "a/b c@d"}
    assert got(client, "sessions/one")["session"]["title"] == "done in another tab"


@pytest.mark.requirement("ORBIT-FUTURE-BROWSER")
def test_forget_shows_its_plan_first_and_can_be_undone(client: TestClient) -> None:
    plan = sent(client, "POST", "forget", {"sessions": ["one"], "dry_run": True})
    assert plan["dry_run"]
    assert len(got(client, "sessions")["sessions"]) == 2
    sent(client, "DELETE", "sessions/one")
    assert [row["session_id"] for row in got(client, "sessions")["sessions"]] == ["a/b c@d"]
    (entry,) = got(client, "trash")["removed"]
    sent(client, "POST", f"trash/{entry['token']}/restore")
    assert len(got(client, "sessions")["sessions"]) == 2


@pytest.mark.requirement("TRUST-REFERENCE")
def test_a_session_that_is_called_latest_is_the_one_that_the_browser_forgets(
    client: TestClient, place: Path
) -> None:
    with FilesystemStore(place, background=False).sync as store:
        store.save(make_snapshot("old words", session_id="latest", updated_at=datetime(2020, 1, 1, tzinfo=UTC)))

    assert got(client, "sessions/latest")["session"]["session_id"] == "latest"
    assert got(client, "sessions/latest/resume")["command"].startswith("asnap resume id:latest")
    forked = sent(client, "POST", "sessions/latest/fork")
    assert forked["parent_session_id"] == "latest"
    sent(client, "DELETE", "sessions/latest")
    assert "latest" not in {row["session_id"] for row in got(client, "sessions")["sessions"]}


def test_api_cannot_purge_or_start_an_agent(client: TestClient) -> None:
    for method, path in (("POST", "purge"), ("DELETE", "trash"), ("POST", "sessions/one/resume"), ("POST", "run")):
        assert client.request(method, f"/api/v1/{path}", json={}).status_code in (404, 405)


def test_resume_command_names_the_given_store(client: TestClient, opened: Opened) -> None:
    assert got(client, "sessions/one/resume")["command"] == "asnap resume one"
    elsewhere = got(opened(place="/my store"), "sessions/one/resume")["command"]
    assert elsewhere == "asnap resume one --store '/my store'"


def test_export_redacts_secrets_and_counts_them(opened: Opened, place: Path) -> None:
    secret = "sk-ant-api03-" + "a1B2" * 20
    store = FilesystemStore(place, background=False)
    store.sync.save(make_snapshot(f"the key is {secret}", session_id="leaky"), base=0)
    client = opened()
    about = got(client, "sessions/leaky/export", form="html", about=1)
    assert sum(about["redacted"].values()) == 1
    assert secret not in client.get("/api/v1/sessions/leaky/export?form=html").text
    assert secret in client.get("/api/v1/sessions/leaky/export?form=html&redact=0").text


def test_huge_message_is_cut_in_the_page_and_in_a_comparison(opened: Opened, place: Path) -> None:
    store = FilesystemStore(place, background=False)
    store.sync.save(make_snapshot("x" * 10_000_000, session_id="huge"), base=0)
    store.sync.save(make_snapshot("short", session_id="small"), base=0)
    client = opened()
    for path in ("sessions/huge/messages", "diff?a=small&b=huge", "diff?a=huge&b=small"):
        answer = client.get(f"/api/v1/{path}")
        assert answer.status_code == 200
        assert len(answer.content) < 100_000


def test_bidirectional_control_characters_are_escaped_in_json(opened: Opened, place: Path) -> None:
    store = FilesystemStore(place, background=False)
    store.sync.save(make_snapshot("\u202etrap", session_id="bidi"), base=0)
    text = opened().get("/api/v1/sessions/bidi/messages").text
    assert "\u202e" not in text
    assert json.loads(text)["messages"][0]["content"][0]["text"] == "\u202etrap"


def test_damage_is_reported_with_a_remedy(opened: Opened, place: Path) -> None:
    store = FilesystemStore(place, background=False)
    store.sync.save(make_snapshot("hello", session_id="bad"), base=0)
    for file in (place / "sessions").glob("*/*.snap.gz"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0xFF
        file.write_bytes(data)
    client = opened()
    (row,) = got(client, "sessions")["sessions"]
    assert row["state"] == "damaged"
    answer = client.get("/api/v1/sessions/bad/messages")
    assert answer.status_code == 422
    assert answer.json()["next"].startswith("asnap check")


def test_vanished_store_is_reported_and_works_again_when_back(client: TestClient, place: Path) -> None:
    place.rename(place.with_name("away"))
    answer = client.get("/api/v1/sessions")
    assert answer.status_code == 404
    assert "is gone" in answer.json()["message"]
    place.with_name("away").rename(place)
    assert len(got(client, "sessions")["sessions"]) == 2


def test_first_search_answers_immediately_while_the_rest_is_indexed(opened: Opened, place: Path) -> None:
    store = FilesystemStore(place, background=False)
    for number in range(40):
        store.sync.save(make_snapshot(f"needle {number}", session_id=f"s{number}"), base=0)
    client = opened()
    first = got(client, "search", q="needle", limit=100)
    assert (first["unindexed"], first["total_hits"]) == (40, 0)
    end = time.monotonic() + 30
    while (found := got(client, "search", q="needle", limit=100))["unindexed"]:
        assert time.monotonic() < end
    assert found["total_hits"] == 40
