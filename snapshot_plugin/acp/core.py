"""The core of every host: messages in, actions out. No I/O, no threads, no event loop.

`Core.from_client` and `Core.from_agent` take each message once and in order; the host carries the returned actions
out in order. Work in several steps is a generator (`methods`, `restore`, `supervise`) that the core drives:
`Core.done` passes it the result of a `RunBlocking`, `Core.tick` times out its waits. Each request of the client
gets exactly one answer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from snapshot_plugin.acp import events
from snapshot_plugin.acp.actions import (
    PASS,
    Actions,
    AgentGone,
    Checkpoint,
    Do,
    GiveUp,
    Job,
    Jobs,
    PassAs,
    RecordEvent,
    Say,
    Steps,
    ToAgent,
    ToClient,
    Wait,
    refusal,
    shown,
)
from snapshot_plugin.acp.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_VERSION,
    VERSION,
    Message,
    Pending,
    as_object,
    asking_for_version_1,
    chunk,
    failure,
    key_of,
    offered,
    request,
    success,
    with_whole_error,
)
from snapshot_plugin.acp.notes import with_note
from snapshot_plugin.acp.replay import Withheld, is_withheld, show
from snapshot_plugin.acp.sessions import SessionStates
from snapshot_plugin.live.outcome import log_failure
from snapshot_plugin.model.snapshot import AgentInfo, SessionSnapshot
from snapshot_plugin.model.times import rfc3339, utc_now

__all__ = ["Core"]

_OPENS = ("session/new", "session/load", "session/resume", "session/fork")
_EMPTY = "asnap: this prompt was empty, so it was not sent. Send it again.\n\n"
_SAME_ID = "another request with this id is not answered yet"

Method = Callable[["Core", Pending], Steps[Message]]
RestoreStrategy = Callable[[SessionSnapshot, Any], Steps[Any]]


class Core:
    """The core of one connection: one client, one agent, any number of sessions.

    Args:
        view: returns the snapshot of a live session as recorded so far, from memory.
        methods: the requests answered here, by method; see `methods.SessionMethods`.
        adopt: the stored session that the client's first ``session/new`` continues.
        command: how the agent was started; kept with the sessions.
        timeout: for our requests to the agent, in seconds.
        require: the lowest accepted grade of a restore: ``exact``, ``history`` or ``context``.
        must_record: refuse a connection that cannot be recorded: one of another version of the protocol.
        on_unrecorded: called with the reason if a connection is not recorded. May block.
        restore_strategy: restores a session, in place of the strategies in `restore`. The agent is then asked only
            about sessions that are open here, and never to load one itself.
        remembers: with *restore_strategy*: whether the agent can take its history of a session back.
        name: the name for an agent that does not report one.
        now: a monotonic clock.
        clock: the time of day, stamped on events.
    """

    def __init__(
        self,
        *,
        view: Callable[[str], SessionSnapshot],
        methods: dict[str, Method],
        adopt: str | None = None,
        command: Sequence[str] = (),
        timeout: float = 60.0,
        require: str = "context",
        must_record: bool = False,
        on_unrecorded: Callable[[str], object] = lambda _why: None,
        restore_strategy: RestoreStrategy | None = None,
        remembers: bool = False,
        name: str | None = None,
        now: Callable[[], float] = time.monotonic,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.view, self.now, self.clock, self.restore_strategy = view, now, clock, restore_strategy
        self.timeout, self.require, self.adopt = timeout, require, adopt
        self._must_record, self._on_unrecorded = must_record, on_unrecorded
        self.only_known, self._remembers = restore_strategy is not None, remembers
        self.agent = AgentInfo(name=name, command=tuple(command))
        self.capabilities: Message = {}
        self.client_capabilities: Message = {}
        self.initialize_params: Message | None = None  # as the agent got them
        self._refuses_version_1 = False
        self.login: Message | None = None  # the client's login, for a restarted agent; never stored
        self.sessions = SessionStates()
        self.restore_lost_session: Callable[[Core, str], Steps[None]] | None = None
        """Restores a lost session; see `supervise`."""
        self.is_up, self.is_over = True, False
        self.unrecorded = ""
        """Why nothing of this connection is recorded: everything is passed on; empty if it is recorded."""
        self._methods = methods
        self._from_client: dict[str, Pending] = {}
        self._from_agent: dict[str, Pending] = {}
        self.jobs = jobs = Jobs(self, now=now, timeout=timeout)
        self.start, self.done, self.tick, self.next_tick = jobs.start, jobs.done, jobs.tick, jobs.next_tick
        self._queue, self.withheld = list[Message](), Withheld()

    # From the client --------------------------------------------------------------------------------------

    def from_client(self, message: Message) -> Actions:
        """Handle a message of the client. An exception in here becomes an error answer."""
        if self.unrecorded:
            if message.get("method") in _OPENS and "id" in message:
                self._from_client[key_of(message["id"])] = Pending.of(message)
            return [PASS]
        try:
            if "method" not in message:
                return self._client_answers(message)
            if "id" in message:
                return self._client_asks(message)
            is_sent = self.is_up and isinstance(message["method"], str)
            # the agent may have another one of that id
            is_sent &= self.sessions.status(Pending.of(message).session_id) != "lost"
            is_sent &= message["method"] != "session/cancel" or not self._is_anothers_turn(message)
            return self._withdrawn(message) + (
                _passed(message, self.sessions.for_agent(message)) if is_sent else []
            )
        except Exception as error:  # noqa: BLE001 — the client gets it as the answer
            log_failure("a message of the client could not be handled", error)
            if "id" not in message or "method" not in message:
                return []
            return [ToClient(failure(message["id"], INTERNAL_ERROR, f"{type(error).__name__}: {error}"))]

    def _withdrawn(self, message: Message) -> Actions:
        """Answer prompts that *message* cancels while they wait for a job or for the agent. They are never sent."""
        actions, t = Actions(), self.stamp()
        _, method, session_id, *_ = Pending.of(message)
        job = self.jobs.at_work_on(session_id)
        for queue in (self._queue, job.followers if job else []) if method == "session/cancel" else ():
            for each, pending in [(each, Pending.of(each)) for each in queue]:
                if pending.method == "session/prompt" and pending.session_id == session_id:
                    queue.remove(each)
                    event = {**events.prompted(pending.params, t), **events.never_sent("cancelled", t)}
                    answer = success(pending.id, {"stopReason": "cancelled"})
                    actions += [*self.recorded(session_id, event), ToClient(answer)]
        return actions

    def _is_anothers_turn(self, message: Message) -> bool:
        """Whether the agent works for another one of our sessions to which it gave the same id."""
        session_id = Pending.of(message).session_id
        return session_id is not None and any(self.prompts(other) for other in self.sessions.sharing(session_id))

    def _client_asks(self, message: Message) -> Actions:
        pending = Pending.of(message)
        if pending.method == "session/new" and self.adopt is not None:
            pending = pending._replace(session_id=self.adopt)
        session_id = pending.session_id
        if not isinstance(pending.method, str):
            return [ToClient(failure(pending.id, INVALID_REQUEST, "the method is not text"))]
        if not self.is_up:
            if not self.is_over:
                self._queue.append(message)
            return [ToClient(refusal(pending, AgentGone("the agent ended")))] if self.is_over else []
        job = self.jobs.at_work_on(session_id)
        if job is not None:
            job.followers.append(message)
            return []
        if pending.method in self._methods:
            return self.start(Job(self._methods[pending.method](self, pending), pending))
        restored = self.restore_lost_session
        if session_id is not None and self.sessions.status(session_id) == "lost" and restored is not None:
            job = Job(restored(self, session_id), session_id=session_id)
            job.followers.append(message)
            return self.start(job)
        return self._forwarded(message, pending)

    def _forwarded(self, message: Message, pending: Pending) -> Actions:
        session_id = pending.session_id
        if session_id is not None and self._is_unknown(session_id) and pending.method.startswith("session/"):
            text = f"session {session_id} is not open"
            return [ToClient(failure(pending.id, RESOURCE_NOT_FOUND, text, {"sessionId": session_id}))]
        is_prompt = pending.method == "session/prompt" and self.sessions.is_open(session_id)
        if is_prompt and (instead := self._instead_of_sending(message, pending)) is not None:
            return instead
        key = key_of(pending.id)
        if key in self._from_client:
            return [ToClient(failure(pending.id, INVALID_REQUEST, _SAME_ID))]
        self._from_client[key] = pending
        if pending.method == "initialize":
            params = pending.params if self._refuses_version_1 else asking_for_version_1(pending.params)
            self.initialize_params = params
            self.client_capabilities = as_object(params.get("clientCapabilities"))
            return _passed(message, message if params is pending.params else {**message, "params": params})
        if not is_prompt or session_id is None:
            return _passed(message, self.sessions.for_agent(message))
        self.sessions.turn_to(session_id)
        held, state = list(self.late_news(session_id)), self.sessions[session_id]
        note, state.note, state.late = state.note, None, None
        self._from_client[key] = pending._replace(note=note)
        passed = message if note is None else {**message, "params": with_note(pending.params, note)}
        event = events.prompted(pending.params, self.stamp())
        return [*held, *self.recorded(session_id, event), *_passed(message, self.sessions.for_agent(passed))]

    def _instead_of_sending(self, message: Message, prompt: Pending) -> Actions | None:
        """What is done with a prompt that the agent does not get, or not yet; None if it gets it now."""
        session_id = prompt.session_id or ""
        if not prompt.params.get("prompt"):
            # Some clients send an empty prompt after an error; after a second error they would never go on.
            return [shown(session_id, chunk(_EMPTY)), ToClient(success(prompt.id, {"stopReason": "end_turn"}))]
        if not self._is_anothers_turn(message):
            return None
        job = Job(self._until_free(message), session_id=session_id)
        job.followers.append(message)
        return self.start(job)

    def _until_free(self, message: Message) -> Steps[None]:
        yield Wait(lambda _now: not self._is_anothers_turn(message), math.inf)

    def _is_unknown(self, session_id: str) -> bool:
        """Whether the agent must not be asked: the session is closed, or the id is the agent's for another one."""
        if self.sessions.is_open(session_id):
            return False
        is_the_agents = self.sessions.our_id(session_id) != session_id
        return self.only_known or self.sessions.is_closed(session_id) or is_the_agents

    def _client_answers(self, message: Message) -> Actions:
        asked = self._from_agent.pop(key_of(message.get("id")), None)
        if asked is None:
            return [] if "id" in message else [PASS]  # the agent that asked has ended
        passed = {**message, "id": asked.id} if self.sessions.restarts else message
        return [
            *self.recorded(asked.session_id, events.answered_by_client(asked, message)),
            *_passed(message, passed),
        ]

    # From the agent ---------------------------------------------------------------------------------------

    def from_agent(self, message: Message) -> Actions:
        """Handle a message of the agent."""
        method = message.get("method")
        if self.unrecorded:
            return [PASS, *self._told_unrecorded(message)]
        try:
            if method == "session/update":
                return self._agent_updates(message)
            if isinstance(method, str):
                return self._agent_asks(message)
            return self._agent_answers(message)
        except Exception as error:  # noqa: BLE001 — the client gets the message as it is
            log_failure("a message of the agent could not be handled", error)
            return [PASS] if method is not None else []

    def may_coalesce(self, agent_id: str) -> bool:
        """Whether adjacent text chunks of the session may be coalesced: not while chunks are compared."""
        state = self.sessions.of_agent(agent_id)
        return agent_id not in self.withheld.held and (state is None or state.late is None)

    def _agent_updates(self, message: Message) -> Actions:
        params = as_object(message.get("params"))
        agent_id, update = params.get("sessionId"), params.get("update")
        if not isinstance(agent_id, str) or not isinstance(update, dict):
            return [PASS]
        state, withheld = self.sessions.of_agent(agent_id), self.withheld
        is_open = state is not None and state.is_open
        is_new = not is_open and not self.sessions.is_closed(state.id if state is not None else agent_id)
        if withheld.held or withheld.making:
            may_be_made = is_new or not self.sessions.is_held(agent_id)
            if withheld.take(agent_id, update, is_new=may_be_made):
                return []
        if state is None or not is_open:
            return self._shown(message) if is_new else []
        kind = update.get("sessionUpdate")
        if kind != "agent_message_chunk" and is_withheld(kind, update):
            return []
        if state.late is not None and (news := state.late.news(update)) != [update]:
            return list(show(state.id, news))
        passed = PASS if state.id == agent_id else PassAs(state.id)
        # The start of a tool must be durable: its side effects survive a crash.
        return [RecordEvent(state.id, {"update": update}, kind == "tool_call"), passed]

    def _agent_asks(self, message: Message) -> Actions:
        actions: Actions = []
        if "id" in message:
            asked = Pending.of(message)
            asked = asked._replace(session_id=self.sessions.our_id(asked.session_id))
            key = key_of(self.sessions.request_id(asked.id))
            if key in self._from_agent:
                return [ToAgent(failure(asked.id, INVALID_REQUEST, _SAME_ID))]
            self._from_agent[key] = asked
            actions = self.recorded(asked.session_id, events.asked_by_agent(asked))
        return actions + self._shown(message)

    def _shown(self, message: Message) -> Actions:
        passed = self.sessions.for_client(message)
        return [PASS] if passed is message else [ToClient(passed)]

    def _agent_answers(self, message: Message) -> Actions:
        number = message.get("id")
        if (ours := self.jobs.answered(number, message)) is not None:
            return ours
        pending = self.unanswered(number)
        if pending is None:  # for a line that was not a message, a duplicate answer, or a late one
            return [PASS] if number is None else []
        try:
            actions = self._answered(pending, message)
        except Exception as error:  # noqa: BLE001 — the client waits for the answer
            log_failure(f"the answer to {pending.method} could not be handled", error)
            actions = [PASS]
        return actions + self.jobs.checked_waits()

    def _answered(self, pending: Pending, message: Message) -> Actions:
        result, passed = message.get("result"), message
        if message.get("error") is not None or "result" not in message:
            passed = with_whole_error(message)
            if pending.method == "initialize" and self.initialize_params is not pending.params:
                self._refuses_version_1 = True  # perhaps: it gets the client's own offer
                return self.again(request(pending.id, "initialize", pending.params))
        elif pending.method == "initialize" and isinstance(result, dict):
            return self._negotiated(pending, message, result)
        elif pending.method in ("authenticate", "logout"):
            self.login = pending.params if pending.method == "authenticate" else None
        actions = self.recorded(pending.session_id, events.answered_by_agent(pending, passed, self.stamp()))
        if actions and pending.method == "session/prompt":
            actions.append(Checkpoint(pending.session_id or ""))
            if pending.note and as_object(result).get("stopReason") in (None, "refusal"):  # the model may lack it
                state = self.sessions[pending.session_id or ""]
                state.note = state.note or pending.note
        return [*actions, PASS if passed is message else ToClient(passed)]

    def _negotiated(self, pending: Pending, message: Message, result: Message) -> Actions:
        """Handle the agent's answer to ``initialize``. Another version of the protocol is passed on unrecorded."""
        if self.introduced(result):
            return [ToClient({**message, "result": offered(result)})]
        why = (
            f"the agent speaks version {result.get('protocolVersion')} of ACP, and asnap records version {VERSION}"
        )

        def with_acp_metadata() -> Steps[None]:
            yield Do(lambda _sessions: self._on_unrecorded(why))

        kept = self.start(Job(with_acp_metadata()))
        if self._must_record:
            self.is_over = True
            text = f"this connection cannot be recorded, and --require was given: {why}"
            return [*kept, ToClient(failure(pending.id, UNSUPPORTED_VERSION, text)), GiveUp(text)]
        self.unrecorded = why
        return [*kept, Say(f"the sessions of this connection are NOT recorded: {why}", is_warning=True), PASS]

    def _told_unrecorded(self, message: Message) -> Actions:
        """Tell the user, in a session that the agent has just opened, that it is not recorded."""
        opened = None if "method" in message else self.unanswered(message.get("id"))
        if opened is None or not isinstance(result := message.get("result"), dict):
            return []
        session_id = result.get("sessionId", opened.session_id)
        told = chunk(f"asnap: this session is not recorded, because {self.unrecorded}.\n\n")
        return [shown(session_id, {**told, "messageId": "asnap-unrecorded"})] if isinstance(session_id, str) else []

    def recorded(self, session_id: str | None, event: Message | None) -> Actions:
        """Record *event*, unless it is None or the session is not open here."""
        if event is None or session_id is None or not self.sessions.is_open(session_id):
            return []
        return [RecordEvent(session_id, event, not events.DURABLE.isdisjoint(event))]

    def introduced(self, result: Message) -> bool:
        """Handle the agent's answer to ``initialize``; False for another version of the protocol."""
        if result.get("protocolVersion") != VERSION:
            return False
        self.capabilities, info = as_object(result.get("agentCapabilities")), as_object(result.get("agentInfo"))
        if self.only_known:
            self.capabilities = {"loadSession": self._remembers, "sessionCapabilities": {"close": {}}}
        known = {key: info[key] for key in ("name", "version") if isinstance(info.get(key), str)}
        self.agent = AgentInfo(command=self.agent.command, **({"name": self.agent.name} | known))
        return True

    def again(self, message: Message, problem: Exception | None = None) -> Actions:
        """Call `from_client` for a message that had to wait; *problem*: for a restore that failed.

        Then requests for the agent are refused. Those that are answered here, such as a close, do not need it.
        """
        if problem is not None and message["method"] not in self._methods:
            return [ToClient(refusal(Pending.of(message), problem))]
        return [ToAgent(message) if action is PASS else action for action in self.from_client(message)]

    # For jobs ---------------------------------------------------------------------------------------------

    @property
    def client_shows_restores(self) -> bool:
        """Whether the client wants the report on each restore, because it shows them itself."""
        return bool(as_object(as_object(self.client_capabilities.get("_meta")).get("asnap")).get("restored"))

    def can(self, name: str) -> bool:
        """Whether the agent itself advertises a session method: ``load``, ``resume``, ``list`` and the like."""
        if name == "load":
            return self.capabilities.get("loadSession") is True
        return as_object(self.capabilities.get("sessionCapabilities")).get(name) is not None

    def stamp(self) -> str:
        """Return the current time in the format of events."""
        return rfc3339(self.clock())

    def agent_event(self, agent_id: str) -> Message:
        """Build the event that this agent has the session now, under this id, and how it can restore it."""
        able = {"load": self.can("load"), "resume": self.can("resume")}
        return {"agent": {"sessionId": agent_id, "info": self.agent.raw(), "able": able}}

    def prompts(self, session_id: str | None = None) -> list[Pending]:
        """Return the unanswered prompts of one session, or of all."""
        waiting = [pending for pending in self._from_client.values() if pending.method == "session/prompt"]
        return [pending for pending in waiting if session_id in (None, pending.session_id)]

    def unanswered(self, request_id: Any) -> Pending | None:
        """Remove a pending request of the client and return it; None if it is not pending."""
        return self._from_client.pop(key_of(request_id), None)

    def answer_instead(self, pending: Pending, result: Message) -> Actions:
        """Answer a request that the agent does not answer. A later answer of the agent is ignored."""
        self.unanswered(pending.id)
        event = events.answered_by_agent(pending, {"result": result}, self.stamp())
        return [*self.recorded(pending.session_id, event), ToClient(success(pending.id, result))]

    def late_news(self, session_id: str) -> Iterator[RecordEvent | ToClient]:
        """Show the held updates of a session that are no repetition."""
        late = self.sessions[session_id].late
        return show(session_id, () if late is None else late.rest())

    def bind(self, session_id: str, agent_id: str) -> list[Message]:
        """Open the session under the agent's id. Returns the updates held for it since it was created."""
        self.sessions.bind(session_id, agent_id)
        for other in self.sessions.sharing(session_id):
            if self.prompts(other):  # what the agent says belongs to that one until its turn ends
                self.sessions.turn_to(other)
        return self.withheld.strays.pop(agent_id, [])

    # For the supervisor -----------------------------------------------------------------------------------

    def cut_connection(self) -> tuple[list[Pending], Actions]:
        """Reset the connection to an ended agent. Returns the pending requests, and the actions of failed jobs."""
        waiting, self._from_client = list(self._from_client.values()), {}
        self._from_agent.clear()
        self.sessions.agent_ended()
        return waiting, self.jobs.agent_gone(is_busy=bool(waiting))

    def initialize_again(self, pending: Pending) -> None:
        """Send the client's ``initialize``, which an ended agent has not answered, to its next process."""
        self.initialize_params = None
        self._queue.insert(0, request(pending.id, pending.method, pending.params))

    def release_queue(self) -> Actions:
        """Send our requests and handle the messages that waited for the agent."""
        waiting, self._queue = self._queue, []
        return [*self.jobs.released(), *(action for message in waiting for action in self.again(message))]


def _passed(message: Message, passed: Message) -> Actions:
    return [PASS] if passed is message else [ToAgent(passed)]
