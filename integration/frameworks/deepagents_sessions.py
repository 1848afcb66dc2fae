"""A real agent without session/load gets it: ``python -m integration.frameworks.deepagents_sessions``.

The agent is `deepagents_agent.py`: the stock server of deepagents-acp and two methods. It talks to the scripted
model and is killed as the agents of `integration.agents` are; then it is asked for load, list and resume. Prints a
table and a verdict, and exits with 1 if anything was lost, with 2 if deepagents is not installed.
"""

from __future__ import annotations

import dataclasses
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from integration.agents.catalog import AGENTS, Agent
from integration.agents.client import Client
from integration.agents.evidence import Evidence, Scenario
from integration.agents.judge import COLUMNS, Cell, judge
from integration.agents.run import run
from integration.agents.scripted_model import ScriptedModel

__all__ = ["main"]

_REPOSITORY = Path(__file__).resolve().parents[2]
_MOMENTS: tuple[tuple[Scenario, int], ...] = (
    ("as the answer is read", 0),
    ("mid-stream", 1),
    ("mid-stream", 40),
)
_COLUMNS = tuple(column for column in COLUMNS if column != "connection")  # there is no proxy that could hold it
_START = """\
import runpy, sys
sys.path.append({site!r})  # behind its own packages: for what we need and it does not have
runpy.run_module("integration.frameworks.deepagents_agent", run_name="__main__")
"""


def wrapped() -> Agent:
    """The agent of the catalogue, started through our class."""
    stock = AGENTS["deepagents"]
    site = sysconfig.get_paths()["purelib"]
    ours = {"PYTHONPATH": str(_REPOSITORY), "ASNAP_STORE": "{HOME}/store"}
    command = ("python", "-c", _START.format(site=site))
    return dataclasses.replace(stock, command=command, environment={**stock.environment, **ours})


def main() -> int:
    agent = wrapped()
    if not agent.is_installed:
        print("deepagents is not installed: python -m integration.agents.install deepagents", file=sys.stderr)
        return 2
    print(f"| killed when | {' | '.join(_COLUMNS)} | came back as |")
    print("|---" * (2 + len(_COLUMNS)) + "|")
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(_asked, agent)
        runs = pool.map(lambda one: run(agent, one[0], "bare", one[1]), _MOMENTS)
        lost = [
            problem for (_, chunks), seen in zip(_MOMENTS, runs, strict=True) for problem in _judged(seen, chunks)
        ]
        lost += asked.result()
    print()
    print("\n".join(["LOST:", *lost]) if lost else "verdict: nothing lost; load, list and resume work")
    return 1 if lost else 0


def _judged(evidence: Evidence, chunks: int) -> Iterator[str]:
    cells: dict[str, Cell] = {column: cell for column, cell in judge(evidence).items() if column in _COLUMNS}
    name = f"{evidence.scenario}, pieces seen: {chunks}" if chunks else evidence.scenario
    print(f"| {name} | {' | '.join(map(str, cells.values()))} | {evidence.grade or 'n.a.'} |", flush=True)
    yield from (f"{name}: {column}: {cell.why}" for column, cell in cells.items() if cell.good is False)
    if evidence.grade != "native-load":
        yield f"{name}: came back as {evidence.grade or 'nothing'}, not with its own history"


def _asked(agent: Agent) -> list[str]:
    """List and resume, in a process that did not make the session."""
    with tempfile.TemporaryDirectory(prefix="asnap-deepagents-") as place, ScriptedModel() as model:
        home = Path(place)
        environment = agent.prepare(home, model.port)
        client = _started(agent, environment, home)
        session_id = client.call("session/new", {"cwd": place, "mcpServers": []})["result"]["sessionId"]
        _prompt(client, session_id, "question-one [[say one]]")
        client.kill()
        client = _started(agent, environment, home)
        listed = client.call("session/list", {"cwd": place})["result"]["sessions"]
        mark = len(client.updates())
        client.call("session/resume", {"sessionId": session_id, "cwd": place})
        shown = client.updates()[mark:]
        _prompt(client, session_id, "question-two [[say two]]")
        unknown = client.call("session/load", {"sessionId": "nobody", "cwd": place, "mcpServers": []})
        client.leave()
        checks = {
            "session/list does not name the session": [info["sessionId"] for info in listed] == [session_id],
            "session/resume shows history": not shown,
            "the model does not know the first turn": "answer-one." in model.requests[-1],
            "the model was told what it knows": "restoration-note" not in model.requests[-1],
            "an unknown session is found": unknown.get("error", {}).get("code") == -32002,
        }
    return [problem for problem, is_good in checks.items() if not is_good]


def _started(agent: Agent, environment: dict[str, str], home: Path) -> Client:
    client = Client(agent.start, environment, home, home / "stderr.log")
    client.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
    return client


def _prompt(client: Client, session_id: str, words: str) -> None:
    client.call("session/prompt", {"sessionId": session_id, "prompt": [{"type": "text", "text": words}]})


if __name__ == "__main__":
    sys.exit(main())
