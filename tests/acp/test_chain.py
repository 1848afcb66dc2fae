"""As a component of a proxy chain, between a conductor that a test plays and a successor that it plays too."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acp_client import Client

Json = dict[str, Any]


def component(store: Path) -> Client:
    return Client((sys.executable, "-m", "snapshot_plugin", "run", "--store", str(store)))


def answer_successor(client: Client, method: str, result: Json, *, prefix: str, since: int = 0) -> Json:
    """Wait for the envelope that holds *method*, and answer it as the successor would."""
    envelope = client.wait_for(
        lambda m: m.get("method") == f"{prefix}successor" and m["params"]["method"] == method, since=since
    )
    client.send({"id": envelope["id"], "result": result})
    return dict(envelope["params"]["params"])


@pytest.mark.parametrize("prefix", ["_proxy/", "proxy/"])
def test_a_turn_passes_through_and_is_recorded(tmp_path: Path, prefix: str) -> None:
    with component(tmp_path) as client:
        client.answers[f"{prefix}successor"] = lambda _params: None
        hello = client.begin(f"{prefix}initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        answer_successor(client, "initialize", {"protocolVersion": 1, "agentCapabilities": {}}, prefix=prefix)
        assert client.answer_to(hello)["result"]["agentCapabilities"]["loadSession"] is True

        new = client.begin("session/new", {"cwd": "/", "mcpServers": []})
        answer_successor(client, "session/new", {"sessionId": "s-1"}, prefix=prefix)
        assert client.answer_to(new)["result"]["sessionId"] == "s-1"

        prompt = client.begin_prompt("s-1", "hello")
        text = {"type": "text", "text": "hi there"}
        update = {"sessionId": "s-1", "update": {"sessionUpdate": "agent_message_chunk", "content": text}}
        client.send({"method": f"{prefix}successor", "params": {"method": "session/update", "params": update}})
        answer_successor(client, "session/prompt", {"stopReason": "end_turn"}, prefix=prefix)
        assert client.answer_to(prompt)["result"] == {"stopReason": "end_turn"}
        assert client.said("s-1") == "hi there"
        assert "s-1" in str(client.request("session/list", {"cwd": "/"}))


def test_request_from_the_next_proxy_gets_its_answer(tmp_path: Path) -> None:
    with component(tmp_path) as client:
        client.answers["_proxy/successor"] = lambda _params: None
        client.answers["fs/read_text_file"] = lambda _params: {"content": "text"}
        hello = client.begin("_proxy/initialize", {"protocolVersion": 1})
        answer_successor(client, "initialize", {"protocolVersion": 1}, prefix="_proxy/")
        client.answer_to(hello)
        inner = {"method": "fs/read_text_file", "params": {"sessionId": "s", "path": "/x"}}
        client.send({"id": "their-7", "method": "_proxy/successor", "params": inner})
        answered = client.wait_for(lambda m: m.get("id") == "their-7" and "result" in m)
        assert answered["result"] == {"content": "text"}
