"""Read the memory of one project, and write it from several processes.

One process, the writer, holds a kernel lock that ends with it, and applies the others' changes. Another process
puts its changes into ``.asnap/.pending``, durably, and asks the writer over a local socket to apply all changes
there. So a change survives the death of either process. A writer that cannot be reached applies the changes with
its next flush; once it has ended, another process becomes the writer.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from pydantic import TypeAdapter

from snapshot_plugin import errors
from snapshot_plugin.errors import (
    Damaged,
    InvalidInput,
    MemoryReadOnly,
    NotFound,
    SnapshotCorrupted,
    SnapshotError,
    StoreUnavailable,
)
from snapshot_plugin.live.lease import Owner, let_go
from snapshot_plugin.manager.control import ask_owner, serve_control
from snapshot_plugin.manager.ports import Clock
from snapshot_plugin.memory.changes import META, MemoryChange, MemoryView, Outcome, Persistence, Saved
from snapshot_plugin.memory.files import NOISE, PENDING, MemoryFiles, Name, Scan, encoded
from snapshot_plugin.memory.kinds import moment_in
from snapshot_plugin.memory.limits import MemoryLimits
from snapshot_plugin.memory.place import ignore_in_git
from snapshot_plugin.memory.state import ProjectSizes
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.store.files import disk_errors

__all__ = ["HeldElsewhere", "MemoryEngine", "listen", "submit"]

_LOCK: Final = ".lease"
_TIMEOUT: Final = 10.0
_OP: Final = "deliver"
_MOST_KEPT: Final = 100
_CHANGES: Final = TypeAdapter(list[MemoryChange])
_QUEUED, _NOW = "/queue", "/now"
"""Groups of changes that are not files in ``.pending``."""


class HeldElsewhere(MemoryReadOnly):
    """Another process writes. `owner` says which, and where it can be asked; None if it has just ended."""

    def __init__(self, message: str, owner: Owner | None) -> None:
        super().__init__(message)
        self.owner = owner


class WriterLock:
    """This process's lock to write the memory. Released by `release`, or when the process ends."""

    def __init__(self, files: MemoryFiles) -> None:
        self.control: str | None = None
        """The path of the socket where this process accepts changes from others."""
        self._files = files
        self._fd = -1

    @property
    def is_held(self) -> bool:
        """Whether this process writes. False once the memory's directory was removed."""
        return self._fd >= 0 and self._files.is_same_file(_LOCK, self._fd)

    def acquire(self, now: datetime) -> bool:
        """Take the lock; True if it was not held before.

        Raises:
            HeldElsewhere: another process has it.
            StoreUnavailable: the disk refuses.
        """
        if self.is_held:
            return False
        self.release()
        fd = self._files.opened_file(_LOCK)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with disk_errors(f"writing {_LOCK}"):
                Owner.this_process(since=now, control=self.control).write(fd)
        except BlockingIOError:
            owner = Owner.read(fd)
            os.close(fd)
            who = f"process {owner.pid} since {rfc3339(owner.since)}" if owner else "another process"
            raise HeldElsewhere(f"the memory of {self._files.root} is written by {who}", owner) from None
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        return True

    def release(self) -> None:
        """Release the lock, so that another process can write. Idempotent."""
        fd, self._fd = self._fd, -1
        let_go(fd)


