"""Disks that can be made to fail: loop-mounted images that lose their power, and small ones that fill up."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Disk", "loop_disk", "no_loop_disk", "no_small_disk", "small_disk"]

_GOING_DOWN = 0x8004587D
"""FS_IOC_GOINGDOWN, ``_IOR('X', 125, __u32)``: ext4 and XFS both have it."""
_WITHOUT_LOG_FLUSH = 2
_MAKE = {
    "ext4": (["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"], 64 << 20),
    "xfs": (["mkfs.xfs", "-q", "-f"], 320 << 20),
}


class Disk:
    """A file system in a file. `power_off` loses all that the kernel had not been made to write."""

    def __init__(self, kind: str, image: Path, root: Path) -> None:
        self.kind, self.root, self._image = kind, root, image
        self._fd = -1

    def mount(self) -> None:
        """Power on; the file system recovers from its journal."""
        _run("mount", "-t", self.kind, "-o", "loop", str(self._image), str(self.root))
        self._fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def power_off(self) -> None:
        """From now on every write and every sync is refused, and the journal stays as it is on the disk."""
        fcntl.ioctl(self._fd, _GOING_DOWN, struct.pack("I", _WITHOUT_LOG_FLUSH))

    def unmount(self) -> None:
        """Let go of it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            _run("umount", str(self.root))

    def power_cycle(self) -> None:
        """Off (again, if it was) and on."""
        self.unmount()
        self.mount()


@contextlib.contextmanager
def loop_disk(kind: str) -> Iterator[Disk]:
    """A new, mounted ext4 or XFS of its own."""
    place = Path(tempfile.mkdtemp(prefix="asnap-soak-"))
    image, root = place / "image", place / "root"
    root.mkdir()
    make, size = _MAKE[kind]
    with image.open("wb") as file:
        file.truncate(size)
    disk = Disk(kind, image, root)
    try:
        _run(*make, str(image))
        disk.mount()
        yield disk
    finally:
        with contextlib.suppress(OSError):
            disk.unmount()
        shutil.rmtree(place, ignore_errors=True)


@functools.cache
def no_loop_disk(kind: str) -> str | None:
    """Why there can be no such disk here; None if there can."""
    make = _MAKE[kind][0][0]
    if (reason := _no_mounting()) is not None:
        return reason
    if shutil.which(make) is None:
        return f"{make} is not installed"
    try:
        with loop_disk(kind) as disk:
            disk.power_off()
    except OSError as error:
        return f"a loop-mounted {kind} is not possible here: {error}"
    return None


@contextlib.contextmanager
def small_disk(options: str) -> Iterator[Path]:
    """A tmpfs with these limits."""
    root = Path(tempfile.mkdtemp(prefix="asnap-soak-"))
    _run("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(root))
    try:
        yield root
    finally:
        _run("umount", "--lazy", str(root))
        root.rmdir()


@functools.cache
def no_small_disk() -> str | None:
    """Why there can be no small disk here; None if there can."""
    if (reason := _no_mounting()) is not None:
        return reason
    try:
        with small_disk("size=64k"):
            return None
    except OSError as error:
        return f"mounting a tmpfs is not possible here: {error}"


def _no_mounting() -> str | None:
    return None if sys.platform == "linux" and os.geteuid() == 0 else "mounting needs root on Linux"


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    except subprocess.SubprocessError as error:
        said = str(getattr(error, "stderr", "") or error).strip()
        raise OSError(f"{command[0]}: {said}") from error
