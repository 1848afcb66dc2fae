"""Agents that others publish, of which nothing is known beforehand: what each can do is what it says it can.

They are installed with ``python -m integration.agents.install``; those that are not are left out. The whole matrix,
with more agents and every moment of a kill, is ``python -m integration.agents.fidelity``.
"""

from __future__ import annotations

import sys

import pytest

from integration.agents.catalog import AGENTS
from integration.agents.judge import judge
from integration.agents.run import can_load, run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds what it has to end in /proc")
QUICKLY_STARTED = ("codex-acp", "deepagents")


@pytest.mark.requirement("ORBIT-PROTOCOL-PEER")
@pytest.mark.parametrize("name", QUICKLY_STARTED)
def test_a_published_agent_that_is_killed_comes_back_by_what_it_says_it_can(name: str) -> None:
    agent = AGENTS[name]
    if not agent.is_installed:
        pytest.skip(f"not installed: python -m integration.agents.install {name}")

    evidence = run(agent, "as the answer is read", "both", 0)

    assert evidence.error == ""
    assert {column: cell.why for column, cell in judge(evidence).items() if cell.good is False} == {}
    was_asked = "load: not advertised" not in evidence.tried
    assert was_asked == can_load(agent)
    assert evidence.grade in (("native-load", "context") if was_asked else ("context",))
