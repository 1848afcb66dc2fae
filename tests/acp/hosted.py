"""Our hosts as processes that speak ACP on stdin and stdout, for the host suite.

``python -m tests.acp.hosted KIND STORE PATIENCE SESSION agent…``, where KIND is ``sdk-client``, ``sdk-restarts``,
``sdk-agent`` (the scripted agent plays the author's code), ``provider`` (an orchestrator has `AcpProvider` start an
agent for each session) or ``conductor`` (of a proxy chain in front of the agent).
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

from snapshot_plugin import FilesystemStore, SnapshotConfig, SnapshotError, SnapshotManager, SnapshotNotFound
from snapshot_plugin.acp.actions import refusal
from snapshot_plugin.acp.hosts.sdk_agent import AgentHost, SnapshotAgentMixin
from snapshot_plugin.acp.hosts.sdk_client import ClientHost, Handshake
from snapshot_plugin.acp.hosts.sdk_provider import AcpProvider, AcpSession
from snapshot_plugin.acp.hosts.stdio_agent import StdioAgent
from snapshot_plugin.acp.hosts.tasks import Transport
from snapshot_plugin.acp.messages import Pending, encode, notification, parse, success
from snapshot_plugin.acp.reducer import AcpReducer
from snapshot_plugin.live.place import required_place
from snapshot_plugin.manager.resume import create_or_resume_session, stop_session
from snapshot_plugin.model import new_id
from snapshot_plugin.system.lines import Lines
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
        host = ClientHost(agent, recording, command=command, timeout=patience, restart=again)
        await between(Stdio(), host)
        await host.close()
        return said(host.unsaved) or (9 if restarts and host.core.is_over else 0)


async def sdk_agent(place: str, command: list[str], _patience: float) -> int:
    author = SnapshotAgentMixin()
    author.snapshot_store = place
    agent, stdio = await StdioAgent.start(command), Stdio()
    host = AgentHost(stdio, author, names_sessions=False)
    await between(host, agent)
    await host.close()
    await agent.close()
    return said(host.unsaved)


class Orchestrated:
    """The sessions of an orchestrator, each with an agent that `AcpProvider` started; messages pass through raw."""

    def __init__(self, manager: SnapshotManager, command: list[str], patience: float, stdio: Stdio) -> None:
        self._manager, self._stdio = manager, stdio
        self._start = partial(AcpProvider, command, manager, client=lambda _agent: object())
        self._patience, self._capabilities = patience, dict[str, Any]()
        self._open: dict[str, tuple[AcpProvider, AcpSession, Any]] = {}
        self._asked: dict[str, Any] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        while (message := await self._stdio.receive()) is not None:
            params = message.get("params")
            name = params.get("sessionId") if isinstance(params, dict) else None
            if message.get("method") == "initialize":
                self._capabilities = params["clientCapabilities"] if params else {}
                able = {"loadSession": True, "sessionCapabilities": {"list": {}, "resume": {}}}
                await self._stdio.send(success(message["id"], {"protocolVersion": 1, "agentCapabilities": able}))
            elif "method" not in message:
                await self._asked.pop(str(message.get("id"))).send(message)
            elif (host := self._host_of(name)) is not None:
                self._spawn(host.send(message))
            elif message["method"] in ("session/new", "session/load", "session/resume"):
                self._spawn(self._opened(message, name or new_id()))
            elif self._open:
                self._spawn(next(iter(self._open.values()))[2].send(message))
            else:
                await self._stdio.send(refusal(Pending.of(message), SnapshotNotFound("it is not open")))
        return await self._end()

    def _host_of(self, session_id: Any) -> Any:
        """The host that has the session, which may be a fork of the one it was started for."""
        hosts = [host for _, _, host in self._open.values()]
        return next((host for host in hosts if host.core.sessions.is_open(session_id)), None)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _opened(self, message: Json, session_id: str) -> None:
        try:
            if message["method"] != "session/new" and required_place(self._manager.store).owner(session_id) is None:
                await self._manager.store.history(session_id)
            hands = Handshake(capabilities=self._capabilities, patience=self._patience)
            provider = self._start(handshake=hands)
            session, _ = await create_or_resume_session(provider, session_id, message["params"], self._manager)
        except SnapshotError as error:
            await self._stdio.send(refusal(Pending.of(message), error))
            return
        inside: Any = session.connection._conn
        host = inside._transport
        inside._recv_task.cancel()  # the SDK's models drop what they do not know
        self._open[session_id] = provider, session, host
        result: Json = {"sessionId": session_id}
        shown: tuple[Json, ...] = ()
        if session.report is not None:
            meta = {"asnap": {"restored": {"grade": session.report.grade}}}
            result = {**session.report.result, "_meta": meta}
            shown = session.report.transcript if message["method"] == "session/load" else ()
        elif (trouble := host.sessions.open[session_id].trouble) is not None:
            result["_meta"] = {"asnap": {"recorded": False, "problem": str(trouble)}}
        for update in shown:
            params = {"sessionId": session_id, "update": update}
            await self._stdio.send(notification("session/update", params))
        await self._stdio.send(success(message["id"], result))
        self._spawn(self._carry(host))

    async def _carry(self, host: Any) -> None:
        while (message := await host.receive()) is not None:
            if "method" in message and "id" in message:
                self._asked[str(message["id"])] = host
            await self._stdio.send(message)

    async def _end(self) -> int:
        outcomes = [await stop_session(acp, session, self._manager) for acp, session, _ in self._open.values()]
        return said([outcome for outcome in outcomes if outcome.status == "failed"])


async def provider(place: str, command: list[str], patience: float) -> int:
    settings = SnapshotConfig(enable_persistence=True, snapshot_on_signal=False)
    async with FilesystemStore(place) as store, SnapshotManager(store, settings) as manager:
        await manager.recover()
        return await Orchestrated(manager, command, patience, Stdio()).run()


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

    def hear_client() -> None:
        with suppress(BrokenPipeError):  # the link refused to start
            pump(0, from_client)
        os.close(to_link)

    threading.Thread(target=hear_client, daemon=True).start()
    threading.Thread(target=pump, args=(agent.stdout.fileno(), from_agent), daemon=True).start()  # type: ignore[union-attr]
    pump(out, from_link)
    status = os.waitstatus_to_exitcode(os.waitpid(link, 0)[1])
    agent.kill()
    agent.wait()
    return status


def pump(fd: int, take: Callable[[Json], None]) -> None:
    for message in messages(fd):
        take(message)


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
        hosts: dict[str, Callable[..., Any]] = {"sdk-agent": sdk_agent, "provider": provider}
        status = asyncio.run(hosts.get(kind, client)(place, command, float(patience)))
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
