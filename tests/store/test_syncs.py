"""Every sync of the package reaches the drive itself; on macOS plain fsync stops at the drive's cache."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

import snapshot_plugin
from snapshot_plugin.system.files import replace_file, sync_all, sync_data
from tests.faults.support import store_at, version
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it

_FULL_SYNC = 51


class Drive:
    """A drive on macOS: no fdatasync, fsync goes half the way, and the full sync may not be supported."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, refuses: int | None = None) -> None:
        self.full: list[Path] = []
        self.half: list[Path] = []
        self._refuses = refuses
        self._fcntl = fcntl.fcntl
        monkeypatch.delattr(os, "fdatasync")
        monkeypatch.setattr(os, "fsync", lambda fd: self.half.append(_name(fd)))
        monkeypatch.setattr(fcntl, "fcntl", self._control)

    def _control(self, fd: int, command: int, *rest: Any) -> Any:
        if command != _FULL_SYNC:
            return self._fcntl(fd, command, *rest)
        if self._refuses:
            raise OSError(self._refuses, os.strerror(self._refuses))
        self.full.append(_name(fd))
        return 0


def _name(fd: int) -> Path:
    return Path(f"/proc/self/fd/{fd}").readlink()


@pytest.mark.anyio
async def test_macos_uses_full_fsync_for_files_and_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive = Drive(monkeypatch)
    async with store_at(tmp_path, None) as store:
        await store.save(version(1))
        await store.save(version(2))
        await store.delete("session")
    assert drive.half == []
    assert {path.suffix for path in drive.full} >= {"", ".gz", ".tmp"}
    assert tmp_path / "sessions" in drive.full


def test_volume_without_full_fsync_falls_back_to_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drive = Drive(monkeypatch, refuses=errno.ENOTSUP)
    replace_file(tmp_path / "file", b"x")
    assert drive.half[-1] == tmp_path
    assert len(drive.half) == 2


@pytest.mark.parametrize("sync", [sync_all, sync_data])
def test_failed_sync_is_not_mistaken_for_an_unsupported_one(
    sync: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive = Drive(monkeypatch, refuses=errno.EIO)
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            sync(fd)
    finally:
        os.close(fd)
    assert drive.half == []


def test_no_other_module_calls_fsync() -> None:
    package = Path(snapshot_plugin.__file__).parent
    syncing = {
        p.name for p in package.rglob("*.py") if "os.fsync" in p.read_text() or "os.fdatasync" in p.read_text()
    }
    assert syncing == {"files.py"}
