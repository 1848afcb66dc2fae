"""Nothing in a project's directory stops a command, hangs it, or changes it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from snapshot_plugin.testing import make_snapshot
from tests import forkserver
from tests.cli.conftest import saved

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
    "endless device": _linked("pyproject.toml", "/dev/zero"),
    "standard input": _linked(".asnap.toml", "/dev/stdin"),
    "secret file": _linked("pyproject.toml", "/etc/passwd"),
    "link to itself": _linked("pyproject.toml", "pyproject.toml"),
    "pipe": lambda place: os.mkfifo(place / "pyproject.toml"),
    "directory": lambda place: (place / "pyproject.toml").mkdir(),
    "large": _written("pyproject.toml", "# asnap" * (1 << 20)),
    "not text": _written("pyproject.toml", b"\xff\xfe\x00"),
}


@pytest.mark.parametrize("plant", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("line", ["list", "doctor"])
def test_file_of_a_project_is_never_fatal(home: Path, place: Path, plant: Plant, line: str) -> None:
    saved(place, make_snapshot("hello", session_id="s1"))
    plant(Path.cwd())

    command = [sys.executable, "-m", "snapshot_plugin", *line.split()]
    done = forkserver.run(command, input=b"for the client\n" * 10_000, timeout=30)

    assert done.returncode == 0, done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert len(done.stderr) < 4000


def test_run_leaves_the_clients_input_alone(home: Path, place: Path) -> None:
    HOSTILE["standard input"](Path.cwd())
    seen = home / "seen"
    command = [sys.executable, "-m", "snapshot_plugin", "run", "--", "sh", "-c", f"cat > '{seen}'"]

    forkserver.run(command, input=b'{"jsonrpc":"2.0","method":"x"}\n', timeout=30)

    assert b'"method"' in seen.read_bytes()
