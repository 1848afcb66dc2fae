"""The fixtures of the host suite: start a host, talk to it, kill it, and start it again."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.filesystem import FilesystemStore
from tests.acp_client import AGENT, PATIENCE, Client

__all__ = [
    "HostStage",
    "Json",
    "answers",
    "brought_back",
    "descendants",
    "grade",
    "is_alive",
    "linux",
    "load",
    "stored",
    "wait_until",
    "words",
]

Json = dict[str, Any]
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes through /proc")


class HostStage:
    """The base of all groups of tests. Define `command`, which starts your host."""

    def command(
        self, store: Path, agent: Sequence[str], *, session: str | None = None, patience: float | None = None
    ) -> Sequence[str]:
        """The command of a host that speaks ACP on stdin and stdout.

        Args:
            store: the directory of the `FilesystemStore` it records to.
            agent: the command of the agent it talks to.
            session: continue this stored session when the client opens its first one; asked of `Adopting` hosts.
            patience: seconds the agent may take to answer; None: the host's own default.
        """
        raise NotImplementedError

    def start(
        self,
        place: Path,
        *flags: str,
        session: str | None = None,
        patience: float | None = None,
        wrapped: Callable[[Sequence[str]], Sequence[str]] = lambda command: command,
        initialize: bool = True,
    ) -> Client:
        """A client of the host, which records under *place* and whose agent has these *flags*."""
        command = self.command(place / "store", (*AGENT, *flags), session=session, patience=patience)
        client = Client(wrapped(command), env={"XDG_STATE_HOME": str(place / "state")})
        if initialize:
            client.initialize()
        return client

    def remembering(self, place: Path) -> tuple[str, str]:
        """Flags of an agent that keeps its sessions on disk."""
        return "--state", str(place / "agent.json")

    def kill_everything(self, client: Client) -> None:
        """Kill the host and everything that it started with SIGKILL."""
        pids = descendants(client.process.pid)
        client.kill()
        for pid in pids:
            _kill(pid)

    def kill_agent(self, client: Client) -> None:
        """Kill only the agent with SIGKILL."""
        _kill(self.agent_pid(client))

    def restart_agent(self, client: Client) -> None:
        """Kill only the agent with SIGKILL; returns once the host has restarted it."""
        before = self.agent_pid(client)
        _kill(before)
        wait_until(lambda: self._agents(client) not in ([], [before]), "a restart of the agent")

    def agent_pid(self, client: Client) -> int:
        """The process of the scripted agent."""
        pids = self._agents(client)
        assert pids, "the host has no agent"
        return pids[-1]

    def _agents(self, client: Client) -> list[int]:
        return [pid for pid in descendants(client.process.pid) if "acp_agent" in _command_line(pid)]


def load(client: Client, session_id: str) -> tuple[Json, list[Json]]:
    """The result of ``session/load``, and the updates of the session that came before it."""
    return brought_back(client, "session/load", {"sessionId": session_id, "cwd": "/", "mcpServers": []})


def brought_back(client: Client, method: str, params: Json) -> tuple[Json, list[Json]]:
    """The result of a request, and the updates that came before it."""
    mark = len(client.received)
    answer = client.answer_to(client.begin(method, params))
    assert "error" not in answer, answer
    end = next(at for at, (_, m) in enumerate(client.received) if at >= mark and m == answer)
    session_id = params.get("sessionId")
    before = [m["params"] for _, m in client.received[mark:end] if m and m.get("method") == "session/update"]
    return answer["result"], [p["update"] for p in before if session_id in (None, p["sessionId"])]


def grade(result: Json) -> str:
    """The restore grade that the host reports."""
    return str(result["_meta"]["asnap"]["restored"]["grade"])


def words(updates: list[Json]) -> list[tuple[str, str]]:
    """Speaker and text of each chunk."""
    said = [u for u in updates if u["sessionUpdate"] in ("user_message_chunk", "agent_message_chunk")]
    return [(u["sessionUpdate"].split("_")[0], u["content"]["text"]) for u in said]


def answers(client: Client, request_id: int | str) -> list[Json]:
    """Every answer to a request."""
    found = [m for _, m in client.received if m and "method" not in m and m.get("id") == request_id]
    return [m for m in found if type(m["id"]) is type(request_id)]


def stored(place: Path, session_id: str) -> SessionSnapshot:
    """The newest snapshot of a session in the host's store."""

    async def read() -> SessionSnapshot:
        async with FilesystemStore(place / "store") as store:
            return await store.load(session_id)

    return anyio.run(read)


def descendants(pid: int) -> list[int]:
    """All descendant processes of *pid*."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):  # it may end meanwhile
        for task in Path(f"/proc/{pid}/task").glob("*/children") if Path("/proc").exists() else ():
            for child in _read(task).split():
                found += [int(child), *descendants(int(child))]
    return found


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    status = _read(Path(f"/proc/{pid}/stat"))
    return bool(status) and status.rpartition(")")[2].split()[0] != "Z"


def wait_until(done: Callable[[], bool], what: str) -> None:
    """Wait, bounded, for a condition that no message announces."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.02)


def _command_line(pid: int) -> str:
    return _read(Path(f"/proc/{pid}/cmdline"))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it has just ended
        return ""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
