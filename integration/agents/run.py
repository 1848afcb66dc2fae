"""One run: two finished turns, a third that is killed at a chosen moment, the way back, and a fourth."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from integration.agents.catalog import Agent
from integration.agents.client import MARK, Client, Gone, end_all, kill_agent_of, shown_in
from integration.agents.scripted_model import ScriptedModel

__all__ = ["KILLED", "MOMENTS", "Evidence", "Killed", "Moment", "can_load", "run"]

Moment = Literal["after the turn", "as the answer is read", "mid-stream", "tool runs", "permission open"]
Killed = Literal["bare", "agent", "proxy", "both"]
MOMENTS: tuple[Moment, ...] = (
    "after the turn",
    "as the answer is read",
    "mid-stream",
    "tool runs",
    "permission open",
)
KILLED: tuple[Killed, ...] = ("bare", "agent", "proxy", "both")
_REPOSITORY = Path(__file__).resolve().parents[2]
_HELLO = {
    "protocolVersion": 1,
    "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
    "clientInfo": {"name": "fidelity", "version": "1"},
}
_ANSWER_WITHIN = 45.0
_GRACE = 0.7


@dataclass
class Evidence:
    """What one run has shown. `judge` makes cells of it."""

    agent: Agent
    moment: Moment
    killed: Killed
    before: list[dict[str, Any]] = field(default_factory=list)
    """Updates the client saw before the kill, and until the connection was silent."""
    loaded: bool = False
    load_problem: str = ""
    replay: list[dict[str, Any]] = field(default_factory=list)
    late: list[dict[str, Any]] = field(default_factory=list)
    """Updates that came after the load was answered."""
    request: str | None = None
    """What the model was sent with the next prompt."""
    lived: bool | None = None
    """Whether the client's connection survived the agent; None where that is no question."""
    ran: int = 0
    """How often the tool of the third turn ran."""
    grade: str = ""
    """How the proxy says the session came back."""
    tried: list[str] = field(default_factory=list)
    """What the proxy says it tried, and what came of it."""
    error: str = ""
    notes: list[str] = field(default_factory=list)


def run(agent: Agent, moment: Moment, killed: Killed, chunks: int, *, keep: bool = False) -> Evidence:
    """Play one run from a fresh home to the end, and leave nothing running. Mid-stream is after *chunks* pieces."""
    evidence = Evidence(agent, moment, killed)
    mark = uuid.uuid4().hex
    home = Path(tempfile.mkdtemp(prefix="asnap-fidelity-"))
    with ScriptedModel() as model:
        scene = _Scene(agent, killed, chunks=chunks, home=home, model=model, mark=mark)
        try:
            _play(scene, evidence)
        except Gone as gone:
            evidence.error = f"{evidence.error or scene.step}: {gone}"
        finally:
            end_all(mark)
            for client in scene.clients:
                client.close()
            evidence.ran = scene.marker.read_text().count("ran") if scene.marker.exists() else 0
            if keep:
                evidence.notes.append(str(home))
            else:
                shutil.rmtree(home, ignore_errors=True)
    return evidence


def can_load(agent: Agent) -> bool:
    """Whether *agent*, started bare, says that it can load a session."""
    with tempfile.TemporaryDirectory(prefix="asnap-fidelity-") as home, ScriptedModel() as model:
        place = Path(home)
        client = Client(agent.start, agent.prepare(place, model.port), place, place / "stderr.log")
        try:
            hello = client.call("initialize", _HELLO, _ANSWER_WITHIN)["result"]
        finally:
            client.kill()
    return bool((hello.get("agentCapabilities") or {}).get("loadSession"))


class _Scene:
    def __init__(
        self, agent: Agent, killed: Killed, *, chunks: int, home: Path, model: ScriptedModel, mark: str
    ) -> None:
        self.agent, self.killed, self.chunks = agent, killed, chunks
        self.home, self.model = home, model
        self.work = home / "work"
        self.work.mkdir()
        self.marker = self.work / "marker.txt"
        self.environment = agent.prepare(home, model.port) | {MARK: mark}
        self.step = "start"
        self.clients: list[Client] = []

    def start(self) -> Client:
        command, environment = list(self.agent.start), self.environment
        if self.killed != "bare":
            store = str(self.home / "store")
            command = [sys.executable, "-m", "snapshot_plugin", "run", "--store", store, "--", *command]
            environment = environment | {"PYTHONPATH": str(_REPOSITORY)}
        client = Client(command, environment, self.work, self.home / "stderr.log")
        self.clients.append(client)
        self.step = "initialize"
        client.call("initialize", _HELLO, _ANSWER_WITHIN)
        return client

    def ask(self, client: Client, session_id: str, words: str) -> int:
        self.step = words.split(maxsplit=1)[0]
        return client.send("session/prompt", {"sessionId": session_id, "prompt": [{"type": "text", "text": words}]})


