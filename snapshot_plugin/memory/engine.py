"""Read and write one directory of memory, from several processes.

A write holds a kernel lock while it reads the memory, applies its changes and replaces the files, so any number of
processes can write in turn, and none blocks the others while it is idle or after it has died. A change that cannot
be written now, because the disk refuses or another process keeps the lock too long, waits in this process, and is
written with the next write that succeeds.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections import deque
from pathlib import Path
from typing import Any, Final

from snapshot_plugin.errors import MemoryReadOnly, NotFound, SnapshotCorrupted, SnapshotError, StoreUnavailable
from snapshot_plugin.manager.ports import Clock
from snapshot_plugin.memory.changes import MemoryChange, Outcome, Persistence, Saved
from snapshot_plugin.memory.files import BASELINES, DIRECTORY, NOISE, MemoryFiles, Name
from snapshot_plugin.memory.limits import MemoryLimits
from snapshot_plugin.memory.place import ignore_in_git
from snapshot_plugin.memory.view import MemoryView
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.system import forks
from snapshot_plugin.system.files import disk_errors, make_private_dir, replace_file, require

__all__ = ["UNWRITTEN", "USER", "MemoryEngine"]

USER: Final = "memory"
"""The directory of the namespace ``global``, in the user's state directory."""
UNWRITTEN: Final = (StoreUnavailable, MemoryReadOnly)
"""The errors of a change that is kept in memory, and written later."""
_TIMEOUT: Final = 10.0
"""How long a write waits for other processes, in seconds."""


