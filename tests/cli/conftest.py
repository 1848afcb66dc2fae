"""A user's terminal: a home of their own, a store, and ``asnap`` run in this process (fast) or as a real one."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import anyio
import pytest

from snapshot_plugin import FilesystemStore, SessionSnapshot
from snapshot_plugin.cli import main
from snapshot_plugin.codec.sources import KeySource
from tests import forkserver


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The error document on stderr, which is its last line."""
        return json.loads(self.err.splitlines()[-1])


class Asnap(Protocol):
    def __call__(self, *words: str | Path) -> Ran: ...


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without history: every place is below *tmp_path*, and nothing of the machine's settings counts."""
    for name in [name for name in os.environ if name.startswith(("ASNAP_", "XDG_"))]:
        monkeypatch.delenv(name)
    for name in ("DATA", "CONFIG", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def place(home: Path) -> Path:
    """Where the user's store is."""
    return home / "data" / "asnap" / "store"


@pytest.fixture
def asnap(capfd: pytest.CaptureFixture[str]) -> Asnap:
    """Run a command in this process; its output is captured as a process's would be."""

    def run(*words: str | Path) -> Ran:
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main([str(word) for word in words])
        out, err = capfd.readouterr()
        return Ran(int(exit_.value.code or 0), out, err)

    return run


@pytest.fixture
def asnap_process(home: Path) -> Asnap:
    """Run a command as a process of its own, without a terminal."""

    def run(*words: str | Path) -> Ran:
        line = [sys.executable, "-m", "snapshot_plugin", *map(str, words)]
        done = forkserver.run(line, timeout=60)
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


def saved(
    place: Path, *snapshots: SessionSnapshot, tags: Sequence[str] = (), key: str | KeySource | None = None
) -> None:
    """Save snapshots, one after the other, in the store at *place*."""

    async def save() -> None:
        async with FilesystemStore(place, key=key, background=False) as store:
            for snapshot in snapshots:
                tip = await store.tip(snapshot.session_id)
                await store.save(snapshot, tags=tags, base=tip.seq if tip else 0)

    anyio.run(save)
