"""An agent that refuses what it advertises: the client is served from the record, and is told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.acp.proxied import history, proxied, words
from tests.acp_client import Client, RpcError

_AGENT = """
import json, sys
made = 0
for line in sys.stdin:
    asked = json.loads(line)
    method, answer = asked.get("method"), {"error": {"code": -32099, "message": "not today"}}
    if method == "initialize":
        can = {name: {} for name in ("list", "close", "delete")}
        answer = {"result": {"protocolVersion": 1, "agentCapabilities": {"sessionCapabilities": can}}}
    elif method == "session/new" and made < int(sys.argv[1]):
        made += 1
        answer = {"result": {"sessionId": f"s-{made}"}}
    elif method == "session/prompt":
        content = {"type": "text", "text": "heard"}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        told = {"sessionId": asked["params"]["sessionId"], "update": update}
        print(json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": told}), flush=True)
        answer = {"result": {"stopReason": "end_turn"}}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


def refusing(store: Path, *, sessions: int = 9, run: tuple[str, ...] = ()) -> Client:
    """An agent that makes so many sessions, and neither lists, closes nor deletes any."""
    return proxied(store, str(sessions), agent=(sys.executable, "-c", _AGENT), run=run)


def test_sessions_are_listed_closed_and_deleted_even_if_the_agent_refuses(tmp_path: Path) -> None:
    with refusing(tmp_path) as client:
        client.initialize()
        kept, gone = client.new_session(), client.new_session()
        assert client.prompt(kept, "hello") == "heard"
        assert client.request("session/close", {"sessionId": kept}) == {}
        assert client.request("session/delete", {"sessionId": gone}) == {}
        listed = client.request("session/list", {})["sessions"]
        assert [info["sessionId"] for info in listed] == [kept]
        for said in (f"did not close {kept}", f"did not delete {gone}", "cannot list"):
            client.wait_for_stderr(said)
        assert words(history(client, kept)[1]) == [("user", "hello"), ("agent", "heard")]


def test_agents_refusal_to_create_a_session_reaches_the_client(tmp_path: Path) -> None:
    with refusing(tmp_path) as client:
        client.initialize()
        stored = client.new_session()
        client.prompt(stored, "hello")
    with refusing(tmp_path, sessions=1, run=("--session", stored)) as client:
        client.initialize()
        assert client.new_session() == stored
        with pytest.raises(RpcError) as refused:
            client.new_session()
        assert refused.value.code == -32099


def test_session_the_agent_refuses_to_create_is_not_loaded_and_stays_stored(tmp_path: Path) -> None:
    with refusing(tmp_path) as client:
        client.initialize()
        stored = client.new_session()
        client.prompt(stored, "hello")
    with refusing(tmp_path, sessions=0) as client:
        client.initialize()
        with pytest.raises(RpcError):
            client.request("session/load", {"sessionId": stored, "cwd": "/", "mcpServers": []})
        with pytest.raises(RpcError):
            client.request("session/fork", {"sessionId": stored, "cwd": "/", "mcpServers": []})
        assert [info["sessionId"] for info in client.request("session/list", {})["sessions"]] == [stored]
    with refusing(tmp_path) as client:
        client.initialize()
        assert words(history(client, stored)[1]) == [("user", "hello"), ("agent", "heard")]
