"""The same faults for every adapter, with real processes: kill -9, two writers at once, a full disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import ClassVar

from integration.frameworks.pages import ROOT

__all__ = ["AdapterFaults"]

_SECONDS = 120
_KILLS = 3


class AdapterFaults:
    """Subclass it in a framework's tests, and say which of `writers.WRITERS` it is."""

    writer: ClassVar[str]

    def _started(self, place: Path, *names: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "integration.frameworks.writers", self.writer, str(place), *names]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def _run(self, place: Path, *names: str) -> list[str]:
        """What a process prints that adds *names*: first, what was there."""
        out, _ = (process := self._started(place, *names)).communicate(timeout=_SECONDS)
        assert process.returncode == 0
        return out.splitlines()

    def test_a_kill_after_any_call_loses_nothing_acknowledged(self, tmp_path: Path) -> None:
        known: set[str] = set()
        for calls in range(1, _KILLS + 1):
            with self._started(tmp_path, *(f"{calls}-{number}" for number in range(40))) as process:
                assert process.stdout
                assert known <= set(process.stdout.readline().split())
                known |= {process.stdout.readline().strip() for _ in range(calls)}
                process.kill()
                known |= set(process.stdout.read().split())
            assert process.returncode == -9
        [found] = self._run(tmp_path)
        assert known <= set(found.split())
        assert len(found.split()) <= len(known) + _KILLS  # the calls that were under way

    def test_two_processes_at_once_lose_nothing(self, tmp_path: Path) -> None:
        names = [[f"{who}{number}" for number in range(10)] for who in "ab"]
        for process in [self._started(tmp_path, *each) for each in names]:
            process.communicate(timeout=_SECONDS)
            assert process.returncode == 0
        assert set(self._run(tmp_path)[0].split()) == {*names[0], *names[1]}

    def test_a_full_disk_is_an_error_and_loses_nothing(self, tmp_path: Path) -> None:
        self._run(tmp_path, "before")
        assert self._run(tmp_path, "--full", "late") == ["before", "store_unavailable", "late"]
        assert set(self._run(tmp_path)[0].split()) == {"before", "late"}
