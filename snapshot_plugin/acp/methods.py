"""The session methods that clients get with any agent: new, load, resume, fork, close, delete, list.

Each is a job for one request: its return value is the answer, and an exception becomes an error answer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from snapshot_plugin.acp.actions import (
    AgentRefused,
    Ask,
    Checkpoint,
    Do,
    EarlyAnswer,
    RecordEvent,
    Say,
    Steps,
    ToAgent,
    Wait,
    shown,
)
from snapshot_plugin.acp.core import Core, Method
from snapshot_plugin.acp.listing import ListMethod, deleted, names_of
from snapshot_plugin.acp.messages import RESOURCE_NOT_FOUND, Message, Pending, as_object, chunk, notification
from snapshot_plugin.acp.replay import LateReplay, replay, show
from snapshot_plugin.acp.restore import Grade, Restored, RestoreRequest, restore
from snapshot_plugin.acp.sessions import SessionState
from snapshot_plugin.acp.state import PROVIDER, acp_metadata, note_pending, setup_in, stored_setup
from snapshot_plugin.errors import InvalidInput, SnapshotError, SnapshotNotFound
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.ids import is_companion, local_id, new_id
from snapshot_plugin.model.lineage import fork as forked
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import Trashed

if TYPE_CHECKING:
    from snapshot_plugin.live.outcome import Outcome
    from snapshot_plugin.live.recovery import Spooled
    from snapshot_plugin.live.session import LiveSession
    from snapshot_plugin.live.sessions import LiveSessions

__all__ = ["SessionMethods", "begin"]

_T = TypeVar("_T")
_SETTINGS = ("modes", "models", "configOptions")
_CANCEL_WITHIN = 5.0


class SessionMethods:
    """The methods of one connection.

    Args:
        adopt: the stored session that the client's first ``session/new`` continues, for `Core`.
        only_stored: refuse to begin new sessions.
        restores: restore sessions on load and resume; otherwise the agent loads and replays them itself.
        only_own: list only recorded sessions of this agent.
        on_deleted: called with each session the client deleted, for an undo. May block.
        names_sessions: put ``sessionId`` into the first answer about a session; the SDK's HTTP server routes by it.
    """

    def __init__(
        self,
        *,
        adopt: str | None = None,
        only_stored: bool = False,
        restores: bool = True,
        only_own: bool = False,
        on_deleted: Callable[[Trashed], object] = lambda _trashed: None,
        names_sessions: bool = False,
    ) -> None:
        self.adopt, self._only_stored, self._restores = adopt, only_stored, restores
        self._on_deleted, self._names_sessions = on_deleted, names_sessions
        self._listing = ListMethod(only_own=only_own)

    def by_name(self) -> dict[str, Method]:
        """Return the methods that are answered here, by name."""
        own: dict[str, Method] = {
            "session/new": self.new, "session/list": self._listing.list, "session/fork": self.fork,
            "session/close": self.close, "session/delete": self.delete,
        }  # fmt: skip
        return own | dict.fromkeys(("session/load", "session/resume"), self.load)

    # Beginning --------------------------------------------------------------------------------------------

    def new(self, core: Core, pending: Pending) -> Steps[Message]:
        """Start a session; durable before the client gets its id. The first may resume a stored session."""
        if pending.session_id is not None and pending.session_id == core.adopt:
            return (yield from self._continued(core, pending, core.adopt))
        if self._only_stored:
            raise InvalidInput("only stored sessions may continue here (--resume required); load one, or name it")
        with core.withheld.making_sessions():
            result = yield Ask("session/new", pending.params)
            agent_id = result.get("sessionId")
            if not isinstance(agent_id, str):
                why = "the agent gave it an id that is not text"
                yield Say(f"a session is NOT recorded: {why}", is_warning=True)
                return {**result, "_meta": _meta(result, {"recorded": False, "problem": why})}
            core.sessions.claim(agent_id)
            first = {**core.agent_event(agent_id), "new": stored_setup(pending.params), "config": result}
            session_id, problem = yield Do(lambda sessions: _begun(sessions, agent_id, first))
            state = core.sessions[session_id]
            state.setup, state.is_named = setup_in(pending.params), True
            meta = {} if problem is None else {"_meta": _meta(result, {"recorded": False, "problem": problem})}
            yield EarlyAnswer({**result, "sessionId": session_id, **meta})
            if problem is not None:
                yield Say(f"session {session_id} is NOT recorded: {problem}", is_warning=True)
            yield from show(session_id, core.bind(session_id, agent_id))
        return {}

    def _continued(self, core: Core, pending: Pending, session_id: str) -> Steps[Message]:
        if core.sessions.is_open(session_id):
            answer = self._as_it_is(core.sessions[session_id], core.view(session_id))
        else:
            answer = (yield from _restored(core, session_id, setup_in(pending.params))).answer()
        core.adopt = None
        yield EarlyAnswer({"sessionId": session_id, **answer})
        yield from _replayed(core, session_id)  # after the answer: clients drop updates for unknown sessions
        return {}

    # Restoring ------------------------------------------------------------------------------------------

    def load(self, core: Core, pending: Pending) -> Steps[Message]:
        """Restore a session; ``session/load`` also replays it. The turn of an open session continues."""
        session_id, replays = _named(pending), pending.method == "session/load"
        if core.sessions.is_open(session_id):
            snapshot = core.view(session_id)
            if replays:
                yield from _replay(core, snapshot)
            return self._as_it_is(core.sessions[session_id], snapshot)
        try:
            if not self._restores:
                return (yield from _opened(core, session_id, _left_to_the_agent(core, pending, session_id)))
            restored = yield from _restored(core, session_id, setup_in(pending.params))
        except SnapshotNotFound:
            return (yield from _from_the_agent(core, pending, session_id))
        if replays:
            yield from _replayed(core, session_id)
        yield EarlyAnswer(self._name(core.sessions[session_id]) | restored.answer())
        if restored.news and not replays:
            yield shown(session_id, chunk(restored.news))
        return {}

    def _name(self, state: SessionState) -> Message:
        if not self._names_sessions or state.is_named:
            return {}
        state.is_named = True
        return {"sessionId": state.id}

    def _as_it_is(self, state: SessionState, snapshot: SessionSnapshot) -> Message:
        acp = acp_metadata(snapshot)
        settings = {name: thaw(acp[name]) for name in _SETTINGS if name in acp}
        tried = ("the session is open here",)
        grade: Grade = "context" if note_pending(snapshot) else "native-load"
        restored = Restored(state.id, grade, "", settings, None, tried, snapshot)
        return self._name(state) | restored.answer()

    def fork(self, core: Core, pending: Pending) -> Steps[Message]:
        """Start a new session as a copy of another.

        ``_meta.asnap.at`` limits it to the first messages; ``_meta.asnap.title`` names it.
        """
        parent_id, (at, title) = _named(pending), _fork_options(pending)
        parent: Spooled = yield Do(lambda sessions: sessions.newest(parent_id))
        child = forked(parent.snapshot, session_id=new_id(), seq=parent.seq, messages=at, now=core.clock())
        child = child if title is None else child.evolve(title=title)
        setup = {key: value for key, value in pending.params.items() if key not in ("sessionId", "_meta")}
        first = {"new": stored_setup({"cwd": parent.snapshot.config.cwd, **setup})}
        child_id = child.session_id
        try:
            yield Do(lambda sessions: _ensure_recorded(sessions.begin(child, first)))
            request = RestoreRequest(child_id, setup, core.require, _own_fork(core, parent_id, parent.snapshot, at))
            restored = yield from restore(core, request)
        except Exception:
            core.sessions.close(child_id)
            with suppress(SnapshotError):
                yield Do(lambda sessions: sessions.delete(child_id))  # the client never got its id
            raise
        state = core.sessions[child_id]
        state.note, state.is_named = state.note or core.sessions[parent_id].note, True
        yield Checkpoint(child_id)
        return {**restored.answer(), "sessionId": child_id}

    # Ending -----------------------------------------------------------------------------------------------

    def close(self, core: Core, pending: Pending) -> Steps[Message]:
        """Cancel the running turn, save the session, and release it."""
        session_id = _named(pending)
        is_ours = core.sessions.is_open(session_id)
        if not is_ours and (core.only_known or not core.can("close")):
            raise SnapshotNotFound(f"session {session_id} is not open", session_id=session_id)
        yield from _settled(core, session_id)
        is_lost = core.sessions.status(session_id) == "lost"
        if core.can("close") and not is_lost and not core.sessions.sharing(session_id):
            try:
                yield Ask("session/close", {"sessionId": core.sessions.agents_id(session_id)})
            except AgentRefused as refused:
                if not is_ours:
                    raise
                yield Say(f"the agent did not close {session_id}", str(refused))
        yield from core.late_news(session_id)
        core.sessions.close(session_id)  # first: later updates would not be recorded, so they are not shown
        outcome: Outcome = yield Do(lambda sessions: sessions.finish(session_id))
        if outcome.status == "failed":
            yield Say(f"session {session_id} is not saved: {outcome.problem}")
            return {"_meta": {"asnap": {"saved": False, "problem": outcome.problem}}}
        return {}

    def delete(self, core: Core, pending: Pending) -> Steps[Message]:
        """Move the session to the trash, and delete it in the agent. Deleting an unknown session succeeds."""
        session_id = _named(pending)
        yield from _settled(core, session_id)
        names = yield Do(lambda sessions: names_of(sessions, session_id))
        is_there = core.sessions.status(session_id) == "open"
        if is_there and core.can("close") and not core.sessions.sharing(session_id):
            with suppress(AgentRefused):  # some agents do not delete an open session
                yield Ask("session/close", {"sessionId": core.sessions.agents_id(session_id)})
        if core.sessions.is_open(session_id):  # first: later updates would not be recorded, so they are not shown
            core.sessions.close(session_id)
        trashed = yield Do(lambda sessions: deleted(sessions, session_id, names))
        core.sessions.close(session_id)
        if trashed is not None:
            yield Do(lambda _sessions: self._on_deleted(trashed))
        for name in names if core.can("delete") else ():
            if core.sessions.is_held(name):  # another session that is open has this id, too
                continue
            try:
                yield Ask("session/delete", {"sessionId": name})
            except AgentRefused as refused:
                yield Say(f"the agent did not delete {session_id}", str(refused))
        return {}


# Steps that several methods share -------------------------------------------------------------------------


def _opened(core: Core, session_id: str, steps: Steps[_T]) -> Steps[_T]:
    """Resume recording a stored session and run *steps*, which open it in the agent; release it if they fail."""
    yield Do(lambda sessions: sessions.resume(session_id))
    core.sessions.open(session_id)
    try:
        return (yield from steps)
    except Exception:
        core.sessions.close(session_id)
        yield Do(lambda sessions: sessions.finish(session_id))
        raise


def _restored(core: Core, session_id: str, setup: Message) -> Steps[Restored]:
    restored = yield from _opened(core, session_id, restore(core, RestoreRequest(session_id, setup, core.require)))
    yield from announce_restore(core, restored)
    return restored


def announce_restore(core: Core, restored: Restored) -> Steps[None]:
    """Record text that the agent added during the restore, and print the grade unless the client shows it."""
    session_id = restored.session_id
    if restored.news:
        yield RecordEvent(session_id, {"update": chunk(restored.news)})
    yield Checkpoint(session_id)
    if not core.client_shows_restores:
        yield Say(f"session {session_id} was restored ({restored.grade}, {len(restored.record.messages)} messages)")


def _replayed(core: Core, session_id: str) -> Steps[None]:
    # not `core.view`: the snapshot must include what earlier steps recorded
    snapshot = yield Do(lambda sessions: sessions.open[session_id].snapshot())
    yield from _replay(core, snapshot)


def _replay(core: Core, snapshot: SessionSnapshot) -> Steps[None]:
    is_running = bool(core.prompts(snapshot.session_id))
    for update in replay(snapshot, core.client_capabilities, is_running=is_running):
        yield shown(snapshot.session_id, update)


def _from_the_agent(core: Core, pending: Pending, session_id: str) -> Steps[Message]:
    """Load a session that was never recorded: if the agent has it, its replay becomes the record."""
    is_able = core.can(pending.method.removeprefix("session/"))
    if not is_able or core.only_known or core.sessions.is_anothers(session_id, session_id):
        raise SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)
    if is_companion(session_id):  # lists would hide it
        raise InvalidInput(f"the id {session_id} is reserved: it cannot be recorded")
    with core.withheld.making_sessions():
        with core.withheld.of(session_id) as held:
            try:
                result = yield Ask(pending.method, pending.params)
            except AgentRefused as refused:
                if refused.code is None or refused.wants_login:
                    raise
                raise AgentRefused(str(refused), refused.error, code=RESOURCE_NOT_FOUND) from refused
        first = {**core.agent_event(session_id), "new": stored_setup(pending.params)}
        yield Do(lambda sessions: begin(sessions, session_id, first))
        yield from show(session_id, [*held, *core.bind(session_id, session_id)])
    core.sessions[session_id].setup = setup_in(pending.params)
    yield RecordEvent(session_id, {"stop": {}, "config": result}, durable=True)
    yield Checkpoint(session_id)
    return dict(result)


def _left_to_the_agent(core: Core, pending: Pending, session_id: str) -> Steps[Message]:
    """Have the agent load a recorded session itself, and resume recording. Its replay is not recorded again."""
    record = core.view(session_id)
    agent_id = record.agent_session_id or session_id
    if core.sessions.is_anothers(agent_id, session_id):
        what = f"the agent has another open session under the id of this one: {agent_id!r}"
        raise SnapshotError(what, session_id=session_id, hint="close that session first")
    state = core.sessions[session_id]
    state.late = late = LateReplay(record)
    core.bind(session_id, agent_id)
    with core.withheld.of(agent_id) as held:
        result: Message = yield Ask(pending.method, {**pending.params, "sessionId": agent_id})
    state.setup = setup_in(pending.params)
    late.replayed(held)
    yield from (shown(session_id, update) for update in held)
    yield RecordEvent(session_id, {**core.agent_event(agent_id), "config": result}, durable=True)
    return result


def _settled(core: Core, session_id: str) -> Steps[None]:
    """Cancel the running turn. If the agent does not end it in time, answer the client as cancelled."""
    if not core.prompts(session_id):
        return
    yield ToAgent(notification("session/cancel", {"sessionId": core.sessions.agents_id(session_id)}))
    yield Wait(lambda _now: not core.prompts(session_id), min(_CANCEL_WITHIN, core.timeout))
    for pending in core.prompts(session_id):
        yield from core.answer_instead(pending, {"stopReason": "cancelled"})


def _own_fork(core: Core, parent_id: str, parent: SessionSnapshot, at: int | None) -> str | None:
    """Return the agent's id of the parent, if a fork by the agent would copy the whole record; else None."""
    is_whole = at in (None, len(parent.messages)) and not core.prompts(parent_id)
    if (
        not core.can("fork")
        or not is_whole
        or core.sessions.status(parent_id) == "lost"
        or core.sessions[parent_id].note
    ):
        return None
    return parent.agent_session_id


