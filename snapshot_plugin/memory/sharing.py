"""Several processes, one memory: changes are handed to the process that writes, over its local socket.

A process that cannot write puts its changes into ``.asnap/.pending``, durably, and rings: the writer applies all
that waits there and answers with the receipts. So a change survives whichever process dies in between. A writer
that cannot be reached takes it with its next flush; when it has ended, the next process takes its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from snapshot_plugin import errors
from snapshot_plugin.errors import SnapshotError, StoreUnavailable
from snapshot_plugin.manager.control import ask_owner, serve_control
from snapshot_plugin.memory.batch import Change, Saved
from snapshot_plugin.memory.engine import MemoryEngine, Outcome
from snapshot_plugin.memory.lock import HeldElsewhere
from snapshot_plugin.model.ids import new_id

__all__ = ["Doorbell"]

_TIMEOUT: Final = 10.0
_OP: Final = "deliver"


class Doorbell:
    """Applies changes here if this process writes, and otherwise has the writer do it."""

    def __init__(self, engine: MemoryEngine, *, timeout: float = _TIMEOUT) -> None:
        self._engine, self._timeout = engine, timeout

    async def listen(self, tasks: TaskGroup) -> None:
        """Take changes of other processes, in *tasks*. Without a socket they are taken by each flush."""
        try:
            path = await tasks.start(self._serve)
        except StoreUnavailable:
            return
        self._engine.lock.control = str(path)

    async def submit(self, changes: Sequence[Change]) -> list[Outcome]:
        """Have changes applied; return what came of each. `StoreUnavailable`: they are kept in memory."""
        try:
            return await anyio.to_thread.run_sync(self._engine.write, changes)
        except HeldElsewhere as held:
            if not changes and not self._engine.queue:
                return []
            name = await anyio.to_thread.run_sync(self._engine.hand_over, changes)
            return await self._rung(name, changes, held)

    async def _rung(self, name: str, changes: Sequence[Change], held: HeldElsewhere) -> list[Outcome]:
        outcomes = await self._ask(name, held)
        if outcomes is None:
            try:  # the writer may have ended meanwhile: then this process takes its place
                outcomes = await anyio.to_thread.run_sync(self._engine.deliver, name)
            except HeldElsewhere as still:
                held = still
        taken = await anyio.to_thread.run_sync(self._engine.is_taken, name, held.message)
        if outcomes:
            return outcomes[len(outcomes) - len(changes) :]
        waits = Saved(persistence="disk" if taken else "read-only")
        return [waits.evolve(namespace=change.namespace, key=change.key) for change in changes]

    async def _ask(self, name: str, held: HeldElsewhere) -> list[Outcome] | None:
        if held.owner is None:
            return None
        answer = await ask_owner(held.owner, {"op": _OP, "name": name}, timeout=self._timeout)
        return [_read(each) for each in answer.result["outcomes"]] if answer.outcome == "done" else None

    async def _serve(self, *, task_status: Any) -> None:
        await serve_control(self._answer, name=f"memory-{new_id()}", task_status=task_status)

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request.get("op") != _OP:
            raise errors.InvalidInput("this socket only takes changes of a project's memory")
        outcomes = await anyio.to_thread.run_sync(self._engine.deliver, str(request.get("name")))
        return {"outcomes": [_written(outcome) for outcome in outcomes]}


def _written(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, SnapshotError):
        return {"error": type(outcome).__name__, "message": outcome.message, "hint": outcome.hint}
    return outcome.raw()


def _read(raw: Any) -> Outcome:
    if "error" in raw:
        kind = getattr(errors, str(raw["error"]), SnapshotError)
        return kind(raw["message"], hint=raw["hint"])
    return Saved.model_validate(raw)
