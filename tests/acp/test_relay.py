"""The relay's threads share one core: each of them calls it only under the relay's lock."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from snapshot_plugin.acp.actions import Actions, Ask, Job, Steps
from snapshot_plugin.acp.core import Core
from snapshot_plugin.acp.hosts.relay import Relay
from snapshot_plugin.acp.reducer import AcpReducer
from snapshot_plugin.live.sessions import LiveSessions
from snapshot_plugin.store.filesystem import FilesystemStore

STANDING, ASKED = 200, 1_000


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads take turns as often as Python lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_threads")
def test_requests_that_begin_and_end_in_two_threads_do_not_disturb_each_other(tmp_path: Path) -> None:
    core = Core(view=lambda _session_id: pytest.fail("no session is open"), methods={})
    null = os.open(os.devnull, os.O_RDWR)
    relay = Relay(
        core,
        LiveSessions(FilesystemStore(tmp_path), AcpReducer),
        client_in=null,
        client_out=null,
        hung_up=lambda: None,
        restarts=lambda _action: None,
    )

    def begin() -> Actions:
        def steps() -> Steps[None]:
            yield Ask("session/list", {})

        return core.start(Job(steps()))

    def end() -> Actions:
        return core.from_agent({"jsonrpc": "2.0", "id": next(iter(core.jobs.asks)), "result": {}})

    def work(step: Callable[[], Actions]) -> threading.Thread:
        def many() -> None:
            for _ in range(ASKED):
                relay.carry_out(step)

        thread = threading.Thread(target=relay.guard, args=(many,))
        thread.start()
        return thread

    for _ in range(STANDING + ASKED):
        relay.carry_out(begin)
    for thread in (work(begin), work(end)):
        thread.join(60)
        assert not thread.is_alive()
    relay.close()
    os.close(null)
    assert not relay.has_failed
    assert len(core.jobs.asks) == STANDING + ASKED