class MemoryEngine:
    """Reads and writes a project's memory. Thread-safe. `close` it at the end.

    A change that cannot be written is kept in memory (`queue`) or in ``.pending``, and the writer applies it with
    its next write.
    """

    def __init__(self, project: Path, *, limits: MemoryLimits, state: Path, clock: Clock) -> None:
        self.project, self.limits, self.clock = project, limits, clock
        self.files = MemoryFiles(project)
        self.lock = WriterLock(self.files)
        self.sizes = ProjectSizes(state, project)
        self.session = 0
        self.queue: list[MemoryChange] = []
        """Changes that are not on disk: observations until the next flush, and changes that the disk refused.

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
        """The memory on disk, with the changes that are not written yet."""
        with self._guard:
            view = self._on_disk()
            for change in (change for group in self._waiting().values() for change in group):
                view.apply(change)
            self._learn_from(view)
            return view

    def load(self, name: Name) -> Any:
        """An entry's data. Raises `NotFound`; or `SnapshotCorrupted` for a damaged file, which is set aside."""
        with self._guard:
            try:
                if not self.queue and not self._pending():
                    with contextlib.suppress(NotFound):  # the file was named by hand, or it is in a document
                        return self.files.read(name.path)
                return self.view().load(name)
            except SnapshotCorrupted as error:
                raise SnapshotCorrupted(
                    f"{name} is damaged{self._set_aside([name])}", hint="save it again"
                ) from error

    @property
    def notices(self) -> tuple[str, ...]:
        """Warnings for the caller, the most important first."""
        return ((self._why,) if self._why else ()) + self._problems + tuple(self._notices)

    # Writing -----------------------------------------------------------------------------------------------

    def write(self, changes: Sequence[MemoryChange]) -> list[Outcome]:
        """Apply all pending changes, then *changes*. They are on disk when it returns.

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
        """Put the queue and *changes* into ``.pending`` for the writer; return the name of the group.

        Raises:
            StoreUnavailable: the disk refuses; the changes are kept in memory and written later.
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
        """Whether the writer has taken the group *name*. Updates `persistence` and `notices`."""
        with self._guard:
            waits = name in self._pending()
            self.persistence = "read-only" if waits else "disk"
            self._why = (
                f"read-only: {writer}; saves are kept in .asnap/.pending and delivered later" if waits else ""
            )
            return not waits

    def deliver(self, name: str) -> list[Outcome]:
        """As the writer, apply all changes in ``.pending``; return the results of *name*. Raises as `write`."""
        with self._guard:
            self.write(())
            return self._delivered.pop(name, [])

    def close(self) -> None:
        """Release the lock, so that another process can write."""
        with self._guard:
            self.lock.release()

    def _keep(self, changes: Sequence[MemoryChange], error: StoreUnavailable) -> None:
        self.queue += [change for change in changes if change.op != "end"]
        self.persistence = "memory"
        self._why = f"the disk refuses; changes are kept in memory only: {error.message}"
        self.view()  # applies the kept changes

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
        """Write groups of changes, all or none; return the results of the group `_NOW`."""
        view = self._on_disk()
        applied = {name: [view.apply(change) for change in group] for name, group in groups.items()}
        writes = view.finish()
        self._learn_from(view)
        writes |= {(PENDING, f"{name}.json"): None for name in groups if name not in (_QUEUED, _NOW)}
        self.files.replace(writes)
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
        """The changes that are not written yet, by group: each file in ``.pending``, and the queue."""
        found = {_QUEUED: self.queue[:]}
        for name in self._pending():
            path = (PENDING, f"{name}.json")
            try:
                found[name] = _CHANGES.validate_python(self.files.read(path))
            except NotFound:
                pass  # the writer has just applied it
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
            scan = Scan()
        self._problems = self.files.problems(scan)
        return MemoryView(
            self.files, scan, self._meta(), self.limits, now=self.clock(), elsewhere=self.sizes.others()
        )

    def _learn_from(self, view: MemoryView) -> None:
        self.noise = view.document(NOISE).entries
        self._set_aside(view.damaged)

    def _meta(self) -> dict[str, Any]:
        """The content of ``meta.json``; new content if the file is missing or unusable."""
        now = rfc3339(self.clock())
        meta: dict[str, Any] = {"created_at": now, "last_session": None, "session_count": self.session, "used": {}}
        with contextlib.suppress(NotFound, StoreUnavailable):
            try:
                meta |= _checked_meta(self.files.read(META))
            except SnapshotCorrupted as error:
                if self.lock.is_held:
                    kept = self.files.set_aside(META)
                    self._notice(f"{error.message}; it is kept as {kept}; sessions are counted anew")
        return meta | {"project": str(self.project)}

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


async def submit(engine: MemoryEngine, changes: Sequence[MemoryChange]) -> list[Outcome]:
    """Apply changes if this process is the writer, else have the writer do it; return the result of each.

    Raises:
        StoreUnavailable: the disk refuses; the changes are kept in memory.
    """
    try:
        return await anyio.to_thread.run_sync(engine.write, changes)
    except HeldElsewhere as held:
        if not changes and not engine.queue:
            return []
        name = await anyio.to_thread.run_sync(engine.hand_over, changes)
        outcomes = await _asked(held.owner, name)
        if outcomes is None:  # the writer may have ended: then this process becomes the writer
            with contextlib.suppress(HeldElsewhere):
                outcomes = await anyio.to_thread.run_sync(engine.deliver, name)
        is_taken = await anyio.to_thread.run_sync(engine.is_taken, name, held.message)
    if outcomes:
        return outcomes[len(outcomes) - len(changes) :]
    waits = Saved(persistence="disk" if is_taken else "read-only")
    return [waits.evolve(namespace=change.namespace, key=change.key) for change in changes]


async def _asked(owner: Owner | None, name: str) -> list[Outcome] | None:
    if owner is None:
        return None
    answer = await ask_owner(owner, {"op": _OP, "name": name}, timeout=_TIMEOUT)
    return [_read(each) for each in answer.result["outcomes"]] if answer.outcome == "done" else None


async def listen(engine: MemoryEngine, tasks: TaskGroup) -> None:
    """Accept changes from other processes, in *tasks*. Without a socket, each flush applies them."""

    async def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request.get("op") != _OP:
            raise InvalidInput("this socket only takes changes of a project's memory")
        outcomes = await anyio.to_thread.run_sync(engine.deliver, str(request.get("name")))
        return {"outcomes": [_written(outcome) for outcome in outcomes]}

    async def serve(*, task_status: Any) -> None:
        await serve_control(answer, name=f"memory-{new_id()}", task_status=task_status)

    with contextlib.suppress(StoreUnavailable):
        engine.lock.control = str(await tasks.start(serve))


def _written(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, SnapshotError):
        return {"error": type(outcome).__name__, "message": outcome.message, "hint": outcome.hint}
    return outcome.raw()


def _read(raw: Any) -> Outcome:
    if "error" in raw:
        kind = getattr(errors, str(raw["error"]), SnapshotError)
        return kind(raw["message"], hint=raw["hint"])
    return Saved.model_validate(raw)
