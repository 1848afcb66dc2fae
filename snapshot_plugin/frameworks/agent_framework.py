"""`SnapshotHistoryProvider` and `SnapshotCheckpointStorage`: Microsoft's agent-framework on a snapshot store.

::

    agent = Agent(client, context_providers=[SnapshotHistoryProvider("sessions")])
    workflow = WorkflowBuilder(..., checkpoint_storage=SnapshotCheckpointStorage("sessions")).build()

They take the place of `FileHistoryProvider` and `FileCheckpointStorage`: durable, checked, encrypted. Install
``snapshot-plugin[agent-framework]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snapshot_plugin.extras import needs_extra
from snapshot_plugin.frameworks.agent_framework_messages import json_of, message_of
from snapshot_plugin.frameworks.conversations import checked, described, reading
from snapshot_plugin.frameworks.sessions import Key, LabelledSnapshot, OpenSessions, Place, new_session
from snapshot_plugin.model.snapshot import Message as Stored
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.hop import in_thread

with needs_extra("agent-framework", "sessions in agent-framework need the package agent-framework-core"):
    from agent_framework import HistoryProvider, Message
    from agent_framework._sessions import filter_new_messages

    from snapshot_plugin.frameworks.agent_framework_workflows import SnapshotCheckpointStorage

__all__ = ["SnapshotCheckpointStorage", "SnapshotHistoryProvider"]

FRAMEWORK = "agent-framework"
FORMAT = 1
_DEFAULT = "default"
"""The session of an agent that is run without one, as the framework's own providers name it."""


class SnapshotHistoryProvider(HistoryProvider):
    """Keeps the messages of each session: durable when `save_messages` returns.

    Args:
        place: a directory, a URL, or an open store.
        key: a passphrase or key source; everything but ids is then encrypted.
        source_id: tells this provider from others of the same agent.
        skip_excluded: leave out messages that compaction has excluded.
        flags: what is loaded and stored, as for the framework's own providers.
    """

    def __init__(
        self,
        place: Place,
        key: Key = None,
        *,
        source_id: str = "snapshot_history",
        skip_excluded: bool = False,
        **flags: Any,
    ) -> None:
        super().__init__(source_id, **flags)
        self.skip_excluded = skip_excluded
        self._sessions = OpenSessions(place, key)

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **options: Any
    ) -> list[Message]:
        """The messages of a session, oldest first."""
        _ = state, options
        found = await in_thread(self._read, session_id or _DEFAULT)
        return [each for each in found if not (self.skip_excluded and each.additional_properties.get("_excluded"))]

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Add messages to a session, all or none; those that repeat its end are not added again."""
        _ = state, options
        if messages:
            await in_thread(self._add, session_id or _DEFAULT, messages)

    def _read(self, session_id: str) -> list[Message]:
        head = checked(self._sessions.session(session_id).current(), FRAMEWORK)
        return _rebuilt(head, head.messages) if head else []

    def _add(self, session_id: str, given: Sequence[Message]) -> None:
        session = self._sessions.session(session_id)

        def change(head: SessionSnapshot | None) -> LabelledSnapshot | None:
            base = checked(head, FRAMEWORK) or new_session(session.session_id, FRAMEWORK)
            # Only the end can overlap, unless the whole transcript is given again.
            known = base.messages[-len(given) :]
            fresh = filter_new_messages(_rebuilt(base, known), given)
            if not fresh:
                return None
            added = [message_of(each.to_dict()) for each in fresh]
            facts: dict[str, Any] = {"updated_at": max(base.updated_at, session.now())}
            if FRAMEWORK not in base.plugins:
                facts["plugins"] = {**base.plugins, FRAMEWORK: FORMAT}
            labels = {"framework": FRAMEWORK, "session": session_id}
            return LabelledSnapshot(described(base, (*base.messages, *added), added=added, **facts), labels)

        session.change(change)


def _rebuilt(session: SessionSnapshot, stored: Sequence[Stored]) -> list[Message]:
    with reading(session.session_id, FRAMEWORK):
        return [Message.from_dict(json_of(each)) for each in stored]
