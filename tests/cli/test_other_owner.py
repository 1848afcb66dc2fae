"""A store that belongs to another user, as after ``sudo -E asnap run``: every command says whose it is."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acp_client import AGENT
from tests.cli.conftest import Ran, saved
from tests.cli.examples import session

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to another user")

OTHER = 54321
COMMANDS = [
    ("list",),
    ("list", "--json"),
    ("show", "latest"),
    ("doctor",),
    ("recover",),
    ("keys", "status"),
    ("search", "word"),
    ("run", "--", *AGENT),
]


def _without_privileges() -> None:
    """Obey file permissions, as a process of any other user does: drop CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""
    for capability in (1, 2):
        assert ctypes.CDLL(None).prctl(24, capability, 0, 0, 0) == 0


def asnap(*words: str) -> Ran:
    line = [sys.executable, "-m", "snapshot_plugin", *words]
    done = subprocess.run(
        line,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=60,
        preexec_fn=_without_privileges,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def give_away(path: Path) -> None:
    for each in (path, *path.rglob("*")):
        os.chown(each, OTHER, OTHER)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("part", ["store", "session"])
def test_commands_name_the_owner_of_what_they_may_not_read(place: Path, words: tuple[str, ...], part: str) -> None:
    saved(place, session("one"), session("two"))
    theirs = place if part == "store" else place / "sessions" / "two"
    give_away(theirs)

    ran = asnap(*words)

    told = ran.out + ran.err
    assert "a bug in asnap" not in told
    if part == "session" and words[0] == "keys":
        assert ran.code == 0
        return
    assert ran.code == 1
    assert f"{theirs} belongs to uid {OTHER}" in told
    assert f"sudo chown -R root {theirs}" in told


def test_nobody_is_told_to_take_over_what_is_outside_the_home_directory(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    theirs = tmp_path_factory.mktemp("theirs")
    saved(theirs / "store", session("one"))
    give_away(theirs)

    ran = asnap("list", "--store", str(theirs / "store"))

    assert f"{theirs} belongs to uid {OTHER}" in ran.err
    assert "chown" not in ran.err
    assert f"next: ls -ld {theirs}" in ran.err


def test_command_to_run_next_makes_the_store_usable(place: Path) -> None:
    saved(place, session("one"))
    give_away(place)
    (line,) = (line for line in asnap("list").err.splitlines() if "next: " in line)

    subprocess.run(line.partition("next: sudo ")[2].split(), check=True)

    assert asnap("list", "--all", "--ids").out == "one\n"
