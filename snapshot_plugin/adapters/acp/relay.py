"""The relay: two pumps, one for each direction. Bytes are passed on as they came unless a message must change.

Each line is parsed once. What has to be written down is written down before the line goes on. Requests that we
answer ourselves (restoring, listing, forking, closing, deleting) run in threads of their own, so that the rest
of the traffic goes on meanwhile.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from snapshot_plugin.adapters.acp.chain import ChainLink
from snapshot_plugin.adapters.acp.journal import Journals, stamp
from snapshot_plugin.adapters.acp.launch import AgentProcess
from snapshot_plugin.adapters.acp.link import Link
from snapshot_plugin.acp.offers import offered
from snapshot_plugin.acp.messages import Pending, key_of
from snapshot_plugin.acp.events import (
    Entry,
    answered_by_agent,
    answered_by_client,
    asked_by_agent,
    prompted,
    updated,
)
from snapshot_plugin.acp.messages import Lines, Message, encode, notification, parse

__all__ = ["Relay"]

_READ = 1 << 20


class Relay(Link):
    """One client, one agent, any number of sessions. `sessions.Sessions` and `revival.Revival` build on it."""

    def __init__(self, command: Sequence[str], journals: Journals, *, client_in: int, client_out: int) -> None:
        super().__init__(command)
        self.command, self.journals = tuple(command), journals
        self.agent: AgentProcess | ChainLink | None = None
        self.client_capabilities: dict[str, Any] = {}
        self.initialize_params: Message | None = None
        self.transparent = False
        self.from_client: dict[str, Pending] = {}
        self.from_agent: dict[str, Pending] = {}
        self.ready = threading.Event()
        self.answered_by_us: dict[str, Callable[[Pending], None]] = {}
        self._in, self._out = client_in, client_out
        self._client_lock, self._agent_lock = threading.Lock(), threading.Lock()

    # Sending ----------------------------------------------------------------------------------------------

    def to_client(self, data: bytes) -> None:
        """Write to the client; a client that is gone ends the relay."""
        view = memoryview(data)
        with self._client_lock:
            try:
                while view:
                    view = view[os.write(self._out, view) :]
            except OSError:
                self.closing.set()

    def to_agent(self, data: bytes) -> None:
        """Write to the agent; if it is gone, its pump notices."""
        agent = self.agent
        if agent is not None:
            with self._agent_lock:
                agent.send(data)

    def say(self, text: str) -> None:
        """A line for the person who watches: on stderr, never on stdout."""
        sys.stderr.write(f"asnap: {text}\n")
        sys.stderr.flush()

    def send(self, message: Message) -> None:
        """A message of our own, to the agent."""
        self.to_agent(encode(message))

    def wait_until(self, done: Callable[[], bool]) -> bool:
        """Wait, bounded, for something the pumps bring about."""
        deadline = time.monotonic() + self.patience
        while not done() and time.monotonic() < deadline and not self.closing.is_set():
            self.closing.wait(0.005)
        return done()

    def is_recorded(self, session_id: str) -> bool:
        """Whether the session has a journal."""
        return session_id in self.journals.open

    def show(self, session_id: str, update: Message) -> None:
        """Write down an update that had to wait, and pass it on to the client."""
        self._write_down(session_id, updated(update))
        self.to_client(encode(notification("session/update", {"sessionId": session_id, "update": update})))

    def _write_down(self, session_id: str | None, entry: Entry | None) -> None:
        journal = self.journals.open.get(session_id or "")
        if journal and entry:
            journal.record(entry.event, durable=entry.durable)

    # From the client --------------------------------------------------------------------------------------

    def pump_client(self) -> None:
        """Carry what the client says until it stops talking."""
        lines = Lines()
        while not self.closing.is_set() and (data := _read(self._in)):
            for line in lines.feed(data):
                if (out := self._client_line(line)) is not None:
                    self.to_agent(out)
        self.closing.set()

    def _client_line(self, line: bytes) -> bytes | None:
        message = parse(line)
        if isinstance(self.agent, ChainLink) and message is not None:
            plain = self.agent.unwrapped(message)
            if plain is None:
                return None
            if plain is not message:
                message, line = plain, encode(plain)
        if message is None or self.transparent:
            return line
        method = message.get("method")
        if not isinstance(method, str):
            return line if "method" in message else self._client_answers(message, line)
        self.ready.wait()  # after a death the session may have another name, and the model something to be told
        raw = message.get("params")
        params: Message = raw if isinstance(raw, dict) else {}
        session_id = params.get("sessionId") if isinstance(params.get("sessionId"), str) else None
        if "id" in message:
            pending = Pending(message["id"], method, session_id, params)
            if method in self.answered_by_us:
                self.in_background(self.answered_by_us[method], pending)
                return None
            self.from_client[key_of(message["id"])] = pending
            if method == "initialize":
                self._note_initialize(params)
            elif method == "session/prompt" and session_id:
                return self._prompt(message, line, session_id, params)
        return _line(self.for_agent(message), message, line)

    def in_background(self, work: Callable[[Pending], None], pending: Pending) -> None:
        """Answer a request in a thread of its own, once the agent is ready."""

        def run() -> None:
            self.ready.wait()
            work(pending)

        threading.Thread(target=run, daemon=True, name=f"asnap {pending.method}").start()

    def _note_initialize(self, params: Message) -> None:
        self.initialize_params = params
        capabilities = params.get("clientCapabilities")
        self.client_capabilities = capabilities if isinstance(capabilities, dict) else {}

    def _prompt(self, message: Message, line: bytes, session_id: str, params: Message) -> bytes:
        """The prompt is durable before the agent gets it; what the model must be told rides along, once."""
        self._write_down(session_id, prompted(params, at=stamp()))
        return _line(self.for_agent(self.with_notes(message, session_id)), message, line)

    def _client_answers(self, message: Message, line: bytes) -> bytes | None:
        pending = self.from_agent.pop(key_of(message.get("id")), None)
        if pending is None:
            return None if "id" in message else line  # an answer for an agent that is no more
        self._write_down(pending.session_id, answered_by_client(pending, message))
        return line

    # From the agent ---------------------------------------------------------------------------------------

    def pump_agent(self, agent: AgentProcess | ChainLink) -> None:
        """Carry what this run of the agent says until it ends."""
        lines = Lines()
        while data := agent.read():
            out = [passed for line in lines.feed(data) if (passed := self._agent_line(line)) is not None]
            if out:
                self.to_client(b"".join(out))

    def _agent_line(self, line: bytes) -> bytes | None:
        message = parse(line)
        if message is None:
            self.say(f"the agent wrote something that is not ACP: {line[:200]!r}")
            return None
        if self.transparent:
            return line
        method = message.get("method")
        raw = message.get("params")
        params: Message = raw if isinstance(raw, dict) else {}
        if method == "session/update":
            return self._update(message, line, params)
        if isinstance(method, str):
            return self._agent_asks(message, line, method, params)
        return self._agent_answers(message, line)

    def _update(self, message: Message, line: bytes, params: Message) -> bytes | None:
        agent_id, update = params.get("sessionId"), params.get("update")
        if not isinstance(agent_id, str) or not isinstance(update, dict):
            return line
        public = self.admitted(agent_id, update)
        if public is None:
            return None
        self._write_down(public, updated(update))
        return _line(self.for_client(message), message, line)

    def _agent_asks(self, message: Message, line: bytes, method: str, params: Message) -> bytes:
        if "id" in message:
            asked = Pending(message["id"], method, self.public_id(params.get("sessionId")), params)
            self.from_agent[key_of(message["id"])] = asked
            self._write_down(asked.session_id, asked_by_agent(asked))
        return _line(self.for_client(message), message, line)

    def _agent_answers(self, message: Message, line: bytes) -> bytes | None:
        if self.is_ours(message):
            return None
        pending = self.from_client.pop(key_of(message.get("id")), None)
        if pending is None:
            return line
        result = message.get("result")
        if pending.method == "initialize" and isinstance(result, dict):
            return self._initialized(message, result)
        if pending.method == "session/new" and isinstance(result, dict):
            made = self.began(pending, result)
            return line if made is result else encode({**message, "result": made})
        self._write_down(pending.session_id, answered_by_agent(pending, message, at=stamp()))
        if pending.method == "session/prompt" and (journal := self.journals.open.get(pending.session_id or "")):
            journal.checkpoint()
        return line

    def began(self, pending: Pending, result: Message) -> Message:
        """A session was made; what the client hears of it. Replaced by `sessions.Sessions`."""
        _ = pending
        return result

    def _initialized(self, message: Message, result: Message) -> bytes:
        self.transparent = not self.introduced(result)
        return encode(message if self.transparent else {**message, "result": offered(result)})


def _line(passed: Message, message: Message, line: bytes) -> bytes:
    """The line as it came, unless the message had to change."""
    return line if passed is message else encode(passed)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _READ)
    except OSError:
        return b""
