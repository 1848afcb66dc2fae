"""Our session ids and the agent's. The client knows a session by our id for ever; the agent may have another."""

from __future__ import annotations

from typing import Any

from snapshot_plugin.acp.messages import Message

__all__ = ["IdMap"]


class IdMap:
    """Which of our sessions the agent knows under which id; one without an entry has the same id on both sides."""

    def __init__(self) -> None:
        self._agents: dict[str, str] = {}
        self._ours: dict[str, str] = {}

    def bind(self, session_id: str, agent_id: str) -> None:
        """From now on the agent knows our *session_id* as *agent_id*."""
        self.forget(session_id)
        if agent_id != session_id:
            self._agents[session_id] = agent_id
            self._ours[agent_id] = session_id

    def forget(self, session_id: str) -> None:
        """The agent does not have the session under an id of its own any more."""
        before = self._agents.pop(session_id, None)
        if before is not None and self._ours.get(before) == session_id:
            del self._ours[before]

    def agents(self, session_id: str) -> str:
        """Return the agent's id of our session."""
        return self._agents.get(session_id, session_id)

    def ours(self, agent_id: Any) -> str | None:
        """Return our id of the agent's session; None for what is not an id."""
        return self._ours.get(agent_id, agent_id) if isinstance(agent_id, str) else None

    def for_agent(self, message: Message) -> Message:
        """The message with the agent's session id; the same object if nothing changes."""
        return _renamed(message, self._agents)

    def for_client(self, message: Message) -> Message:
        """The message with our session id; the same object if nothing changes."""
        return _renamed(message, self._ours)


def _renamed(message: Message, names: dict[str, str]) -> Message:
    params = message.get("params")
    session_id = params.get("sessionId") if isinstance(params, dict) else None
    other = names.get(session_id) if isinstance(session_id, str) else None
    return message if other is None or params is None else {**message, "params": {**params, "sessionId": other}}
