"""The sessions of one connection: which of the author's sessions is which of ours, and what each must be told."""

from __future__ import annotations

from typing import Any

from snapshot_plugin.acp.state import stored_setup
from snapshot_plugin.model.snapshot import AgentInfo

__all__ = ["Book"]

Json = dict[str, Any]


class Book:
    """Ids on both sides. The client knows a session by our id for ever; the author's code by the one it made.

    A session that comes back is a new one to the author's code. Agents count their sessions from 0 in each process,
    so the id of an old one may belong to another by now.
    """

    def __init__(self, agent: AgentInfo) -> None:
        self.agent = agent
        """Who the agent says it is."""
        self.client: Json = {}
        """The capabilities of the client."""
        self.notes: dict[str, str] = {}
        """By our id: what goes with the next prompt."""
        self._authors: dict[str, str] = {}
        self._ours: dict[str, str] = {}
        self._over: set[str] = set()
        self._been_here: set[str] = set()

    def first_event(self, authors_id: str, params: Json, result: Json) -> Json:
        """What is written down of a session that begins."""
        return {"agent": self.has_it(authors_id), "new": stored_setup(params), "config": result}

    def has_it(self, authors_id: str) -> Json:
        """That this agent has the session now, by which id its code knows it, and that it can bring it back."""
        return {"sessionId": authors_id, "info": self.agent.raw(), "able": {"load": True, "resume": True}}

    def bind(self, session_id: str, authors_id: str) -> None:
        """From now on our *session_id* is the author's *authors_id*."""
        self.forget(session_id)
        self._been_here.add(session_id)
        self._authors[session_id] = authors_id
        self._ours[authors_id] = session_id
        self._over.discard(authors_id)

    def forget(self, session_id: str) -> None:
        """The session is over for this connection."""
        self.notes.pop(session_id, None)
        authors_id = self._authors.pop(session_id, None)
        if authors_id is not None:
            del self._ours[authors_id]
            self._over.add(authors_id)

    def authors_id(self, session_id: str) -> str | None:
        """The author's id for our session; None if this connection has no such session."""
        return self._authors.get(session_id)

    def our_id(self, authors_id: str) -> str | None:
        """Our id for the author's session."""
        return self._ours.get(authors_id)

    def has_been_here(self, session_id: str) -> bool:
        """Whether this connection has, or ever had, this session of ours."""
        return session_id in self._been_here

    def is_over(self, authors_id: str) -> bool:
        """Whether the author's code still talks about a session that was closed."""
        return authors_id in self._over
