from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import jsonschema
import pytest

from snapshot_plugin import FilesystemStore
from snapshot_plugin.cli.commands.care import Why
from snapshot_plugin.testing import make_snapshot
from tests.cli.conftest import Asnap, saved

NOW = datetime.now(UTC)


def test_snapshot_names_its_trigger_and_base(asnap: Asnap, place: Path) -> None:
    saved(place, make_snapshot("one", session_id="s"), make_snapshot("one", "two", "three", session_id="s"))

    document = asnap("why", "s", "--json").json

    jsonschema.validate(document, Why.json_schema())
    assert (document["snapshot"], document["based_on"], document["added_messages"]) == (2, 1, 2)
    assert (document["trigger"], document["keep"]) == ("manual", True)
    assert asnap("why", "s@1", "--json").json["based_on"] is None


def test_retention_rules_are_named_with_their_origin(
    asnap: Asnap, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def save() -> None:
        times = iter(NOW - timedelta(days=n) for n in (9, 8, 7, 6, 5))
        async with FilesystemStore(place, background=False, clock=lambda: next(times, NOW)) as store:
            for n in range(4):
                tags = ("release",) if n == 1 else ()
                await store.save(make_snapshot(*map(str, range(n + 1)), session_id="s"), tags=tags)

    anyio.run(save)
    monkeypatch.setenv("ASNAP_RETENTION", '{"keep_last": 2}')

    answers = {n: asnap("why", f"s@{n}", "--json").json for n in (1, 2, 3, 4)}

    assert {n: answer["keep"] for n, answer in answers.items()} == {1: False, 2: True, 3: True, 4: True}
    assert answers[1]["reasons"] == []
    assert answers[2]["reasons"] == ["it is tagged release"]
    assert answers[3]["reasons"] == ["it is one of the last 2"]
    assert answers[4]["reasons"][0] == "it is the newest"
    assert "retention" in answers[4]["policy_from"]
    assert "dropped" in asnap("why", "s@1").out


def test_fork_names_its_parent(asnap: Asnap, place: Path) -> None:
    parent = {"session_id": "p", "seq": 3, "message_index": 5}
    saved(place, make_snapshot("one", session_id="s", parent=parent))

    assert asnap("why", "s", "--json").json["fork_of"] == {"session_id": "p", "snapshot": 3, "messages": 5}
    assert "session p@3" in asnap("why", "s").out


def test_unknown_snapshot_is_not_found(asnap: Asnap, place: Path) -> None:
    assert asnap("why", "s").code == 10
    saved(place, make_snapshot("one", session_id="s"))
    assert asnap("why", "nothing-like-it").code == 4
    done = asnap("why", "s@7", "--json")
    assert (done.code, done.error["next"]) == (4, "asnap show s --history")


def test_damaged_snapshot_is_reported_as_kept(asnap: Asnap, place: Path) -> None:
    saved(place, make_snapshot("one", session_id="s"))
    file = next((place / "sessions" / "s").glob("*.snap.gz"))
    file.write_bytes(file.read_bytes()[:-20] + b"x" * 20)

    document = asnap("why", "s", "--json").json

    assert (document["state"], document["keep"]) == ("damaged", True)


def test_titles_and_tags_cannot_control_the_terminal(asnap: Asnap, place: Path) -> None:
    saved(place, make_snapshot("one", session_id="s", title="\x1b[2Jevil"), tags=("\x1b]0;x\x07t",))

    done = asnap("why", "s")

    assert done.code == 0
    assert not set("\x1b\x07") & set(done.out)


def test_forget_by_policy_drops_exactly_what_why_said(
    asnap: Asnap, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def save() -> None:
        async with FilesystemStore(place, background=False) as store:
            for n in range(12):
                tags = {2: ("mine",), 3: ("before-fallback",), 4: ("before-fallback",), 5: ("before-fallback",)}
                more = ("before-fallback",) if n == 6 else tags.get(n, ())
                await store.save(make_snapshot(*map(str, range(n + 1)), session_id="s"), tags=more)

    anyio.run(save)
    monkeypatch.setenv("ASNAP_RETENTION", '{"keep_last": 3, "keep_tags": ["other"]}')

    told = {n: asnap("why", f"s@{n}", "--json").json["keep"] for n in range(1, 13)}
    assert asnap("forget", "s", "--policy", "--yes").code == 0
    left = {row["seq"] for row in asnap("show", "s", "--history", "--json").json["history"]}

    assert left == {n for n, keep in told.items() if keep} == {3, 5, 6, 7, 10, 11, 12}


def test_why_reports_that_the_whole_session_is_forgotten(
    asnap: Asnap, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(place, make_snapshot("one", session_id="s", updated_at=NOW - timedelta(days=9)))
    monkeypatch.setenv("ASNAP_MAX_SESSION_AGE", "7d")

    told = asnap("why", "s", "--json").json
    assert (told["keep"], told["session_goes"]) == (False, "not changed within max_session_age")
    assert asnap("forget", "--all", "--policy", "--yes").code == 0
    assert asnap("list", "--all", "--json").json["sessions"] == []
