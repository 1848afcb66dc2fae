"""Check that real agents behind ``asnap run`` keep to the protocol, and print one Markdown table.

``python -m integration.agents.conformance [--agents a,b]``; exits with 1 if a check fails. The ids are those of the
protocol's compatibility kit; `tests/acp/test_conformance.py` has all of them for the scripted agent.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from integration.agents.catalog import AGENTS, Agent
from integration.agents.client import MARK, Client, Gone, end_all, shown_in
from integration.agents.scripted_model import ScriptedModel

__all__ = ["main"]

Json = dict[str, Any]
Findings = dict[str, str]
_REPOSITORY = Path(__file__).resolve().parents[2]
_GOOD, _NOT_ASKED = "✓", "n/a"
_WITHIN = 60.0
_NEVER_WAS = "00000000-0000-4000-8000-000000000000"
_SPOKEN = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update")
_MEANING = {
    "INIT-001": "`initialize` is answered with a version that is a number",
    "INIT-002": "version 1 is answered with 1",
    "INIT-004": "the agent is named, with its version",
    "offers": "load, list, resume, fork, close and delete are advertised",
    "JSONRPC-001": "ids that are strings come back as strings, from the agent and from the proxy",
    "JSONRPC-002": "each answer has a result or an error, never both",
    "JSONRPC-004": "an unknown method is answered with -32601",
    "EXT-001": "an unknown extension method is answered",
    "ERROR-001": "messages of errors are one line",
    "unknown id": "load, resume and fork of an id that never was are answered with -32002 and the id",
    "SESSION-001": "a new session has an id",
    "SESSION-002": "two sessions have two ids",
    "PROMPT-001": "a turn ends with `end_turn`",
    "PROMPT-002": "its updates carry the session's id",
    "CANCEL-001": "a cancelled turn ends with `cancelled`",
    "CLOSE-001": "an idle session is closed with `{}`",
    "CLOSE-002": "closing cancels the turn that runs",
    "SHUTDOWN-001": "it ends by itself when stdin does",
    "LOAD-001": "the next process loads the session, with an object for an answer",
    "LOAD-002": "every word of the seeded turn comes before that answer, and none after",
    "LIST-001": "the session is listed",
    "LIST-002": "a directory without sessions has the list `[]`",
    "RESUME-001": "resuming works without `mcpServers`",
    "RESUME-002": "and replays nothing",
    "DELETE-001": "a deleted session is answered with `{}` and no longer listed",
    "DELETE-002": "deleting it again succeeds",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", default=",".join(AGENTS), help="names, separated by commas; all by default")
    wanted = parser.parse_args().agents.split(",")
    names = [name for name in wanted if AGENTS[name].is_installed]
    if left_out := sorted({*wanted} - {*names}):
        print(f"not installed (python -m integration.agents.install), left out: {left_out}", file=sys.stderr)
    findings = {name: inspect(AGENTS[name]) for name in names}
    print("\n".join(_table(findings)))
    return (
        0 if names and all(f.get(key) in (_GOOD, _NOT_ASKED) for f in findings.values() for key in _MEANING) else 1
    )


def _table(findings: dict[str, Findings]) -> Iterator[str]:
    heads = [f"{name} {AGENTS[name].version}" for name in findings]
    yield f"| id | what | {' | '.join(heads)} |"
    yield "|---" * (2 + len(heads)) + "|"
    for key, meaning in _MEANING.items():
        cells = (found.get(key, "✗ not reached") for found in findings.values())
        yield f"| {key} | {meaning} | {' | '.join(cells)} |"


def inspect(agent: Agent) -> Findings:
    """Run all checks on one agent, in two processes of the proxy, from a fresh home; leave nothing running."""
    home, mark = Path(tempfile.mkdtemp(prefix="asnap-conformance-")), uuid.uuid4().hex
    inspection = _Inspection(agent, home)
    try:
        with ScriptedModel() as model:
            environment = agent.prepare(home, model.port) | {MARK: mark, "PYTHONPATH": str(_REPOSITORY)}
            inspection.first_process(environment)
            inspection.second_process(environment)
    except (Gone, KeyError) as problem:
        print(f"{agent.name}: {problem!r}", file=sys.stderr)
    finally:
        end_all(mark)
        shutil.rmtree(home, ignore_errors=True)
    return inspection.findings


class _Inspection:
    def __init__(self, agent: Agent, home: Path) -> None:
        self._agent, self._home = agent, home
        self._work = home / "work"
        self._work.mkdir()
        self.findings: Findings = {}
        self._session_id = ""

    def _check(self, key: str, holds: Callable[[], Any]) -> None:
        """Good is True; None is no question for this agent; anything else is shown as what was seen instead."""
        try:
            seen = holds()
        except (Gone, LookupError, TypeError) as problem:
            seen = repr(problem)
        if seen is None:
            self.findings[key] = _NOT_ASKED
        else:
            self.findings[key] = _GOOD if seen is True else f"✗ {seen!s:.120}"

    @contextmanager
    def _proxy(self, environment: dict[str, str]) -> Iterator[Client]:
        asnap = [sys.executable, "-m", "snapshot_plugin", "run", "--store", str(self._home / "store"), "--"]
        client = Client([*asnap, *self._agent.start], environment, self._work, self._home / "stderr.log")
        try:
            yield client
        finally:
            client.kill()

    def first_process(self, environment: dict[str, str]) -> None:
        """Everything that needs no past."""
        with self._proxy(environment) as client:
            self._greeting(client)
            self._session_id = self._beginning(client)
            self._turns(client, self._session_id)
            self._refusals(client)
            self._endings(client)
            self._check("SHUTDOWN-001", client.leave)

    def _greeting(self, client: Client) -> None:
        hello = self._hello(client)
        able = hello["agentCapabilities"]
        offers = {"list", "resume", "fork", "close", "delete"}
        self._check("INIT-001", lambda: type(hello["protocolVersion"]) is int)
        self._check("INIT-002", lambda: hello["protocolVersion"] == 1)
        info = hello.get("agentInfo")  # advice to agents; whether it is there is the agent's own affair
        self._check("INIT-004", lambda: {"name", "version"} <= info.keys() if info else None)
        self._check("offers", lambda: able["loadSession"] is True and offers <= able["sessionCapabilities"].keys())

    def _hello(self, client: Client) -> Json:
        """Greet, log in where the agent needs it, and return what the other side said of itself."""
        hello: Json = client.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}}, _WITHIN)["result"]
        if self._agent.login:
            client.call("authenticate", dict(self._agent.login), _WITHIN)
        return hello

    def _beginning(self, client: Client) -> str:
        params = {"cwd": str(self._work), "mcpServers": []}
        made = [client.call("session/new", params, _WITHIN)["result"]["sessionId"] for _ in range(2)]
        self._check("SESSION-001", lambda: all(isinstance(each, str) and each for each in made))
        self._check("SESSION-002", lambda: made[0] != made[1])
        return str(made[0])

    def _ask(self, client: Client, session_id: str, words: str) -> int:
        prompt = [{"type": "text", "text": words}]
        return client.send("session/prompt", {"sessionId": session_id, "prompt": prompt})

    def _turns(self, client: Client, session_id: str) -> None:
        mark = len(client.seen)
        answer = client.answer(self._ask(client, session_id, "question-one [[say one]]"), _WITHIN)
        told = [m["params"] for m in client.seen[mark:] if m.get("method") == "session/update"]
        ids = {params["sessionId"] for params in told if params["update"].get("sessionUpdate") in _SPOKEN}
        self._check("PROMPT-001", lambda: answer["result"]["stopReason"] == "end_turn" or answer)
        self._check("PROMPT-002", lambda: ids == {session_id} or ids)

    def _refusals(self, client: Client) -> None:
        setup = {"cwd": str(self._work), "mcpServers": [], "sessionId": _NEVER_WAS}
        client.send_as("ours", "session/list", {})
        client.send_as("agent's", "session/new", {key: setup[key] for key in ("cwd", "mcpServers")})
        same = [client.answer(text, _WITHIN)["id"] for text in ("ours", "agent's")]
        self._check("JSONRPC-001", lambda: same == ["ours", "agent's"])
        unknown = [client.call(f"session/{name}", setup, _WITHIN) for name in ("load", "resume", "fork")]
        self._check("unknown id", lambda: all(_is_not_found(answer) for answer in unknown) or unknown)
        missing = client.call("session/no_such", {}, _WITHIN)
        self._check("JSONRPC-004", lambda: missing["error"]["code"] == -32601 or missing)
        self._check("EXT-001", lambda: bool(client.call("_vendor/thing", {}, _WITHIN)))
        answers = [message for message in client.seen if "method" not in message]
        self._check("JSONRPC-002", lambda: all(("result" in each) != ("error" in each) for each in answers))
        errors = [each["error"]["message"] for each in answers if "error" in each]
        self._check("ERROR-001", lambda: all(text and "\n" not in text for text in errors) or errors)

    def _endings(self, client: Client) -> None:
        """On a session of their own: a turn that is cancelled, one that is closed."""
        new = client.call("session/new", {"cwd": str(self._work), "mcpServers": []}, _WITHIN)
        which = {"sessionId": new["result"]["sessionId"]}

        def ends(tag: str, end: Callable[[], Any]) -> Any:
            number = self._ask(client, which["sessionId"], f"question-{tag} [[stream {tag} 400]]")
            client.wait(lambda seen: any(f"{tag}-003" in str(m) for m in reversed(seen)), _WITHIN)
            end()
            answer = client.answer(number, _WITHIN)
            return (answer.get("result") or {}).get("stopReason") == "cancelled" or answer

        self._check("CANCEL-001", lambda: ends("cancelled", lambda: client.notify("session/cancel", which)))
        self._check("CLOSE-002", lambda: ends("closed", lambda: client.call("session/close", which, _WITHIN)))
        idle = {"sessionId": self._session_id}
        self._check("CLOSE-001", lambda: client.call("session/close", idle, _WITHIN)["result"] == {})

    def second_process(self, environment: dict[str, str]) -> None:
        """Everything that is about what was before."""
        with self._proxy(environment) as client:
            self._hello(client)
            which = {"sessionId": self._session_id}
            setup = {**which, "cwd": str(self._work)}
            before, result, after = self._comes_back(client, "load", {**setup, "mcpServers": []}, "two")
            words = "".join(str(update.get("content")) for update in before)
            self._check("LOAD-001", lambda: isinstance(result, dict) and "sessionId" not in result)
            self._check("LOAD-002", lambda: _once(words, "question-one", "answer-one") and "-one" not in after)
            self._listing(client, setup)
            client.call("session/close", which, _WITHIN)
            before, result, after = self._comes_back(client, "resume", setup, "three")
            self._check("RESUME-001", lambda: isinstance(result, dict) and "sessionId" not in result)
            self._check("RESUME-002", lambda: before == [] and "-one" not in after)
            deleted = client.call("session/delete", which, _WITHIN)
            left = client.call("session/list", {}, _WITHIN)
            self._check("DELETE-001", lambda: deleted["result"] == {} and self._session_id not in str(left))
            self._check("DELETE-002", lambda: client.call("session/delete", which, _WITHIN)["result"] == {})

    def _comes_back(self, client: Client, way: str, params: Json, tag: str) -> tuple[list[Json], Any, str]:
        """What was said before the answer, the answer, and what was said from then to the end of another turn."""
        mark = len(client.seen)
        answer = client.call(f"session/{way}", params, _WITHIN)
        at = client.seen.index(answer)
        client.answer(self._ask(client, params["sessionId"], f"question-{tag} [[say {tag}]]"), _WITHIN)
        before, after = shown_in(client.seen[mark:at]), shown_in(client.seen[at:])
        spoken = [update for update in before if update.get("sessionUpdate") in _SPOKEN]
        return spoken, answer.get("result"), str([u for u in after if u.get("sessionUpdate") in _SPOKEN])

    def _listing(self, client: Client, setup: Json) -> None:
        listed = client.call("session/list", {"cwd": setup["cwd"]}, _WITHIN)["result"]["sessions"]
        empty = client.call("session/list", {"cwd": str(self._home / "nowhere")}, _WITHIN)["result"]["sessions"]
        self._check("LIST-001", lambda: [i["sessionId"] for i in listed].count(setup["sessionId"]) == 1 or listed)
        self._check("LIST-002", lambda: empty == [] or empty)


def _is_not_found(answer: Json) -> bool:
    error = answer.get("error") or {}
    return error.get("code") == -32002 and (error.get("data") or {}).get("sessionId") == _NEVER_WAS


def _once(words: str, *wanted: str) -> bool:
    return all(words.count(each) == 1 for each in wanted)


if __name__ == "__main__":
    sys.exit(main())
