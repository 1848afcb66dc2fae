from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from snapshot_plugin.cli.commands.demo_agent import GO_ON, NO_MORE, WORDS
from snapshot_plugin.codec.sources import Passphrase
from tests import forkserver
from tests.cli.conftest import Asnap, saved
from tests.cli.examples import session
from tests.cli.terminal import Terminal


def _asnap(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "snapshot_plugin", *args]
    return forkserver.run(command, text=True, timeout=60)


@pytest.mark.requirement("ORBIT-USE-CRASH", "ORBIT-USE-LITTLE-LOST", "TERMINAL-USE-CONTINUE")
def test_demo_kills_a_session_and_restores_every_word() -> None:
    done = _asnap("demo", "--fast")
    assert done.returncode == 0, done.stderr
    before, after = done.stdout.split("kill -9")
    assert "agent" in before
    assert GO_ON in after
    assert after.rstrip().count(WORDS[-1].strip()) >= 1
    assert "nothing lost" in after


def test_demo_leaves_its_session_and_every_next_command_leads_on(asnap: Asnap) -> None:
    assert asnap("show", "latest", "--json").error["next"] == "asnap demo"
    assert asnap("doctor", "--json").json["next"] == "asnap demo"

    done = asnap("demo", "--fast")

    (kept,) = asnap("list", "--json").json["sessions"]
    assert kept["tags"] == ["demo"]
    assert f"asnap show {kept['session_id']}" in done.out
    assert WORDS[-1].strip() in asnap("show", "latest").out
    assert asnap("doctor", "--json").json["next"] == "asnap resume"
    with Terminal("resume", kept["session_id"], lines=60) as terminal:
        terminal.wait_for("restored: context")
        terminal.wait_for(lambda: ">" in terminal.lines)
        terminal.send("Go on.\r")
        terminal.wait_for(NO_MORE.split(":")[0])
        terminal.send("\x04")
        assert terminal.end() == 0


def test_demo_uses_the_named_store_and_says_so_in_the_next_commands(asnap: Asnap, home: Path) -> None:
    done = asnap("demo", "--fast", "--store", home / "another")

    (session_id,) = asnap("list", "--ids", "--store", home / "another").out.split()
    assert f"asnap resume {session_id} --store {home / 'another'}" in done.out


def test_demo_runs_in_an_encrypted_store(asnap: Asnap, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASNAP_PASSPHRASE", "words")
    saved(place, session("mine"), key=Passphrase("words"))

    assert asnap("demo", "--fast").code == 0

    assert len(asnap("list", "--all", "--ids").out.split()) == 2
    monkeypatch.delenv("ASNAP_PASSPHRASE")
    assert asnap("demo", "--fast").code == 7


def test_lines_of_the_demo_break_between_words() -> None:
    with Terminal("demo", "--fast", columns=60, lines=60) as terminal:
        assert terminal.end() == 0
    words = {"✗", "kill", "-9,", "agent", "and", "all", *" ".join(WORDS).split()}
    spoken = [line for line in terminal.lines if line.startswith("         ")]
    assert spoken
    assert {word for line in spoken for word in line.split()} <= words
    assert terminal.colour_of("nothing lost") == "green"


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_demo_has_no_colour_where_none_is_wanted(environ: dict[str, str]) -> None:
    with Terminal("demo", "--fast", env=environ) as terminal:
        assert terminal.end() == 0
    assert b"\x1b[" not in terminal.received


@pytest.mark.parametrize("args", [("--help",), ("demo", "--help")])
def test_help_option_exits_with_zero(args: tuple[str, ...]) -> None:
    done = _asnap(*args)
    assert done.returncode == 0
    assert "Usage: " in done.stdout


def test_an_unknown_command_is_a_usage_error() -> None:
    assert _asnap("no-such-command").returncode == 2
