"""A day with the command line, from end to end: everything a user does to sessions, one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Asnap, Ran, saved
from tests.cli.examples import session
from tests.cli.test_check import damage, segment


def ids(ran: Ran) -> list[str]:
    return [row["session_id"] for row in ran.json["sessions"]]


@pytest.mark.requirement("ORBIT-FUTURE-BROWSER")
def test_sessions_are_browsed_and_managed(asnap: Asnap, place: Path, tmp_path: Path) -> None:
    saved(place, session("one", "login fails", minutes=1), session("two", "docs are old", minutes=2))
    saved(place, session("one", "login fails", "and tokens expire", minutes=3))
    assert ids(asnap("list", "--all", "--json")) == ["one", "two"]

    assert asnap("rename", "one", "fix auth").code == 0
    assert asnap("tag", "fix auth", "urgent").code == 0
    assert "tokens expire" in asnap("show", "tag:urgent").out
    assert [hit["session_id"] for hit in asnap("search", "expire", "--json").json["hits"]][:1] == ["one"]
    assert asnap("diff", "fix auth@1", "fix auth@2", "--json").code == 0

    branch = asnap("fork", "fix auth", "--at", "2", "--json").json
    assert len(ids(asnap("list", "--all", "--json"))) == 3
    bundle = tmp_path / "one.bundle"
    assert asnap("export", "fix auth", "-o", bundle).code == 0

    assert asnap("forget", "one", "--yes").code == 0
    assert "one" not in ids(asnap("list", "--all", "--json"))
    assert asnap("undo").code == 0
    assert "one" in ids(asnap("list", "--all", "--json"))

    assert asnap("forget", branch["session_id"], "--yes").code == 0
    assert asnap("purge", "--older-than", "0s", "--yes").code == 0
    assert asnap("import", bundle, "--json").code == 0, "it is there already, and that is no error"
    assert asnap("check").code == 0


@pytest.mark.requirement("TERMINAL-QUALITY-STATUS")
def test_the_state_of_each_session_is_shown(asnap: Asnap, place: Path) -> None:
    saved(place, session("fine"), session("broken"), session("kept"))
    assert asnap("pin", "kept").code == 0
    damage(segment(place, "broken"))

    rows = {row["session_id"]: row for row in asnap("list", "--all", "--json").json["sessions"]}

    assert {name: row["state"] for name, row in rows.items()} == {"fine": "ok", "kept": "ok", "broken": "damaged"}
    assert rows["kept"]["pinned"]
    assert rows["broken"]["problem"]
    lines = {line.split("\t")[0]: line for line in asnap("list", "--all").out.splitlines()}
    assert "damaged" in next(line for line in lines.values() if "broken" in line)
