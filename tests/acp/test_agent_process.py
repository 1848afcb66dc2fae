"""The agent's process: what it may know, and when it ends."""

from __future__ import annotations

import gc
import json
import os
import sys

import pytest

from snapshot_plugin import AgentUnavailable
from snapshot_plugin.system.processes import AgentProcess, agent_environment


def test_store_keys_are_not_in_the_agents_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ASNAP_KEY", "ASNAP_KEY_FILE", "ASNAP_PASSPHRASE"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("ASNAP_STORE", "kept")
    agent = AgentProcess([sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"])
    said = b"".join(iter(agent.read, b""))
    agent.end(patience=5.0)
    seen = json.loads(said)
    assert "secret" not in seen.values()
    assert seen["ASNAP_STORE"] == "kept"
    assert agent_environment({"ASNAP_KEY": "x", "PATH": "/bin"}) == {"PATH": "/bin"}


def test_an_agent_that_cannot_be_started_is_unavailable() -> None:
    with pytest.raises(AgentUnavailable):
        AgentProcess(["/no/such/agent"])


def test_end_of_the_process_can_be_polled_after_it_was_stopped() -> None:
    """A reader may still wait for the agent's output while another thread stops the agent."""
    agent = AgentProcess([sys.executable, "-c", "import sys; sys.stdin.read()"])
    end_fd = agent.end_fd
    assert agent.end(patience=5.0) == 0
    assert agent.read() == b""
    if end_fd is not None:
        os.fstat(end_fd)
    del agent
    gc.collect()
    if end_fd is not None:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(end_fd)


def test_an_agent_can_be_ended_twice() -> None:
    agent = AgentProcess(["/bin/sh", "-c", "exit 3"])

    assert [agent.end(patience=10.0) for _ in range(2)] == [3, 3]
