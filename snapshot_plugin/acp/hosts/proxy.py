"""The proxy: a client on two file descriptors, the agent in a process, and the core between them.

Two pumps, one for each direction. Bytes are passed on as they came unless the core says otherwise. What arrived in
one read is spooled in one write before any of it goes on, and synced first if something in it must be durable. The
core is called under one lock, during which nothing blocks: syncing, writing and the store's work happen outside it.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from snapshot_plugin.acp.actions import (
    PASS,
    Actions,
    Checkpoint,
    GiveUp,
    PassAs,
    RecordEvent,
    Restart,
    RunBlocking,
    Say,
    ToAgent,
    ToClient,
)
from snapshot_plugin.acp.core import Core
from snapshot_plugin.acp.hosts.chain import ChainLink
from snapshot_plugin.acp.hosts.process import AgentProcess, Outbox, QueuedWrite, return_large_blocks
from snapshot_plugin.acp.messages import Lines, Message, TextRuns, encode, notification, parse
from snapshot_plugin.acp.methods import SessionMethods
from snapshot_plugin.acp.supervise import Supervision
from snapshot_plugin.acp.transcript import plain
from snapshot_plugin.errors import EXIT_CODES, AgentUnavailable, Fenced, InvalidInput
from snapshot_plugin.inert import for_terminal
from snapshot_plugin.live.session import LiveSession
from snapshot_plugin.live.sessions import LiveSessions

__all__ = ["Proxy"]

_READ = 1 << 20
_SOONER = 0.005
_SETTLE = 0.5
Agent = AgentProcess | ChainLink


class _Batch:
    """The core's actions for the messages of one read."""

    def __init__(self) -> None:
        self.records: dict[str, list[dict[str, Any]]] = {}
        self.durable: set[str] = set()
        self.to_client: list[bytes] = []
        self.to_agent: list[bytes] = []
        self.later: list[Checkpoint | Say | RunBlocking | Restart | GiveUp] = []

    def add(
        self,
        actions: Actions,
        passed: list[bytes],
        line: bytes = b"",
        under: Callable[[str], bytes] | None = None,
    ) -> None:
        """Take actions in; *passed* is where a message goes on: as *line*, or *under* another id of its session."""
        for action in actions:
            if action is PASS:
                passed.append(line)
            elif type(action) is RecordEvent:
                session_id, event, durable = action
                events = self.records.get(session_id)
                if events is None:
                    self.records[session_id] = [event]
                else:
                    events.append(event)
                if durable:
                    self.durable.add(session_id)
            elif type(action) is PassAs and under is not None:
                passed.append(under(action.session_id))
            elif type(action) is ToClient:
                self.to_client.append(encode(action.message))
            elif type(action) is ToAgent:
                self.to_agent.append(encode(action.message))
            else:
                self.later.append(action)  # type: ignore[arg-type]  # nothing else is left


