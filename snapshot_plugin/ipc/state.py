"""The state in every answer: the current session, whether it was restored, and its length."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["ClientState"]


@dataclass(frozen=True, kw_only=True)
class ClientState:
    """Part of every answer. At the start there is no session."""

    session_id: str | None = None
    is_restored: bool = False
    message_count: int = 0

    @classmethod
    def started(cls, session_id: str) -> ClientState:
        """The state after a session was created."""
        return cls(session_id=session_id)

    @classmethod
    def restored(cls, session_id: str, message_count: int) -> ClientState:
        """The state after a session was restored."""
        return cls(session_id=session_id, is_restored=True, message_count=message_count)

    def with_more(self, messages: int) -> ClientState:
        """The state after messages were added."""
        return replace(self, message_count=self.message_count + messages)
