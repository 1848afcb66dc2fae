"""One run: finished turns, a third turn that is killed at a chosen moment, the way back, and a fourth turn."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from integration.agents.catalog import Agent
from integration.agents.client import Client, Gone, descendants, end_all, is_running, kill_agent_of, shown_in
from integration.agents.evidence import UNFINISHED, Deletion, Evidence, Killed, Scenario
from integration.agents.scene import HELLO, PATIENCE, Scene, capabilities
from integration.agents.scripted_model import ScriptedModel

__all__ = ["LONG", "can_load", "run"]

Json = dict[str, Any]
LONG = 300
"""Turns of the long scenario."""
_GRACE = 0.7
_FILLER = "filler " * 3000
"""Makes a conversation long enough that agents agree to compact it."""
_FINISHED_TOOL = "printf out-%s-done two | tee made.txt"
_GRADE = re.compile(r"native-load|native-resume|context")
_OPEN_TOOL = "echo ran >> marker.txt; sleep 45"


def run(agent: Agent, scenario: Scenario, killed: Killed, chunks: int = 12, *, keep: bool = False) -> Evidence:
    """Play one run from a fresh home to the end, and leave nothing running. Mid-stream is after *chunks* pieces."""
    evidence = Evidence(agent, scenario, killed)
    began = time.monotonic()
    mark = uuid.uuid4().hex
    home = Path(tempfile.mkdtemp(prefix="asnap-fidelity-"))
    with ScriptedModel() as model:
        scene = Scene(agent, proxied=killed != "bare", home=home, model=model, mark=mark)
        try:
            _play(scene, evidence, chunks)
        except Gone as gone:
            evidence.error = f"{scene.step}: {gone}"
        except (KeyError, TypeError) as unexpected:  # an answer without what was asked for
            evidence.error = f"{scene.step}: {unexpected!r}: {scene.clients[-1].seen[-1]}"[:300]
        finally:
            end_all(mark)
            for client in scene.clients:
                client.close()
            evidence.seconds = time.monotonic() - began
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
            client.call("initialize", HELLO, PATIENCE)
            return bool(capabilities(client)["load"])
        finally:
            client.kill()


def _play(scene: Scene, evidence: Evidence, chunks: int) -> None:
    client = scene.start()
    at_once = evidence.scenario == "as the answer is read"
    if scene.agent.new_minute and at_once:  # so that the load comes in the same minute
        scene.until_next_minute()
    session_id = scene.new(client)
    evidence.session_ids.append(session_id)
    _seed(scene, client, session_id, evidence)
    if evidence.scenario == "fork":
        if "fork" not in capabilities(client):
            evidence.cannot = "no fork"
            return
        forked = scene.call(client, "session/fork", {**scene.setup, "sessionId": session_id})
        evidence.session_ids.append(forked["result"]["sessionId"])
    if scene.agent.new_minute and not at_once:
        scene.until_next_minute()
    number = _third_turn(scene, client, evidence, chunks)
    evidence.known = next((r for r in reversed(scene.model.requests) if "question-three" in r), "")
    _kill(client, evidence)
    if evidence.killed == "agent":
        _go_on(scene, client, number, evidence)
        client.kill()
    else:
        client.drained()
        evidence.before = client.updates()
    _come_back(scene, evidence)
    if evidence.killed == "both":
        _after(scene, evidence)


# Before the kill ------------------------------------------------------------------------------------------


def _seed(scene: Scene, client: Client, session_id: str, evidence: Evidence) -> None:
    """The turns that are finished long before the kill."""
    filler = _FILLER if evidence.scenario == "compaction" else ""
    prompts = [f"question-one {filler}[[say one]]"]
    prompts.append(f"question-two {scene.agent.directive('two', _FINISHED_TOOL)}")
    if evidence.scenario == "slash command":
        prompts.append(scene.agent.slash)
    elif evidence.scenario == "compaction":
        prompts.append(scene.agent.compact)
    elif evidence.scenario == "long":
        prompts += [f"question-{n:04d} [[say {n:04d}]]" for n in range(1, LONG + 1)]
    for words in prompts:
        evidence.prompts.append(words)
        client.answer(scene.ask(client, session_id, words), PATIENCE)
        time.sleep(0 if evidence.scenario == "long" else _GRACE)
    if evidence.scenario == "compaction":  # some agents do it in the background
        _until(lambda: scene.model.summaries > 0, "the compaction did not start")
        time.sleep(2 * _GRACE)


def _third_turn(scene: Scene, client: Client, evidence: Evidence, chunks: int) -> int:
    """Go to the moment of the kill; returns the number of the prompt."""
    opened = scene.agent.directive("three", _OPEN_TOOL)
    what = {"mid-stream": "[[stream three 400]]", "tool runs": opened, "permission open": opened}
    client.allow = evidence.scenario != "permission open"
    words = f"question-three {what.get(evidence.scenario, '[[say three]]')}"
    evidence.prompts.append(words)
    number = scene.ask(client, evidence.session_ids[-1], words)
    if evidence.scenario == "mid-stream":
        last = f"three-{chunks:03d}"
        client.wait(lambda seen: any(last in str(message) for message in reversed(seen)), PATIENCE)
    elif evidence.scenario == "tool runs":
        _until(scene.marker.exists, "the tool did not start")
        time.sleep(0.3)
    elif evidence.scenario == "permission open":
        client.wait(lambda seen: any(_asks(m) and "marker.txt" in str(m) for m in seen), PATIENCE)
    else:
        client.answer(number, PATIENCE)
        time.sleep(0 if evidence.scenario == "as the answer is read" else _GRACE)
    return number


def _asks(message: Json) -> bool:
    return message.get("method") == "session/request_permission"


def _until(done: Callable[[], bool], problem: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > deadline:
            raise Gone(problem)
        time.sleep(0.02)


# The kill -------------------------------------------------------------------------------------------------


def _kill(client: Client, evidence: Evidence) -> None:
    if evidence.killed == "bare":
        client.kill()
        return
    agents = descendants(client.pid)
    if evidence.killed in ("agent", "both"):
        kill_agent_of(client.pid)
    if evidence.killed == "both":
        client.kill()
    elif evidence.killed == "proxy":
        client.kill_alone()
        evidence.outlived = True
        with contextlib.suppress(Gone):
            _until(lambda: not any(is_running(pid) for pid in agents), "the agent goes on")
            evidence.outlived = False


def _go_on(scene: Scene, client: Client, number: int, evidence: Evidence) -> None:
    """The agent alone was killed: what waits is answered, and the next prompt works, on the same connection."""
    evidence.lived = False
    client.allow = True
    scene.step = "the interrupted prompt"
    killed_at = time.monotonic()
    if evidence.scenario == "after the turn":
        time.sleep(0.3)  # its death has been noticed, but it is not back yet
    try:
        client.answer(number, PATIENCE)
        evidence.waited = time.monotonic() - killed_at if evidence.scenario in UNFINISHED else None
        evidence.before = client.updates()
        answer = _next_prompt(scene, client, evidence)
        if "error" in answer:  # the agent was dead already, and the proxy says: send it again
            evidence.notes.append(str(answer["error"].get("message"))[:300])
            answer = _next_prompt(scene, client, evidence)
        evidence.lived = client.alive and "result" in answer
        evidence.grade = _grade_told(scene, evidence.session_ids[-1])
    except Gone as gone:
        evidence.ended = f"{scene.step}: {gone}"


def _grade_told(scene: Scene, session_id: str) -> str:
    """How the session came back after a restart, as the proxy tells on stderr."""
    for line in (scene.home / "stderr.log").read_text(errors="replace").splitlines():
        if line.startswith("asnap:") and session_id in line and (found := _GRADE.search(line)):
            return found[0]
    return ""


# After it -------------------------------------------------------------------------------------------------


def _come_back(scene: Scene, evidence: Evidence) -> None:
    """A new process, the same home: load, look, and go on."""
    client = scene.start(login=False)
    session_id = evidence.session_ids[-1]
    if not capabilities(client)["load"]:
        evidence.load_problem = "no load"
        scene.login(client)
        session_id = scene.new(client)
    else:
        _load(scene, client, evidence)
    if evidence.request is None:
        _next_prompt(scene, client, evidence, session_id)
    if evidence.killed != "both":
        _list_and_delete(scene, client, evidence)
    client.kill() if evidence.killed == "bare" else client.leave()  # some agents go on when their stdin is closed


def _load(scene: Scene, client: Client, evidence: Evidence) -> None:
    if scene.agent.login:
        refused = scene.call(client, "session/new", scene.setup)
        evidence.refused = (refused.get("error") or {}).get("code", 0)
        scene.login(client)
    mark = len(client.seen)
    answer = scene.call(client, "session/load", {**scene.setup, "sessionId": evidence.session_ids[-1]})
    evidence.loaded = "result" in answer
    evidence.load_problem = "" if evidence.loaded else f"load: {answer['error'].get('message')}"[:60]
    answered = client.seen.index(answer)
    client.fall_silent(_GRACE, PATIENCE)
    evidence.replay, evidence.late = shown_in(client.seen[mark:answered]), shown_in(client.seen[answered:])
    report = _report(answer)
    grade = str(report.get("grade") or "")
    if evidence.grade:  # the restart has one already
        evidence.second_grade = grade
    evidence.grade, evidence.tried = evidence.grade or grade, list(report.get("tried", ()))
    evidence.notes.append(str(report))


def _report(answer: Json) -> Json:
    meta = (answer.get("result") or {}).get("_meta") or {}
    return dict((meta.get("asnap") or {}).get("restored") or {})


def _next_prompt(scene: Scene, client: Client, evidence: Evidence, session_id: str = "") -> Json:
    words = "question-four [[say four]]"
    evidence.prompts.append(words)
    answer = client.answer(scene.ask(client, session_id or evidence.session_ids[-1], words), PATIENCE)
    evidence.request = next((r for r in scene.model.requests if "question-four" in r), None)
    return answer


def _after(scene: Scene, evidence: Evidence) -> None:
    """Two more processes, which did not restore the session: one lists, loads, deletes; the bare agent lists."""
    client = scene.start()
    evidence.listed = scene.list(client)
    answer = scene.call(client, "session/load", {**scene.setup, "sessionId": evidence.session_ids[-1]})
    evidence.second_grade = str(_report(answer).get("grade") or answer.get("error"))
    _list_and_delete(scene, client, evidence)
    client.leave()
    if evidence.deletion and scene.agent.deletes:
        client = scene.start(bare=True)
        evidence.deletion.own = [str(info.get("sessionId")) for info in scene.list(client)]
        client.kill()


def _list_and_delete(scene: Scene, client: Client, evidence: Evidence) -> None:
    able = capabilities(client)
    if able.get("list") is None:
        return
    evidence.listed = scene.list(client) if evidence.listed is None else evidence.listed
    if able.get("delete") is None:
        return
    answers = [scene.call(client, "session/delete", {"sessionId": each}) for each in evidence.session_ids]
    evidence.deletion = Deletion(answers[-1], [str(info.get("sessionId")) for info in scene.list(client)])
