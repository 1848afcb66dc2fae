"""A real agent with the project memory: what its first session stores, its next one finds, and what that saves.

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
_PATIENCE = 240.0
_HELLO = {"protocolVersion": 1, "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}}}
_MOST_HELLOS = 30
_FACT = "the flux capacitor needs 1.21 gigawatts"


class _Session:
    """One agent process with one ACP session, which has the memory as an MCP server."""

    def __init__(self, client: Client, session_id: str, model: ScriptedModel) -> None:
        self._client, self._session_id, self._model = client, session_id, model

    def wait_for(self, tool: str) -> None:
        """Talk until the agent offers the model *tool*: it may begin before its MCP servers have started."""
        assert any(tool in self._prompt(f"hello {number}") for number in range(_MOST_HELLOS)), (
            f"no {tool} is offered"
        )

    def call(self, tag: str, tool: str, **arguments: Any) -> str:
        """Let the model call a tool; returns all it was told from then on."""
        told = self._prompt(f"question-{tag} [[call {tag} {tool} {json.dumps(arguments)}]]")
        assert "\n" in told, f"{tool} was not called"
        return told

    def run(self, tag: str, command: str) -> str:
        """Let the model run a command in the agent's shell; returns all it was told from then on."""
        return self._prompt(f"question-{tag} [[run {tag} {command}]]")

    def _prompt(self, words: str) -> str:
        before = len(self._model.requests)
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
        session = _Session(client, made["result"]["sessionId"], model)
        session.wait_for("load_session_context")
        yield session
    finally:
        client.leave()
        client.kill()


@pytest.mark.skipif(
    not _AGENT.is_installed, reason="opencode is not installed: python -m integration.agents.install opencode"
)
@pytest.mark.timeout(1200)
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


# What it saves -----------------------------------------------------------------------------------------------

_ENDPOINTS = 14
_FEATURES = {"login": "token", "cart": "items", "search": "hits"}


def _app(work: Path) -> None:
    """What an agent has to know before it can work: what each endpoint answers, at length."""
    (work / "api").mkdir(parents=True)
    for number in range(_ENDPOINTS):
        item = {"id": number, "name": "a name that says something", "price": 12.5, "labels": {"colour": "red"}}
        page = {"items": {f"item{n}": item for n in range(12)}, "total": 12}
        (work / f"api/endpoint{number}.json").write_text(json.dumps(page))


def _discover(session: _Session) -> int:
    """Look at every endpoint; the tokens the model had to read for it."""
    return _tokens(session.run("discover", "cat api/*.json"))


def _tokens(told: str) -> int:
    """About how many tokens the last request had more than the first: what was read in between."""
    requests = told.splitlines()
    return (len(requests[-1]) - len(requests[0])) // 4


def _with_memory(session: _Session, number: int) -> int:
    spent = _tokens(session.call("context", "load_session_context"))
    if number == 1:
        spent += _discover(session)
        for endpoint in range(_ENDPOINTS):
            seen = {
                "endpoint": f"GET /endpoint{endpoint}",
                "response": {"items": {"item0": {"id": 0}}, "total": 12},
            }
            session.call(f"seen{endpoint}", "observe_endpoint", **seen)
        for feature, field in _FEATURES.items():
            data = {"status": 200, "response": {field: 1}}
            kept = {"action": "save", "namespace": "baselines", "key": feature, "data": data}
            session.call(f"keep-{feature}", "session_store", **kept)
    else:
        wanted = {"action": "load", "namespace": "api_schema", "start": 0, "limit": 4}
        spent += _tokens(session.call("schema", "session_store", **wanted))
    return spent


def _regressions(session: _Session) -> list[str]:
    """Compare each feature, all of which are broken now; which of them the model was told about."""
    found = []
    for feature, field in _FEATURES.items():
        broken = {"name": feature, "observed": {"status": 500, "response": {"error": 1}}}
        told = _plain(session.call(f"compare-{feature}", "compare_baseline", **broken))
        if _plain(f"response.{field}: missing") in told and _plain("status: was 200, now 500") in told:
            found.append(feature)
    return found


@pytest.mark.skipif(
    not _AGENT.is_installed, reason="opencode is not installed: python -m integration.agents.install opencode"
)
@pytest.mark.timeout(1200)
def test_sessions_after_the_first_spend_a_fifth_and_find_every_regression(tmp_path: Path) -> None:
    without, spent, regressions = [], [], []
    for name in ("without", "with"):
        _app(tmp_path / name)
    with ScriptedModel() as model:
        for number in range(1, 6):
            with _session(tmp_path / f"without{number}", tmp_path / "without", model) as session:
                without.append(_discover(session))
            with _session(tmp_path / f"with{number}", tmp_path / "with", model) as session:
                spent.append(_with_memory(session, number))
                if number == 2:
                    regressions = _regressions(session)
    print(f"tokens to get started, session by session: without {without}, with {spent}")
    assert regressions == list(_FEATURES)
    assert 0 < max(spent[1:]) <= 0.2 * min(without), (without, spent)


def _plain(text: str) -> str:
    """Without the quoting and spacing that each agent adds when it hands a tool's answer to the model."""
    return "".join(letter for letter in text if letter not in '\\" \n')
