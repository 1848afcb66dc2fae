"""How many of our modules a streamed chunk and a restore run through: hops that add nothing are noticed here."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from snapshot_plugin.acp.hosts.proxy import Proxy
from snapshot_plugin.acp.methods import SessionMethods, begin
from snapshot_plugin.acp.reducer import AcpReducer
from snapshot_plugin.live.sessions import LiveSessions
from snapshot_plugin.store.filesystem import FilesystemStore

Json = dict[str, Any]
CHUNK = 7
"""Modules that a streamed chunk runs through, in the proxy and on a local disk."""
RESTORE = 18
"""Modules of `acp` and `live` that a native restore runs through; those below them belong to a load."""


class Said:
    """An agent that has written *messages* and ended."""

    def __init__(self, messages: Sequence[Json]) -> None:
        self._reads = [b"".join(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n" for each in messages)]

    def read(self) -> bytes:
        return self._reads.pop() if self._reads else b""

    def send(self, _data: bytes) -> bytes:
        return b""


class Remembers:
    """An agent that loads a session and replays *said*."""

    def __init__(self, said: Sequence[tuple[str, str]]) -> None:
        self._said = said
        self._reads: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read(self) -> bytes:
        return self._reads.get(timeout=60)

    def send(self, data: bytes) -> bytes:
        for message in map(json.loads, data.splitlines()):
            result: Json = {}
            if message["method"] == "initialize":
                result = {
                    "protocolVersion": 1,
                    "agentCapabilities": {"loadSession": True},
                    "agentInfo": {"name": "a"},
                }
            else:
                for kind, text in self._said:
                    update = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
                    self._say({"method": "session/update", "params": {"sessionId": "s", "update": update}})
            self._say({"id": message["id"], "result": result})
        return b""

    def end(self, **_how: Any) -> int:
        self._reads.put(b"")
        return 0

    def _say(self, message: Json) -> None:
        self._reads.put(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


@contextmanager
def modules_run() -> Iterator[set[str]]:
    """The modules of the package whose functions this thread calls, and those threads that it starts."""
    seen: set[str] = set()

    def note(frame: Any, event: str, _arg: object) -> None:
        name = frame.f_globals.get("__name__", "") if event == "call" else ""
        if name.startswith("snapshot_plugin."):
            seen.add(name.removeprefix("snapshot_plugin."))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def chunk(text: str) -> Json:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    return {"method": "session/update", "params": {"sessionId": "s", "update": update}}


def test_a_streamed_chunk_runs_through_few_modules(tmp_path: Path) -> None:
    sessions = LiveSessions(FilesystemStore(tmp_path), AcpReducer)
    null = os.open(os.devnull, os.O_RDWR)
    proxy = Proxy(["agent"], sessions, SessionMethods(), client_in=null, client_out=null)
    begin(sessions, "s", {})
    proxy._core.open.add("s")
    proxy._relay.pump_agent(Said([chunk("one")]).read)
    with modules_run() as modules:
        proxy._relay.pump_agent(Said([chunk(" two")]).read)
    assert sessions.open["s"].snapshot().messages[-1].text == "one two"
    sessions.close()
    os.close(null)
    assert len(modules) <= CHUNK, sorted(modules)


def test_a_restore_runs_through_few_modules(tmp_path: Path) -> None:
    sessions = LiveSessions(FilesystemStore(tmp_path), AcpReducer)
    begin(sessions, "s", {"agent": {"sessionId": "s", "info": {"name": "a"}}, "new": {"cwd": "/"}})
    for event in ({"prompt": [{"type": "text", "text": "hi"}]}, {"update": chunk("hello")["params"]["update"]}):
        sessions.open["s"].record(event)
    sessions.open["s"].record({"stop": {"stopReason": "end_turn"}})
    sessions.close()
    client_in, asks = os.pipe()
    answers, client_out = os.pipe()
    again = LiveSessions(FilesystemStore(tmp_path), AcpReducer)
    proxy = Proxy(["agent"], again, SessionMethods(), client_in=client_in, client_out=client_out)
    agent = Remembers([("user_message_chunk", "hi"), ("agent_message_chunk", "hello")])
    with os.fdopen(answers, "rb") as shown, modules_run() as modules:
        relay = threading.Thread(target=proxy.run, args=(agent,))
        relay.start()
        answer_to(asks, shown, "initialize", {"protocolVersion": 1})
        modules.clear()
        answer = answer_to(asks, shown, "session/load", {"sessionId": "s", "cwd": "/", "mcpServers": []})
        road = {module for module in tuple(modules) if module.startswith(("acp.", "live."))}
        os.close(asks)
        relay.join(60)
        assert proxy.end() == 0
    for fd in (client_in, client_out):
        os.close(fd)
    assert answer["result"]["_meta"]["asnap"]["restored"]["grade"] == "native-load"
    assert len(road) <= RESTORE, sorted(road)


def answer_to(asks: int, shown: IO[bytes], method: str, params: Json) -> Json:
    os.write(
        asks, json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": params}).encode() + b"\n"
    )
    message: Json = {}
    while message.get("id") != method:
        message = json.loads(shown.readline())
    return message


def test_proxy_whose_thread_fails_ends_and_leaves_no_client_waiting(tmp_path: Path) -> None:
    def read() -> bytes:
        raise RuntimeError("can't start new thread")

    agent = Said([])
    agent.read, agent.end = read, lambda **_how: 0  # type: ignore[method-assign, attr-defined]
    sessions = LiveSessions(FilesystemStore(tmp_path), AcpReducer)
    client_in, asks = os.pipe()
    proxy = Proxy(["agent"], sessions, SessionMethods(), client_in=client_in, client_out=asks)
    relay = threading.Thread(target=proxy.run, args=(agent,), daemon=True)
    relay.start()
    relay.join(20)
    assert not relay.is_alive()
    assert proxy.end() == 1
    for fd in (asks, client_in):
        os.close(fd)


def test_no_update_reaches_the_client_once_recording_has_ended(tmp_path: Path) -> None:
    """At a planned stop the agent's last words may still be in its pipe when the sessions are saved."""
    sessions = LiveSessions(FilesystemStore(tmp_path), AcpReducer)
    null = os.open(os.devnull, os.O_RDWR)
    client, shown = os.pipe()
    proxy = Proxy(["agent"], sessions, SessionMethods(), client_in=null, client_out=shown)
    begin(sessions, "s", {})
    proxy._core.open.add("s")
    proxy._relay.pump_agent(Said([chunk("recorded")]).read)
    assert proxy.end() == 0
    proxy._relay.pump_agent(Said([chunk(" too late")]).read)
    os.close(shown)
    seen = os.read(client, 1 << 16)
    assert json.loads(seen)["params"]["update"]["content"]["text"] == "recorded"
    assert sessions.newest("s").snapshot.messages[-1].text == "recorded"
    for fd in (client, null):
        os.close(fd)
