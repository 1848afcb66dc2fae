"""``asnap chat`` in a real terminal with a published agent, against a scripted model.

Install it with ``python -m integration.agents.install deepagents``; otherwise these tests are skipped.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.agents.catalog import AGENTS
from integration.agents.scripted_model import ScriptedModel
from tests.cli.stored import loaded, session_ids
from tests.cli.terminal import Terminal
from tests.cli.test_chat import CTRL_C, CTRL_D, ENTER, agent_process, kill_all
from tests.tries import EVERYTHING

AGENT = AGENTS["deepagents"]
START = AGENT.start  # now: tests have a home of their own

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="finds the processes it has to end in /proc"),
    pytest.mark.skipif(not AGENT.is_installed, reason="python -m integration.agents.install deepagents"),
    pytest.mark.skipif(not EVERYTHING, reason="takes a minute; .ci/run asks for it (ASNAP_EVERY_EXAMPLE=1)"),
    pytest.mark.timeout(300),
]


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """What the agent needs to find its model, which does what the prompt says."""
    with ScriptedModel() as model:
        (tmp_path / "agent").mkdir()
        made = AGENT.prepare(tmp_path / "agent", model.port)
        yield {name: made[name] for name in AGENT.environment}


def said(terminal: Terminal, prompt: str, wanted: str) -> None:
    terminal.send(prompt + ENTER)
    terminal.wait_for(wanted)


def test_a_published_agent_streams_uses_a_tool_is_cancelled_killed_and_resumed(
    environment: dict[str, str], place: Path
) -> None:
    command = ("chat", "--", *START)
    with Terminal(*command, env=environment, columns=100, lines=60, patience=100) as terminal:
        terminal.wait_for("/help for commands")
        said(terminal, "[[say zebra]]", "answer-zebra.")
        said(terminal, "[[write w notes.txt]]", "after-w.")
        assert "✓ [1] Write `notes.txt`" in terminal.text
        said(terminal, "[[stream long 400]]", "long-003")
        terminal.send(CTRL_C)
        terminal.wait_for("(cancelled)")
        os.kill(agent_process(terminal, START), signal.SIGKILL)
        terminal.wait_for("starting it again")  # a prompt sent to the dying agent would be answered with an error
        said(terminal, "[[say again]]", "answer-again.")
        said(terminal, "[[stream last 400]]", "last-010")
        kill_all(terminal)
    with Terminal(*command, env=environment, columns=100, lines=60, patience=100) as terminal:
        terminal.wait_for("Resume it?")
        terminal.wait_for("then Enter")  # keys can answer now
        terminal.send(ENTER)
        terminal.wait_for("restored: ")
        assert "last-010" in terminal.text
        said(terminal, "[[say goodbye]]", "answer-goodbye.")
        terminal.send(CTRL_D)
        assert terminal.end() == 0
    (name,) = session_ids(place)
    words = "\n".join(message.text for message in loaded(place, name).messages)
    for each in ("answer-zebra.", "after-w.", "long-003", "answer-again.", "last-010", "answer-goodbye."):
        assert each in words


def test_a_narrow_terminal_without_colour_is_resized_and_takes_a_long_paste(
    environment: dict[str, str], place: Path
) -> None:
    pasted = "\n".join(f"line {n}" for n in range(10_000)) + "\n[[say pasted]]"
    environment["NO_COLOR"] = "1"
    with Terminal("chat", "--", *START, env=environment, columns=40, patience=100) as terminal:
        terminal.wait_for("/help for commands")
        terminal.send(f"\x1b[200~{pasted}\x1b[201~")
        terminal.wait_for("[pasted text 1: 10001 lines]")
        terminal.resize(60, 20)
        said(terminal, "", "answer-pasted.")
        terminal.send(CTRL_D)
        assert terminal.end() == 0
    (name,) = session_ids(place)
    assert loaded(place, name).messages[0].text == pasted