# With the live sessions, in a thread that may block -------------------------------------------------------


def begin(sessions: LiveSessions, session_id: str, first: Message) -> str | None:
    """Start recording a new session. Returns why it is not recorded yet, or None."""
    now = sessions.clock()
    blank = SessionSnapshot(session_id=session_id, created_at=now, updated_at=now, provider_type=PROVIDER)
    live = sessions.begin(blank, {"provider_type": PROVIDER, **first})
    return str(live.trouble) if live.trouble is not None else None


def _begun(sessions: LiveSessions, agent_id: str, first: Message) -> tuple[str, str | None]:
    """Return our id of a new session, and why it is not recorded.

    A taken id is replaced, as agents count from 0. So is one that would make it a hidden part of another session.
    """
    try:
        if local_id(agent_id) == agent_id and not _is_taken(sessions, agent_id):
            return agent_id, begin(sessions, agent_id, first)
    except (SnapshotError, ValueError):
        pass  # another process has just taken that id, or it is not a valid id here
    session_id = new_id()
    return session_id, begin(sessions, session_id, first)


def _is_taken(sessions: LiveSessions, session_id: str) -> bool:
    try:
        return sessions.has(session_id)
    except (SnapshotError, OSError):
        return False  # `begin` reports the failure


def _ensure_recorded(live: LiveSession) -> None:
    """Raise the error that keeps a session from being recorded, if there is one."""
    if live.trouble is not None:
        raise live.trouble


# Values ---------------------------------------------------------------------------------------------------


def _named(pending: Pending) -> str:
    if pending.session_id is None:
        raise InvalidInput(f"{pending.method} needs a sessionId that is text")
    return pending.session_id


def _fork_options(pending: Pending) -> tuple[int | None, str | None]:
    """How many messages a fork keeps, and its title; None where the client leaves it open."""
    options = as_object(pending.params.get("_meta")).get("asnap")
    at, title = (options.get("at"), options.get("title")) if isinstance(options, dict) else (None, None)
    if (
        not isinstance(options, dict | None)
        or type(at) not in (int, type(None))
        or not isinstance(title, str | None)
    ):
        raise InvalidInput(f"_meta.asnap is {options!r}", hint='use {"at": <messages to keep>, "title": <name>}')
    if title is not None:
        from snapshot_plugin.manager.labels import checked_name  # noqa: PLC0415 — few forks have a title

        title = checked_name(title)
    return at, title


def _meta(result: Message, ours: Message) -> Message:
    return {**as_object(result.get("_meta")), "asnap": ours}
