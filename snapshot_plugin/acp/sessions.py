"""What a connection knows of its sessions: one `SessionState` each, found by our id or by the agent's. No I/O.

=============  ==========================================================================================
``unopened``   nothing is recorded here yet: it is being created or restored, or the client never named it
``open``       it is recorded, and the agent has it, or is about to
``lost``       it is recorded, but the agent's process that had it ended
``closed``     it was closed or deleted, or could not be opened; what the agent still says of it is dropped
=============  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from snapshot_plugin.acp.messages import Message, as_object, key_of

if TYPE_CHECKING:
    from snapshot_plugin.acp.replay import LateReplay

__all__ = ["SessionState", "SessionStates", "Status"]

Status = Literal["unopened", "open", "lost", "closed"]


class SessionState:
    """What a connection knows of one session. `SessionStates` opens, binds and closes it."""

    __slots__ = ("agent_id", "died_of_load", "id", "is_expected", "is_named", "late", "note", "setup", "status")

    def __init__(self, session_id: str) -> None:
        self.id = session_id
        self.status: Status = "unopened"
        self.agent_id: str | None = None
        """The agent's id of it: the last one, once it is lost or closed."""
        self.is_expected = False
        """Whether `agent_id` is only expected: the agent has not restored it yet, and may not know it any more."""
        self.note: str | None = None
        """What the model is told with the next prompt."""
        self.setup: Message = {}
        """How the client set it up, with secrets; never stored."""
        self.late: LateReplay | None = None
        """Recognizes what the agent may still replay of it, until the next prompt."""
        self.died_of_load = False
        """Whether the agent died when it loaded this session; kept when it is closed."""
        self.is_named = False
        """Whether an answer to the client had its id."""

    @property
    def is_open(self) -> bool:
        """Whether it is recorded here, though it may be lost."""
        return self.status == "open" or self.status == "lost"  # noqa: PLR1714 — asked for every chunk


