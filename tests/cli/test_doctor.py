from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin import FilesystemStore
from snapshot_plugin.cli.commands.operate import Diagnosis
from snapshot_plugin.live.lease import Owner
from tests.cli.conftest import Asnap, Ran, saved
from tests.cli.examples import session, valid
from tests.cli.test_check import damage, segment


def levels(ran: Ran) -> dict[str, str]:
    return {each["area"]: each["level"] for each in valid(Diagnosis, ran.json)["findings"]}


def test_new_user_is_pointed_to_the_demo(asnap: Asnap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    ran = asnap("doctor", "--json")

    assert (ran.code, ran.json["next"]) == (0, "asnap demo")
    assert levels(ran)["store"] == "hint"


def test_agent_found_on_the_path_is_suggested(asnap: Asnap, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = home / "bin" / "opencode"
    agent.parent.mkdir()
    agent.write_text("#!/bin/sh\n")
    agent.chmod(0o755)
    monkeypatch.setenv("PATH", str(agent.parent))

    assert asnap("doctor", "--json").json["next"] == "asnap run -- opencode acp"


def test_intact_store_is_reported_as_healthy(asnap: Asnap, place: Path) -> None:
    saved(place, session("one"))

    ran = asnap("doctor", "--json")

    assert ran.code == 0
    assert levels(ran)["sessions"] == "ok"
    assert ran.json["next"] == "asnap resume"
    assert asnap("doctor").out.rstrip().endswith("next: asnap resume")


def test_store_without_sessions_has_none_to_resume(asnap: Asnap, place: Path) -> None:
    saved(place, session("one"))
    assert asnap("forget", "one", "--yes").code == 0

    assert asnap("doctor", "--json").json["next"] != "asnap resume"


def test_session_that_died_before_its_first_snapshot_is_reported(asnap: Asnap, place: Path) -> None:
    saved(place, session("one"))
    dead = Owner(pid=4_000_000, host="here", since=datetime.now(UTC))
    (FilesystemStore(place).session_dir("new") / ".lease").write_text(dead.model_dump_json() + "\n")

    ran = asnap("doctor", "--json")

    assert (ran.json["next"], "1 session ended unexpectedly" in ran.out) == ("asnap recover", True)


def test_damage_is_the_first_suggestion(asnap: Asnap, place: Path) -> None:
    saved(place, session("one"))
    damage(segment(place, "one"))

    ran = asnap("doctor", "--json")

    assert (ran.code, ran.json["next"]) == (1, "asnap check one")


def test_store_readable_by_others_is_a_warning(asnap: Asnap, place: Path) -> None:
    saved(place, session("one"))
    place.chmod(0o755)

    ran = asnap("doctor", "--json")

    assert ran.code == 0
    assert ran.json["next"] == f"chmod 700 {place}"


def test_missing_key_is_a_problem_with_its_remedy(asnap: Asnap, place: Path) -> None:
    saved(place, session("one"), key="correct horse")

    ran = asnap("doctor", "--json")

    assert ran.code == 1
    assert levels(ran)["keys"] == "problem"


def test_clock_set_back_is_reported(asnap: Asnap, place: Path) -> None:
    async def save() -> None:
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        async with FilesystemStore(place, clock=lambda: tomorrow) as store:
            await store.save(session("one"))

    anyio.run(save)

    assert levels(asnap("doctor", "--json"))["clock"] == "warning"


@pytest.mark.parametrize(("file", "head"), [(".asnap.toml", ""), ("pyproject.toml", "[tool.asnap]\n")])
def test_settings_in_a_project_are_named_as_ignored(asnap: Asnap, home: Path, file: str, head: str) -> None:
    (home / "work" / file).write_text(f"{head}storage_path = '/tmp/stolen'\n")

    findings: list[Any] = asnap("doctor", "--json").json["findings"]

    assert any(each["area"] == "settings" and f"{file} is ignored" in each["what"] for each in findings)


@pytest.mark.parametrize("text", ["snapshot_interval = 'soon'\n", "this is no TOML ["])
def test_unreadable_settings_are_a_problem_but_doctor_continues(asnap: Asnap, home: Path, text: str) -> None:
    settings = home / "config" / "asnap" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(text)

    ran = asnap("doctor", "--json")

    assert ran.code == 1
    assert levels(ran)["settings"] == "problem"
    assert asnap("list", "--json").error["next"] == "asnap doctor"


def test_store_url_is_not_reported_as_a_missing_directory(asnap: Asnap) -> None:
    """`test_elsewhere` has a bucket."""
    [found] = [f for f in asnap("doctor", "--store", "memory:", "--json").json["findings"] if f["area"] == "store"]

    assert found["level"] == "ok"
    assert "memory:" in found["what"]
    assert "no store" not in found["what"]


def test_a_file_url_is_checked_like_its_directory(asnap: Asnap, place: Path) -> None:
    saved(place, session("one"))

    by_url, by_path = (asnap("doctor", "--store", where, "--json") for where in (place.as_uri(), place))

    assert levels(by_url)["store"] == "ok"
    assert levels(by_url) == levels(by_path)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory to another user")
@pytest.mark.parametrize("part", ["", "sessions", "keys"])
def test_store_owned_by_another_user_is_named(asnap: Asnap, place: Path, part: str) -> None:
    saved(place, session("one"), key="words")
    os.chown(place / part, 54321, 54321)

    ran = asnap("doctor", "--json")

    found = [each["what"] for each in ran.json["findings"] if "another user" in each["what"]]
    assert len(found) == 1
    assert "54321" in found[0]
