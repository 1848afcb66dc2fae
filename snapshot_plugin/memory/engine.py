"""Read and write one directory of memory, from several processes.

A write holds a kernel lock while it reads the memory, applies its changes and replaces the files, so any number of
processes can write in turn, and none blocks the others while it is idle or after it has died. A change that cannot
be written now waits: in ``.pending``, durably, if another process keeps the lock too long; in this process, if the
disk refuses. The next write, by any process, applies what is in ``.pending``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections import deque
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from snapshot_plugin.errors import (
    Damaged,
    MemoryReadOnly,
    NotFound,
    SnapshotCorrupted,
    SnapshotError,
    StoreUnavailable,
)
from snapshot_plugin.manager.ports import Clock
from snapshot_plugin.memory.changes import META, MemoryChange, MemoryView, Outcome, Persistence, Saved
from snapshot_plugin.memory.files import DIRECTORY, NOISE, PENDING, MemoryFiles, Name, Scan, encoded
from snapshot_plugin.memory.kinds import moment_in
from snapshot_plugin.memory.limits import MemoryLimits
from snapshot_plugin.memory.place import ignore_in_git
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.store.files import disk_errors, make_private_dir, replace_file

__all__ = ["USER", "MemoryEngine"]

USER: Final = "memory"
"""The directory of the namespace ``global``, in the user's state directory."""
_TIMEOUT: Final = 10.0
"""How long a write waits for other processes, in seconds."""
_CHANGES: Final = TypeAdapter(list[MemoryChange])


