"""The scripted agent behind the proxy: started, loaded, and read as a user reads it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.acp_client import AGENT, Client

__all__ = ["UNABLE", "history", "proxied", "words"]

Json = dict[str, Any]
UNABLE = ("--no-load", "--no-resume", "--no-list", "--no-fork", "--no-close", "--no-delete")
"""Flags of an agent that can do none of what the proxy offers."""


def proxied(
    store: Path,
    *agent_flags: str,
    run: tuple[str, ...] = (),
    agent: tuple[str, ...] = AGENT,
    kind: type[Client] = Client,
) -> Client:
    """A client of ``asnap run`` in front of the scripted agent."""
    asnap = (sys.executable, "-m", "snapshot_plugin", "run", "--store", str(store), *run, "--")
    return kind((*asnap, *agent, *agent_flags))


def history(client: Client, session_id: str) -> tuple[Json, list[Json]]:
    """The answer of session/load, and the updates that came before it."""
    mark = len(client.received)
    request = client.begin("session/load", {"sessionId": session_id, "cwd": "/", "mcpServers": []})
    answer = client.answer_to(request)
    assert "error" not in answer, answer
    end = next(at for at, (_, m) in enumerate(client.received) if m is answer or m == answer)
    before = [
        m["params"]["update"] for _, m in client.received[mark:end] if m and m.get("method") == "session/update"
    ]
    return answer["result"], before


def words(updates: list[Json]) -> list[tuple[str, str]]:
    """Who said what, chunk by chunk."""
    said = [u for u in updates if u["sessionUpdate"] in ("user_message_chunk", "agent_message_chunk")]
    return [(u["sessionUpdate"].split("_")[0], u["content"]["text"]) for u in said]
