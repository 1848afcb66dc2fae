"""The memory of one project, synchronously: reading it, and applying changes as its writer.

One lock guards it, so any thread may call. A change that cannot be written is kept, in memory (`queue`) or in the
memory's directory ``.pending``, and applied with the next write of the process that holds the lock then.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from snapshot_plugin.errors import Damaged, NotFound, SnapshotCorrupted, SnapshotError, StoreUnavailable
from snapshot_plugin.manager.ports import Clock
from snapshot_plugin.memory.changes import META, MemoryChange, MemoryView, Outcome, Persistence
from snapshot_plugin.memory.files import NOISE, PENDING, MemoryFiles, Name, Scan, encoded
from snapshot_plugin.memory.kinds import moment_in
from snapshot_plugin.memory.limits import MemoryLimits
from snapshot_plugin.memory.place import ignore_in_git
from snapshot_plugin.memory.sharing import WriterLock
from snapshot_plugin.memory.state import ProjectSizes
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.model.times import rfc3339

__all__ = ["MemoryEngine"]

_MOST_KEPT: Final = 100
_CHANGES: Final = TypeAdapter(list[MemoryChange])
_QUEUED, _NOW = "queue", "now"


class MemoryEngine:
    """Reads and writes a project's memory. `close` it at the end."""

    def __init__(self, project: Path, *, limits: MemoryLimits, state: Path, clock: Clock) -> None:
        self.project, self.limits, self.clock = project, limits, clock
        self.files = MemoryFiles(project)
        self.lock = WriterLock(self.files)
        self.sizes = ProjectSizes(state, project)
        self.session = 0
        self.queue: list[MemoryChange] = []
        """Changes that are not on disk: observations until the next flush, and what the disk refused.

        Any thread may append; only this class removes.
        """
        self.persistence: Persistence = "disk"
        self.noise: dict[str, Any] = {}
        self._why = ""
        self._problems: tuple[str, ...] = ()
        self._notices: deque[str] = deque(maxlen=20)
        self._guard = threading.RLock()
        self._delivered: dict[str, list[Outcome]] = {}

    # Reading -----------------------------------------------------------------------------------------------

    def view(self) -> MemoryView:
        """The memory as it is, with the changes that are not written yet."""
        with self._guard:
            view = self._on_disk()
            for change in (change for group in self._waiting().values() for change in group):
                view.apply(change)
            self._learn_from(view)
            return view

    def load(self, name: Name) -> Any:
        """An entry's data; `NotFound`, or `SnapshotCorrupted` for a damaged file, which is then set aside."""
        with self._guard:
            try:
                if not self.queue and not self._pending():
                    with contextlib.suppress(NotFound):  # it may be named by hand, or be inside a document
                        return self.files.read(name.path)
                return self.view().load(name)
            except SnapshotCorrupted as error:
                raise SnapshotCorrupted(
                    f"{name} is damaged{self._set_aside([name])}", hint="save it again"
                ) from error

    @property
    def notices(self) -> tuple[str, ...]:
        """What a caller should know, the most important first."""
        return ((self._why,) if self._why else ()) + self._problems + tuple(self._notices)

    # Writing -----------------------------------------------------------------------------------------------

    def write(self, changes: Sequence[MemoryChange]) -> list[Outcome]:
        """Apply *changes*, and all that wait to be written. On disk when it returns.

        Raises:
            HeldElsewhere: another process writes; nothing was done.
            StoreUnavailable: the disk refuses; the changes are kept in memory and written later.
        """
        with self._guard:
            try:
                if self.lock.acquire(self.clock()):
                    self._become_writer()
                outcomes = self._commit({**self._waiting(), _NOW: list(changes)})
            except StoreUnavailable as error:
                self._keep(changes, error)
                raise
            self.persistence, self._why = "disk", ""
            return outcomes

    def hand_over(self, changes: Sequence[MemoryChange]) -> str:
        """Put changes, and the queue before them, where the writer finds them; return their name.

        Raises as `write`.
        """
        with self._guard:
            name, queued = new_id(), self.queue[:]
            group = [change._asdict() for change in (*queued, *changes)]
            try:
                self.files.replace({(PENDING, f"{name}.json"): encoded(group)})
            except StoreUnavailable as error:
                self._keep(changes, error)
                raise
            del self.queue[: len(queued)]
            return name

    def is_taken(self, name: str, writer: str) -> bool:
        """Whether the writer has taken handed-over changes; if not, say that they wait for it."""
        with self._guard:
            waits = name in self._pending()
            self.persistence = "read-only" if waits else "disk"
            self._why = (
                f"read-only: {writer}; saves are kept in .asnap/.pending and delivered later" if waits else ""
            )
            return not waits

    def deliver(self, name: str) -> list[Outcome]:
        """As the writer, apply all that waits in ``.pending``; return what came of *name*. Raises as `write`."""
        with self._guard:
            self.write(())
            return self._delivered.pop(name, [])

    def close(self) -> None:
        """Let the next process write."""
        with self._guard:
            self.lock.release()

    def _keep(self, changes: Sequence[MemoryChange], error: StoreUnavailable) -> None:
        self.queue += [change for change in changes if change.op != "end"]
        self.persistence = "memory"
        self._why = f"the disk refuses; changes are kept in memory only: {error.message}"
        self.view()  # what was kept is in effect

    def _become_writer(self) -> None:
        try:
            self.files.sweep()
            if META[0] not in self.files.names():
                ignore_in_git(self.project, self.files)
        except StoreUnavailable:
            self.lock.release()
            raise
        except OSError as error:
            self._notices.append(f".asnap/ could not be added to .gitignore: {error.strerror}")

    def _commit(self, groups: dict[str, list[MemoryChange]]) -> list[Outcome]:
        """Write groups of changes, all of them or none; return what came of those of now."""
        view = self._on_disk()
        applied = {name: [view.apply(change) for change in group] for name, group in groups.items()}
        writes = view.finish()
        self._learn_from(view)
        taken: dict[tuple[str, ...], None] = {(PENDING, f"{name}.json"): None for name in groups}
        self.files.replace({**writes, **taken})
        outcomes = {name: [view.final(outcome) for outcome in group] for name, group in applied.items()}
        now, queued = outcomes.pop(_NOW), outcomes.pop(_QUEUED)
        del self.queue[: len(queued)]
        self._delivered = dict([*self._delivered.items(), *outcomes.items()][-_MOST_KEPT:])
        for outcome in (*queued, *(each for group in outcomes.values() for each in group)):
            if isinstance(outcome, SnapshotError):
                self._notice(f"a change that waited was refused: {outcome.message}")
        self.sizes.note(view.total)
        return now

    def _waiting(self) -> dict[str, list[MemoryChange]]:
        """The changes that wait to be written, by where they wait."""
        found = {_QUEUED: self.queue[:]}
        for name in self._pending():
            path = (PENDING, f"{name}.json")
            try:
                found[name] = _CHANGES.validate_python(self.files.read(path))
            except NotFound:
                pass  # the writer has just taken it
            except (Damaged, ValueError):
                kept = f"; it is kept as {self.files.set_aside(path)}" if self.lock.is_held else ""
                self._notice(f"a change in .pending is damaged{kept}")
        return found

    def _pending(self) -> list[str]:
        try:
            return [file.removesuffix(".json") for file in self.files.names(PENDING) if file.endswith(".json")]
        except StoreUnavailable:
            return []

    # Inside ------------------------------------------------------------------------------------------------

    def _on_disk(self) -> MemoryView:
        try:
            scan = self.files.scan()
        except StoreUnavailable:
            if self.lock.is_held:
                raise
            scan = Scan({})
        self._problems = self.files.problems(scan)
        return MemoryView(
            self.files, scan, self._meta(), self.limits, now=self.clock(), elsewhere=self.sizes.others()
        )

    def _learn_from(self, view: MemoryView) -> None:
        self.noise = view.document(NOISE).entries
        self._set_aside(view.damaged)

    def _meta(self) -> dict[str, Any]:
        """The project's notes; new ones where there are none, or none that can be used."""
        now = rfc3339(self.clock())
        fresh: dict[str, Any] = {"created_at": now, "last_session": None, "session_count": self.session, "used": {}}
        with contextlib.suppress(NotFound, StoreUnavailable):
            try:
                fresh |= _checked_meta(self.files.read(META))
            except SnapshotCorrupted as error:
                if self.lock.is_held:
                    kept = self.files.set_aside(META)
                    self._notice(f"{error.message}; it is kept as {kept}; sessions are counted anew")
        return {"project": str(self.project), **fresh} | {"project": str(self.project)}

    def _set_aside(self, names: Iterable[Name]) -> str:
        where = ""
        for name in names:
            if self.lock.is_held:
                with contextlib.suppress(StoreUnavailable):
                    where = f"; it is kept as {self.files.set_aside(name.path)}"
            self._notice(f"{name} is damaged{where}")
        return where

    def _notice(self, text: str) -> None:
        if text not in self._notices:
            self._notices.append(text)


def _checked_meta(raw: Any) -> dict[str, Any]:
    if not isinstance(raw, dict) or not isinstance(raw.get("session_count"), int):
        raise SnapshotCorrupted("meta.json is damaged: it has no session_count")
    used = raw.get("used") if isinstance(raw.get("used"), dict) else {}
    last = raw.get("last_session") if moment_in(raw.get("last_session")) else None
    return {**raw, "used": used, "last_session": last}
