"""A recorded session, brought back in an agent: the ladder, the session's name there, its settings, the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from snapshot_plugin.adapters.acp.ladder import AgentRefused, Restored, climb
from snapshot_plugin.adapters.acp.link import Link
from snapshot_plugin.adapters.acp.settings import missing_settings, with_setting
from snapshot_plugin.acp.messages import Message
from snapshot_plugin.model.snapshot import SessionSnapshot

__all__ = ["Record", "restore"]


class Record(Protocol):
    """The record of one live session."""

    session_id: str

    def snapshot(self) -> SessionSnapshot:
        """The session as recorded so far."""

    def record(self, event: Mapping[str, Any], *, durable: bool = False) -> None:
        """Write an event ahead, then take it in."""


def restore(
    link: Link, live: Record, params: Message, *, require: str, may_load: bool = True
) -> tuple[Restored, Message]:
    """Walk the ladder for a session, re-apply its settings, and say how it went.

    Blocks its thread while the agent works. What the model must be told waits in ``link.notes``.

    Args:
        link: the agent.
        live: the session's record.
        params: ``cwd``, ``mcpServers`` and so on, for the agent.
        require: the least that is accepted, as in `ladder.climb`.
        may_load: whether the agent may be asked to bring it back by itself; not again, if it died of that.

    Raises:
        FidelityNotMet: no rung is good enough.
        AgentRefused: not even a new session could be made.
    """
    record = live.snapshot()
    link.expect_repetition(live.session_id, "\n".join(message.text for message in record.messages))
    native = may_load and record.agent is not None and record.agent.name == link.agent_info.name
    with link.strays_kept():
        restored = climb(link, record, params, native=native, require=require)
        link.bind(live.session_id, restored.agent_session_id)
    live.record(link.agent_event(restored.agent_session_id), durable=True)
    if restored.note:
        link.notes[live.session_id] = restored.note
    restored, differences = _reapply(link, record, restored)
    report = {**restored.report(record), "differences": differences}
    live.record({"config": restored.result, "restored": report})
    return restored, report


def _reapply(link: Link, record: SessionSnapshot, restored: Restored) -> tuple[Restored, list[str]]:
    """Set mode and options as they were. Returns how it stands then, and what could not be set."""
    result, differences = restored.result, []
    for method, params in missing_settings(record, result):
        try:
            answer = link.ask(method, {"sessionId": restored.agent_session_id, **params})
            result = with_setting(result, params, answer)
        except AgentRefused as refused:
            differences.append(f"{method} {params}: {refused}")
    return restored._replace(result=result), differences
