"""A workflow on Microsoft's agent-framework that is killed while it waits for a person, and goes on.

``python -m integration.frameworks.microsoft_workflow STORE ask`` runs until the workflow asks for approval, and
kills itself. ``… STORE approve``, in another process, answers the request of the latest checkpoint.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_framework import Executor, Workflow, WorkflowBuilder, WorkflowContext, handler, response_handler

from snapshot_plugin.frameworks.agent_framework import SnapshotCheckpointStorage

NAME = "refunds"


@dataclass
class Refund:
    """What is to be approved."""

    order: int
    amount: float


class Desk(Executor):
    """Asks a person before it pays."""

    def __init__(self) -> None:
        super().__init__(id="desk")
        self.seen: set[int] = set()

    @handler
    async def begin(self, order: int, context: WorkflowContext[Any, str]) -> None:
        """Ask."""
        self.seen.add(order)
        await context.request_info(request_data=Refund(order, 40.0), response_type=bool)

    @response_handler
    async def answered(self, asked: Refund, approved: bool, context: WorkflowContext[Any, str]) -> None:
        """Pay, or do not."""
        paid = f"paid {asked.amount} for {asked.order}" if approved else "refused"
        await context.yield_output(f"{paid}; seen {sorted(self.seen)}")

    async def on_checkpoint_save(self) -> dict[str, Any]:
        """What the executor remembers; not JSON, as the framework allows."""
        return {"seen": self.seen}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        """Remember it again."""
        self.seen = state["seen"]


def storage_at(place: Path) -> SnapshotCheckpointStorage:
    return SnapshotCheckpointStorage(place, allowed_checkpoint_types=[Refund])


def workflow_with(storage: Any) -> Workflow:
    return WorkflowBuilder(name=NAME, start_executor=Desk(), checkpoint_storage=storage).build()


async def ask(storage: SnapshotCheckpointStorage) -> None:
    await workflow_with(storage).run(7)
    os.kill(os.getpid(), signal.SIGKILL)


async def approve(storage: SnapshotCheckpointStorage) -> None:
    latest = await storage.get_latest(workflow_name=NAME)
    if latest is None:
        raise SystemExit("no checkpoint")
    [request] = latest.pending_request_info_events
    done = await workflow_with(storage).run(checkpoint_id=latest.checkpoint_id, responses={request: True})
    print(*done.get_outputs())


def main() -> None:
    storage = storage_at(Path(sys.argv[1]))
    asyncio.run((ask if sys.argv[2] == "ask" else approve)(storage))


if __name__ == "__main__":
    main()