class SessionStates:
    """The sessions of one connection.

    Some agents answer each ``session/new`` with the same id, such as one that they derive from the directory. Then
    several of our sessions share one of the agent, and what it says belongs to the one that prompted last.

    Requests of the agent keep their ids until it is restarted. A new process numbers its requests from the start
    again: without new ids, a late answer to the old process could grant a permission the new one asks for.
    """

    def __init__(self) -> None:
        self.restarts = 0
        self._states: dict[str, SessionState] = {}
        self._holders: dict[str, list[SessionState]] = {}
        """Whose the agent's ids are, while its process runs; the one that prompted last is at the end."""
        self._unnamed: set[str] = set()
        """The agent's ids of sessions that have no id of ours yet."""

    # By our id --------------------------------------------------------------------------------------------

    def __getitem__(self, session_id: str) -> SessionState:
        """Return the state of a session; a new one if nothing is known of it."""
        state = self._states.get(session_id)
        if state is None:
            state = self._states[session_id] = SessionState(session_id)
        return state

    def status(self, session_id: str | None) -> Status:
        """Return the status of a session that the client may have named."""
        state = self._states.get(session_id) if session_id is not None else None
        return "unopened" if state is None else state.status

    def is_open(self, session_id: str | None) -> bool:
        """Whether the session is recorded here, though it may be lost."""
        return self.status(session_id) in ("open", "lost")

    def is_closed(self, name: str) -> bool:
        """Whether *name* is our id of a closed session, or the agent's."""
        if self.status(name) == "closed":
            return True
        return any(state.status == "closed" and state.agent_id == name for state in self._states.values())

    def opened(self) -> list[SessionState]:
        """Return the sessions that are recorded here, in the order of their ids."""
        return sorted((state for state in self._states.values() if state.is_open), key=lambda state: state.id)

    # The life of a session --------------------------------------------------------------------------------

    def open(self, session_id: str) -> SessionState:
        """Record the session from now on; the agent is about to have it."""
        state = self[session_id]
        state.status = "open"
        return state

    def bind(self, session_id: str, agent_id: str) -> SessionState:
        """Open the session, which the agent has under *agent_id* from now on."""
        state = self.open(session_id)
        self._hold(state, agent_id)
        return state

    def expect(self, session_id: str, agent_id: str) -> None:
        """The agent may have the session under *agent_id*, until it gives this id to another one."""
        state = self[session_id]
        self._hold(state, agent_id)
        state.is_expected = True

    def claim(self, agent_id: str, session_id: str | None = None) -> None:
        """Reserve the agent's id for a session that will be bound; *session_id* is None for a new one."""
        if agent_id in self._unnamed or self._certain(agent_id):
            return
        self._holders.pop(agent_id, None)
        if session_id is None:
            self._unnamed.add(agent_id)
        else:
            self._hold(self[session_id], agent_id)

    def close(self, session_id: str) -> None:
        """The session is not recorded any more, and the agent may give its id to another one."""
        state = self[session_id]
        self._let_go(state)
        state.status, state.is_expected = "closed", False
        state.note, state.setup, state.late = None, {}, None

    def agent_ended(self) -> None:
        """Open sessions are lost. Requests of the next process get new ids, and its sessions may have any id."""
        self.restarts += 1
        self._holders.clear()
        self._unnamed.clear()
        for state in self._states.values():
            state.is_expected = False
            if state.status == "open":
                state.status = "lost"

    def _hold(self, state: SessionState, agent_id: str) -> None:
        self._let_go(state)
        others = self._certain(agent_id)
        self._unnamed.discard(agent_id)
        state.agent_id, state.is_expected = agent_id, False
        self._holders[agent_id] = [*others, state]

    def _let_go(self, state: SessionState) -> None:
        holders = self._holders.get(state.agent_id or "", [])
        if state in holders:
            holders.remove(state)
            if not holders:
                del self._holders[state.agent_id or ""]

    def _certain(self, agent_id: str) -> list[SessionState]:
        return [state for state in self._holders.get(agent_id, ()) if not state.is_expected]

    # By the agent's id ------------------------------------------------------------------------------------

    def of_agent(self, agent_id: str) -> SessionState | None:
        """Return the session of which the agent speaks; None if nothing is known of it."""
        holders = self._holders.get(agent_id)
        return holders[-1] if holders else self._states.get(agent_id)

    def is_held(self, agent_id: str) -> bool:
        """Whether the agent's process has one of our sessions under this id."""
        return agent_id in self._holders

    def is_anothers(self, agent_id: str, session_id: str) -> bool:
        """Whether the agent has only other open sessions than *session_id* under this id."""
        if agent_id in self._unnamed:
            return True
        holders = self._holders.get(agent_id, ())
        return bool(holders) and all(state.id != session_id for state in holders)

    def sharing(self, session_id: str) -> list[str]:
        """Return our other sessions that the agent has under the same id."""
        holders = self._holders.get(self.agents_id(session_id), ())
        return [state.id for state in holders if state.id != session_id] if len(holders) > 1 else []

    def turn_to(self, session_id: str) -> None:
        """What the agent says under the id of this session belongs to it from now on."""
        holders = self._holders.get(self.agents_id(session_id), [])
        if len(holders) > 1:
            holders.sort(key=lambda state: state.id == session_id)

    # Ids in messages --------------------------------------------------------------------------------------

    def agents_id(self, session_id: str) -> str:
        """Return the agent's id of our session."""
        state = self._states.get(session_id)
        if state is None or state.agent_id is None or state.status == "closed":
            return session_id
        return state.agent_id

    def our_id(self, agent_id: Any) -> str | None:
        """Return our id of the agent's session; None if *agent_id* is not a string."""
        if not isinstance(agent_id, str):
            return None
        holders = self._holders.get(agent_id)
        return holders[-1].id if holders else agent_id

    def for_agent(self, message: Message) -> Message:
        """Return the message with the agent's session id; the same object if nothing changes."""
        return _renamed(message, self.agents_id)

    def request_id(self, agents: Any) -> Any:
        """Return the id under which the client gets a request of the agent."""
        return f"asnap-{self.restarts}-{key_of(agents)}" if self.restarts else agents

    def for_client(self, message: Message) -> Message:
        """Return the message with our ids; the same object if nothing changes."""
        message = _renamed(message, self.our_id)
        if self.restarts and "method" in message and "id" in message:
            message = {**message, "id": self.request_id(message["id"])}
        if self.restarts and message.get("method") == "$/cancel_request":
            params = as_object(message.get("params"))
            message = {**message, "params": {**params, "requestId": self.request_id(params.get("requestId"))}}
        return message


def _renamed(message: Message, name: Callable[[str], str | None]) -> Message:
    params = as_object(message.get("params"))
    session_id = params.get("sessionId")
    other = name(session_id) if isinstance(session_id, str) else None
    return message if other in (None, session_id) else {**message, "params": {**params, "sessionId": other}}
