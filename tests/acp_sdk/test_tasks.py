"""The host in an event loop: when it asks the core about the waits of its jobs."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Sequence
from typing import Any

from snapshot_plugin.acp.actions import Ask, Steps, Wait
from snapshot_plugin.acp.core import Core
from snapshot_plugin.acp.hosts.tasks import TaskHost
from snapshot_plugin.acp.messages import Message, success


class SimulatedClock(selectors.DefaultSelector):
    """Advances the time instead of waiting for it."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Sequence[Any]:  # type: ignore[override]
        self.now += timeout or 0.0
        return super().select(0)


class SimulatedLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.clock = SimulatedClock()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now


def test_a_wait_that_begins_after_a_request_is_checked_in_time() -> None:
    loop = SimulatedLoop()

    class Answering(TaskHost):
        async def _to_agent(self, message: Message) -> None:
            self.take(core.from_agent(success(message["id"], {})))

    def steps() -> Steps[float]:
        yield Ask("session/load", {})
        yield Wait(lambda now: now >= 0.1, 30.0)
        return loop.time()

    core = Core(view=lambda _session_id: None, methods={}, now=loop.time)  # type: ignore[arg-type,return-value]
    host = Answering(None, core, None)  # type: ignore[arg-type]
    assert loop.run_until_complete(asyncio.wait_for(host.run(steps()), 60)) < 0.2
    loop.run_until_complete(host.end())
    loop.close()
