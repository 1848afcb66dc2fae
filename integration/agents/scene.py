"""The processes of one run: a home, a model, and clients that start the agent bare or behind ``asnap run``."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from integration.agents.catalog import Agent
from integration.agents.client import MARK, Client
from integration.agents.scripted_model import ScriptedModel

__all__ = ["HELLO", "PATIENCE", "Scene", "capabilities"]

Json = dict[str, Any]
PATIENCE = 180.0
"""Seconds for one answer: enough for an agent that starts on a busy machine."""
HELLO: Json = {
    "protocolVersion": 1,
    "clientCapabilities": {
        "fs": {"readTextFile": False, "writeTextFile": False},
        "terminal": False,
        "_meta": {"terminal_output": True},
    },
    "clientInfo": {"name": "fidelity", "version": "1"},
}
_REPOSITORY = Path(__file__).resolve().parents[2]


def capabilities(client: Client) -> Json:
    """What the other side said it can, as one flat mapping: ``load``, ``list``, ``fork`` and so on."""
    hello = next(message["result"] for message in client.seen if "result" in message)
    able = hello.get("agentCapabilities") or {}
    return {"load": able.get("loadSession") or None, **(able.get("sessionCapabilities") or {})}


class Scene:
    """Starts clients in one home; `step` names what is being waited for."""

    def __init__(self, agent: Agent, *, proxied: bool, home: Path, model: ScriptedModel, mark: str) -> None:
        self.agent, self.proxied = agent, proxied
        self.home, self.model = home, model
        self.work = home / "work"
        self.work.mkdir()
        self.setup: Json = {"cwd": str(self.work), "mcpServers": []}
        self.marker = self.work / "marker.txt"
        self.step = "start"
        self.clients: list[Client] = []
        self._environment = agent.prepare(home, model.port) | {MARK: mark}

    def start(self, *, bare: bool = False, login: bool = True) -> Client:
        """A new process that has been greeted and, where it needs one, has had its login."""
        command, environment = list(self.agent.start), self._environment
        if self.proxied and not bare:
            store = str(self.home / "store")
            command = [sys.executable, "-m", "snapshot_plugin", "run", "--store", store, "--", *command]
            environment = environment | {"PYTHONPATH": str(_REPOSITORY)}
        client = Client(command, environment, self.work, self.home / "stderr.log")
        self.clients.append(client)
        self.call(client, "initialize", HELLO)
        if login:
            self.login(client)
        return client

    def login(self, client: Client) -> None:
        """Authenticate, if the agent needs it."""
        if self.agent.login:
            self.call(client, "authenticate", dict(self.agent.login))

    def call(self, client: Client, method: str, params: Json) -> Json:
        """A request and its answer."""
        self.step = method
        return client.call(method, params, PATIENCE)

    def new(self, client: Client) -> str:
        """A new session, in the mode in which the agent asks for permission."""
        session_id: str = self.call(client, "session/new", self.setup)["result"]["sessionId"]
        if self.agent.mode:
            self.call(client, "session/set_mode", {"sessionId": session_id, "modeId": self.agent.mode})
        return session_id

    def ask(self, client: Client, session_id: str, words: str) -> int:
        """Send a prompt; returns the number of the request."""
        self.step = words.split(maxsplit=1)[0]
        return client.send("session/prompt", {"sessionId": session_id, "prompt": [{"type": "text", "text": words}]})

    def list(self, client: Client) -> list[Json]:
        """The sessions of this working directory."""
        answer = self.call(client, "session/list", {"cwd": str(self.work)})
        return list((answer.get("result") or {}).get("sessions") or ())

    def until_next_minute(self) -> None:
        """Wait until the clock shows another minute."""
        time.sleep(60.5 - time.time() % 60)
