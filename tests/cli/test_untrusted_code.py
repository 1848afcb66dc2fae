"""No command runs code or commands that the user did not choose: not from a directory, not from an import."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from snapshot_plugin.inert import shell_line
from snapshot_plugin.testing import make_snapshot
from tests import forkserver
from tests.cli.conftest import Asnap, Ran, saved
from tests.cli.terminal import Terminal

SCRIPT = Path(sys.executable).with_name("asnap")


def planted(directory: Path) -> Path:
    """A repository whose files are named like modules we import; each leaves a mark when it runs."""
    directory.mkdir(exist_ok=True)
    for name in ("click", "json", "anyio", "pydantic", "platformdirs", "snapshot_plugin"):
        (directory / f"{name}.py").write_text(
            f"open({str(directory / 'ran')!r}, 'w').close()\nraise SystemExit(66)\n"
        )
    return directory / "ran"


def run_in(directory: Path, *words: str | Path, **environ: str) -> Ran:
    done = subprocess.run(
        [str(SCRIPT), *map(str, words)],
        cwd=directory,
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def ran_in(directory: Path, *words: str | Path, **environ: str) -> Ran:
    """As `run_in`, for tests that do not ask from where modules are imported."""
    line = [sys.executable, "-m", "snapshot_plugin", *map(str, words)]
    done = forkserver.run(line, cwd=directory, env={**os.environ, **environ}, text=True, timeout=60)
    return Ran(done.returncode, done.stdout, done.stderr)


def test_resume_does_not_import_from_the_sessions_directory(home: Path, place: Path) -> None:
    mark = planted(home / "repo")
    saved(
        place, make_snapshot("hi", session_id="s1", config={"cwd": str(home / "repo")}, agent={"command": ["true"]})
    )

    run_in(home, "resume", "s1", "--exec")

    assert not mark.exists()


def test_demo_does_not_import_from_the_current_directory(home: Path) -> None:
    mark = planted(home / "repo")

    done = run_in(home / "repo", "demo", "--fast")

    assert (done.code, mark.exists()) == (0, False), done.err


@pytest.mark.parametrize(
    "words", [("list",), ("doctor",), ("config", "show"), ("mcp", "--help"), ("run", "--", "true")]
)
def test_no_command_imports_from_the_current_directory(home: Path, words: tuple[str, ...]) -> None:
    mark = planted(home / "repo")

    run_in(home / "repo", *words)

    assert not mark.exists()


# Commands of imported sessions ------------------------------------------------------------------------------------


@pytest.fixture
def bundle(asnap: Asnap, home: Path, place: Path) -> Path:
    """A bundle whose session records a command that leaves a mark."""
    command = ["sh", "-c", f"touch {shlex.quote(str(home / 'ran'))}"]
    saved(place, make_snapshot("hi", session_id="s1", config={"cwd": str(home)}, agent={"command": command}))
    file = home / "s.asnap"
    assert asnap("export", "s1", "-o", file).code == 0
    shutil.rmtree(place)
    return file


def test_the_command_of_an_imported_session_is_refused_and_shown(bundle: Path, home: Path, asnap: Asnap) -> None:
    assert asnap("import", bundle).code == 0

    done = ran_in(home, "resume", "latest", "--exec")

    assert done.code == 2
    assert f"touch {home}/ran" in done.err
    assert "--yes" in done.err
    assert not (home / "ran").exists()


def test_a_fork_of_an_imported_session_is_refused_as_well(bundle: Path, home: Path, asnap: Asnap) -> None:
    asnap("import", bundle)
    forked = asnap("fork", "s1", "--json").json["session_id"]

    assert ran_in(home, "resume", forked, "--exec").code == 2
    assert not (home / "ran").exists()


def test_a_confirmed_command_runs_and_is_not_asked_for_again(bundle: Path, home: Path, asnap: Asnap) -> None:
    asnap("import", bundle)

    first = ran_in(home, "resume", "s1", "--exec", "--yes", "-q")
    assert (home / "ran").exists()
    assert f"touch {home}/ran" in first.err
    (home / "ran").unlink()
    ran_in(home, "resume", "s1", "--exec")
    assert (home / "ran").exists()


def test_command_given_with_the_with_option_needs_no_confirmation(bundle: Path, home: Path, asnap: Asnap) -> None:
    asnap("import", bundle)

    done = ran_in(home, "resume", "s1", "--exec", "--with", f"touch {home}/mine")

    assert (home / "mine").exists()
    assert not (home / "ran").exists()
    assert f"touch {home}/mine" in done.err


def test_terminal_asks_for_confirmation(bundle: Path, home: Path, asnap: Asnap) -> None:
    asnap("import", bundle)
    with Terminal("resume", "s1", "--exec") as terminal:
        terminal.wait_for("Run it?")
        terminal.send("n\r")
        terminal.end()
    assert not (home / "ran").exists()


def test_command_of_a_session_recorded_here_runs_and_is_printed(home: Path, place: Path) -> None:
    saved(place, make_snapshot("hi", session_id="s1", agent={"command": ["touch", str(home / "ran")]}))

    done = ran_in(home, "resume", "s1", "--exec", "-q")

    assert (home / "ran").exists()
    assert f"-- touch {home}/ran" in done.err


def test_printed_command_is_escaped_and_keeps_its_meaning(home: Path) -> None:
    words = ["printf", "%s", "a\x1b[31m\u202eb'c\x9b"]

    line = shell_line(words)

    assert line.isprintable()
    assert subprocess.check_output(["bash", "-c", line]).decode() == words[2]


# Keys -------------------------------------------------------------------------------------------------------------

SECRETS = {
    "ASNAP_KEY": "words",
    "ASNAP_PASSPHRASE": "words",
    "ASNAP_KEY_COMMAND": "printf words",
    "ASNAP_KEYRING": "words",
    "ASNAP_STORE": "postgresql://me:words@127.0.0.1:1/db",
}


def test_no_agent_gets_a_key_or_the_password_of_a_store(home: Path) -> None:
    ran_in(home, "run", "--store", home / "own", "--", "sh", "-c", f"env > {home}/env", **SECRETS)

    seen = (home / "env").read_text()
    assert "PATH=" in seen
    assert "words" not in seen


def test_store_url_without_a_password_is_passed_on(home: Path) -> None:
    ran_in(home, "run", "--", "sh", "-c", f"env > {home}/env", ASNAP_STORE=str(home / "a:b@c"))

    assert f"ASNAP_STORE={home}/a:b@c\n" in (home / "env").read_text()


def test_the_browser_does_not_get_the_key(home: Path, place: Path) -> None:
    saved(place, make_snapshot("hi", session_id="s1"), key="words")
    browser = home / "browser"
    browser.write_text(f"#!/bin/sh\nenv > {home}/env.new\nmv {home}/env.new {home}/env\n")
    browser.chmod(0o700)
    environ = {**os.environ, "ASNAP_PASSPHRASE": "words", "BROWSER": f"{browser} %s"}
    with subprocess.Popen([str(SCRIPT), "ui"], env=environ, stdout=subprocess.PIPE) as server:
        try:
            end = time.monotonic() + 30
            while not (home / "env").exists():
                assert time.monotonic() < end
                with contextlib.suppress(subprocess.TimeoutExpired):
                    assert server.wait(0.02) is None, "it ended"
        finally:
            server.terminate()

    assert "BROWSER=" in (home / "env").read_text()
    assert "words" not in (home / "env").read_text()


@pytest.mark.parametrize("name", ["ASNAP_PASSPHRASE", "ASNAP_KEY", "ASNAP_KEY_FILE", "ASNAP_KEY_COMMAND"])
def test_the_pager_does_not_get_the_key(
    home: Path, place: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(place, make_snapshot(*["line"] * 200, session_id="s1"), key="words")
    key = {"ASNAP_KEY_FILE": str(home / "key"), "ASNAP_KEY_COMMAND": "printf words"}.get(name, "words")
    (home / "key").write_text("words")
    (home / "key").chmod(0o600)
    pager = home / "pager"
    pager.write_text(f"#!/bin/sh\nenv > {home}/env\ncat > /dev/null\n")
    pager.chmod(0o700)
    monkeypatch.setenv(name, key)
    monkeypatch.setenv("PAGER", str(pager))
    with Terminal("show", "s1") as terminal:
        terminal.end()

    seen = (home / "env").read_text()
    assert "PAGER=" in seen
    assert f"\n{name}=" not in f"\n{seen}"
