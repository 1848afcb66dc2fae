"""Several processes, one memory: one writes, by a kernel lock that ends with it, and takes the others' changes.

A process that cannot write puts its changes into ``.asnap/.pending``, durably, and rings at the writer's local
socket: the writer applies all that waits there and answers with the receipts. So a change survives whichever
process dies in between. A writer that cannot be reached takes it with its next flush; when it has ended, the next
process takes its place.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from snapshot_plugin import errors
from snapshot_plugin.errors import InvalidInput, MemoryReadOnly, SnapshotError, StoreUnavailable
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.manager.control import ask_owner, serve_control
from snapshot_plugin.memory.changes import MemoryChange, Outcome, Saved
from snapshot_plugin.memory.files import MemoryFiles
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.store.files import disk_errors

if TYPE_CHECKING:
    from snapshot_plugin.memory.engine import MemoryEngine

__all__ = ["HeldElsewhere", "WriterLock", "listen", "submit"]

_FILE: Final = ".lease"
_TIMEOUT: Final = 10.0
_OP: Final = "deliver"


class HeldElsewhere(MemoryReadOnly):
    """Another process writes. `owner` says which, and where it can be asked; None if it has just ended."""

    def __init__(self, message: str, owner: Owner | None) -> None:
        super().__init__(message)
        self.owner = owner


class WriterLock:
    """This process's right to write. Freed by `release`, or by the end of the process."""

    def __init__(self, files: MemoryFiles) -> None:
        self.control: str | None = None
        """The socket where this process takes changes of others."""
        self._files = files
        self._fd = -1

    @property
    def is_held(self) -> bool:
        """Whether this process writes. False once the memory's directory was removed."""
        return self._fd >= 0 and self._files.is_same_file(_FILE, self._fd)

    def acquire(self, now: datetime) -> bool:
        """Take the lock; True if it was not held before.

        Raises:
            HeldElsewhere: another process has it.
            StoreUnavailable: the disk refuses.
        """
        if self.is_held:
            return False
        self.release()
        fd = self._files.opened_file(_FILE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with disk_errors(f"writing {_FILE}"):
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
        """Let the next process write. Doing it twice is fine."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
            os.close(fd)


async def submit(engine: MemoryEngine, changes: Sequence[MemoryChange]) -> list[Outcome]:
    """Apply changes if this process writes, and otherwise have the writer do it; return what came of each.

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
        if outcomes is None:  # the writer may have ended meanwhile: then this process takes its place
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
    """Take changes of other processes, in *tasks*. Without a socket they are taken by each flush."""

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
