"""Nothing in a project's directory stops a command, hangs it, or changes it unseen."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from snapshot_plugin.testing import make_snapshot
from tests import forkserver
from tests.cli.conftest import Asnap, saved

CONFLICT = "<<<<<<< ours\n[tool.asnap]\n=======\n>>>>>>> theirs\n"
Plant = Callable[[Path], None]


def _written(name: str, text: str | bytes) -> Plant:
    def plant(place: Path) -> None:
        (place / name).write_bytes(text.encode() if isinstance(text, str) else text)

    return plant


def _linked(name: str, target: str) -> Plant:
    return lambda place: (place / name).symlink_to(target)


HOSTILE: dict[str, Plant] = {
    "merge conflict": _written("pyproject.toml", CONFLICT),
    "merge conflict in ours": _written(".asnap.toml", CONFLICT),
    "endless device": _linked(".asnap.toml", "/dev/zero"),
    "standard input": _linked(".asnap.toml", "/dev/stdin"),
    "secret file": _linked("pyproject.toml", "/etc/passwd"),
    "link to itself": _linked(".asnap.toml", ".asnap.toml"),
    "pipe": lambda place: os.mkfifo(place / ".asnap.toml"),
    "directory": lambda place: (place / ".asnap.toml").mkdir(),
    "tool is a number": _written("pyproject.toml", "tool = 5 # asnap"),
    "table is a number": _written("pyproject.toml", "[tool]\nasnap = 5"),
    "list of tables": _written("pyproject.toml", "[[tool]]\nasnap = 5"),
    "deep": _written(".asnap.toml", "a = " + "[" * 50_000),
    "deep tables": _written("pyproject.toml", "asnap = " + "{a=" * 50_000),
    "many parts": _written(".asnap.toml", "a" + ".a" * 200_000 + " = 1"),
    "many short keys of many parts": _written(".asnap.toml", (("a" * 99 + ".") * 63 + "\n") * 41),
    "large": _written(".asnap.toml", "#" * (2 << 20)),
    "large pyproject": _written("pyproject.toml", "# asnap" * (1 << 20)),
    "not text": _written(".asnap.toml", b"\xff\xfe\x00"),
    "values of other types": _written(".asnap.toml", "snapshot_interval = []\nretention = 5\nsnapshot_on_exit = 3"),
    "huge number": _written(".asnap.toml", "snapshot_interval = " + "9" * 4000),
    "number of too many digits": _written(".asnap.toml", "snapshot_interval = " + "9" * 5000),
    "huge hexadecimal number": _written(".asnap.toml", "max_snapshots_per_session = 0x" + "f" * 9000),
    "no number": _written(".asnap.toml", "snapshot_interval = nan\nevent_debounce = -inf"),
    "many unknown names": _written(".asnap.toml", "".join(f"a{n} = 1\n" for n in range(20_000))),
}


@pytest.mark.parametrize("plant", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("line", ["list", "recover", "snapshot --all"])
def test_a_broken_project_file_is_never_fatal(home: Path, place: Path, plant: Plant, line: str) -> None:
    saved(place, make_snapshot("hello", session_id="s1"))
    plant(Path.cwd())

    command = [sys.executable, "-m", "snapshot_plugin", *line.split()]
    done = forkserver.run(command, input=b"for the client\n" * 10_000, timeout=30)

    assert done.returncode == 0, done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert len(done.stderr) < 4000


@pytest.mark.parametrize("name", ["merge conflict in ours", "standard input", "pipe", "deep", "huge number"])
def test_unused_project_file_is_named(asnap: Asnap, name: str) -> None:
    HOSTILE[name](Path.cwd())

    done = asnap("config", "show", "--json")

    assert done.code == 0
    assert any(".asnap.toml" in notice for notice in done.json["notices"])


def test_a_warning_reads_as_a_sentence_and_with_verbose_names_its_module(asnap: Asnap) -> None:
    HOSTILE["merge conflict in ours"](Path.cwd())

    assert asnap("list").err.startswith("warning: /")
    assert asnap("list", "-v").err.startswith("snapshot_plugin.manager.config: /")


def test_conflict_in_an_unrelated_file_is_not_mentioned(asnap: Asnap) -> None:
    (Path.cwd() / "pyproject.toml").write_text(CONFLICT.replace("asnap", "other"))

    done = asnap("config", "show", "--json")

    assert (done.code, done.json["notices"], done.err) == (0, [], "")


def test_run_leaves_the_clients_input_alone(home: Path, place: Path) -> None:
    HOSTILE["standard input"](Path.cwd())
    seen = home / "seen"
    command = [sys.executable, "-m", "snapshot_plugin", "run", "--", "sh", "-c", f"cat > '{seen}'"]

    forkserver.run(command, input=b'{"jsonrpc":"2.0","method":"x"}\n', timeout=30)

    assert b'"method"' in seen.read_bytes()


def test_settings_changed_by_a_project_are_shown_with_their_origin(asnap: Asnap) -> None:
    (Path.cwd() / ".asnap.toml").write_text("snapshot_interval = 60")

    done = asnap("config", "show", "--origin")

    (line,) = (line for line in done.out.splitlines() if line.startswith("snapshot_interval"))
    assert line.split()[1:3] == ["60.0", "project"]


@pytest.mark.parametrize(("name", "head"), [(".asnap.toml", ""), ("pyproject.toml", "[tool.asnap]\n")])
def test_linked_project_file_is_not_used(asnap: Asnap, home: Path, name: str, head: str) -> None:
    (home / "elsewhere.toml").write_text(f"{head}snapshot_interval = 60")
    (Path.cwd() / name).symlink_to(home / "elsewhere.toml")

    done = asnap("config", "show", "--json")

    assert any(name in notice for notice in done.json["notices"])
    assert next(each for each in done.json["settings"] if each["name"] == "snapshot_interval")["value"] == 300


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_project_file_of_another_user_is_not_used(asnap: Asnap) -> None:
    file = Path.cwd() / ".asnap.toml"
    file.write_text("snapshot_interval = 60")
    os.chown(file, 54321, 54321)

    done = asnap("config", "show", "--json")

    assert "another user" in done.json["notices"][0]
    assert next(each for each in done.json["settings"] if each["name"] == "snapshot_interval")["value"] == 300