def _play(scene: _Scene, evidence: Evidence) -> None:
    client = scene.start()
    scene.step = "session/new"
    made = client.call("session/new", {"cwd": str(scene.work), "mcpServers": []}, _ANSWER_WITHIN)
    session_id = made["result"]["sessionId"]
    tool = "run two echo made > made.txt" if scene.agent.shell else "write two /made.txt"
    for words in ("question-one [[say one]]", f"question-two [[{tool}]]"):
        client.answer(scene.ask(client, session_id, words), _ANSWER_WITHIN)
        time.sleep(_GRACE)
    number = _third_turn(scene, client, session_id, evidence.moment)
    _kill(scene, client)
    if scene.killed == "agent":
        _go_on(scene, client, session_id, number, evidence)
    else:
        client.drained()
        evidence.before = client.updates()
    client.kill()
    _come_back(scene, session_id, evidence)


def _third_turn(scene: _Scene, client: Client, session_id: str, moment: Moment) -> int:
    """Go to the moment of the kill."""
    command = "run three echo ran >> marker.txt; sleep 45"
    words = {"mid-stream": "stream three 400", "tool runs": command, "permission open": command}.get(
        moment, "say three"
    )
    client.allow = moment != "permission open"
    number = scene.ask(client, session_id, f"question-three [[{words}]]")
    if moment == "mid-stream":
        last = f"three-{scene.chunks:03d}"
        client.wait(lambda seen: any(last in str(message) for message in reversed(seen)), _ANSWER_WITHIN)
    elif moment == "tool runs":
        _until(scene.marker.exists)
        time.sleep(0.3)
    elif moment == "permission open":
        client.wait(lambda seen: any(_asks(m) and "marker.txt" in str(m) for m in seen), _ANSWER_WITHIN)
    else:
        client.answer(number, _ANSWER_WITHIN)
        time.sleep(_GRACE if moment == "after the turn" else 0)
    return number


def _asks(message: dict[str, Any]) -> bool:
    return message.get("method") == "session/request_permission"


def _until(done: Any) -> None:
    deadline = time.monotonic() + _ANSWER_WITHIN
    while not done():
        if time.monotonic() > deadline:
            raise Gone("the tool did not start")
        time.sleep(0.02)


def _kill(scene: _Scene, client: Client) -> None:
    if scene.killed == "agent":
        kill_agent_of(client.pid)
    elif scene.killed == "both":
        kill_agent_of(client.pid)
        client.kill()
    else:
        client.kill()


def _go_on(scene: _Scene, client: Client, session_id: str, number: int, evidence: Evidence) -> None:
    """The agent alone was killed: what waits is answered, and the next prompt works, on the same connection."""
    evidence.lived = False
    client.allow = True
    scene.step = "the interrupted prompt"
    if evidence.moment == "after the turn":
        time.sleep(0.3)  # its death has been noticed, but it is not back yet
    with contextlib.suppress(Gone):
        client.answer(number, _ANSWER_WITHIN)
        evidence.before = client.updates()
        answer = _next_prompt(scene, client, session_id, evidence)
        if "error" in answer:  # the agent was dead already, and the proxy says: send it again
            evidence.notes.append(str(answer["error"].get("message"))[:300])
            answer = _next_prompt(scene, client, session_id, evidence)
        evidence.lived = client.alive and "result" in answer


def _come_back(scene: _Scene, session_id: str, evidence: Evidence) -> None:
    """A new process, the same home: load, look, and go on."""
    client = scene.start()
    params = {"sessionId": session_id, "cwd": str(scene.work), "mcpServers": []}
    hello = next(m for m in client.seen if "result" in m)["result"]
    if not (hello.get("agentCapabilities") or {}).get("loadSession"):
        evidence.load_problem = "no load"
        made = client.call("session/new", {"cwd": str(scene.work), "mcpServers": []}, _ANSWER_WITHIN)
        session_id = made["result"]["sessionId"]
    else:
        scene.step = "session/load"
        answer = client.call("session/load", params, _ANSWER_WITHIN)
        evidence.loaded = "result" in answer
        evidence.load_problem = "" if evidence.loaded else f"load: {answer['error'].get('message')}"[:60]
        answered = client.seen.index(answer)
        time.sleep(_GRACE)
        evidence.replay, evidence.late = shown_in(client.seen[:answered]), shown_in(client.seen[answered:])
        _note_grade(evidence, answer)
    if evidence.request is None:
        _next_prompt(scene, client, session_id, evidence)
    client.leave()


def _next_prompt(scene: _Scene, client: Client, session_id: str, evidence: Evidence) -> dict[str, Any]:
    answer = client.answer(scene.ask(client, session_id, "question-four [[say four]]"), _ANSWER_WITHIN)
    evidence.request = next((r for r in scene.model.requests if "question-four" in r), None)
    return answer


def _note_grade(evidence: Evidence, answer: dict[str, Any]) -> None:
    meta = (answer.get("result") or {}).get("_meta") or {}
    report = (meta.get("asnap") or {}).get("restored") or {}
    evidence.grade = str(report.get("grade", ""))
    evidence.tried = list(report.get("tried", ()))
    evidence.notes.append(str(report))
