"""The proxy: a client on two file descriptors, the agent in a process, and the core between them.

`Relay` forwards messages and carries out the core's actions; the proxy starts and ends the agent's process, and
restarts it when it dies.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from snapshot_plugin.acp.actions import Actions, GiveUp, Restart
from snapshot_plugin.acp.core import Core
from snapshot_plugin.acp.hosts.chain import ChainLink
from snapshot_plugin.acp.hosts.relay import Relay
from snapshot_plugin.acp.messages import LINE_BYTES, parse
from snapshot_plugin.acp.methods import SessionMethods
from snapshot_plugin.acp.supervise import Supervision
from snapshot_plugin.errors import EXIT_CODES, AgentUnavailable, Fenced
from snapshot_plugin.inert import say
from snapshot_plugin.live.session import LiveSession
from snapshot_plugin.live.sessions import LiveSessions
from snapshot_plugin.system.processes import AgentProcess, return_large_blocks

__all__ = ["Proxy"]

_SETTLE = 0.5
Agent = AgentProcess | ChainLink


class Proxy:
    """One client's connection, from start to end.

    Args:
        command: the agent's command, for restarts.
        sessions: records the sessions.
        methods: the methods answered here.
        client_in, client_out: the client's file descriptors.
        require: the lowest accepted grade of a restore.
        timeout: for our requests to the agent, in seconds.
        must_record, on_unrecorded: see `Core`.
        line_bytes: see `Relay`.
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
        timeout: float = 60.0,
        must_record: bool = False,
        on_unrecorded: Callable[[str], object] = lambda _why: None,
        line_bytes: int = LINE_BYTES,
    ) -> None:
        self._command, self._sessions = tuple(command), sessions
        self._core = Core(
            view=lambda session_id: sessions.open[session_id].snapshot(),
            methods=methods.by_name(),
            adopt=methods.adopt,
            command=command,
            require=require,
            must_record=must_record,
            on_unrecorded=on_unrecorded,
            timeout=timeout,
            clock=sessions.clock,
        )
        self._supervision = Supervision(self._core, restarts=bool(command))
        sessions.overtaken = self._stop
        self._restart: float | None = None
        self._is_read = False
        self._status = 0
        self._starting = threading.Lock()
        self.closing = threading.Event()
        self._relay = Relay(
            self._core,
            sessions,
            client_in=client_in,
            client_out=client_out,
            hung_up=self.closing.set,
            restarts=self._restarts,
            line_bytes=line_bytes,
        )

    def run(self, agent: Agent) -> None:
        """Relay until the client hangs up or the agent cannot be kept running; then call `end`."""
        self._relay.agent = agent
        return_large_blocks()
        if isinstance(agent, ChainLink):
            agent.to_conductor, self._relay.unwrap = self._relay.send_client, agent.unwrapped
        relay = self._relay
        works = [("client", relay.pump_client), ("agent", self._keep_agent), ("clock", relay.keep_time)]
        if self._sessions.is_shared:
            works.append(("lease", relay.watch_lease))
        for name, work in works:
            threading.Thread(target=relay.guard, args=(work,), daemon=True, name=f"asnap {name}").start()
        self.closing.wait()

    def pass_on(self, number: int) -> None:
        """Pass a signal on to the current agent."""
        if self._relay.agent is not None:
            self._relay.agent.signal(number)

    def end(self) -> int:
        """End the agent, save every session a last time, and report sessions that could not be saved.

        Returns 0 unless the agent could not be kept running, a session was taken over, or a save failed.
        """
        self.closing.set()
        self._status = self._status or int(self._relay.has_failed)
        self._relay.close()
        with self._starting:
            if self._relay.agent is not None:
                self._relay.agent.end(patience=1.0)
        self._relay.stop()  # output of the agent that is still unread is neither recorded nor shown
        for outcome in self._sessions.close():
            if outcome.status == "failed":
                say(f"session {outcome.session_id} is not saved: {outcome.problem}")
                self._status = self._status or EXIT_CODES.get(outcome.code, 1)
        return self._status

    # The agent's process ----------------------------------------------------------------------------------

    def _keep_agent(self) -> None:
        """Read the agent's output; restart the agent when it ends."""
        while (agent := self._relay.agent) is not None and not self.closing.is_set():
            self._is_read = True
            self._relay.pump_agent(agent.read)
            self._is_read = False
            if self.closing.is_set() or isinstance(agent, ChainLink):
                return
            if self._restart is None:
                self._relay.carry_out(self._agent_ended)
            agent.end(patience=0.2)
            while self._restart is not None and not self._start_again():
                self._relay.carry_out(self._agent_ended)

    def _agent_ended(self) -> Actions:
        """Handle the end of the agent. Unwritten requests are answered: they must not reach the next agent process.

        A pending write ends soon, because a write to a dead agent fails immediately.
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
                self._relay.agent = AgentProcess(self._command)
            except AgentUnavailable as error:
                say(error.message)
                return False
        self._relay.carry_out(self._supervision.agent_started)
        return True

    def _restarts(self, action: Restart | GiveUp) -> None:
        if isinstance(action, GiveUp):
            say(action.text)
            self._status = self._status or EXIT_CODES[AgentUnavailable.code]
            self._relay.to_client.drain()
            self.closing.set()
            return
        self._restart = action.delay
        if self._is_read and isinstance(self._relay.agent, AgentProcess):
            self._relay.agent.signal(9)  # it does not answer, or refuses; its pump notices that it ended

    def _stop(self, live: LiveSession) -> None:
        """Kill the agent and shut down: another process took the session over, and no tool may run in both.

        Pending requests of the client are answered when the agent's pump notices that the agent ended.
        """
        self._status = EXIT_CODES[Fenced.code]
        self._supervision.stopped = f"another process took session {live.session_id} over; the agent was stopped"
        self._relay.fence(self._supervision.stopped)
        if isinstance(self._relay.agent, AgentProcess):
            self._relay.agent.signal(9)
        else:
            self.closing.set()
