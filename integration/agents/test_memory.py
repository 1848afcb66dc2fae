"""A real agent with the project memory: what its first session stores, its next one finds.

Install agents with ``python -m integration.agents.install``, run ``pytest -n0 integration/agents``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from integration.agents.catalog import AGENTS
from integration.agents.client import Client
from integration.agents.scripted_model import ScriptedModel

_REPOSITORY = Path(__file__).resolve().parents[2]
_AGENT = AGENTS["opencode"]
_PATIENCE = 90.0
_HELLO = {"protocolVersion": 1, "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}}}
_FACT = "the flux capacitor needs 1.21 gigawatts"


class _Session:
    """One agent process with one ACP session, which has the memory as an MCP server."""

    def __init__(self, client: Client, session_id: str, model: ScriptedModel) -> None:
        self._client, self._session_id, self._model = client, session_id, model

    def call(self, tag: str, tool: str, **arguments: Any) -> str:
        """Let the model call a tool; returns all it was told from then on."""
        before = len(self._model.requests)
        words = f"question-{tag} [[call {tag} {tool} {json.dumps(arguments)}]]"
        prompt = {"sessionId": self._session_id, "prompt": [{"type": "text", "text": words}]}
        answer = self._client.call("session/prompt", prompt, _PATIENCE)
        assert answer["result"]["stopReason"] == "end_turn", answer
        return "\n".join(self._model.requests[before:])


@contextmanager
def _session(home: Path, work: Path, model: ScriptedModel) -> Iterator[_Session]:
    home.mkdir(exist_ok=True)
    client = Client(_AGENT.start, _AGENT.prepare(home, model.port), work, home / "stderr.log")
    try:
        client.call("initialize", _HELLO, _PATIENCE)
        environment = {
            "PYTHONPATH": str(_REPOSITORY),
            "XDG_STATE_HOME": str(home),
            "ASNAP_STORE": str(home / "store"),
        }
        server = {
            "name": "asnap",
            "command": sys.executable,
            "args": ["-m", "snapshot_plugin", "mcp", "--project", str(work)],
            "env": [{"name": key, "value": value} for key, value in environment.items()],
        }
        made = client.call("session/new", {"cwd": str(work), "mcpServers": [server]}, _PATIENCE)
        yield _Session(client, made["result"]["sessionId"], model)
    finally:
        client.leave()
        client.kill()


@pytest.mark.skipif(
    not _AGENT.is_installed, reason="opencode is not installed: python -m integration.agents.install opencode"
)
def test_the_next_session_of_a_real_agent_finds_what_the_first_one_stored(tmp_path: Path) -> None:
    work = tmp_path / "project"
    work.mkdir()
    with ScriptedModel() as model:
        with _session(tmp_path / "first", work, model) as session:
            assert _plain('"session_count": 1') in _plain(session.call("one", "load_session_context"))
            kept = {"action": "save", "namespace": "decisions", "key": "power", "data": {"fact": _FACT}}
            assert _plain('"action": "save"') in _plain(session.call("two", "session_store", **kept))
        stored = json.loads((work / ".asnap/decisions/power.json").read_text())
        assert stored == {"fact": _FACT}
        with _session(tmp_path / "second", work, model) as session:
            context = _plain(session.call("three", "load_session_context"))
            assert _plain('"session_count": 2') in context
            assert "power" in context
            wanted = {"action": "load", "namespace": "decisions", "key": "power"}
            assert _plain(_FACT) in _plain(session.call("four", "session_store", **wanted))


def _plain(text: str) -> str:
    """Without the quoting and spacing that each agent adds when it hands a tool's answer to the model."""
    return "".join(letter for letter in text if letter not in '\\" \n')
