"""The same faults for every adapter: kill -9, writers at once, a full disk, a store of a newer adapter."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest

from integration.frameworks.pages import ROOT
from integration.frameworks.writers import WRITERS
from snapshot_plugin import FilesystemStore
from snapshot_plugin.errors import InvalidSnapshotVersion, SnapshotCorrupted

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

    def test_threads_with_loops_of_their_own_lose_nothing(self, tmp_path: Path) -> None:
        writer, names = WRITERS[self.writer](str(tmp_path)), [f"n{number}" for number in range(12)]
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(writer.add, names, timeout=_SECONDS))
        assert sorted(writer.names()) == sorted(names) == sorted(WRITERS[self.writer](str(tmp_path)).names())

    def test_a_session_of_a_newer_adapter_is_refused_and_left_as_it_is(self, tmp_path: Path) -> None:
        self._run(tmp_path, "before")
        store = FilesystemStore(tmp_path).sync
        for meta in store.list():
            found, name = store.load(meta.session_id), meta.provider_type or ""
            about: Any = found.plugins[name]
            newer = {**about, "format": 99} if isinstance(about, dict) else 99
            store.save(found.evolve(plugins={**found.plugins, name: newer}), labels=meta.labels)
        before = store.list()
        for writer in (WRITERS[self.writer](str(tmp_path)), WRITERS[self.writer](str(tmp_path))):
            for call in (writer.names, lambda add=writer.add: add("late")):
                with pytest.raises(InvalidSnapshotVersion, match="newer"):
                    call()
        assert store.list() == before

    def test_entries_that_another_program_wrote_are_damage_of_the_session(self, tmp_path: Path) -> None:
        self._run(tmp_path, "before")
        store = FilesystemStore(tmp_path).sync
        [meta] = store.list()
        found, wrong = store.load(meta.session_id), {"floats": [[["gone", 0], "NaN"]]}
        messages = [each.evolve(metadata=wrong) for each in found.messages]
        plugins = found.plugins if messages else {name: {**each, **wrong} for name, each in found.plugins.items()}
        store.save(found.evolve(messages=messages, plugins=plugins), labels=meta.labels)
        with pytest.raises(SnapshotCorrupted, match=meta.session_id):
            WRITERS[self.writer](str(tmp_path)).names()

    def test_a_full_disk_is_an_error_and_loses_nothing(self, tmp_path: Path) -> None:
        self._run(tmp_path, "before")
        assert self._run(tmp_path, "--full", "late") == ["before", "store_unavailable", "late"]
        assert set(self._run(tmp_path)[0].split()) == {"before", "late"}