class MemoryEngine:
    """Reads and writes the directory *name* below *root*. Thread-safe. `close` it at the end.

    A change that cannot be written is kept, can be read, and is written with the next write that succeeds.
    """

    def __init__(
        self, root: Path, name: str = DIRECTORY, *, limits: MemoryLimits, state: Path, clock: Clock
    ) -> None:
        self.root, self.limits, self.clock = root, limits, clock
        self.files = MemoryFiles(root, name)
        self.sizes = ProjectSizes(state, root) if name == DIRECTORY else None
        self.session = 0
        """The session that changes belong to, and when the session before it ended."""
        self.previous: str | None = None
        self.queue: list[MemoryChange] = []
        """Changes that are not on disk: observations until the next flush, and changes that the disk refused.

        Any thread may append; only this class removes.
        """
        self.persistence: Persistence = "disk"
        self.noise: dict[str, Any] = {}
        self._meta: dict[str, Any] = {}
        self._why = ""
        self._problems: tuple[str, ...] = ()
        self._notices: deque[str] = deque(maxlen=20)
        self._guard = threading.RLock()  # taken after the file lock, never before it
        self._is_swept = False
        self._ended = threading.Event()
        self._flusher: threading.Thread | None = None

    def change(self, op: Any, name: Name | None = None, data: Any = None) -> MemoryChange:
        """A change of this session, made now."""
        return MemoryChange(op, *(name or ("", "")), data, self.session, rfc3339(self.clock()))

    # Reading -----------------------------------------------------------------------------------------------

    def view(self) -> MemoryView:
        """The memory on disk, with the changes that are not written yet."""
        with self._guard:
            view = self._on_disk()
            for change in chain(*self._put_off_before().values(), self.queue[:]):
                view.apply(change)
            self._learn_from(view)
            return view

    def load(self, name: Name) -> Any:
        """An entry's data. Raises `NotFound`; or `SnapshotCorrupted` for a damaged file, which is set aside."""
        try:
            if not self.queue and not self._pending():
                with contextlib.suppress(NotFound):  # the file was named by hand, or it is in a document
                    return self.files.read(name.path)
            return self.view().load(name)
        except SnapshotCorrupted as error:
            raise SnapshotCorrupted(f"{name} is damaged{self._quarantine(name)}", hint="save it again") from error

    def others(self) -> int:
        """The bytes of all other projects' memories."""
        return self.sizes.others() if self.sizes else 0

    @property
    def notices(self) -> tuple[str, ...]:
        """Warnings for the caller, the most important first."""
        return ((self._why,) if self._why else ()) + self._problems + tuple(self._notices)

    # Writing -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Count a session. If the disk refuses, it is counted in memory until the disk allows."""
        self.previous = self._stored_meta()["last_session"]
        with contextlib.suppress(StoreUnavailable):
            self.write([self.change("begin")])
        self.session = self._meta["session_count"]

    def write(self, changes: Sequence[MemoryChange]) -> list[Outcome]:
        """Apply what waits, then *changes*; return the result of each change. They are on disk when it returns.

        If another process keeps the lock, they are in ``.pending``, and `persistence` is ``read-only``.

        Raises:
            StoreUnavailable: the disk refuses; the changes are kept in memory and written later.
        """
        try:
            self._make_root()
            with self.files.locked(_TIMEOUT), self._guard:
                self._tidy()
                outcomes = self._commit(changes)
                self.persistence, self._why = "disk", ""
        except MemoryReadOnly as held:
            return self._put_off(changes, held)
        except StoreUnavailable as error:
            self._keep(changes, error)
            raise
        return outcomes

    def flush(self) -> None:
        """Write what waits, if anything does. Raises as `write`."""
        if self.queue or self._pending():
            self.write(())

    def keep_flushing(self, interval: float) -> None:
        """Flush every *interval* seconds, in a thread of its own, until `close`."""

        def work() -> None:
            while not self._ended.wait(interval):
                with contextlib.suppress(SnapshotError):  # every answer says so; the next flush tries again
                    self.flush()

        self._flusher = threading.Thread(target=work, name="asnap-memory", daemon=True)
        self._flusher.start()

    def close(self) -> None:
        """Stop flushing. Writes nothing."""
        self._ended.set()
        if self._flusher is not None:
            self._flusher.join()

    def _put_off(self, changes: Sequence[MemoryChange], held: MemoryReadOnly) -> list[Outcome]:
        """Put the queue and *changes* into ``.pending``, for the next process that gets the lock."""
        with self._guard:
            queued = self.queue[:]
            group = [change._asdict() for change in (*queued, *changes)]
            try:
                if group:
                    self.files.replace({(PENDING, f"{new_id()}.json"): encoded(group)})
            except StoreUnavailable as error:
                self._keep(changes, error)
                raise
            del self.queue[: len(queued)]
            self.persistence = "read-only"
            self._why = f"read-only: {held.message}; saves are kept in .asnap/.pending and delivered later"
            self.view()
        return [Saved(namespace=each.namespace, key=each.key, persistence="read-only") for each in changes]

    def _keep(self, changes: Sequence[MemoryChange], error: StoreUnavailable) -> None:
        with self._guard:
            self.queue += [change for change in changes if change.op != "end"]
            self.persistence = "memory"
            self._why = f"the disk refuses; changes are kept in memory only: {error.message}"
            self.view()

    def _make_root(self) -> None:
        if self.sizes is None:  # a project's directory is never made
            with disk_errors(f"making {self.root}"):
                make_private_dir(self.root)

    def _tidy(self) -> None:
        if not self._is_swept:
            self.files.sweep()
            self._is_swept = True
        if self.sizes is not None and META[0] not in self.files.names():
            try:
                ignore_in_git(self.root, self.files)
            except StoreUnavailable:
                raise
            except OSError as error:
                self._notice(f".asnap/ could not be added to .gitignore: {error.strerror}")
            self.files.replace({META: encoded(self._stored_meta())})

    def _commit(self, changes: Sequence[MemoryChange]) -> list[Outcome]:
        """Write what waits, and *changes*, all or none; return the results of *changes*."""
        view = self._on_disk(is_locked=True)
        pending, queued = self._put_off_before(is_locked=True), self.queue[:]
        waiting = [*chain(*pending.values()), *queued]
        outcomes = [view.apply(change) for change in (*waiting, *changes)]
        writes = view.finish()
        self._learn_from(view, is_locked=True)
        self.files.replace(writes | {(PENDING, f"{name}.json"): None for name in pending})
        del self.queue[: len(queued)]
        outcomes = [view.final(outcome) for outcome in outcomes]
        for outcome in outcomes[: len(waiting)]:
            if isinstance(outcome, SnapshotError):
                self._notice(f"a change that waited was refused: {outcome.message}")
        if self.sizes is not None:
            self.sizes.note(view.total)
        return outcomes[len(waiting) :]

    def _put_off_before(self, *, is_locked: bool = False) -> dict[str, list[MemoryChange]]:
        """The changes in each file of ``.pending``."""
        found: dict[str, list[MemoryChange]] = {}
        for name in self._pending():
            path = (PENDING, f"{name}.json")
            try:
                found[name] = _CHANGES.validate_python(self.files.read(path))
            except NotFound:
                pass  # another process has just applied it
            except (Damaged, ValueError):
                kept = f"; it is kept as {self.files.set_aside(path)}" if is_locked else ""
                self._notice(f"a change in .pending is damaged{kept}")
        return found

    def _pending(self) -> list[str]:
        try:
            return [file.removesuffix(".json") for file in self.files.names(PENDING) if file.endswith(".json")]
        except StoreUnavailable:
            return []

    # Inside ------------------------------------------------------------------------------------------------

    def _on_disk(self, *, is_locked: bool = False) -> MemoryView:
        try:
            scan = self.files.scan()
        except StoreUnavailable:
            if is_locked:
                raise
            scan = Scan()
        self._problems = self.files.problems(scan)
        meta = self._stored_meta(is_locked=is_locked)
        return MemoryView(self.files, scan, meta, self.limits, now=self.clock(), elsewhere=self.others())

    def _learn_from(self, view: MemoryView, *, is_locked: bool = False) -> None:
        self._meta, self.noise = view.meta, view.document(NOISE).entries
        for name in view.damaged:
            if is_locked:
                self._set_aside(name)
            else:
                self._notice(f"{name} is damaged")

    def _stored_meta(self, *, is_locked: bool = False) -> dict[str, Any]:
        """The content of ``meta.json``; new content if the file is missing or unusable."""
        now = rfc3339(self.clock())
        meta: dict[str, Any] = {"created_at": now, "last_session": None, "session_count": self.session, "used": {}}
        with contextlib.suppress(NotFound, StoreUnavailable):
            try:
                meta |= _checked_meta(self.files.read(META))
            except SnapshotCorrupted as error:
                if is_locked:
                    kept = self.files.set_aside(META)
                    self._notice(f"{error.message}; it is kept as {kept}; sessions are counted anew")
        return meta | {"project": str(self.root)}

    def _quarantine(self, name: Name) -> str:
        """Set a damaged file aside, unless it was replaced meanwhile; return where it is, for a message."""
        with contextlib.suppress(MemoryReadOnly, StoreUnavailable), self.files.locked(_TIMEOUT), self._guard:
            try:
                self.files.read(name.path)
            except SnapshotCorrupted:
                return self._set_aside(name)
        return ""

    def _set_aside(self, name: Name) -> str:
        where = ""
        with contextlib.suppress(StoreUnavailable):
            where = f"; it is kept as {self.files.set_aside(name.path)}"
        self._notice(f"{name} is damaged{where}")
        return where

    def _notice(self, text: str) -> None:
        if not any(known.startswith(text) for known in self._notices):
            self._notices.append(text)


