"""The suite passes wherever and however it is started: in the background, below any directory, by anybody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOREIGN = {"ASNAP_STORE": "/nowhere", "ASNAP_KEY": "somebody's", "XDG_DATA_HOME": "/nowhere"}


def test_ctrl_c_reaches_processes_started_by_a_test() -> None:
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


def test_a_temporary_directory_is_in_no_repository_below_home(tmp_path: Path) -> None:
    below_home = [place for place in (tmp_path, *tmp_path.parents) if place.is_relative_to(Path.home())]
    assert below_home
    assert [place for place in below_home if place != Path.home() and (place / ".git").exists()] == []


def test_tests_see_no_user_settings_and_no_user_home(tmp_path: Path) -> None:
    assert [name for name in FOREIGN if name in os.environ] == []
    assert tmp_path.is_relative_to(Path.home())


def test_the_suite_can_be_started_in_the_background_below_a_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    here = Path(__file__).relative_to(ROOT)
    line = [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", "--basetemp", f"{tmp_path}/below"]
    names = "ctrl_c or in_no_repository or no_user_settings"
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *line, "-k", names, str(here)],
        cwd=ROOT,
        env={**os.environ, **FOREIGN},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


@pytest.mark.parametrize("hygiene", ['trap "" INT', "git init", "ASNAP_PROVE_ALL=1"])
def test_ci_runs_the_suite_under_these_conditions(hygiene: str) -> None:
    assert hygiene in (ROOT / ".ci/run").read_text("utf-8")
