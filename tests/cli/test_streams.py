"""Standard streams in every state: closed, full, and with a reader that has enough."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from snapshot_plugin.cli.output import Output
from snapshot_plugin.cli.progress import progress
from tests.cli.conftest import Asnap, saved
from tests.cli.examples import session
from tests.cli.terminal import Terminal

needs_full_device = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")


def shell(line: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of shell in which ``asnap`` is ours."""
    ours = f'asnap() {{ "{sys.executable}" -m snapshot_plugin "$@"; }}\n'
    return subprocess.run(
        ["bash", "-c", ours + line], capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_bug(place: Path, closed: str) -> None:
    saved(place, session("01aaaa"))

    assert shell(f"asnap list --all {closed}").returncode == 0
    done = shell(f"asnap show nope {closed}")
    assert done.returncode == 4
    assert b"Traceback" not in done.stderr


def test_with_closed_streams_what_is_written_is_not_taken_for_one(place: Path) -> None:
    saved(place, session("01aaaa"))

    assert shell("asnap rename 01 parser <&- >&- 2>&-").returncode == 0
    assert shell("asnap check").returncode == 0
    assert b"parser" in shell("asnap list --all").stdout


@pytest.mark.parametrize("words", ["show 01aaaa", "show 01aaaa --raw", "list --all --ids", "export 01aaaa"])
def test_a_reader_that_has_enough_is_no_error_however_much_is_left(place: Path, words: str) -> None:
    saved(place, session("01aaaa", *(f"word {n} " * 50 for n in range(300))))

    done = shell(f'asnap {words} | head -c 1 > /dev/null; exit "${{PIPESTATUS[0]}}"')

    assert done.returncode == 0
    assert b"Traceback" not in done.stderr


@needs_full_device
@pytest.mark.parametrize("words", ["list --all", "list --all --json", "show 01 --raw", "export 01"])
def test_an_answer_that_cannot_be_written_is_an_error_and_no_bug(place: Path, words: str) -> None:
    saved(place, session("01aaaa"))

    done = shell(f"asnap {words} > /dev/full")

    assert done.returncode == 1
    assert b"Traceback" not in done.stderr


@needs_full_device
@pytest.mark.parametrize("to", ["/dev/full", ">(true)"])
def test_notes_that_cannot_be_written_stop_no_work(asnap: Asnap, place: Path, to: str) -> None:
    saved(place, session("01aaaa"))

    assert shell(f"asnap rename 01 parser 2> {to}").returncode == 0
    assert asnap("list", "--all", "--json").json["sessions"][0]["title"] == "parser"


def test_who_is_in_a_directory_that_is_gone_is_told_so(place: Path, tmp_path: Path) -> None:
    saved(place, session("01aaaa"))
    gone = tmp_path / "gone"

    there = f"mkdir '{gone}' && cd '{gone}' && rmdir '{gone}' && asnap"
    assert shell(f"{there} list --all").returncode == 0
    assert shell(f"{there} list").returncode == 4


def test_a_store_named_by_nothing_is_not_the_default_one(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"))

    assert asnap("list", "--all", "--store", "").code == 2


def test_a_terminal_whose_cursor_cannot_be_moved_gets_lines(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    moments = iter([0.0, 11.0, 11.0, 22.0, 22.0])
    with progress(Output(), "checking", 2, clock=lambda: next(moments)) as step:
        step("one")
    assert capsys.readouterr().err == "checking: 0 of 2\n"

    saved(place, session("01aaaa"))
    with Terminal("resume", env={"TERM": "dumb"}) as terminal:
        assert terminal.end() == 2  # the newest, which does not say how its agent is started
    assert b"\x1b" not in terminal.received


@pytest.mark.parametrize("words", [["run"], ["run", "--", "cat"], ["mcp"], ["serve", "--stdio"]])
def test_who_starts_in_a_terminal_what_speaks_a_protocol_is_told_so(words: list[str]) -> None:
    with Terminal(*words, columns=120) as terminal:
        terminal.wait_for("ends it")
        terminal.send("\x03")  # in the middle of its start: it ends all the same
        assert terminal.end() in (0, 130, -2, -15)
        assert "Traceback" not in terminal.text
