"""``loadSession`` and the rest for an agent that is written with the official SDK: one base class, two methods."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from snapshot_plugin.adapters.acp_sdk.agent_book import Book
from snapshot_plugin.adapters.acp_sdk.agent_desk import Desk, Place
from snapshot_plugin.adapters.acp_sdk.agent_sessions import AgentSessions
from snapshot_plugin.adapters.acp_sdk.agent_wire import SessionWire
from snapshot_plugin.errors import MissingExtra
from snapshot_plugin.model.snapshot import AgentInfo, Message

__all__ = ["SnapshotAgentMixin"]


class SnapshotAgentMixin:
    """Sessions that survive: ``class MyAgent(SnapshotAgentMixin, Agent)``, and nothing else needs to change.

    The agent offers ``session/load``, ``resume``, ``list``, ``fork``, ``close`` and ``delete``, whatever transport
    and flags it runs with, and everything it says is on disk before the client has it. Its ``initialize``,
    ``new_session`` and ``prompt`` stay as they are. Its own ``load_session`` and the like are not asked any more.

    A session that comes back is a new one to the agent's code: ``new_session`` is called, and the id it returns
    is the one that `take_back` and ``prompt`` are then called with. The client never sees it change.

    Without the two methods below the model is told the conversation, bounded, with the next prompt. With them
    it is told only what was said since the history was taken: the turn that was cut off, if there is one.
    """

    snapshot_store: Place = None
    """Where sessions are kept: a `FilesystemStore`, its path, a manager; the user's own store by default."""

    def history(self, session_id: str) -> Any:
        """What the agent remembers of the session: a dict of JSON values, or None. May be ``async``.

        Asked for at the end of each turn, before the client hears of the end. It is stored whole each time.
        """

    def take_back(self, session_id: str, history: Any, transcript: Sequence[Message]) -> Any:
        """Remember what `history` returned last, in the new session *session_id*. May be ``async``.

        Args:
            session_id: the id ``new_session`` has just returned.
            history: as it was returned; None in an agent that has no `history` of its own.
            transcript: the conversation as the client saw it, for such an agent.

        Returns:
            False if the agent remembers nothing, so that the model has to be told.
        """
        _ = session_id, history, transcript
        return False

    def on_connect(self, conn: Any) -> None:
        """Called by the SDK; sessions are kept on *conn* from here on."""
        _keep_sessions(self, conn)
        further = getattr(super(), "on_connect", None)
        if further is not None:
            further(conn)

    @property
    def keeps_history(self) -> bool:
        """Whether the agent has a `history` of its own."""
        return type(self).history is not SnapshotAgentMixin.history

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Agents keep their connection in an on_connect of their own, and seldom call the one above.
        if "on_connect" in vars(cls):
            setattr(cls, "on_connect", _connecting(cls.on_connect))  # noqa: B010 — mypy refuses the plain way


def _connecting(on_connect: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    @functools.wraps(on_connect)
    def connect(self: SnapshotAgentMixin, conn: Any) -> None:
        _keep_sessions(self, conn)
        on_connect(self, conn)

    return connect


def _keep_sessions(agent: SnapshotAgentMixin, conn: Any) -> None:
    """Put our transport between the SDK's connection and its own; once, however often it is asked for."""
    try:
        from acp._transport import NdjsonTransport  # noqa: PLC0415 — whoever connects has the SDK

        inner = conn._conn._transport  # noqa: SLF001 — the SDK offers no other way in
    except (ImportError, AttributeError) as error:
        what = f"sessions cannot be kept with this release of agent-client-protocol: {error}"
        raise MissingExtra(what, hint="pip install --upgrade 'snapshot-plugin[acp]'") from error
    if isinstance(inner, SessionWire):
        return
    book, desk = Book(AgentInfo(name=type(agent).__name__)), Desk(agent.snapshot_store)
    wire = SessionWire(inner, book, desk)
    sessions = AgentSessions(agent, wire, book, desk, name_sessions=not isinstance(inner, NdjsonTransport))
    wire.answers, wire.history = sessions.answers(), sessions.history
    conn._conn._transport = wire  # noqa: SLF001 — the SDK offers no other way in
