"""No command runs code or commands that the user did not choose: not from a directory, not from an import."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
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


def marker(directory: Path) -> Path:
    """A directory with an ``agent`` script that leaves a mark there; return the mark."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "agent").write_text(f"touch {shlex.quote(str(directory / 'ran'))}\n")
    return directory / "ran"


@pytest.fixture
def bundled(asnap: Asnap, home: Path) -> Callable[..., Path]:
    """Make a bundle elsewhere: a session with this id, directory and command."""

    def make(session_id: str, directory: Path, *command: str) -> Path:
        elsewhere, file = home / f"elsewhere-{session_id}", home / f"{session_id}.asnap"
        words = command or ("sh", "agent")
        saved(
            elsewhere,
            make_snapshot(
                "hi", "hello", session_id=session_id, config={"cwd": str(directory)}, agent={"command": words}
            ),
        )
        assert asnap("export", session_id, "-o", file, "--store", elsewhere).code == 0
        return file

    return make


@pytest.mark.requirement("TRUST-COMMAND")
def test_the_same_words_in_another_imported_directory_are_asked_about_again(
    bundled: Callable[..., Path], home: Path, asnap: Asnap
) -> None:
    good, hostile = marker(home / "good"), marker(home / "hostile")
    asnap("import", bundled("s1", good.parent), bundled("s2", hostile.parent))

    assert ran_in(home, "resume", "s1", "--exec", "--yes").code == 0
    assert good.exists()

    assert ran_in(home, "resume", "s2", "--exec").code == 2
    assert not hostile.exists()


@pytest.mark.requirement("TRUST-COMMAND")
def test_a_later_import_is_asked_about_even_with_the_same_command_and_directory(
    bundled: Callable[..., Path], home: Path, asnap: Asnap
) -> None:
    mark = marker(home / "good")
    asnap("import", bundled("s1", mark.parent), bundled("s2", mark.parent))
    ran_in(home, "resume", "s1", "--exec", "--yes")
    mark.unlink()

    assert ran_in(home, "resume", "s2", "--exec").code == 2
    assert not mark.exists()


