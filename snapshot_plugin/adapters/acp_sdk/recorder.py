"""The recorder of one client connection: what passes is written down first, as the proxy writes it down."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import anyio
import anyio.to_thread
from anyio import from_thread

from snapshot_plugin.adapters.acp.journal import PROVIDER
from snapshot_plugin.adapters.acp.ladder import AgentRefused, Restored
from snapshot_plugin.adapters.acp.link import Link
from snapshot_plugin.acp.messages import Pending, key_of
from snapshot_plugin.adapters.acp.restore import restore
from snapshot_plugin.acp.state import STATE_UPDATES
from snapshot_plugin.acp.events import (
    Entry,
    answered_by_agent,
    answered_by_client,
    asked_by_agent,
    prompted,
    updated,
)
from snapshot_plugin.acp.messages import Message
from snapshot_plugin.adapters.acp_sdk.keeper import Keeper
from snapshot_plugin.adapters.acp_sdk.observe import Tap
from snapshot_plugin.adapters.acp_sdk.recorded import FromThread, RecordedSession
from snapshot_plugin.errors import SnapshotError, SnapshotNotFound
from snapshot_plugin.manager.manager import SnapshotManager
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.model.times import rfc3339

__all__ = ["Recorder"]

_T = TypeVar("_T")
_BACK = ("session/load", "session/resume")
_ABOUT_WHOLE_SESSIONS = (*_BACK, "session/fork", "session/close", "session/delete")
log = logging.getLogger("snapshot_plugin.acp")


class Recorder(Link):
    """Follows one connection. Everything runs in the event loop but `restore`, which waits in a worker thread.

    Args:
        manager: keeps what is recorded.
        command: how the agent was started, where that is known.
        saves: have the manager save the sessions by itself; else that is somebody else's business.
    """

    def __init__(self, manager: SnapshotManager, *, command: Sequence[str] = (), saves: bool = True) -> None:
        super().__init__(command)
        self.manager = manager
        self.tap: Tap | None = None
        self.is_gone = False
        """Whether the agent has ended."""
        self._keeper = Keeper(manager, saves=saves)
        self._transparent = False
        # Of our own: threads that wait for an agent must not be those which the store and the spool need meanwhile.
        self._threads = anyio.CapacityLimiter(1)
        self._from_client: dict[str, Pending] = {}
        self._from_agent: dict[str, Pending] = {}
        self._coming_back: dict[str, Literal["live", "stored", "new"]] = {}

    @property
    def sessions(self) -> dict[str, RecordedSession]:
        """The sessions that are recorded now, by the id the client knows."""
        return self._keeper.open

    # What `Link` asks for, from a worker thread -----------------------------------------------------------

    def send(self, message: Message) -> None:
        """A message of our own, to the agent."""
        if self.tap is None or self.is_gone or self.closing.is_set():
            raise AgentRefused("the agent ended")
        try:
            from_thread.run(self.tap.send_unseen, message)
        except (OSError, RuntimeError) as error:
            raise AgentRefused(f"the agent cannot be reached: {error}") from error

    def is_recorded(self, session_id: str) -> bool:
        """Whether the session is recorded here."""
        return session_id in self.sessions

    def show(self, session_id: str, update: Message) -> None:
        """Write down an update that had to wait. The client finds it in the transcript it is about to get."""
        if session := self.sessions.get(session_id):
            from_thread.run(session.write, updated(update))

    # Bringing back ----------------------------------------------------------------------------------------

    async def asking(self, method: str, params: Message) -> Message:
        """`Link.ask`, without blocking the loop."""
        return await self._in_thread(lambda: self.ask(method, params))

    async def restored(
        self, session: RecordedSession, params: Message, *, require: str, may_load: bool
    ) -> tuple[Restored, Message]:
        """Bring a session back in this agent; raises as `restore.restore`."""
        self._keeper.adopt(session)
        live = FromThread(session)
        return await self._in_thread(lambda: restore(self, live, params, require=require, may_load=may_load))

    def hand_over(self, session: RecordedSession) -> None:
        """Let another connection have a session of this one, as it is."""
        self.sessions.pop(session.session_id, None)

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        # Whoever gives up closes the connection, and `finish` ends what goes on in the thread.
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)

    # What the client says ---------------------------------------------------------------------------------

    async def outgoing(self, message: Message) -> Message:
        """Write down what the client says; the prompt is durable on return."""
        try:
            return message if self._transparent else await self._client_says(message)
        except Exception:
            log.exception("a message of the client was not recorded as it should be")  # it goes on all the same
            return self.for_agent(message)

    async def _client_says(self, message: Message) -> Message:
        method, raw = message.get("method"), message.get("params")
        if not isinstance(method, str):
            return await self._client_answers(message)
        params: Message = raw if isinstance(raw, dict) else {}
        session_id = params.get("sessionId") if isinstance(params.get("sessionId"), str) else None
        if "id" not in message:
            return self.for_agent(message)
        self._from_client[key_of(message["id"])] = Pending(message["id"], method, session_id, params)
        if session_id is not None and method == "session/prompt":
            self._coming_back.pop(session_id, None)
            await self._keeper.write(session_id, prompted(params, at=self._now()))
            message = self.with_notes(message, session_id)
        elif session_id is not None and method in _BACK:
            await self._expect_back(session_id, params)
        return self.for_agent(message)

    def unsent(self, message: Message) -> None:
        """What was written down did not reach the agent: a prompt gets no answer."""
        pending = self._from_client.pop(key_of(message.get("id")), None) if "method" in message else None
        session = self.sessions.get(pending.session_id or "") if pending else None
        if session and pending and pending.method == "session/prompt":
            session.cut_off("the prompt could not be sent")

    async def _client_answers(self, message: Message) -> Message:
        asked = self._from_agent.pop(key_of(message.get("id")), None)
        if asked is not None:
            await self._keeper.write(asked.session_id, answered_by_client(asked, message))
        return message

    # What the agent says ----------------------------------------------------------------------------------

    async def incoming(self, message: Any) -> Message | None:
        """Write down what the agent says, before the client gets it."""
        if not isinstance(message, dict):
            log.warning("the agent wrote something that is not ACP: %.200r", message)
            return None
        try:
            return message if self._transparent else await self._agent_says(message)
        except Exception:
            log.exception("a message of the agent was not recorded as it should be")  # it goes on all the same
            return self.for_client(message)

    async def _agent_says(self, message: Message) -> Message | None:
        method, raw = message.get("method"), message.get("params")
        params: Message = raw if isinstance(raw, dict) else {}
        if method == "session/update":
            return await self._agent_updates(message, params)
        if method is None:
            return await self._agent_answers(message)
        if "id" in message and isinstance(method, str):
            asked = Pending(message["id"], method, self.public_id(params.get("sessionId")), params)
            self._from_agent[key_of(message["id"])] = asked
            await self._keeper.write(asked.session_id, asked_by_agent(asked))
        return self.for_client(message)

    async def _agent_updates(self, message: Message, params: Message) -> Message | None:
        agent_id, update = params.get("sessionId"), params.get("update")
        if not isinstance(agent_id, str) or not isinstance(update, dict):
            return message
        public = self.admitted(agent_id, update)
        if public is None:
            return None
        if self._coming_back.get(public, "new") == "new" or update.get("sessionUpdate") in STATE_UPDATES:
            await self._keeper.write(public, updated(update))
        return self.for_client(message)

    async def _agent_answers(self, message: Message) -> Message | None:
        if self.is_ours(message):
            return None
        asked = self._from_client.pop(key_of(message.get("id")), None)
        if asked is None:
            return message
        result = message.get("result")
        if asked.method == "initialize" and isinstance(result, dict):
            self._transparent = not self.introduced(result)
        elif asked.method == "session/new" and isinstance(result, dict):
            return await self._began(asked, message, result)
        elif asked.method in _ABOUT_WHOLE_SESSIONS:
            await self._about_session(asked, message)
        else:
            await self._keeper.write(asked.session_id, answered_by_agent(asked, message, at=self._now()))
            if asked.method == "session/prompt" and (session := self.sessions.get(asked.session_id or "")):
                session.touch()
        return message

    async def ended(self) -> None:
        """The agent is gone: turns end without an answer, and nobody waits for one."""
        self.is_gone = True
        self.fail_waiters("the agent ended")
        for session in self.sessions.values():
            session.cut_off("the agent died")
            await session.make_durable()
            session.touch()

    async def finish(self) -> None:
        """Save every session for the last time, and let go of all of them."""
        self.closing.set()
        self.fail_waiters("the connection was closed")
        for session_id in tuple(self.sessions):
            await self._keeper.let_go(session_id)

    # Whole sessions ---------------------------------------------------------------------------------------

    async def begin(self, session_id: str, agent_id: str, params: Message, result: Message) -> RecordedSession:
        """Record a new session under our *session_id*; its first event is durable on return."""
        first = {"provider_type": PROVIDER, **self.beginning(agent_id, params, result)}
        session = await self._keeper.begin(session_id, first)
        self.bind(session_id, agent_id)
        return session

    async def _began(self, asked: Pending, message: Message, result: Message) -> Message:
        """A session was made; durable before the client hears of it. One whose id is taken gets one of ours."""
        agent_id = result.get("sessionId")
        if not isinstance(agent_id, str):
            return message
        try:
            session_id = agent_id if await self._keeper.is_free(agent_id) else new_id()
            await self.begin(session_id, agent_id, asked.params, result)
        except (SnapshotError, OSError) as error:
            self._keeper.failed(agent_id, error)
            return message
        return {**message, "result": {**result, "sessionId": session_id}}

    async def _expect_back(self, session_id: str, params: Message) -> None:
        """The client has the agent bring a session back. What we have of it goes on; else its record begins here.

        Until the next prompt, what the agent says in a session we know is what we know.
        """
        if session_id in self.sessions:
            self._coming_back[session_id] = "live"
            return
        try:
            try:
                session = await self._keeper.reopen(session_id)
            except SnapshotNotFound:
                await self.begin(session_id, session_id, params, {})
                self._coming_back[session_id] = "new"
            else:
                self.bind(session_id, session.snapshot().agent_session_id or session_id)
                self._coming_back[session_id] = "stored"
        except (SnapshotError, OSError) as error:
            self._keeper.failed(session_id, error)

    async def _about_session(self, asked: Pending, message: Message) -> None:
        session_id, result = asked.session_id or "", message.get("result")
        if asked.method in _BACK and session_id in self.sessions:
            await self._came_back(session_id, result)
        elif asked.method == "session/fork" and isinstance(result, dict):
            await self._forked(asked, result)
        elif asked.method == "session/close" and "error" not in message:
            await self._keeper.let_go(session_id)
        elif asked.method == "session/delete" and "error" not in message:
            await self._keeper.delete(session_id)

    async def _came_back(self, session_id: str, result: Any) -> None:
        before = self._coming_back.get(session_id)
        if isinstance(result, dict):
            ends: Message = {"stop": {}} if before == "new" else {}
            event = {**ends, **self.agent_event(self.agent_id(session_id)), "config": result}
            await self._keeper.write(session_id, Entry(event, durable=True))
        elif before == "new":  # the agent has no such session, and so have we
            await self._keeper.delete(session_id)
        elif before == "stored":
            await self._keeper.let_go(session_id)

    async def _forked(self, asked: Pending, result: Message) -> None:
        """The agent made a copy of a session; its record begins as a copy of ours."""
        session_id = result.get("sessionId")
        if not isinstance(session_id, str):
            return
        try:
            if asked.session_id in self.sessions:
                session = await self._keeper.branch(asked.session_id, session_id)
                await session.write(Entry(self.beginning(session_id, asked.params, result), durable=True))
            else:
                await self.begin(session_id, session_id, asked.params, result)
        except (SnapshotError, OSError) as error:
            self._keeper.failed(session_id, error)

    def _now(self) -> str:
        return rfc3339(self.manager.clock())
