"""Our hosts as processes that speak ACP on stdin and stdout, for the host suite.

``python -m tests.acp.hosted sdk-client|sdk-restarts|sdk-agent|conductor STORE PATIENCE SESSION agent…``. With
``sdk-agent`` the scripted agent plays the author's code; with ``conductor`` this process conducts a proxy chain in
front of the agent.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from snapshot_plugin.acp.hosts.sdk_agent import AgentHost, SnapshotAgentMixin
from snapshot_plugin.acp.hosts.sdk_client import ClientHost
from snapshot_plugin.acp.hosts.stdio_agent import StdioAgent
from snapshot_plugin.acp.hosts.tasks import Transport
from snapshot_plugin.acp.messages import Lines, encode, parse
from snapshot_plugin.acp.reducer import AcpReducer
from snapshot_plugin.manager.manager import SnapshotManager
from snapshot_plugin.store.filesystem import FilesystemStore
from tests.forkserver import fork

Json = dict[str, Any]


class Stdio:
    """Our stdin and stdout as a transport."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._inbox: asyncio.Queue[Json | None] = asyncio.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for message in messages(0):
            self._loop.call_soon_threadsafe(self._inbox.put_nowait, message)
        self._loop.call_soon_threadsafe(self._inbox.put_nowait, None)

    async def send(self, message: Json) -> None:
        await asyncio.to_thread(write, 1, encode(message))

    async def receive(self) -> Json | None:
        return await self._inbox.get()

    async def close(self) -> None:
        pass


async def carry(source: Any, sink: Any) -> None:
    while (message := await source.receive()) is not None:
        await sink.send(message)


async def between(left: Transport, right: Any) -> None:
    """Carry messages until the left side hangs up or the right side ends."""
    tasks = {asyncio.ensure_future(carry(left, right)), asyncio.ensure_future(carry(right, left))}
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


async def sdk_client(place: str, command: list[str], patience: float, *, restarts: bool = False) -> int:
    async def restart() -> Transport:
        return await StdioAgent.start(command)

    async with FilesystemStore(place) as store, SnapshotManager(store) as manager:
        await manager.recover()
        agent = await StdioAgent.start(command)
        recording = manager.recording(AcpReducer)
        again = restart if restarts else None
        host = ClientHost(agent, recording, command=command, patience=patience, restart=again)
        await between(Stdio(), host)
        await host.close()
        return said(host.host.unsaved) or (9 if restarts and host.core.is_over else 0)


async def sdk_agent(place: str, command: list[str], _patience: float) -> int:
    author = SnapshotAgentMixin()
    author.snapshot_store = place
    agent, stdio = await StdioAgent.start(command), Stdio()
    host = AgentHost(stdio, author, names_sessions=False)
    await between(host, agent)
    await host.close()
    await agent.close()
    return said(host.host.unsaved)


def said(unsaved: Any) -> int:
    for outcome in unsaved:
        sys.stderr.write(f"{outcome}\n")
    return 1 if unsaved else 0


def conductor(place: str, command: list[str], patience: float, session: str) -> int:
    """The proxy as a link of a chain, between our client and the agent."""
    run = [
        "snapshot_plugin",
        "run",
        "--store",
        place,
        "--patience",
        str(patience),
        *(["--session", session] if session else []),
    ]
    (stdin, to_link), (out, stdout) = os.pipe(), os.pipe()
    link = fork({"argv": run, "env": dict(os.environ), "cwd": "."}, [stdin, stdout, 2], [0, to_link, out])
    os.close(stdin)
    os.close(stdout)
    agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    to_agent = agent.stdin.fileno()  # type: ignore[union-attr]
    asked: set[str] = set()

    def from_client(message: Json) -> None:
        begins = message.get("method") == "initialize"
        write(to_link, encode({**message, "method": "_proxy/initialize"} if begins else message))

    def from_link(message: Json) -> None:
        if message.get("method") == "_proxy/successor":
            inner = message["params"]
            rest = {key: value for key, value in message.items() if key not in ("method", "params")}
            write(to_agent, encode({**rest, **inner}))
        elif "method" not in message and str(message.get("id")) in asked:
            write(to_agent, encode(message))
        else:
            write(1, encode(message))

    def from_agent(message: Json) -> None:
        if "method" not in message:
            write(to_link, encode(message))
            return
        inner = {"method": message["method"], "params": message.get("params", {})}
        rest = {"id": message["id"]} if "id" in message else {}
        asked.update(map(str, rest.values()))
        write(to_link, encode({"jsonrpc": "2.0", **rest, "method": "_proxy/successor", "params": inner}))

    pump(out, from_link)
    pump(agent.stdout.fileno(), from_agent)  # type: ignore[union-attr]
    with suppress(BrokenPipeError):  # the link refused to start
        for message in messages(0):
            from_client(message)
    os.close(to_link)
    status = os.waitstatus_to_exitcode(os.waitpid(link, 0)[1])
    agent.kill()
    agent.wait()
    return status


def pump(fd: int, take: Callable[[Json], None]) -> None:
    def run() -> None:
        for message in messages(fd):
            take(message)

    threading.Thread(target=run, daemon=True).start()


def messages(fd: int) -> Any:
    lines = Lines()
    while data := os.read(fd, 1 << 20):
        for line in lines.feed(data):
            if (message := parse(line)) is not None:
                yield message


_writing = threading.Lock()


def write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    with _writing:
        while view:
            view = view[os.write(fd, view) :]


def main() -> None:
    kind, place, patience, session, *command = sys.argv[1:]
    if kind == "conductor":
        status = conductor(place, command, float(patience), session)
    else:
        client = partial(sdk_client, restarts=kind == "sdk-restarts")
        run: Callable[..., Any] = sdk_agent if kind == "sdk-agent" else client
        status = asyncio.run(run(place, command, float(patience)))
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
