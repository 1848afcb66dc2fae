"""Hints fit a person at a shell: they name the option, the variable or the command that helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Asnap, saved
from tests.cli.examples import session


@pytest.mark.parametrize("command", ["run", "chat"])
def test_an_unknown_option_before_the_agent_is_a_usage_error(asnap: Asnap, command: str) -> None:
    ran = asnap(command, "--bogus", "--", "opencode", "acp")

    assert ran.code == 2
    assert "No such option" in ran.err
    assert "--bogus" in ran.err
    assert f"next: asnap {command} --help" in ran.err


def test_export_to_a_missing_directory_names_the_directory(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa", "hello"))

    ran = asnap("export", "01aaaa", "-o", "missing/talk.md")

    assert ran.code == 1
    assert "check that the directory exists" in ran.err
    assert "free space" not in ran.err


def test_import_of_an_unknown_file_names_the_formats(asnap: Asnap) -> None:
    Path("notes.txt").write_text("root:x:0:0\n")

    ran = asnap("import", "notes.txt")

    assert ran.code == 2
    assert "is not a session file" in ran.err
    assert "next: asnap import --help" in ran.err


def test_a_key_for_a_plain_store_names_the_variable(
    asnap: Asnap, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(place, session("01aaaa", "hello"))
    monkeypatch.setenv("ASNAP_PASSPHRASE", "correct horse battery staple")

    ran = asnap("list")

    assert ran.code == 2
    assert "unset ASNAP_KEY… and ASNAP_PASSPHRASE" in ran.err
    assert "asnap keys init --encrypt-existing" in ran.err
    assert "correct horse" not in ran.err


@pytest.mark.parametrize("words", [("show", "01aaaa@99"), ("diff", "01aaaa@99"), ("forget", "01aaaa@99", "--yes")])
def test_a_missing_snapshot_leads_to_the_history_of_its_session(
    asnap: Asnap, place: Path, words: tuple[str, ...]
) -> None:
    saved(place, session("01aaaa", "hello"))

    ran = asnap(*words)

    assert ran.code == 4
    assert "next: asnap show 01aaaa --history" in ran.err
    assert asnap("show", "01aaaa", "--history").code == 0


def test_an_unknown_session_leads_to_the_list(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa", "hello"))

    assert "next: asnap list --all" in asnap("show", "nobody").err


def test_a_policy_of_zeros_is_refused_in_terms_of_options(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa", "hello"))

    ran = asnap("forget", "01aaaa", "--keep-last", "0", "--yes")

    assert ran.code == 2
    assert "RetentionPolicy" not in ran.err
    assert "--keep-last N" in ran.err


def test_a_command_about_keys_of_a_plain_store_leads_to_encrypting_it(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa", "hello"))

    ran = asnap("keys", "remove", "01", "--yes")

    assert ran.code == 2
    assert "next: asnap keys init --encrypt-existing" in ran.err


def test_an_unknown_slot_leads_to_the_list_of_slots(
    asnap: Asnap, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(place, session("01aaaa", "hello"), key="correct horse battery staple")
    monkeypatch.setenv("ASNAP_PASSPHRASE", "correct horse battery staple")

    assert "next: asnap keys status" in asnap("keys", "remove", "zz", "--yes").err
    assert "next: asnap keys status" in asnap("keys", "init", "--encrypt-existing", "--generate", "k").err


def test_an_undo_that_is_refused_says_how_to_reach_earlier_operations(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa", "hello"))
    assert asnap("rename", "01aaaa", "a name").code == 0
    branch = asnap("fork", "01aaaa", "--json").json["session_id"]
    saved(place, session(branch, "hello", "and more"))

    refused = asnap("undo", "--json")
    earlier = asnap("undo", "--list", "--json").json["operations"][1]["id"]

    assert (refused.code, refused.error["next"]) == (6, "asnap undo --list")
    assert "give its id" in refused.error["hint"]
    assert asnap("undo", earlier).code == 0
