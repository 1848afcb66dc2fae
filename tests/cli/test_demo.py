from __future__ import annotations

import subprocess
import sys

import pytest

from snapshot_plugin.cli.commands.demo_agent import GO_ON, WORDS
from tests import forkserver
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
