"""How a session comes back in an agent: natively where that works and is verified, as context where it does not.

=================  ========================================  ==================================================
grade              when                                      how
=================  ========================================  ==================================================
``native-load``    the agent advertises load, and its        it loads; its replay is compared and withheld
                   replay has every finished turn
``native-resume``  it advertises resume                      it resumes; there is nothing to compare
``context``        neither, or the load came back blank,     a new session; the next prompt carries the
                   partial or failed                         conversation, bounded
=================  ========================================  ==================================================

Every rung that was tried is in the report. Nothing is ever re-run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, Protocol

from snapshot_plugin.acp.compare import Verdict, compare
from snapshot_plugin.acp.notes import lost_note, transcript_note
from snapshot_plugin.errors import FidelityNotMet
from snapshot_plugin.model.repair import repair
from snapshot_plugin.model.snapshot import Message, SessionSnapshot

__all__ = ["AgentRefused", "Collect", "Connection", "Grade", "Restored", "Updates", "climb", "meets"]

Grade = Literal["native-load", "native-resume", "context"]
_MEETS = {
    "exact": ("native-load",),
    "history": ("native-load", "native-resume"),
    "context": ("native-load", "native-resume", "context"),
}
NOTE_LIMIT = 60_000

Updates = list[dict[str, Any]]
Collect = Callable[[Callable[[Updates], bool]], Updates]


class AgentRefused(Exception):
    """The agent answered a request of ours with an error, or not at all."""

    def __init__(self, text: str, error: dict[str, Any] | None = None) -> None:
        super().__init__(text)
        self.error = error or {}


class Connection(Protocol):
    """What the ladder needs of the agent."""

    capabilities: dict[str, Any]

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait, bounded; `AgentRefused` for an error."""

    def withheld(self, agent_session_id: str) -> AbstractContextManager[Collect]:
        """Keep the session's updates from the client. The function waits for late ones until it is told enough."""


class Restored(NamedTuple):
    """How a session came back."""

    grade: Grade
    agent_session_id: str
    result: dict[str, Any]
    note: str | None
    tried: tuple[str, ...]

    def report(self, record: SessionSnapshot) -> dict[str, Any]:
        """What `_meta` and stderr say about it."""
        _, notices = repair(record)
        return {
            "grade": self.grade,
            "messages": len(record.messages),
            "tried": list(self.tried),
            "notices": [notice.detail for notice in notices],
        }


def climb(
    agent: Connection, record: SessionSnapshot, params: dict[str, Any], *, native: bool, require: str
) -> Restored:
    """Walk the ladder from the top for *record*; *params* are the client's (cwd, servers).

    Args:
        agent: the connection.
        record: the session as recorded.
        params: ``cwd``, ``mcpServers`` and so on, as the client sent them for this restore.
        native: whether the record's agent session can be this agent's at all.
        require: ``exact``, ``history`` or ``context``: the least that is accepted.

    Raises:
        FidelityNotMet: no rung is good enough.
        AgentRefused: not even a new session could be made.
    """
    tried: list[str] = []
    for rung in (_load, _resume) if native and record.agent_session_id else ():
        restored = rung(agent, record, params, tried)
        if restored:
            return _demanded(restored, record, require)
    if require != "context":
        raise FidelityNotMet(
            f"session {record.session_id} is not back as {require}: {'; '.join(tried) or 'another agent had it'}",
            session_id=record.session_id,
        )
    result = agent.ask("session/new", {"mcpServers": [], **_without_session(params)})
    note = transcript_note(record, limit=NOTE_LIMIT) if record.messages else None
    return Restored("context", str(result.get("sessionId", "")), result, note, tuple(tried))


def meets(grade: str, require: str) -> bool:
    """Whether a grade is as faithful as is demanded: ``exact``, ``history`` or ``context``."""
    return grade in _MEETS[require]


def _demanded(restored: Restored, record: SessionSnapshot, require: str) -> Restored:
    if not meets(restored.grade, require):
        raise FidelityNotMet(
            f"session {record.session_id} came back only with grade {restored.grade}", session_id=record.session_id
        )
    return restored


def _load(agent: Connection, record: SessionSnapshot, params: dict[str, Any], tried: list[str]) -> Restored | None:
    if agent.capabilities.get("loadSession") is not True:
        tried.append("load: not advertised")
        return None
    session_id = record.agent_session_id or ""
    with agent.withheld(session_id) as collect:
        try:
            result = agent.ask("session/load", {"mcpServers": [], **params, "sessionId": session_id})
        except AgentRefused as refused:
            tried.append(f"load: failed ({refused})")
            return None
        seen = collect(lambda updates: compare(record, updates).kind == "whole")
        verdict = compare(record, seen)
    if verdict.kind != "whole":
        tried.append(f"load: came back {verdict.kind}, {len(verdict.missing)} message(s) missing")
        return None
    tried.append("load: whole")
    return Restored("native-load", session_id, result, _lost(record, verdict), tuple(tried))


def _resume(
    agent: Connection, record: SessionSnapshot, params: dict[str, Any], tried: list[str]
) -> Restored | None:
    if (agent.capabilities.get("sessionCapabilities") or {}).get("resume") is None:
        tried.append("resume: not advertised")
        return None
    if any(step.startswith("load: came back") for step in tried):
        tried.append("resume: not tried, the agent has lost the conversation")
        return None
    session_id = record.agent_session_id or ""
    with agent.withheld(session_id) as collect:
        try:
            result = agent.ask("session/resume", {"mcpServers": [], **params, "sessionId": session_id})
        except AgentRefused as refused:
            tried.append(f"resume: failed ({refused})")
            return None
        collect(lambda _updates: True)
    tried.append("resume: accepted")
    return Restored("native-resume", session_id, result, _lost(record, None), tuple(tried))


def _lost(record: SessionSnapshot, verdict: Verdict | None) -> str | None:
    """What to tell the model: what the replay lacked, or (with no replay to judge by) the turn that was cut off."""
    missing = verdict.missing if verdict else tuple(_cut_off(record))
    return lost_note(missing, limit=NOTE_LIMIT) if missing else None


def _cut_off(record: SessionSnapshot) -> Iterator[Message]:
    for message in record.messages[-2:]:
        if "interrupted" in (message.metadata.get("acp") or {}):
            yield from record.messages[-2:]
            return


def _without_session(params: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in params.items() if key not in ("sessionId", "_meta")}
