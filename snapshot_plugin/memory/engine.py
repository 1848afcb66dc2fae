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

from snapshot_plugin.errors import Damaged, NotFound, SnapshotCorrupted, SnapshotError, StoreUnavailable
from snapshot_plugin.manager.ports import Clock
from snapshot_plugin.memory.batch import META, Batch, Change, Persistence, Saved
from snapshot_plugin.memory.files import MemoryFiles, Scan, encoded
from snapshot_plugin.memory.limits import Limits
from snapshot_plugin.memory.lock import WriterLock
from snapshot_plugin.memory.names import NOISE, Name
from snapshot_plugin.memory.place import ignore_in_git
from snapshot_plugin.memory.understand import moment_in
from snapshot_plugin.memory.usage import ProjectSizes
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.model.times import rfc3339

__all__ = ["MemoryEngine", "Outcome"]

PENDING: Final = ".pending"
_MOST_KEPT: Final = 100
Outcome = Saved | SnapshotError
"""What came of a change: its receipt, or why it was refused."""


class MemoryEngine:
    """Reads and writes a project's memory. `close` it at the end."""

    def __init__(self, project: Path, *, limits: Limits, sizes: ProjectSizes, clock: Clock) -> None:
        self.project, self.limits, self.clock = project, limits, clock
        self.files = MemoryFiles(project)
        self.lock = WriterLock(self.files)
        self.session = 0
        self.queue: list[Change] = []
        """Changes that are not on disk: observations until the next flush, and what the disk refused.

        Any thread may append; only this class removes.
        """
        self.handed_over: dict[str, list[Change]] = {}
        """Changes in ``.pending`` that the writer has not taken yet, by the name of their file."""
        self.persistence: Persistence = "disk"
        self.noise: dict[str, Any] = {}
        self._why = ""
        self._problems: tuple[str, ...] = ()
        self._notices: deque[str] = deque(maxlen=20)
        self._sizes = sizes
        self._guard = threading.RLock()
        self._delivered: dict[str, list[Outcome]] = {}

    # Reading -----------------------------------------------------------------------------------------------

    def view(self) -> Batch:
        """The memory as it is, with the changes that are not written yet."""
        with self._guard:
            batch = self._batch(self._scan())
            self._forget_taken()
            for change in (*self.queue, *(each for changes in self.handed_over.values() for each in changes)):
                _applied(batch, change)
            self.noise = batch.document(NOISE).entries
            self._set_aside(batch.damaged)
            return batch

    def load(self, name: Name) -> Any:
        """An entry's data; `NotFound`, or `SnapshotCorrupted` for a damaged file, which is then set aside."""
        with self._guard:
            try:
                if not self.queue and not self.handed_over:
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

    def write(self, changes: Sequence[Change]) -> list[Outcome]:
        """Apply *changes*, and all that wait to be written. On disk when it returns.

        Raises:
            HeldElsewhere: another process writes; nothing was done.
            StoreUnavailable: the disk refuses; the changes are kept in memory and written later.
        """
        with self._guard:
            try:
                if self.lock.acquire(self.clock()):
                    self._become_writer()
                outcomes, failed = self._write(changes)
            except StoreUnavailable as error:
                self.keep(changes, error)
                raise
            refused = [change for change in changes if change.namespace in failed]
            why = next(iter(failed.values()), None)
            if why is not None and (refused or not changes):
                self.keep(refused, why)
                raise why
            self.persistence = "disk"
            self._why = f"{len(self.queue)} changes are kept in memory only: {why.message}" if why else ""
            return outcomes

    def keep(self, changes: Sequence[Change], error: StoreUnavailable) -> None:
        """Keep changes in memory because the disk refuses them."""
        self.queue += [change for change in changes if change.op != "end"]
        self.persistence = "memory"
        self._why = f"the disk refuses; changes are kept in memory only: {error.message}"
        self.view()  # what was kept is in effect

    def hand_over(self, changes: Sequence[Change]) -> str:
        """Put changes, and the queue before them, where the writer finds them; return their name.

        Raises as `write`.
        """
        with self._guard:
            name, queued = new_id(), len(self.queue)
            group = [*self.queue[:queued], *changes]
            try:
                self.files.write((PENDING, f"{name}.json"), encoded([change._asdict() for change in group]))
            except StoreUnavailable as error:
                self.keep(changes, error)
                raise
            del self.queue[:queued]
            self.handed_over[name] = group
            return name

    def is_taken(self, name: str, writer: str) -> bool:
        """Whether the writer has taken handed-over changes; if not, say that they wait for it."""
        with self._guard:
            self._forget_taken()
            waits = name in self.handed_over
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

    def _become_writer(self) -> None:
        try:
            self.files.sweep()
            if META[0] not in self.files.names(""):
                ignore_in_git(self.project, self.files)
        except StoreUnavailable:
            self.lock.release()
            raise
        except OSError as error:
            self._notices.append(f".asnap/ could not be added to .gitignore: {error.strerror}")

    def _write(self, changes: Sequence[Change]) -> tuple[list[Outcome], dict[str, StoreUnavailable]]:
        """Apply everything in one batch; return what came of *changes*, and the namespaces the disk refused."""
        scan = self._scan()
        batch = self._batch(scan)
        waiting = {"": self.queue[:], **self._pending()}
        earlier = {name: [_applied(batch, each) for each in group] for name, group in waiting.items()}
        outcomes = [_applied(batch, change) for change in changes]
        if any(change.op == "begin" for change in changes):
            batch.expire()
        trimmed = batch.finish()
        self._set_aside(batch.damaged)
        failed = batch.commit(scan)
        for name, group in waiting.items():
            self._settle(name, [_final(batch, trimmed, each) for each in earlier[name]], group, failed)
        self.noise = batch.document(NOISE).entries
        self._sizes.note(batch.total)
        return [_final(batch, trimmed, outcome) for outcome in outcomes], failed

    def _settle(
        self, name: str, outcomes: list[Outcome], group: list[Change], failed: dict[str, StoreUnavailable]
    ) -> None:
        """Forget changes that waited and are written now; keep those that are not."""
        left = [change for change in group if change.namespace in failed]
        for outcome in outcomes:
            if isinstance(outcome, SnapshotError):
                self._notice(f"a change that waited was refused: {outcome.message}")
        if not name:
            self.queue[: len(group)] = left
        elif not left:
            self._delivered = dict([*self._delivered.items(), (name, outcomes)][-_MOST_KEPT:])
            self.files.delete((PENDING, f"{name}.json"))
            self.handed_over.pop(name, None)

    def _pending(self) -> dict[str, list[Change]]:
        found: dict[str, list[Change]] = {}
        for file in self.files.names(PENDING):
            path = (PENDING, file)
            if file.endswith(".json"):
                try:
                    found[file.removesuffix(".json")] = [Change(**each) for each in self.files.read(path)]
                except (Damaged, TypeError):
                    self._notice(f"a change in .pending is damaged; it is kept as {self.files.set_aside(path)}")
        return found

    def _forget_taken(self) -> None:
        if self.handed_over:
            waiting = self.files.names(PENDING)
            self.handed_over = {name: each for name, each in self.handed_over.items() if f"{name}.json" in waiting}

    # Inside ------------------------------------------------------------------------------------------------

    def _scan(self) -> Scan:
        try:
            scan = self.files.scan()
        except StoreUnavailable:
            if self.lock.is_held:
                raise
            scan = Scan({}, 0, ())
        self._problems = scan.problems
        return scan

    def _batch(self, scan: Scan) -> Batch:
        return Batch(
            self.files, scan, self._meta(), limits=self.limits, now=self.clock(), elsewhere=self._sizes.others()
        )

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


def _applied(batch: Batch, change: Change) -> Outcome:
    try:
        return batch.apply(change)
    except SnapshotError as error:
        return error


def _final(batch: Batch, trimmed: dict[str, int], outcome: Outcome) -> Outcome:
    if isinstance(outcome, SnapshotError):
        return outcome
    gone = trimmed.get(outcome.namespace, 0)
    return batch.refused.get(outcome.namespace) or (outcome.evolve(trimmed=gone) if gone else outcome)


def _checked_meta(raw: Any) -> dict[str, Any]:
    if not isinstance(raw, dict) or not isinstance(raw.get("session_count"), int):
        raise SnapshotCorrupted("meta.json is damaged: it has no session_count")
    used = raw.get("used") if isinstance(raw.get("used"), dict) else {}
    last = raw.get("last_session") if moment_in(raw.get("last_session")) else None
    return {**raw, "used": used, "last_session": last}
