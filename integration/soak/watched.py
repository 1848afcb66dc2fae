"""The system calls of this process, watched: what they do below one directory also happens on a model disk."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anyio.to_thread

from integration.soak.disk_model import Change, Directory, File, Node, Tree
from snapshot_plugin.store import hop

__all__ = ["Ended", "WatchedDisk", "in_one_thread"]

Call = Callable[..., Any]
_CHANGES = (
    "write", "pwrite", "ftruncate", "fsync", "fdatasync", "mkdir", "rmdir", "rename", "replace", "unlink", "remove"
)  # fmt: skip
_CALLS = ("open", "close", "dup", *_CHANGES)


class Ended(BaseException):
    """The process, or the power, is gone. No handler for ordinary errors stops it."""


@contextlib.contextmanager
def in_one_thread() -> Iterator[None]:
    """Do in the event loop what would be done in worker threads, so that everything happens in the same order."""

    async def here(work: Callable[..., Any], *args: Any, **_options: Any) -> Any:
        return work(*args)

    def done_here(job: Any) -> None:
        job.do()
        job.way_back.put(job)

    with contextlib.ExitStack() as patches:
        patches.enter_context(patch.object(anyio.to_thread, "run_sync", here))
        for threads in (hop._threads, hop._threads_in_turn):  # noqa: SLF001 — from inside
            patches.enter_context(patch.object(threads, "take", done_here))
        yield


class WatchedDisk:
    """Watches what happens below *root*. After so many `steps` everything that changes the disk raises `Ended`.

    `tree` is the model: what it says of a power cut is what such a disk could hold.
    """

    def __init__(self, root: Path, *, steps: int) -> None:
        self.root, self.steps = root.resolve(), steps
        self.tree = Tree.of(self.root)
        self._nodes: dict[int, Node] = {}
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Replace the system calls of this process meanwhile."""
        real = {name: getattr(os, name) for name in _CALLS}
        for name, call in real.items():
            setattr(os, name, self._watched(getattr(self, f"_on_{name}"), call, name))
        try:
            yield
        finally:
            for name, call in real.items():
                setattr(os, name, call)

    def _watched(self, on_call: Call, call: Call, name: str) -> Call:
        def watched(*args: Any, **options: Any) -> Any:
            with self._lock:
                if name in _CHANGES and self._concerns(args[0]):
                    self._step()
                return on_call(call, *args, **options)

        return watched

    def _concerns(self, what: Any) -> bool:
        return what in self._nodes if isinstance(what, int) else self._parts(what) is not None

    def _step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise Ended

    # Names ----------------------------------------------------------------------------------------------------

    def _parts(self, path: Any) -> tuple[str, ...] | None:
        """The names below the root; None for what is elsewhere."""
        given = Path(os.fsdecode(path))
        with contextlib.suppress(ValueError):
            return given.absolute().relative_to(self.root).parts
        return None

    def _place(self, path: Any) -> tuple[Directory, str] | None:
        parts = self._parts(path)
        directory = self.tree.at(parts[:-1]) if parts else None
        return (directory, parts[-1]) if parts and isinstance(directory, Directory) else None

    # Open files -----------------------------------------------------------------------------------------------

    def _on_open(self, call: Call, path: Any, flags: int, *args: Any, **options: Any) -> int:
        fd: int = call(path, flags, *args, **options)
        parts = self._parts(path)
        if parts is None:
            return fd
        node, place = self.tree.at(parts), self._place(path)
        if node is None and place:
            node = File()
            self.tree.change(Change(new=((*place, node),)))
        elif isinstance(node, File) and flags & os.O_TRUNC and node.content:
            node.cut(0)
        if node is not None:
            self._nodes[fd] = node
        return fd

    def _on_close(self, call: Call, fd: int) -> None:
        self._nodes.pop(fd, None)
        call(fd)

    def _on_dup(self, call: Call, fd: int) -> int:
        new: int = call(fd)
        if fd in self._nodes:
            self._nodes[new] = self._nodes[fd]
        return new

    def _on_write(self, call: Call, fd: int, data: Any) -> int:
        written: int = call(fd, data)
        node = self._nodes.get(fd)
        if isinstance(node, File):
            node.write(os.lseek(fd, 0, os.SEEK_CUR) - written, bytes(data[:written]))
        return written

    def _on_pwrite(self, call: Call, fd: int, data: Any, at: int) -> int:
        written: int = call(fd, data, at)
        node = self._nodes.get(fd)
        if isinstance(node, File):
            node.write(at, bytes(data[:written]))
        return written

    def _on_ftruncate(self, call: Call, fd: int, length: int) -> None:
        call(fd, length)
        node = self._nodes.get(fd)
        if isinstance(node, File):
            node.cut(length)

    def _on_fsync(self, _call: Call, fd: int) -> None:
        node = self._nodes.get(fd)
        if node is None:
            return
        if isinstance(node, File):
            node.sync()
        else:
            self.tree.sync(node)

    _on_fdatasync = _on_fsync

    # Entries --------------------------------------------------------------------------------------------------

    def _on_mkdir(self, call: Call, path: Any, *args: Any, **options: Any) -> None:
        call(path, *args, **options)
        if place := self._place(path):
            self.tree.change(Change(new=((*place, Directory()),)))

    def _on_unlink(self, call: Call, path: Any, *args: Any, **options: Any) -> None:
        call(path, *args, **options)
        if place := self._place(path):
            self.tree.change(Change(gone=(place,)))

    _on_remove = _on_rmdir = _on_unlink

    def _on_rename(self, call: Call, source: Any, target: Any) -> None:
        parts = self._parts(source)
        node = self.tree.at(parts) if parts else None
        call(source, target)
        old, new = self._place(source), self._place(target)
        if node is not None and old and new:
            self.tree.change(Change(gone=(old,), new=((*new, node),)))

    _on_replace = _on_rename
