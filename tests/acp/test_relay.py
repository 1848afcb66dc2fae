"""What keeps a relay alive: its threads call the core under one lock, and recording may fail."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import FilesystemStore
from snapshot_plugin.acp.actions import Actions, Ask, Job, Steps
from snapshot_plugin.acp.core import Core
from snapshot_plugin.acp.hosts.relay import Relay
from snapshot_plugin.acp.messages import encode, notification
from snapshot_plugin.acp.methods import begin
from snapshot_plugin.acp.reducer import AcpReducer
from snapshot_plugin.live.sessions import LiveSessions

STANDING, ASKED = 200, 1_000


class FailingReducer(AcpReducer):
    def apply(self, event: Mapping[str, Any]) -> None:
        if "update" in event:
            raise RuntimeError("a bug of ours")
        super().apply(event)


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads take turns as often as Python lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_a_recorder_that_fails_ends_no_connection_and_the_client_is_told(tmp_path: Path) -> None:
    sessions = LiveSessions(FilesystemStore(tmp_path), FailingReducer)
    begin(sessions, "s", {})
    core = Core(view=lambda _session_id: pytest.fail("it is not asked for"), methods={})
    core.sessions.open("s")
    shown, client_out = os.pipe()
    relay = Relay(
        core, sessions, client_in=shown, client_out=client_out, hung_up=lambda: None, restarts=lambda _action: None
    )
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "one"}}
    said = iter([encode(notification("session/update", {"sessionId": "s", "update": update})), b""])
    relay.guard(lambda: relay.pump_agent(lambda: next(said)))
    told = os.read(shown, 1 << 16)
    relay.close()
    assert not relay.has_failed
    assert b'"text":"one"' in told
    assert b'"recorded":false' in told


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

    def ask() -> Actions:
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
        relay.carry_out(ask)
    for thread in (work(ask), work(end)):
        thread.join(60)
        assert not thread.is_alive()
    relay.close()
    os.close(null)
    assert not relay.has_failed
    assert len(core.jobs.asks) == STANDING + ASKED
