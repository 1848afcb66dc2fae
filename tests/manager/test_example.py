"""The example a newcomer runs: three sessions, one SIGKILL, nothing lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


@pytest.mark.requirement("MANAGER-EXAMPLE", "ORBIT-USE-CRASH", "ORBIT-USE-LITTLE-LOST")
def test_three_killed_sessions_resume_with_nothing_lost() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "integration.three_sessions"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("records recovered") == 3
    assert done.stdout.count("native-load") == 3


def test_example_run_can_be_killed_and_restarted_by_hand(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "integration.three_sessions", "live", str(tmp_path)]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as life:
        assert life.stdout is not None
        assert any(line.startswith('{"seen"') for line in life.stdout)
        life.kill()
    again = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert again.stdout.splitlines()[-1] == "all three have said everything"