def _checked_meta(raw: Any) -> dict[str, Any]:
    if not isinstance(raw, dict) or not isinstance(raw.get("session_count"), int):
        raise SnapshotCorrupted("meta.json is damaged: it has no session_count")
    used = raw.get("used") if isinstance(raw.get("used"), dict) else {}
    last = raw.get("last_session") if moment_in(raw.get("last_session")) else None
    return {**raw, "used": used, "last_session": last}


class ProjectSizes:
    """The sizes of all projects' memories, as seen from one of them: one small file per project.

    Each writer records its project's size, so the sum is as recent as the last writes. If the directory cannot be
    used, there is no common limit.
    """

    def __init__(self, state: Path, project: Path) -> None:
        self._directory, self._project = state / "projects", project
        digest = hashlib.sha256(str(project).encode("utf-8", "surrogateescape")).hexdigest()
        self._own = self._directory / f"{digest[:32]}.json"
        self._noted: int | None = None

    def note(self, size: int) -> None:
        """Record the size of this project's memory, if the disk allows."""
        if self._noted != size:
            line = json.dumps({"project": str(self._project), "bytes": size}).encode() + b"\n"
            with contextlib.suppress(OSError, StoreUnavailable):
                make_private_dir(self._directory)
                replace_file(self._own, line)
                self._noted = size

    def others(self) -> int:
        """The bytes of all other projects' memories. Projects whose memory is gone are forgotten."""
        with contextlib.suppress(OSError):
            return sum(_size(file) for file in self._directory.glob("*.json") if file != self._own)
        return 0


def _size(file: Path) -> int:
    try:
        noted = json.loads(file.read_bytes())
        project, size = Path(noted["project"]), int(noted["bytes"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    if not (project / DIRECTORY).is_dir():
        with contextlib.suppress(OSError):
            file.unlink()
        return 0
    return max(size, 0)
