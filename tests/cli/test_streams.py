"""Standard streams in every state: closed, full, and with a reader that has enough."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from snapshot_plugin.cli.output import Output
from snapshot_plugin.cli.progress import progress
from tests.cli.conftest import Asnap, saved
from tests.cli.examples import session
from tests.cli.terminal import Terminal
from tests.manager.processes import PATIENCE, python

needs_full_device = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")


def shell(line: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of shell in which ``asnap`` is ours."""
    ours = f'asnap() {{ "{sys.executable}" -m snapshot_plugin "$@"; }}\n'
    return subprocess.run(
        ["bash", "-c", ours + line], capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_stream_is_not_a_bug(place: Path, closed: str) -> None:
    saved(place, session("01aaaa"))

    assert shell(f"asnap list --all {closed}").returncode == 0
    done = shell(f"asnap show nope {closed}")
    assert done.returncode == 4
    assert b"Traceback" not in done.stderr


def test_command_with_closed_streams_does_not_write_output_into_the_store(place: Path) -> None:
    saved(place, session("01aaaa"))

    assert shell("asnap rename 01 parser <&- >&- 2>&-").returncode == 0
    assert shell("asnap check").returncode == 0
    assert b"parser" in shell("asnap list --all").stdout


@pytest.mark.parametrize("words", ["show 01aaaa", "show 01aaaa --raw", "list --all --ids", "export 01aaaa"])
def test_closed_output_pipe_is_not_an_error_however_much_is_left(place: Path, words: str) -> None:
    saved(place, session("01aaaa", *(f"word {n} " * 50 for n in range(300))))

    done = shell(f'asnap {words} | head -c 1 > /dev/null; exit "${{PIPESTATUS[0]}}"')

    assert done.returncode == 0
    assert b"Traceback" not in done.stderr


@needs_full_device
@pytest.mark.parametrize("words", ["list --all", "list --all --json", "show 01 --raw", "export 01"])
def test_unwritable_output_is_an_error_but_not_a_bug(place: Path, words: str) -> None:
    saved(place, session("01aaaa"))

    done = shell(f"asnap {words} > /dev/full")

    assert done.returncode == 1
    assert b"Traceback" not in done.stderr


@needs_full_device
@pytest.mark.parametrize("to", ["/dev/full", ">(true)"])
def test_unwritable_stderr_stops_no_work(asnap: Asnap, place: Path, to: str) -> None:
    saved(place, session("01aaaa"))

    assert shell(f"asnap rename 01 parser 2> {to}").returncode == 0
    assert asnap("list", "--all", "--json").json["sessions"][0]["title"] == "parser"


def test_deleted_working_directory_is_reported(place: Path, tmp_path: Path) -> None:
    saved(place, session("01aaaa"))
    gone = tmp_path / "gone"

    there = f"mkdir '{gone}' && cd '{gone}' && rmdir '{gone}' && asnap"
    assert shell(f"{there} list --all").returncode == 0
    assert shell(f"{there} list").returncode == 4


def test_empty_store_option_does_not_mean_the_default_store(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"))

    assert asnap("list", "--all", "--store", "").code == 2


def test_terminal_without_cursor_movement_gets_plain_lines(
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
def test_protocol_server_started_on_a_terminal_says_so(words: list[str]) -> None:
    with Terminal(*words, columns=120) as terminal:
        terminal.wait_for("ends it")
        terminal.send("\x03")  # in the middle of its start: it ends all the same
        assert terminal.end() in (0, 130, -2, -15)
        assert "Traceback" not in terminal.text


_INTERRUPTED_WHILE_IT_STARTS = """
    import os, signal, anyio.from_thread as portals
    from snapshot_plugin.cli import main

    class Future(portals.Future):
        def result(self, timeout=None):
            os.kill(os.getpid(), signal.SIGINT)  # while it waits for its event loop
            return super().result(timeout)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    portals.Future = Future
    main(["run", "--", "cat"])
"""


def test_signal_while_run_starts_its_threads_ends_it() -> None:
    with python(_INTERRUPTED_WHILE_IT_STARTS) as process:
        assert process.wait(PATIENCE) == 130


_INTERRUPTED_BEFORE_IT_SERVES = """
    import os, signal, sys, anyio
    from snapshot_plugin.cli import main

    def run(*_arguments):
        os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    anyio.run = run
    main(["mcp", "--project", sys.argv[1]])
"""


def test_ctrl_c_before_the_memory_server_serves_ends_it_without_unwinding(tmp_path: Path) -> None:
    with python(_INTERRUPTED_BEFORE_IT_SERVES, tmp_path) as process:
        assert process.wait(PATIENCE) == -signal.SIGINT


def test_characters_that_the_locale_lacks_are_replaced(place: Path) -> None:
    saved(place, session("01aaaa", "naïve → 日本"))

    done = shell("PYTHONIOENCODING=latin-1 asnap show 01aaaa")

    assert done.returncode == 0, done.stderr
    assert "naïve ? ??".encode("latin-1") in done.stdout


def test_demo_runs_in_a_locale_without_its_marks() -> None:
    assert shell("PYTHONIOENCODING=latin-1 asnap demo --fast").returncode == 0


@pytest.mark.parametrize("form", ["--json", "--jsonl"])
def test_json_is_utf_8_in_every_locale(place: Path, form: str) -> None:
    saved(place, session("01aaaa", title="naïve → 日本"))

    done = shell(f"PYTHONIOENCODING=latin-1 asnap list --all {form}")

    assert done.returncode == 0, done.stderr
    assert "naïve → 日本" in done.stdout.decode("utf-8")
    assert json.loads(done.stdout)
