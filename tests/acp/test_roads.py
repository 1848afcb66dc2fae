"""How many of our modules a streamed chunk runs through: hops that add nothing are noticed here."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from snapshot_plugin.acp.hosts.proxy import Proxy
from snapshot_plugin.acp.live_work import begin
from snapshot_plugin.acp.methods import SessionMethods
from snapshot_plugin.acp.reducer import AcpReducer
from snapshot_plugin.live.sessions import LiveSessions
from snapshot_plugin.store.filesystem import FilesystemStore

Json = dict[str, Any]
CHUNK = 8
"""Modules that a streamed chunk runs through, in the proxy and on a local disk."""


class Said:
    """An agent that has written *messages* and ended."""

    def __init__(self, messages: Sequence[Json]) -> None:
        self._reads = [b"".join(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n" for each in messages)]

    def read(self) -> bytes:
        return self._reads.pop() if self._reads else b""

    def send(self, _data: bytes) -> bytes:
        return b""


@contextmanager
def modules_run() -> Iterator[set[str]]:
    """The modules of the package whose functions this thread calls."""
    seen: set[str] = set()

    def note(frame: Any, event: str, _arg: object) -> None:
        name = frame.f_globals.get("__name__", "") if event == "call" else ""
        if name.startswith("snapshot_plugin."):
            seen.add(name.removeprefix("snapshot_plugin."))

    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(None)


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
