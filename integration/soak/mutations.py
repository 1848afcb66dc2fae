"""Protections taken out, one at a time and only inside a process that was made to be tortured.

Each of these is called in a child and changes that process for good; the product has no switch for any of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from snapshot_plugin.acp import reducer
from snapshot_plugin.codec import frame
from snapshot_plugin.exchange import reading
from snapshot_plugin.live import lease
from snapshot_plugin.live.schedule import FlushThread
from snapshot_plugin.live.spool import Spool
from snapshot_plugin.memory import files as memory_files
from snapshot_plugin.memory.files import MemoryFiles
from snapshot_plugin.model.meta import SnapshotRef
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store import directories, segments, walk
from snapshot_plugin.store.engine import LogStore
from snapshot_plugin.system import files, lines

__all__ = [
    "Mutation",
    "leaking",
    "never_emptied",
    "no_chain",
    "no_checksum",
    "no_directory_sync",
    "no_flusher",
    "no_lease",
    "no_lock",
    "no_segment_entry_sync",
    "no_settling",
    "no_spool",
    "no_sync",
    "no_write_loop",
    "nothing",
    "refusals_ignored",
    "remembered_late",
    "saved_late",
    "sloppy_bundles",
    "sloppy_frames",
    "sloppy_lines",
    "sloppy_updates",
    "written_in_place",
]

Mutation = Callable[[], None]


def _patched(owner: Any, name: str, replacement: Any) -> None:
    """Replace what is there; raise if it moved, because patching its old place would prove nothing."""
    getattr(owner, name)
    setattr(owner, name, replacement)


def nothing() -> None:
    """The product as it is."""


def no_sync() -> None:
    """Nothing is ever forced to the disk."""
    for name in ("fsync", "fdatasync"):
        _patched(os, name, lambda _fd: None)


def no_directory_sync() -> None:
    """The entries of directories are not forced to the disk; what is in the files is."""
    for module in (files, segments):
        _patched(module, "sync_dir", lambda _path: None)

    def files_only(fd: int) -> None:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            files.sync_all(fd)

    _patched(memory_files, "sync_all", files_only)


def no_segment_entry_sync() -> None:
    """The entry of a new segment is not forced to the disk; those of new directories are."""
    _patched(segments, "sync_dir", lambda _path: None)


def no_settling() -> None:
    """A writer builds on what another one left without making sure that the disk has it."""

    def trust(_log: segments.SegmentFiles, _known: object) -> None: ...

    _patched(segments.SegmentFiles, "_settle", trust)


def no_lock() -> None:
    """Everybody gets the lock at once."""
    _patched(files, "try_lock", lambda _fd, **_kind: True)


def no_lease() -> None:
    """Everybody may have a live session."""
    _patched(lease, "try_lock", lambda _fd, **_kind: True)


def no_flusher() -> None:
    """What the proxy writes ahead is synced at the turning points of a turn only."""
    _patched(FlushThread, "wake", lambda _flusher: None)


def no_spool() -> None:
    """What streams by is not written ahead."""
    _patched(Spool, "append_all", lambda spool, _records: spool.last)


def saved_late() -> None:
    """A save returns at once; it happens when the next one is asked for."""
    save: Any = LogStore.save
    waiting: list[SessionSnapshot] = []

    async def late(store: LogStore, snapshot: SessionSnapshot, **options: Any) -> SnapshotRef:
        waiting.append(snapshot)
        if len(waiting) > 1:
            await save(store, waiting.pop(0), **options)
        return SnapshotRef(session_id=snapshot.session_id, seq=len(snapshot.messages), root="", size_bytes=0)

    _patched(LogStore, "save", late)


def remembered_late() -> None:
    """An entry of the project memory is written when the next one is to be."""
    replace: Any = MemoryFiles.replace
    waiting: list[Any] = []

    def late(memory: MemoryFiles, *files: Any) -> None:
        waiting.append(files)
        if len(waiting) > 1:
            replace(memory, *waiting.pop(0))

    _patched(MemoryFiles, "replace", late)


def written_in_place() -> None:
    """A file is replaced by writing over it."""

    def over(path: Path, data: bytes) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        files.write_all(fd, data)
        os.fsync(fd)
        os.close(fd)

    for module in (files, segments, directories):
        _patched(module, "replace_file", over)


def no_write_loop() -> None:
    """Nobody looks how much was written."""

    def once(fd: int, data: bytes) -> None:
        os.write(fd, data)

    for module in (files, segments):
        _patched(module, "write_all", once)


def refusals_ignored() -> None:
    """What the disk refuses to write counts as written."""
    write_all = files.write_all

    def shrug(fd: int, data: bytes) -> None:
        with contextlib.suppress(OSError):
            write_all(fd, data)

    for module in (files, segments):
        _patched(module, "write_all", shrug)


def no_checksum() -> None:
    """Whatever a plain frame holds is believed."""
    _patched(frame, "_checked", lambda data, _header, body: data[body : -frame.TRAILER])


def no_chain() -> None:
    """Nobody looks whether a frame continues the one before."""
    _patched(walk.Replay, "take", _taken_as_it_comes)
    _patched(walk._Search, "_is_put_back", lambda _search, _frame, _before: False)  # noqa: SLF001 — from inside


def _taken_as_it_comes(replay: walk.Replay, header: frame.Header, lines: Sequence[bytes], **_options: bool) -> None:
    replay.apply(header, lines)
    replay.last = header


def sloppy_frames() -> None:
    """A header that cannot be read raises whatever it raises."""
    _patched(frame.Header, "from_bytes", lambda data: frame._header(frame._parsed(data)))  # noqa: SLF001 — from inside


def sloppy_bundles() -> None:
    """What is no JSON raises whatever it raises."""
    _patched(reading, "parse_json", json.loads)


def sloppy_updates() -> None:
    """What is no time raises whatever it raises."""
    _patched(reducer, "_moment", datetime.fromisoformat)


def sloppy_lines() -> None:
    """A line ends wherever Python says so."""
    _patched(lines, "_at_newlines", lambda whole: whole.splitlines(keepends=True))


def leaking() -> None:
    """Every record leaves a file open."""
    append: Any = Spool.append_all

    def leak(spool: Spool, records: Any) -> int:
        os.dup(0)
        number: int = append(spool, records)
        return number

    _patched(Spool, "append_all", leak)


def never_emptied() -> None:
    """The spool is not emptied when a snapshot has been made."""
    _patched(Spool, "truncate", lambda _spool, _upto: None)
