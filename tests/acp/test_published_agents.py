"""Published agents of which the package knows nothing: each can do what it says it can.

Install them with ``python -m integration.agents.install``; those that are not installed are skipped, and all are
without ``ASNAP_EVERY_EXAMPLE=1``. The whole
matrix, with every scenario, is ``python -m integration.agents.fidelity``.
"""

from __future__ import annotations

import sys

import pytest

from integration.agents.catalog import AGENTS, Agent
from integration.agents.judge import judge, memory_is_fine
from integration.agents.run import can_load, run
from tests.tries import EVERYTHING

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="finds the processes it has to end in /proc"),
    pytest.mark.skipif(not EVERYTHING, reason="takes a minute; .ci/run asks for it (ASNAP_EVERY_EXAMPLE=1)"),
    pytest.mark.timeout(600),  # a published agent takes seconds to start, and is started several times
]
QUICKLY_STARTED = ("codex-acp-zed", "deepagents", "claude-agent-acp")


def installed(name: str) -> Agent:
    """The agent *name*, or a skip that says how to install it."""
    agent = AGENTS[name]
    if not agent.is_installed:
        pytest.skip(f"not installed: python -m integration.agents.install {name}")
    return agent


@pytest.mark.requirement("ORBIT-PROTOCOL-PEER")
@pytest.mark.parametrize("name", QUICKLY_STARTED)
def test_published_agent_killed_with_its_proxy_loses_nothing(name: str) -> None:
    agent = installed(name)

    evidence = run(agent, "as the answer is read", "both")

    assert evidence.error == ""
    cells = judge(evidence, memory_is_fine(run(agent, "as the answer is read", "bare")))
    assert {column: cell.why for column, cell in cells.items() if cell.good is False} == {}


@pytest.mark.requirement("ORBIT-PROTOCOL-PEER")
@pytest.mark.parametrize("name", QUICKLY_STARTED)
def test_published_agent_is_asked_to_load_only_if_it_advertises_it(name: str) -> None:
    agent = installed(name)

    evidence = run(agent, "mid-stream", "both")

    assert evidence.error == ""
    was_asked = "load: not advertised" not in evidence.tried
    assert was_asked == can_load(agent)
    assert evidence.grade in (("native-load", "context") if was_asked else ("context",))


def test_every_agent_of_the_catalogue_is_pinned_to_a_version() -> None:
    assert len(AGENTS) == 8
    assert all(agent.version[0].isdigit() for agent in AGENTS.values())
