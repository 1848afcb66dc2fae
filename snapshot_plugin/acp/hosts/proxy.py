"""The proxy: a client on two file descriptors, the agent in a process, and the core between them.

Two pumps, one for each direction. `Relay` passes on what they read; the proxy starts and ends the agent, restarts
it when it dies, and does what the core wants done elsewhere.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from snapshot_plugin.acp.actions import Actions, Checkpoint, GiveUp, Restart, RunBlocking, Say
from snapshot_plugin.acp.core import Core
from snapshot_plugin.acp.hosts.chain import ChainLink
from snapshot_plugin.acp.hosts.process import AgentProcess, return_large_blocks
from snapshot_plugin.acp.hosts.relay import Relay
from snapshot_plugin.acp.messages import Lines, Message, encode, parse
from snapshot_plugin.acp.methods import SessionMethods
from snapshot_plugin.acp.supervise import Supervision
from snapshot_plugin.errors import EXIT_CODES, AgentUnavailable, Fenced
from snapshot_plugin.inert import for_terminal
from snapshot_plugin.live.session import LiveSession
from snapshot_plugin.live.sessions import LiveSessions

__all__ = ["Proxy"]

_READ = 1 << 20
_SETTLE = 0.5
Agent = AgentProcess | ChainLink


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
        self._core = Core(
            view=lambda session_id: sessions.open[session_id].snapshot(),
            methods=methods.by_name(),
            command=command,
            require=require,
            patience=patience,
            clock=sessions.clock,
        )
        self._supervision = Supervision(self._core, restarts=bool(command))
        sessions.overtaken = self._stop
        self._in = client_in
        self._agent: Agent | None = None
        self._restart: float | None = None
        self._status = 0
        self._starting = threading.Lock()
        self.closing = threading.Event()
        self._relay = Relay(
            self._core,
            sessions,
            client_out=client_out,
            write_agent=self._write_agent,
            hung_up=self.closing.set,
            do=self._do,
            said=self._say,
            observed=observed,
        )

    def run(self, agent: Agent) -> int:
        """Relay until the client hangs up. Returns 0 unless the agent kept dying or a save failed."""
        self._agent = agent
        return_large_blocks()
        if isinstance(agent, ChainLink):
            agent.to_conductor = self._relay.send_client
        keep_time = self._relay.keep_time
        for name, work in (("client", self._pump_client), ("agent", self._keep_agent), ("clock", keep_time)):
            threading.Thread(target=work, daemon=True, name=f"asnap {name}").start()
        self.closing.wait()
        return self.end()

    def end(self) -> int:
        """End the agent, save every session for the last time, and say what could not be saved."""
        self.closing.set()
        self._relay.close()
        with self._starting:
            if self._agent is not None:
                self._agent.end(patience=1.0)
        self._relay.stop()  # what is still to be read of the agent can be neither recorded nor shown
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
            self._relay.to_agent.add(line, is_ready=True)
            self._relay.to_agent.drain()
            return
        self._relay.carry_out(partial(self._core.from_client, message), line, is_client=True)
        self._relay.to_agent.drain()
        self._relay.to_agent.wait_for_room()

    def _keep_agent(self) -> None:
        """Read what the agent says; when it ends, start it again. The system ends an agent with this thread."""
        while (agent := self._agent) is not None and not self.closing.is_set():
            self._relay.pump_agent(agent.read)
            if self.closing.is_set() or isinstance(agent, ChainLink):
                return
            if self._restart is None:
                self._relay.carry_out(self._agent_ended)
            agent.end(patience=0.2)
            while self._restart is not None and not self._start_again():
                self._relay.carry_out(self._agent_ended)

    def _agent_ended(self) -> Actions:
        """Discard unwritten data: it must not reach the next agent process.

        A write to a dead agent fails immediately.
        """
        lines = self._relay.to_agent.reclaim(_SETTLE).splitlines()
        unsent = [message for line in lines if (message := parse(line)) is not None]
        answered = [action for message in unsent for action in self._supervision.unsent(message)]
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
        self._relay.carry_out(self._supervision.agent_started)
        return True

    # Carrying actions out ---------------------------------------------------------------------------------

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
            self._relay.to_client.drain()
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
            self._relay.carry_out(lambda: self._core.done(number, error=failed))
        else:
            self._relay.carry_out(lambda: self._core.done(number, result))

    # Writing ----------------------------------------------------------------------------------------------

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