class Proxy:
    """One client's connection, from its beginning to its end.

    Args:
        command: the agent's, for restarts.
        sessions: where sessions are recorded.
        methods: what is answered here.
        client_in, client_out: file descriptors.
        require: the least grade a restore may have.
        patience: seconds the agent may take over a request of ours.
        observed: called with a session's id and each update that was recorded of it; must not block or raise.
    """

    def __init__(
        self,
        command: Sequence[str],
        sessions: LiveSessions,
        methods: SessionMethods,
        *,
        client_in: int,
        client_out: int,
        require: str = "context",
        patience: float = 60.0,
        observed: Callable[[str, Message], object] | None = None,
    ) -> None:
        self._command, self._sessions = tuple(command), sessions
        self._observed = observed
        self._core = Core(
            view=lambda session_id: sessions.open[session_id].snapshot(),
            methods=methods.by_name(),
            command=command,
            require=require,
            patience=patience,
        )
        self._supervision = Supervision(self._core, restarts=bool(command))
        sessions.overtaken = self._stop
        self._in, self._out = client_in, client_out
        self._agent: Agent | None = None
        self._restart: float | None = None
        self._status, self._is_over = 0, False
        self._lock, self._starting = threading.Lock(), threading.Lock()
        self._client_out = Outbox(self._write_client, "client")
        self._agent_out = Outbox(self._write_agent, "agent")
        self._troubled: set[str] = set()
        self._tick_due = threading.Event()
        self._wakes_at = math.inf
        self.closing = threading.Event()

    def run(self, agent: Agent) -> int:
        """Relay until the client hangs up. Returns 0 unless the agent kept dying or a save failed."""
        self._agent = agent
        return_large_blocks()
        if isinstance(agent, ChainLink):
            agent.to_conductor = lambda data: self._send(self._client_out, data)
        for name, work in (("client", self._pump_client), ("agent", self._keep_agent), ("clock", self._keep_time)):
            threading.Thread(target=work, daemon=True, name=f"asnap {name}").start()
        self.closing.wait()
        return self.end()

    def end(self) -> int:
        """End the agent, save every session for the last time, and say what could not be saved."""
        self.closing.set()
        self._client_out.close()
        self._agent_out.close()
        self._tick_due.set()
        with self._starting:
            if self._agent is not None:
                self._agent.end(patience=1.0)
        with self._lock:
            self._is_over = True  # what is still to be read of the agent can be neither recorded nor shown
        for outcome in self._sessions.close():
            if outcome.status == "failed":
                self._say(f"session {outcome.session_id} is not saved: {outcome.problem}. Its spool is kept.")
                self._status = self._status or EXIT_CODES.get(outcome.code, 1)
        return self._status

    # The pumps --------------------------------------------------------------------------------------------

    def _pump_client(self) -> None:
        lines = Lines()
        while not self.closing.is_set() and (data := _read(self._in)):
            for line in lines.feed(data):
                self._client_line(line)
        self.closing.set()

    def _client_line(self, line: bytes) -> None:
        message = parse(line)
        if isinstance(self._agent, ChainLink) and message is not None:
            plain_message = self._agent.unwrapped(message)
            if plain_message is None:
                return
            if plain_message is not message:
                message, line = plain_message, encode(plain_message)
        if message is None:
            self._send(self._agent_out, line)
            self._agent_out.drain()
            return
        self._carry_out(partial(self._core.from_client, message), line, is_client=True)
        self._agent_out.drain()
        self._agent_out.wait_for_room()

    def _pump_agent(self, agent: Agent) -> None:
        runs = TextRuns(self._core.joins)
        while data := agent.read():
            batch = _Batch()
            with self._lock:
                for message, line in runs.read(data):
                    if message is None:
                        self._say(f"the agent wrote something that is not ACP: {line[:200]!r}")
                    else:
                        under = partial(runs.under, message=message, data=line)
                        batch.add(self._core.from_agent(message), batch.to_client, line, under)
                slots = self._commit(batch)
            self._finish(batch, slots)
            if self._observed is not None:
                self._observe(batch, self._observed)
            if batch.to_agent:
                self._agent_out.drain_elsewhere()
            self._client_out.drain()
            self._client_out.wait_for_room()

    def _observe(self, batch: _Batch, observed: Callable[[str, Message], object]) -> None:
        for session_id, events in batch.records.items():
            for event in events:
                if isinstance(update := event.get("update"), dict):
                    observed(session_id, update)

    def _keep_agent(self) -> None:
        """Read what the agent says; when it ends, start it again. The system ends an agent with this thread."""
        while (agent := self._agent) is not None and not self.closing.is_set():
            self._pump_agent(agent)
            if self.closing.is_set() or isinstance(agent, ChainLink):
                return
            if self._restart is None:
                self._carry_out(self._agent_ended)
            agent.end(patience=0.2)
            while self._restart is not None and not self._start_again():
                self._carry_out(self._agent_ended)

    def _agent_ended(self) -> Actions:
        """Discard unwritten data: it must not reach the next agent process.

        A write to a dead agent fails immediately.
        """
        lines = self._agent_out.reclaim(_SETTLE).splitlines()
        unsent = [message for line in lines if (message := parse(line)) is not None]
        answered = [action for message in unsent for action in self._core.unsent(message)]
        return answered + self._supervision.agent_ended()

    def _start_again(self) -> bool:
        delay, self._restart = self._restart or 0.0, None
        if self.closing.wait(delay):
            return True
        with self._starting:
            if self.closing.is_set():
                return True
            try:
                self._agent = AgentProcess(self._command)
            except AgentUnavailable as error:
                self._say(error.message)
                return False
        self._carry_out(self._supervision.agent_started)
        return True

    def _keep_time(self) -> None:
        core = self._core
        while not self.closing.is_set():
            seconds = core.next_tick()
            self._wakes_at = math.inf if seconds is None else core.now() + seconds
            self._tick_due.wait(seconds)
            self._tick_due.clear()
            if core.now() >= self._wakes_at and not self.closing.is_set():
                self._carry_out(lambda: core.tick(core.now()))

    # Carrying actions out ---------------------------------------------------------------------------------

    def _carry_out(self, decide: Callable[[], Actions], line: bytes = b"", *, is_client: bool = False) -> None:
        """Ask the core and do what it says. Only the client's pump may block on the agent, and only it drains."""
        batch = _Batch()
        with self._lock:
            batch.add(decide(), batch.to_agent, line)
            slots = self._commit(batch)
        self._finish(batch, slots)
        if batch.to_client:
            self._client_out.drain_elsewhere()
        if batch.to_agent and not is_client:
            self._agent_out.drain_elsewhere()

    def _commit(self, batch: _Batch) -> list[QueuedWrite]:
        """Spool and reduce, and take a place in the order of what is sent. Under the lock; does not block."""
        if self._is_over:
            return []
        for session_id, events in batch.records.items():
            live = self._sessions.open.get(session_id)
            if live is not None:
                self._record(live, events, batch)
        is_ready = not batch.durable
        sides = ((self._client_out, batch.to_client), (self._agent_out, batch.to_agent))
        return [side.add(b"".join(data), is_ready=is_ready) for side, data in sides if data]

    def _record(self, live: LiveSession, events: list[dict[str, Any]], batch: _Batch) -> None:
        try:
            live.record_all(events)
        except InvalidInput:  # a number that JSON cannot carry
            live.record_all([plain(event) for event in events])
        if (live.trouble is not None) != (live.session_id in self._troubled):
            batch.to_client.append(encode(self._recorded(live)))

    def _recorded(self, live: LiveSession) -> Message:
        """Tell the client whether the session is recorded."""
        self._troubled ^= {live.session_id}
        problem = {"problem": str(live.trouble)} if live.trouble else {}
        meta = {"asnap": {"recorded": live.trouble is None, **problem}}
        update = {"sessionUpdate": "session_info_update", "_meta": meta}
        return notification("session/update", {"sessionId": live.session_id, "update": update})

    def _finish(self, batch: _Batch, slots: Iterable[QueuedWrite]) -> None:
        """Make durable what must be, then release what waits for that. Outside the lock."""
        for session_id in batch.durable:
            live = self._sessions.open.get(session_id)
            if live is not None and not live.flush() and not live.is_recorded:
                live.save()
        for slot in slots:
            slot.is_ready = True
        for action in batch.later:
            self._do(action)
        if self._core.jobs.asks or self._core.jobs.waits:
            seconds = self._core.next_tick()
            if seconds is not None and self._core.now() + seconds < self._wakes_at - _SOONER:
                self._tick_due.set()

    def _do(self, action: Checkpoint | Say | RunBlocking | Restart | GiveUp) -> None:
        if isinstance(action, Checkpoint):
            if live := self._sessions.open.get(action.session_id):
                live.checkpoint()
        elif isinstance(action, Say):
            self._say(f"{action.text}: {action.words}" if action.words else action.text)
        elif isinstance(action, RunBlocking):
            threading.Thread(target=self._work, args=action, daemon=True, name="asnap work").start()
        elif isinstance(action, Restart):
            self._restart = action.delay
            if threading.current_thread().name != "asnap agent" and isinstance(self._agent, AgentProcess):
                self._agent.signal(9)  # it does not answer; its pump sees that it ended
        else:
            self._say(action.text)
            self._status = self._status or EXIT_CODES[AgentUnavailable.code]
            self._client_out.drain()
            self.closing.set()

    def _stop(self, live: LiveSession) -> None:
        """Another process took the session over. Kill the agent, so that no tool runs in both, and end.

        What the client waits for is answered when the agent's pump sees that the agent ended.
        """
        self._status = EXIT_CODES[Fenced.code]
        self._supervision.stopped = f"another process took session {live.session_id} over; the agent was stopped"
        if isinstance(self._agent, AgentProcess):
            self._agent.signal(9)
        else:
            self.closing.set()

    def _work(self, number: int, run: Callable[[LiveSessions], Any]) -> None:
        try:
            result = run(self._sessions)
        except BaseException as error:  # noqa: BLE001 — whoever asked is told
            failed = error
            self._carry_out(lambda: self._core.done(number, error=failed))
        else:
            self._carry_out(lambda: self._core.done(number, result))

    # Writing ----------------------------------------------------------------------------------------------

    def _send(self, side: Outbox, data: bytes) -> None:
        side.add(data, is_ready=True)
        if side is self._client_out:
            side.drain_elsewhere()

    def _write_client(self, data: bytes) -> bytes:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._out, view) :]
        except OSError:
            self.closing.set()
        return b""

    def _write_agent(self, data: bytes) -> bytes:
        agent = self._agent
        return agent.send(data) if agent is not None else b""  # if it is gone, its pump notices

    def _say(self, text: str) -> None:
        """A line for the person who watches: on stderr, never on stdout."""
        sys.stderr.write(for_terminal(f"asnap: {text}\n"))
        sys.stderr.flush()


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _READ)
    except OSError:
        return b""
