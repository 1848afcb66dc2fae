"""The agent as we talk to it: our own requests, its names for our sessions, and what the client is not to see.

Messages come in and go out one by one; how they travel (pipes and threads, or the SDK's transports) is the
business of those who build on this. Requests of our own block the thread that makes them, never the traffic.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from snapshot_plugin.adapters.acp.ladder import AgentRefused, Collect, Updates
from snapshot_plugin.acp.offers import can
from snapshot_plugin.acp.messages import Waiter
from snapshot_plugin.acp.state import stored_setup
from snapshot_plugin.acp.events import is_echoed_note, with_note
from snapshot_plugin.acp.messages import Message, request
from snapshot_plugin.model.snapshot import AgentInfo

__all__ = ["Link"]

_PROTOCOL = 1
_QUIET_FOR, _LATE_AT_MOST = 0.25, 3.0
_STATE_UPDATES = (
    "available_commands_update",
    "current_mode_update",
    "config_option_update",
    "session_info_update",
    "usage_update",
)


class Link:
    """One agent connection. Subclasses say how to `send`, what `is_recorded`, and how an update is `shown`."""

    def __init__(self, command: Sequence[str] = ()) -> None:
        self.agent_info = AgentInfo(command=tuple(command))
        self.capabilities: dict[str, Any] = {}
        self.notes: dict[str, str] = {}
        """What the model must be told with the next prompt, by session."""
        self.closing = threading.Event()
        self.patience = 60.0
        self._waiters: dict[str, Waiter] = {}
        self._held: dict[str, Updates] = {}
        self._repeating: dict[str, str] = {}
        self._strays: dict[str, Updates] | None = None
        self._agent_ids: dict[str, str] = {}
        self._public_ids: dict[str, str] = {}
        self._numbers = itertools.count(1)

    def send(self, message: Message) -> None:
        """Send a message of our own to the agent."""
        raise NotImplementedError

    def is_recorded(self, session_id: str) -> bool:
        """Whether the session is known to us."""
        raise NotImplementedError

    def show(self, session_id: str, update: Message) -> None:
        """Write down an update that had to wait, and pass it on to the client."""
        raise NotImplementedError

    # Who it is --------------------------------------------------------------------------------------------

    def introduced(self, result: Message) -> bool:
        """Take the agent's answer to ``initialize``; False for a version of the protocol that is not ours."""
        if result.get("protocolVersion") != _PROTOCOL:
            return False
        capabilities, info = result.get("agentCapabilities"), result.get("agentInfo")
        self.capabilities = dict(capabilities) if isinstance(capabilities, dict) else {}
        names = info if isinstance(info, dict) else {}
        known = {key: names[key] for key in ("name", "version") if isinstance(names.get(key), str)}
        self.agent_info = AgentInfo(command=self.agent_info.command, **known)
        return True

    def agent_event(self, agent_session_id: str) -> Message:
        """The event that this agent has the session now, under this id, and how it can bring it back."""
        able = {"load": self.capabilities.get("loadSession") is True, "resume": can(self.capabilities, "resume")}
        return {"agent": {"sessionId": agent_session_id, "info": self.agent_info.raw(), "able": able}}

    def beginning(self, agent_session_id: str, params: Message, result: Message) -> Message:
        """The first event of a session: what ``session/new`` was asked, and what it answered."""
        return {**self.agent_event(agent_session_id), "new": stored_setup(params), "config": result}

    # Requests of our own ----------------------------------------------------------------------------------

    def ask(self, method: str, params: Message) -> Message:
        """Send a request of our own to the agent and wait, bounded."""
        number = f"asnap-{next(self._numbers)}"
        waiter = self._waiters[number] = Waiter()
        self.send(request(number, method, params))
        if not waiter.done.wait(self.patience):
            self._waiters.pop(number, None)
            raise AgentRefused(f"no answer to {method} in {self.patience:g} s")
        error = waiter.answer.get("error")
        if error is not None:
            raise AgentRefused(str(error.get("message", error)) if isinstance(error, dict) else str(error), error)
        result = waiter.answer.get("result")
        return result if isinstance(result, dict) else {}

    def is_ours(self, message: Message) -> bool:
        """Take the answer to a request of our own; False when it is somebody else's."""
        waiter = self._waiters.pop(message["id"], None) if isinstance(message.get("id"), str) else None
        if waiter is None:
            return False
        waiter.answer = message
        waiter.done.set()
        return True

    def fail_waiters(self, why: str) -> None:
        """The agent is gone: nobody will answer these."""
        for number in list(self._waiters):
            waiter = self._waiters.pop(number)
            waiter.answer = {"error": {"message": why}}  # no code: these are not the agent's words
            waiter.done.set()

    # Names ------------------------------------------------------------------------------------------------

    def bind(self, session_id: str, agent_session_id: str) -> None:
        """From now on the agent knows our *session_id* under its own name."""
        before = self._agent_ids.pop(session_id, None)
        if before is not None:  # else the agent may have another session of that very name
            self._public_ids.pop(before, None)
        if agent_session_id != session_id:
            self._agent_ids[session_id] = agent_session_id
            self._public_ids[agent_session_id] = session_id
        for update in (self._strays or {}).pop(agent_session_id, []):
            self.show(session_id, update)

    @contextlib.contextmanager
    def strays_kept(self) -> Iterator[None]:
        """While we make a session for the agent, what it says of one nobody knows yet waits for its name."""
        self._strays = {}
        try:
            yield
        finally:
            self._strays = None

    def agent_id(self, session_id: str) -> str:
        """The agent's name for our session."""
        return self._agent_ids.get(session_id, session_id)

    def public_id(self, agent_session_id: Any) -> str | None:
        """Our name for the agent's session; None for what is no name."""
        return self._public_ids.get(agent_session_id, agent_session_id) if _is_name(agent_session_id) else None

    def known_ids(self) -> dict[str, str]:
        """The agent's names that differ from ours."""
        return dict(self._public_ids)

    def for_agent(self, message: Message) -> Message:
        """The message with the agent's name for its session; the same object where that is no other."""
        return _renamed(message, self._agent_ids)

    def for_client(self, message: Message) -> Message:
        """The message with our name for its session; the same object where that is no other."""
        return _renamed(message, self._public_ids)

    def with_notes(self, message: Message, session_id: str) -> Message:
        """A prompt as the agent gets it: what the model must be told rides along, once."""
        self._repeating.pop(session_id, None)
        note = self.notes.pop(session_id, None)
        if note is None:
            return message
        return {**message, "params": with_note(message["params"], note)}

    # What the client is not to see ------------------------------------------------------------------------

    def admitted(self, agent_session_id: str, update: Message) -> str | None:
        """Our name for the session an update goes on to; None when the update is withheld."""
        if (held := self._held.get(agent_session_id)) is not None:
            held.append(update)
            return None
        public = self._public_ids.get(agent_session_id, agent_session_id)
        if self._strays is not None and not self.is_recorded(public):
            self._strays.setdefault(agent_session_id, []).append(update)
            return None
        if (words := self._repeating.get(public)) is not None and _repeats(update, words):
            return None
        return None if is_echoed_note(update) else public

    @contextlib.contextmanager
    def withheld(self, agent_session_id: str) -> Iterator[Collect]:
        """See `ladder.Connection`. Updates of state go on afterwards; updates of conversation do not."""
        held = self._held.setdefault(agent_session_id, [])

        def collect(enough: Callable[[Updates], bool]) -> Updates:
            deadline, quiet_since, seen = time.monotonic() + _LATE_AT_MOST, time.monotonic(), -1
            while not enough(held) and time.monotonic() < deadline:
                if len(held) != seen:
                    seen, quiet_since = len(held), time.monotonic()
                elif time.monotonic() - quiet_since > _QUIET_FOR:
                    break
                self.closing.wait(0.01)
            return list(held)

        try:
            yield collect
        finally:
            self._held.pop(agent_session_id, None)
            public = self._public_ids.get(agent_session_id, agent_session_id)
            for update in held:
                if update.get("sessionUpdate") in _STATE_UPDATES:
                    self.show(public, update)

    def expect_repetition(self, session_id: str, words: str) -> None:
        """Until the next prompt, chunks that repeat *words* are the agent's late replay, not news."""
        self._repeating[session_id] = words


def _is_name(value: Any) -> bool:
    return isinstance(value, str)


def _renamed(message: Message, names: dict[str, str]) -> Message:
    params = message.get("params")
    session_id = params.get("sessionId") if isinstance(params, dict) else None
    other = names.get(session_id) if isinstance(session_id, str) else None
    return message if other is None or params is None else {**message, "params": {**params, "sessionId": other}}


def _repeats(update: Message, words: str) -> bool:
    kind = update.get("sessionUpdate")
    if kind in ("tool_call", "tool_call_update", "plan"):
        return True
    content = update.get("content")
    text = content.get("text") if isinstance(content, dict) else None
    return isinstance(text, str) and text.strip() in words
