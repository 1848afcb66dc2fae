"""When the agent dies: settle what waits for it, start it again, bring its sessions back, keep the client."""

from __future__ import annotations

import threading
import time
from collections import deque

from snapshot_plugin.adapters.acp.chain import ChainLink
from snapshot_plugin.adapters.acp.journal import Journal, stamp
from snapshot_plugin.adapters.acp.ladder import AgentRefused
from snapshot_plugin.adapters.acp.launch import AgentProcess
from snapshot_plugin.acp.messages import Pending
from snapshot_plugin.adapters.acp.sessions import Sessions
from snapshot_plugin.acp.messages import INTERNAL_ERROR, encode, failure, notification
from snapshot_plugin.errors import AgentUnavailable, SnapshotError
from snapshot_plugin.model.content import ToolCallBlock
from snapshot_plugin.model.repair import repair

__all__ = ["Revival"]

_DEATHS, _WITHIN = 4, 60.0
_PAUSES = (0.0, 0.2, 1.0, 3.0)


class Revival(Sessions):
    """A proxy whose agent may die. `run` carries one client's connection from its beginning to its end."""

    _deaths: deque[float]

    def run(self, agent: AgentProcess | ChainLink) -> int:
        """Relay until the client leaves. Returns the exit status: 0, or 9 when the agent kept dying."""
        self._deaths = deque(maxlen=_DEATHS)
        self.agent = agent
        if isinstance(agent, ChainLink):
            agent.to_conductor = self.to_client
        self.ready.set()
        threading.Thread(target=self.pump_client, daemon=True, name="asnap client").start()
        pump = threading.Thread(target=self._keep_agent, daemon=True, name="asnap agent")
        pump.start()
        self.closing.wait()
        self.agent.end(patience=1.0)
        pump.join(5.0)
        self.journals.finish_all()
        return self._status

    _status = 0

    def _keep_agent(self) -> None:
        while (agent := self.agent) and not self.closing.is_set():
            self.pump_agent(agent)
            if self.closing.is_set():
                return
            self.ready.clear()
            status = agent.end(patience=0.2)
            waiting = list(self.from_client.values())
            self._mourn(status)
            try:
                self.agent = self._again()
            except AgentUnavailable as error:
                self._give_up(waiting, error)
                return
            threading.Thread(target=self._settle_in, args=(waiting,), daemon=True, name="asnap revival").start()

    def _mourn(self, status: int) -> None:
        """Close what was open: turns are interrupted, running tools failed, nobody waits for an answer any more."""
        self.say(f"the agent ended with status {status}; starting it again")
        self.from_client.clear()
        self.from_agent.clear()
        self.fail_waiters("the agent ended")
        for journal in list(self.journals.open.values()):
            if journal.running:
                self._close_tools(journal)
                journal.record({"interrupted": "the agent died", "t": stamp()}, durable=True)
                journal.checkpoint()

    def _close_tools(self, journal: Journal) -> None:
        record = journal.snapshot()
        mended, _ = repair(record)
        for before, after in zip(record.messages, mended.messages, strict=False):
            for old, new in zip(before.content, after.content, strict=True):
                if old is not new and isinstance(new, ToolCallBlock):
                    fields = {"toolCallId": new.tool_call_id, "status": "failed", "content": new.raw()["content"]}
                    update = {"sessionUpdate": "tool_call_update", **fields}
                    params = {"sessionId": journal.session_id, "update": update}
                    self.to_client(encode(notification("session/update", params)))

    def _again(self) -> AgentProcess:
        """Start it again, later each time; give up when it dies too often."""
        now = time.monotonic()
        self._deaths.append(now)
        if len(self._deaths) == _DEATHS and now - self._deaths[0] < _WITHIN:
            raise AgentUnavailable(f"the agent died {_DEATHS} times within {_WITHIN:g} s")
        self.closing.wait(_PAUSES[len(self._deaths) - 1])
        return AgentProcess(self.command)

    def _settle_in(self, waiting: list[Pending]) -> None:
        """Bring the new run to where the old one was, then tell those who waited how it stands."""
        grades: dict[str, str] = {}
        try:
            if self.initialize_params is not None:
                answer = self.ask("initialize", self.initialize_params)
                self.capabilities = dict(answer.get("agentCapabilities") or {})
            for journal in list(self.journals.open.values()):
                grades[journal.session_id] = self._bring(journal)
        except AgentRefused:
            return  # it died again: the agent's pump sees that and comes back here with what still waits
        finally:
            for pending in waiting:
                self._tell(pending, grades)
            waiting.clear()
        self.ready.set()

    def _bring(self, journal: Journal) -> str:
        try:
            restored, _ = self.restore(journal, self.setups.get(journal.session_id, {}))
        except SnapshotError as error:
            self.say(f"session {journal.session_id} is not back: {error}")
            return "refused"
        return restored.grade

    def _tell(self, pending: Pending, grades: dict[str, str]) -> None:
        grade = grades.get(pending.session_id or "", "none")
        text = (
            f"the agent died while it worked on {pending.method}; it was started again and the session is back "
            f"({grade}). Nothing was re-run: send it again if you want it."
        )
        data = {"sessionId": pending.session_id, "asnap": {"restored": {"grade": grade}}}
        self.to_client(encode(failure(pending.id, INTERNAL_ERROR, text, data)))

    def _give_up(self, waiting: list[Pending], error: AgentUnavailable) -> None:
        command = " ".join(self.command)
        hints = [f"asnap run --session {session_id} -- {command}" for session_id in self.journals.open]
        text = f"{error.message}. The sessions are safe. Resume with: {' | '.join(hints) or command}"
        self.say(text)
        for pending in waiting:
            self.to_client(encode(failure(pending.id, INTERNAL_ERROR, text, {"sessionId": pending.session_id})))
        self._status = 9
        self.closing.set()
