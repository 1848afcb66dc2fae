"""Everything the client receives through the proxy is what the protocol's own schema allows.

What the proxy says itself is provoked on purpose: replays, answers, refusals, and the end of a tool call whose
agent died.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acp.proxied import UNABLE, history, proxied
from tests.acp.schema import validator_for
from tests.acp_client import Client

Json = dict[str, Any]
ANSWERS = {
    "initialize": "InitializeResponse",
    "session/new": "NewSessionResponse",
    "session/load": "LoadSessionResponse",
    "session/resume": "ResumeSessionResponse",
    "session/list": "ListSessionsResponse",
    "session/fork": "ForkSessionResponse",
    "session/close": "CloseSessionResponse",
    "session/delete": "DeleteSessionResponse",
    "session/prompt": "PromptResponse",
    "session/set_mode": "SetSessionModeResponse",
    "session/set_config_option": "SetSessionConfigOptionResponse",
}
MESSAGES = {"session/update": "SessionNotification", "session/request_permission": "RequestPermissionRequest"}
RUNNING = {
    "sessionUpdate": "tool_call",
    "toolCallId": "open",
    "title": "Deploy",
    "kind": "execute",
    "status": "in_progress",
    "content": [{"type": "content", "content": {"type": "text", "text": "so far"}}],
}


class Asking(Client):
    """A client that knows what each answer answers."""

    def begin(self, method: str, params: Json, *, request_id: int | str | None = None) -> int | str:
        request_id = super().begin(method, params, request_id=request_id)
        self.methods = {**getattr(self, "methods", {}), request_id: method}
        return request_id

    def validated(self) -> set[str]:
        """Check all that was received. Returns the names of what the schema had to say something about."""
        return {self._validated(message) for _, message in self.received if message is not None}

    def _validated(self, message: Json) -> str:
        if "method" in message:
            name, value = MESSAGES[message["method"]], message["params"]
        elif "error" in message:
            name, value = "Error", message["error"]
        else:
            name, value = ANSWERS[self.methods[message["id"]]], message["result"]
        validator_for(name)(value)
        return name


def come_back_in_every_way(client: Client, session_id: str) -> None:
    which = {"sessionId": session_id}
    history(client, session_id)
    client.request("session/list", {})
    fork = client.request("session/fork", {**which, "cwd": "/"})["sessionId"]
    client.request("session/close", which)
    client.request("session/resume", {**which, "cwd": "/"})
    client.request("session/delete", {"sessionId": fork})
    for method in ANSWERS.keys() - {"initialize", "session/new", "session/delete", "session/list"}:
        setup = {"cwd": "/", "mcpServers": [], "prompt": [], "modeId": "x", "configId": "x", "value": "x"}
        client.answer_to(client.begin(method, {**setup, "sessionId": "never-was"}))
    client.answer_to(client.begin("session/list", {"cursor": "made-up"}))


@pytest.mark.parametrize("flags", [(), UNABLE], ids=["able", "unable"])
def test_every_message_of_the_proxy_conforms_to_the_schema(tmp_path: Path, flags: tuple[str, ...]) -> None:
    validator_for("SessionNotification")
    flags = ("--state", str(tmp_path / "state.json"), *flags)
    with proxied(tmp_path / "store", *flags, kind=Asking) as client:
        assert isinstance(client, Asking)
        client.initialize()
        session_id = client.new_session()
        client.request("session/set_mode", {"sessionId": session_id, "modeId": "code"})
        client.request(
            "session/set_config_option", {"sessionId": session_id, "configId": "model", "value": "large"}
        )
        client.prompt(session_id, "think\nplan\ntool\nask\nsay done")
        mark = len(client.received)
        died = client.answer_to(client.begin_prompt(session_id, f"say going\nupdate {json.dumps(RUNNING)}\ncrash"))
        assert "error" in died
        client.wait_for_update("tool_call_update", since=mark, toolCallId="open", status="failed")
        client.request("session/close", {"sessionId": session_id})
        come_back_in_every_way(client, session_id)
        assert client.validated() == {*ANSWERS.values(), *MESSAGES.values(), "Error"}
    with proxied(tmp_path / "store", *flags, run=("--session", session_id), kind=Asking) as client:
        assert isinstance(client, Asking)
        client.initialize()
        assert client.request("session/new", {"cwd": "/", "mcpServers": []})["sessionId"] == session_id
        assert "NewSessionResponse" in client.validated()


def test_every_refusal_of_the_proxy_is_an_error_of_the_schema(tmp_path: Path) -> None:
    validator_for("Error")
    with (
        proxied(tmp_path, kind=Asking) as first,
        proxied(tmp_path, kind=Asking, run=("--require", "exact")) as second,
    ):
        assert isinstance(second, Asking)
        first.initialize()
        second.initialize()
        session_id = first.new_session()
        first.prompt(session_id, "say one")
        params = {"sessionId": session_id, "cwd": "/", "mcpServers": []}
        locked = second.answer_to(second.begin("session/load", params))
        assert locked["error"]["data"]["reason"] == "locked"
        first.request("session/close", {"sessionId": session_id})
        demanded = second.answer_to(second.begin("session/load", params))
        assert demanded["error"]["data"]["reason"] == "fidelity_not_met"
        second.validated()