class MemoryEngine:
    """Reads and writes the directory *name* below *root*. Thread-safe. `close` it at the end.

    A change that cannot be written is kept, can be read, and is written with the next write that succeeds.
    """

    def __init__(
        self, root: Path, name: str = DIRECTORY, *, limits: MemoryLimits, state: Path, clock: Clock
    ) -> None:
        require("a project memory")
        self.root, self.limits, self.clock = root, limits, clock
        self.files = MemoryFiles(root, name)
        self.sizes = ProjectSizes(state, root) if name == DIRECTORY else None
        self.session = 0
        """The session that changes belong to, and when the session before it ended."""
        self.previous: str | None = None
        self.queue: list[MemoryChange] = []
        """Changes that are not on disk: observations until the next flush, and changes that could not be written.

        Any thread may append; only this class removes.
        """
        self.persistence: Persistence = "disk"
        self.noise: dict[str, Any] = {}
        self._count = 0
        self._why = ""
        self._problems: tuple[str, ...] = ()
        self._notices: deque[str] = deque(maxlen=20)
        self._guard = forks.rlock()  # taken after the file lock, never before it
        self._ended = forks.event()
        self._flusher: threading.Thread | None = None

    def change(self, op: Any, name: Name | None = None, data: Any = None) -> MemoryChange:
        """A change of this session, made now."""
        return MemoryChange(op, *(name or ("", "")), data, self.session, rfc3339(self.clock()))

    # Reading -----------------------------------------------------------------------------------------------

    def view(self) -> MemoryView:
        """The memory on disk, with the changes that are not written yet."""
        with self._guard:
            view, _ = self._applied(self.queue[:])
            self.noise = view.document(NOISE).entries
            for path in view.damaged:
                self._notice(_is_damaged(path))
            return view

    def load(self, name: Name) -> Any:
        """An entry's data. Raises `NotFound`; or `SnapshotCorrupted` for a damaged file, which is set aside."""
        if not self.queue and name.namespace != BASELINES:
            with contextlib.suppress(SnapshotError):  # most entries are in a file of that name; this is fast
                return self.files.read(name.path)
        with self._guard:
            view, _ = self._applied(self.queue[:])
        try:
            return view.load(name)
        except SnapshotCorrupted as error:
            path = view.entries[name].path
            with contextlib.suppress(*UNWRITTEN, NotFound), self.files.locked(_TIMEOUT):
                try:
                    return self.files.read(path)  # another process has replaced it
                except SnapshotCorrupted:
                    raise SnapshotCorrupted(self._set_aside(path), hint="save it again") from error
            raise SnapshotCorrupted(_is_damaged(path), hint="save it again") from error

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
        with contextlib.suppress(*UNWRITTEN):
            self.write(self.change("begin"))
        self.session = self._count

    def write(self, change: MemoryChange | None = None) -> Saved:
        """Write what waits, then *change*; return its receipt. *change* is on disk when it returns.

        If the disk refuses what waits, *change* is written alone, unless what waits has to be written first.

        Raises:
            StoreUnavailable: the disk refuses; the change is kept in memory and written later.
            MemoryReadOnly: another process keeps the lock; likewise.
            SnapshotError: the change was refused. What waited is written.
        """
        try:
            if self.sizes is None:  # a project's directory is never made
                with disk_errors(f"making {self.root}"):
                    make_private_dir(self.root)
            with self.files.locked(_TIMEOUT), self._guard:
                view, outcome = self._commit_what_fits(change)
        except UNWRITTEN as error:
            raise self._keep(change, error) from error
        return view.receipt(change, outcome) if change else Saved()

    def flush(self) -> None:
        """Write what waits, if anything does. Raises as `write`."""
        if self.queue:
            self.write()

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

    def _keep(self, change: MemoryChange | None, error: SnapshotError) -> SnapshotError:
        """Keep *change* in memory; return the error that says so."""
        is_held = isinstance(error, MemoryReadOnly)
        with self._guard:
            self.queue += [change] if change and change.op != "end" else []
            self.persistence = "read-only" if is_held else "memory"
            why = "read-only" if is_held else "the disk refuses"
            self._why = f"{why}; changes are kept in memory only: {error.message}"
            self.view()
        what = "what waits" if change is None else str(change.name).strip("/") or change.op
        kept = "deleted in memory only" if change and change.op in ("delete", "clear") else "kept in memory only"
        until = "the other process lets go" if is_held else "the disk allows"
        return type(error)(f"{what} is {kept}, until {until}: {error.message}", hint=error.hint)

    def _commit_what_fits(self, change: MemoryChange | None) -> tuple[MemoryView, Outcome]:
        try:
            done = self._commit(self.queue[:], change)
        except StoreUnavailable:
            if change is None or not self.queue or any(map(change.meets, self.queue)):
                raise
            return self._commit([], change)
        self.persistence, self._why = "disk", ""
        return done

    def _commit(self, queued: list[MemoryChange], change: MemoryChange | None) -> tuple[MemoryView, Outcome]:
        """Write *queued* and *change*, all or none; return the new memory and what came of *change*."""
        view, outcomes = self._applied([*queued, change] if change else queued)
        if view.is_new and self.sizes is not None:
            self._ignore_in_git()
        writes, self.noise = view.finish(), view.document(NOISE).entries
        for path in view.damaged:
            self._set_aside(path)
        self.files.replace(writes | dict.fromkeys(view.scan.unfinished), view.now)
        del self.queue[: len(queued)]
        outcome = outcomes.pop() if change else {}
        for waited, result in zip(queued, outcomes, strict=True):
            error = view.refused.get(waited.namespace, result)
            if isinstance(error, SnapshotError):
                self._notice(f"a change that waited was refused: {error.message}")
        if self.sizes is not None:
            self.sizes.note(view.total)
        return view, outcome

    # Inside ------------------------------------------------------------------------------------------------

    def _applied(self, changes: list[MemoryChange]) -> tuple[MemoryView, list[Outcome]]:
        """The memory on disk with *changes* applied, and what came of each."""
        view = MemoryView(self.files, self.limits, now=self.clock(), session=self.session, elsewhere=self.others())
        self._problems = self.files.problems(view.scan)
        if not self.session:
            self.previous = view.meta["last_session"]
        outcomes = [view.apply(each) for each in changes]
        self._count = view.meta["session_count"]
        return view, outcomes

    def _ignore_in_git(self) -> None:
        self.files.replace({(".gitignore",): b"*\n"}, self.clock())
        try:
            ignore_in_git(self.root)
        except OSError as error:
            self._notice(f".asnap/ could not be added to .gitignore: {error.strerror}")

    def _set_aside(self, path: tuple[str, ...]) -> str:
        """Keep a damaged file in another place, if the disk allows; return the notice of it."""
        notice = _is_damaged(path)
        with contextlib.suppress(StoreUnavailable):
            notice = f"{notice}; it is kept as {self.files.set_aside(path)}"
        self._notice(notice)
        return notice

    def _notice(self, text: str) -> None:
        if not any(known.startswith(text) for known in self._notices):
            self._notices.append(text)


def _is_damaged(path: tuple[str, ...]) -> str:
    return f"{'/'.join(path)} is damaged"


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
        total = 0
        for file in self._directory.glob("*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # it is gone or damaged
                noted = json.loads(file.read_bytes())
                if not (Path(noted["project"]) / DIRECTORY).is_dir():
                    file.unlink()
                elif file != self._own:
                    total += max(int(noted["bytes"]), 0)
        return total
