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
from snapshot_plugin.memory.batch import META, Batch, MemoryChange, Outcome, Persistence
from snapshot_plugin.memory.files import NOISE, MemoryFiles, Name, Scan, encoded
from snapshot_plugin.memory.kinds import moment_in
from snapshot_plugin.memory.limits import MemoryLimits
from snapshot_plugin.memory.place import ignore_in_git
from snapshot_plugin.memory.sharing import WriterLock
from snapshot_plugin.memory.state import ProjectSizes
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.model.times import rfc3339

__all__ = ["MemoryEngine"]

PENDING: Final = ".pending"
_MOST_KEPT: Final = 100
_CHANGES: Final = TypeAdapter(list[MemoryChange])


class MemoryEngine:
    """Reads and writes a project's memory. `close` it at the end."""

    def __init__(self, project: Path, *, limits: MemoryLimits, sizes: ProjectSizes, clock: Clock) -> None:
        self.project, self.limits, self.clock = project, limits, clock
        self.files = MemoryFiles(project)
        self.lock = WriterLock(self.files)
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
        self._sizes = sizes
        self._guard = threading.RLock()
        self._delivered: dict[str, list[Outcome]] = {}

    # Reading -----------------------------------------------------------------------------------------------

    def view(self) -> Batch:
        """The memory as it is, with the changes that are not written yet."""
        with self._guard:
            batch = self._batch(self._scan())
            for change in (*self.queue, *(change for group in self._pending().values() for change in group)):
                batch.apply(change)
            self.noise = batch.document(NOISE).entries
            self._set_aside(batch.damaged)
            return batch

    def load(self, name: Name) -> Any:
        """An entry's data; `NotFound`, or `SnapshotCorrupted` for a damaged file, which is then set aside."""
        with self._guard:
            try:
                if not self.queue and not self._waiting():
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
                outcomes, failed = self._write(changes)
            except StoreUnavailable as error:
                self.keep(changes, error)
                raise
            refused = [change for change in changes if change.is_among(failed)]
            why = next(iter(failed.values()), None)
            if why is not None and (refused or not changes):
                self.keep(refused, why)
                raise why
            self.persistence = "disk"
            self._why = f"{len(self.queue)} changes are kept in memory only: {why.message}" if why else ""
            return outcomes

    def keep(self, changes: Sequence[MemoryChange], error: StoreUnavailable) -> None:
        """Keep changes in memory because the disk refuses them."""
        self.queue += [change for change in changes if change.op != "end"]
        self.persistence = "memory"
        self._why = f"the disk refuses; changes are kept in memory only: {error.message}"
        self.view()  # what was kept is in effect

    def hand_over(self, changes: Sequence[MemoryChange]) -> str:
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
            return name

    def is_taken(self, name: str, writer: str) -> bool:
        """Whether the writer has taken handed-over changes; if not, say that they wait for it."""
        with self._guard:
            waits = name in self._waiting()
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
            if META[0] not in self.files.names():
                ignore_in_git(self.project, self.files)
        except StoreUnavailable:
            self.lock.release()
            raise
        except OSError as error:
            self._notices.append(f".asnap/ could not be added to .gitignore: {error.strerror}")

    def _write(self, changes: Sequence[MemoryChange]) -> tuple[list[Outcome], dict[str, StoreUnavailable]]:
        """Apply everything in one batch; return what came of *changes*, and the namespaces the disk refused."""
        batch = self._batch(self._scan())
        groups = {"": self.queue[:], **self._pending(), "now": list(changes)}
        outcomes = {name: [batch.apply(change) for change in group] for name, group in groups.items()}
        batch.finish()
        self._set_aside(batch.damaged)
        failed = batch.commit()
        final = {name: [batch.final(outcome) for outcome in group] for name, group in outcomes.items()}
        del groups["now"]
        for name, group in groups.items():
            self._settle(name, final[name], group, failed)
        self.noise = batch.document(NOISE).entries
        self._sizes.note(batch.total)
        return final["now"], failed

    def _settle(
        self, name: str, outcomes: list[Outcome], group: list[MemoryChange], failed: dict[str, StoreUnavailable]
    ) -> None:
        """Forget changes that waited and are written now; keep those that are not."""
        left = [change for change in group if change.is_among(failed)]
        for outcome in outcomes:
            if isinstance(outcome, SnapshotError):
                self._notice(f"a change that waited was refused: {outcome.message}")
        if not name:
            self.queue[: len(group)] = left
        elif not left:
            self._delivered = dict([*self._delivered.items(), (name, outcomes)][-_MOST_KEPT:])
            self.files.delete((PENDING, f"{name}.json"))

    def _pending(self) -> dict[str, list[MemoryChange]]:
        found: dict[str, list[MemoryChange]] = {}
        for name in self._waiting():
            path = (PENDING, f"{name}.json")
            try:
                found[name] = _CHANGES.validate_python(self.files.read(path))
            except NotFound:
                pass  # the writer has just taken it
            except (Damaged, ValueError):
                kept = f"; it is kept as {self.files.set_aside(path)}" if self.lock.is_held else ""
                self._notice(f"a change in .pending is damaged{kept}")
        return found

    def _waiting(self) -> list[str]:
        try:
            return [file.removesuffix(".json") for file in self.files.names(PENDING) if file.endswith(".json")]
        except StoreUnavailable:
            return []

    # Inside ------------------------------------------------------------------------------------------------

    def _scan(self) -> Scan:
        try:
            scan = self.files.scan()
        except StoreUnavailable:
            if self.lock.is_held:
                raise
            scan = Scan({})
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


def _checked_meta(raw: Any) -> dict[str, Any]:
    if not isinstance(raw, dict) or not isinstance(raw.get("session_count"), int):
        raise SnapshotCorrupted("meta.json is damaged: it has no session_count")
    used = raw.get("used") if isinstance(raw.get("used"), dict) else {}
    last = raw.get("last_session") if moment_in(raw.get("last_session")) else None
    return {**raw, "used": used, "last_session": last}
