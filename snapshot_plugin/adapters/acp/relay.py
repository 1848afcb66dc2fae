"""The relay: two pumps, one for each direction. Bytes are passed on as they came unless a message must change.

Each line is parsed once. What has to be written down is written down before the line goes on. Requests that we
answer ourselves (restoring, listing, forking, closing, deleting) run in threads of their own, so that the rest
of the traffic goes on meanwhile.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from snapshot_plugin.adapters.acp.chain import ChainLink
from snapshot_plugin.adapters.acp.journal import Journal, Journals, stamp
from snapshot_plugin.adapters.acp.ladder import AgentRefused, Collect, Updates
from snapshot_plugin.adapters.acp.launch import AgentProcess
from snapshot_plugin.adapters.acp.offers import offered
from snapshot_plugin.adapters.acp.requests import Pending, Waiter, key_of
from snapshot_plugin.adapters.acp.traffic import (
    Entry,
    answered_by_agent,
    answered_by_client,
    asked_by_agent,
    is_echoed_note,
    prompted,
    updated,
    with_note,
)
from snapshot_plugin.adapters.acp.wire import Lines, Message, encode, notification, parse, request
from snapshot_plugin.model.snapshot import AgentInfo

__all__ = ["Relay"]

_READ = 1 << 20
_QUIET_FOR, _LATE_AT_MOST = 0.25, 3.0
_STATE_UPDATES = (
    "available_commands_update",
    "current_mode_update",
    "config_option_update",
    "session_info_update",
    "usage_update",
)


class Relay:
    """One client, one agent, any number of sessions. `sessions.Sessions` and `revival.Revival` build on it."""

    def __init__(self, command: Sequence[str], journals: Journals, *, client_in: int, client_out: int) -> None:
        self.command, self.journals = tuple(command), journals
        self.agent: AgentProcess | ChainLink | None = None
        self.agent_info = AgentInfo(command=self.command)
        self.capabilities: dict[str, Any] = {}
        self.client_capabilities: dict[str, Any] = {}
        self.initialize_params: Message | None = None
        self.transparent = False
        self.notes: dict[str, str] = {}
        self.from_client: dict[str, Pending] = {}
        self.from_agent: dict[str, Pending] = {}
        self.ready = threading.Event()
        self.closing = threading.Event()
        self.answered_by_us: dict[str, Callable[[Pending], None]] = {}
        self.patience = 60.0
        self._waiters: dict[str, Waiter] = {}
        self._held: dict[str, Updates] = {}
        self._repeating: dict[str, str] = {}
        self._strays: dict[str, Updates] | None = None
        self._agent_ids: dict[str, str] = {}
        self._public_ids: dict[str, str] = {}
        self._numbers = itertools.count(1)
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

    def ask(self, method: str, params: Message) -> Message:
        """Send a request of our own to the agent and wait, bounded."""
        number = f"asnap-{next(self._numbers)}"
        waiter = self._waiters[number] = Waiter()
        self.to_agent(encode(request(number, method, params)))
        if not waiter.done.wait(self.patience):
            self._waiters.pop(number, None)
            raise AgentRefused(f"no answer to {method} in {self.patience:g} s")
        error = waiter.answer.get("error")
        if error is not None:
            raise AgentRefused(str(error.get("message", error)) if isinstance(error, dict) else str(error), error)
        result = waiter.answer.get("result")
        return result if isinstance(result, dict) else {}

    def fail_waiters(self, why: str) -> None:
        """The agent is gone: nobody will answer these."""
        for number in list(self._waiters):
            waiter = self._waiters.pop(number)
            waiter.answer = {"error": {"message": why}}  # no code: these are not the agent's words
            waiter.done.set()

    def wait_until(self, done: Callable[[], bool]) -> bool:
        """Wait, bounded, for something the pumps bring about."""
        deadline = time.monotonic() + self.patience
        while not done() and time.monotonic() < deadline and not self.closing.is_set():
            self.closing.wait(0.005)
        return done()

    # Names ------------------------------------------------------------------------------------------------

    def bind(self, session_id: str, agent_session_id: str) -> None:
        """From now on the agent knows our *session_id* under its own name."""
        self._public_ids.pop(self._agent_ids.pop(session_id, session_id), None)
        if agent_session_id != session_id:
            self._agent_ids[session_id] = agent_session_id
            self._public_ids[agent_session_id] = session_id
        for update in (self._strays or {}).pop(agent_session_id, []):
            self._pass_on(session_id, update)

    @contextlib.contextmanager
    def strays_kept(self) -> Iterator[None]:
        """While we make a session for the agent, what it says of one nobody knows yet waits for its name."""
        self._strays = {}
        try:
            yield
        finally:
            self._strays = None

    def _pass_on(self, session_id: str, update: Message) -> None:
        self._on_update(session_id, update)
        self.to_client(encode(notification("session/update", {"sessionId": session_id, "update": update})))

    def agent_id(self, session_id: str) -> str:
        """The agent's name for our session."""
        return self._agent_ids.get(session_id, session_id)

    def known_ids(self) -> dict[str, str]:
        """The agent's names that differ from ours."""
        return dict(self._public_ids)

    @contextlib.contextmanager
    def withheld(self, agent_session_id: str) -> Iterator[Collect]:
        """See `ladder.Connection`. Updates of state go on afterwards; updates of conversation do not."""
        held = self._held.setdefault(agent_session_id, [])

        def collect(enough: Callable[[Updates], bool]) -> Updates:
            deadline, quiet_since, seen = time.monotonic() + _LATE_AT_MOST, time.monotonic(), -1
            while not enough(held) and time.monotonic() < deadline:
                if len(held) != seen:
                    seen, quiet_since = len(held), time.monotonic()
                elif time.monotonic() - quiet_since > _QUIET_FOR:
                    break
                self.closing.wait(0.01)
            return list(held)

        try:
            yield collect
        finally:
            self._held.pop(agent_session_id, None)
            public = self._public_ids.get(agent_session_id, agent_session_id)
            for update in held:
                if update.get("sessionUpdate") in _STATE_UPDATES:
                    self._pass_on(public, update)

    def expect_repetition(self, session_id: str, words: str) -> None:
        """Until the next prompt, chunks that repeat *words* are the agent's late replay, not news."""
        self._repeating[session_id] = words

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
        return self._renamed(message, line, params, session_id, self._agent_ids)

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
        self._repeating.pop(session_id, None)
        _write_down(self.journals.open.get(session_id), prompted(params, at=stamp()))
        note = self.notes.pop(session_id, None)
        if note is not None:
            params = with_note(params, note)
            message = {**message, "params": params}
            line = encode(message)
        return self._renamed(message, line, params, session_id, self._agent_ids)

    def _client_answers(self, message: Message, line: bytes) -> bytes | None:
        pending = self.from_agent.pop(key_of(message.get("id")), None)
        if pending is None:
            return None if "id" in message else line  # an answer for an agent that is no more
        _write_down(self.journals.open.get(pending.session_id or ""), answered_by_client(pending, message))
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
        if (held := self._held.get(agent_id)) is not None:
            held.append(update)
            return None
        public = self._public_ids.get(agent_id, agent_id)
        if self._strays is not None and public not in self.journals.open:
            self._strays.setdefault(agent_id, []).append(update)
            return None
        if (words := self._repeating.get(public)) is not None and _repeats(update, words):
            return None
        if is_echoed_note(update):
            return None
        self._on_update(public, update)
        return self._renamed(message, line, params, agent_id, self._public_ids)

    def _on_update(self, session_id: str, update: Message) -> None:
        _write_down(self.journals.open.get(session_id), updated(update))

    def _agent_asks(self, message: Message, line: bytes, method: str, params: Message) -> bytes:
        agent_id = params.get("sessionId")
        public = self._public_ids.get(agent_id, agent_id) if isinstance(agent_id, str) else None
        if "id" in message:
            asked = self.from_agent[key_of(message["id"])] = Pending(message["id"], method, public, params)
            _write_down(self.journals.open.get(public or ""), asked_by_agent(asked))
        return self._renamed(message, line, params, agent_id, self._public_ids)

    def _agent_answers(self, message: Message, line: bytes) -> bytes | None:
        waiter = self._waiters.pop(message["id"], None) if isinstance(message.get("id"), str) else None
        if waiter:
            waiter.answer = message
            waiter.done.set()
            return None
        pending = self.from_client.pop(key_of(message.get("id")), None)
        if pending is None:
            return line
        result = message.get("result")
        if pending.method == "initialize" and isinstance(result, dict):
            return self._initialized(message, result)
        if pending.method == "session/new" and isinstance(result, dict):
            self.began(pending, result)
            return line
        journal = self.journals.open.get(pending.session_id or "")
        _write_down(journal, answered_by_agent(pending, message, at=stamp()))
        if pending.method == "session/prompt" and journal:
            journal.checkpoint()
        return line

    def began(self, pending: Pending, result: Message) -> None:
        """A session was made; replaced by `sessions.Sessions`."""

    def _initialized(self, message: Message, result: Message) -> bytes:
        if result.get("protocolVersion") != 1:
            self.transparent = True
            return encode(message)
        self.capabilities = dict(result.get("agentCapabilities") or {})
        info = result.get("agentInfo")
        known = (
            {key: info[key] for key in ("name", "version") if isinstance(info.get(key), str)}
            if isinstance(info, dict)
            else {}
        )
        self.agent_info = AgentInfo(command=self.command, **known)
        return encode({**message, "result": offered(result)})

    def _renamed(
        self, message: Message, line: bytes, params: Message, session_id: Any, names: dict[str, str]
    ) -> bytes:
        """The line itself, or the message with the session's other name where the two sides use different ones."""
        other = names.get(session_id) if isinstance(session_id, str) else None
        return line if other is None else encode({**message, "params": {**params, "sessionId": other}})


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _READ)
    except OSError:
        return b""


def _write_down(journal: Journal | None, entry: Entry | None) -> None:
    if journal and entry:
        journal.record(entry.event, durable=entry.durable)


def _repeats(update: Message, words: str) -> bool:
    kind = update.get("sessionUpdate")
    if kind in ("tool_call", "tool_call_update", "plan"):
        return True
    content = update.get("content")
    text = content.get("text") if isinstance(content, dict) else None
    return isinstance(text, str) and text.strip() in words