@pytest.mark.requirement("TRUST-COMMAND")
@pytest.mark.parametrize("changed", ["the directory", "the script", "the program"])
def test_what_was_confirmed_is_asked_about_again_when_its_names_lead_elsewhere(
    changed: str, bundled: Callable[..., Path], home: Path, asnap: Asnap, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, hostile = marker(home / "good"), marker(home / "hostile")
    (home / "link").symlink_to(good.parent)
    (home / "good" / "script").symlink_to(home / "good" / "agent")
    (home / "bin").mkdir()
    (home / "bin" / "starter").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", f"{home}/bin:{os.environ['PATH']}")
    asnap("import", bundled("s1", home / "link", "starter", "script"))
    assert ran_in(home, "resume", "s1", "--exec", "--yes").code == 0
    assert ran_in(home, "resume", "s1", "--exec").code == 0
    good.unlink()

    if changed == "the directory":
        (home / "hostile" / "script").write_text("touch ran")
        (home / "link").unlink()
        (home / "link").symlink_to(hostile.parent)
    elif changed == "the script":
        (home / "good" / "script").unlink()
        (home / "good" / "script").symlink_to(home / "hostile" / "agent")
    else:
        (home / "earlier").mkdir()
        (home / "earlier" / "starter").symlink_to("/bin/sh")
        monkeypatch.setenv("PATH", f"{home}/earlier:{os.environ['PATH']}")

    assert ran_in(home, "resume", "s1", "--exec").code == 2
    assert not good.exists()
    assert not hostile.exists()


@pytest.mark.requirement("TRUST-OWN")
def test_your_own_session_runs_unasked_after_an_import_with_the_same_command(
    bundled: Callable[..., Path], home: Path, place: Path, asnap: Asnap
) -> None:
    mark = marker(home / "good")
    own = {"config": {"cwd": str(mark.parent)}, "agent": {"command": ["sh", "agent"]}}
    saved(place, make_snapshot("mine", session_id="mine", **own))
    asnap("import", bundled("s1", mark.parent))

    assert ran_in(home, "resume", "mine", "--exec").code == 0
    assert mark.exists()


@pytest.mark.requirement("TRUST-OWN")
def test_your_own_session_runs_unasked_after_its_own_bundle_was_imported(
    home: Path, place: Path, asnap: Asnap
) -> None:
    mark = marker(home / "good")
    own = {"config": {"cwd": str(mark.parent)}, "agent": {"command": ["sh", "agent"]}}
    saved(place, make_snapshot("mine", session_id="mine", **own))
    asnap("export", "mine", "-o", home / "mine.asnap")
    assert asnap("import", home / "mine.asnap", "--json").json["sessions"][0]["outcome"] == "already_there"

    assert ran_in(home, "resume", "mine", "--exec").code == 0
    assert mark.exists()


@pytest.mark.requirement("TRUST-OWN")
def test_an_import_into_another_store_does_not_touch_your_session_of_the_same_id(
    bundled: Callable[..., Path], home: Path, place: Path, asnap: Asnap
) -> None:
    mark = marker(home / "good")
    own = {"config": {"cwd": str(mark.parent)}, "agent": {"command": ["sh", "agent"]}}
    saved(place, make_snapshot("mine", session_id="s1", **own))
    assert asnap("import", bundled("s1", mark.parent), "--store", home / "other").code == 0

    assert ran_in(home, "resume", "s1", "--exec").code == 0
    assert ran_in(home, "resume", "s1", "--exec", "--store", home / "other").code == 2


@pytest.mark.requirement("TRUST-COMMAND")
def test_branches_of_an_import_ask_also_when_the_session_between_is_gone(
    bundle: Path, home: Path, asnap: Asnap
) -> None:
    asnap("import", bundle)
    between = asnap("fork", "s1", "--json").json["session_id"]
    last = asnap("fork", between, "--json").json["session_id"]
    assert asnap("forget", between, "--yes").code == 0
    assert asnap("forget", "s1", "--yes").code == 0

    assert ran_in(home, "resume", last, "--exec").code == 2
    assert not (home / "ran").exists()


@pytest.mark.requirement("TRUST-COMMAND")
def test_a_merge_with_an_import_asks(bundled: Callable[..., Path], home: Path, place: Path, asnap: Asnap) -> None:
    mark = marker(home / "good")
    own = {"config": {"cwd": str(mark.parent)}, "agent": {"command": ["sh", "agent"]}}
    saved(place, make_snapshot("hi", "hello", session_id="mine", **own))
    asnap("import", bundled("s1", mark.parent))
    between = asnap("fork", "s1", "--json").json["session_id"]
    merged = asnap("merge", "mine", between, "--json").json["session_id"]
    asnap("forget", between, "--yes")

    assert ran_in(home, "resume", merged, "--exec").code == 2
    assert not mark.exists()


@pytest.mark.requirement("TRUST-COMMAND")
def test_a_fork_of_a_confirmed_session_runs_unasked(bundle: Path, home: Path, asnap: Asnap) -> None:
    asnap("import", bundle)
    ran_in(home, "resume", "s1", "--exec", "--yes")
    (home / "ran").unlink()
    forked = asnap("fork", "s1", "--json").json["session_id"]

    ran_in(home, "resume", forked, "--exec")
    assert (home / "ran").exists()


@pytest.mark.requirement("TRUST-COMMAND")
def test_your_own_command_is_asked_about_in_a_directory_that_came_with_an_import(
    bundled: Callable[..., Path], home: Path, asnap: Asnap
) -> None:
    good, hostile = marker(home / "good"), marker(home / "hostile")
    asnap("import", bundled("s1", hostile.parent, "true"))

    refused = ran_in(home, "resume", "s1", "--exec", "--with", "sh agent")
    assert (refused.code, hostile.exists()) == (2, False)
    assert "--cwd" in refused.err

    assert ran_in(home, "resume", "s1", "--exec", "--with", "sh agent", "--cwd", good.parent).code == 0
    assert (good.exists(), hostile.exists()) == (True, False)


@pytest.mark.requirement("TRUST-MARKED")
def test_a_printed_command_is_marked_until_it_is_confirmed(bundle: Path, home: Path, asnap: Asnap) -> None:
    asnap("import", bundle)

    before = ran_in(home, "resume", "s1", "--print")
    assert before.out.startswith("cd ")
    assert "not confirmed" in before.err
    assert asnap("resume", "s1", "--print", "--json").json["confirmed"] is False

    ran_in(home, "resume", "s1", "--exec", "--yes")
    after = ran_in(home, "resume", "s1", "--print")
    assert (after.out, after.err) == (before.out, "")
    assert asnap("resume", "s1", "--print", "--json").json["confirmed"] is True


@pytest.mark.requirement("TRUST-COMMAND")
def test_what_release_0_2_0_noted_of_imports_counts_and_its_confirmations_do_not(
    home: Path, place: Path, asnap: Asnap
) -> None:
    command = ["touch", str(home / "ran")]
    for name in ("imported", "mine"):
        saved(place, make_snapshot("hi", session_id=name, agent={"command": command}))
    of_session = hashlib.sha256(b"session imported").hexdigest()
    of_command = hashlib.sha256(b"command " + json.dumps(command).encode()).hexdigest()
    (home / "state" / "asnap").mkdir(parents=True)
    (home / "state" / "asnap" / "commands").write_text(
        f"imported {of_session}\nimported {of_command}\nconfirmed {of_command}\n"
    )

    assert ran_in(home, "resume", "imported", "--exec").code == 2
    assert not (home / "ran").exists()
    assert ran_in(home, "resume", "mine", "--exec").code == 0
    assert (home / "ran").exists()


def test_the_notes_about_commands_are_private_and_never_in_a_bundle(bundle: Path, home: Path, asnap: Asnap) -> None:
    asnap("import", bundle)
    ran_in(home, "resume", "s1", "--exec", "--yes")

    notes = home / "state" / "asnap" / "commands"
    assert notes.stat().st_mode & 0o777 == 0o600
    assert asnap("export", "s1", "-o", home / "again.asnap").code == 0
    assert asnap("import", home / "again.asnap", "--store", home / "other").code == 0
    assert ran_in(home, "resume", "s1", "--exec", "--store", home / "other").code == 2


def test_terminal_asks_for_confirmation(bundle: Path, home: Path, asnap: Asnap) -> None:
    asnap("import", bundle)
    with Terminal("resume", "s1", "--exec") as terminal:
        terminal.wait_for("Run it?")
        terminal.send("n\r")
        terminal.end()
    assert not (home / "ran").exists()


def test_a_session_continued_in_the_terminal_starts_its_agent_in_its_directory(home: Path, place: Path) -> None:
    mark = marker(home / "good")
    own = {"config": {"cwd": str(mark.parent)}, "agent": {"command": ["sh", "agent"]}}
    saved(place, make_snapshot("mine", session_id="mine", **own))
    with Terminal("resume", "mine") as terminal:
        terminal.end()

    assert mark.exists()


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
