"""The session methods a client is offered whatever the agent can do: new, load, resume, fork, close, delete, list.

Each is work in several steps for one request: what it returns is the answer, what it raises an error answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

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
    chunk,
    shown,
)
from snapshot_plugin.acp.core import Core, Method
from snapshot_plugin.acp.live_work import PROVIDER, begin, begun, deleted, deleted_names, ensure_recorded, names_of
from snapshot_plugin.acp.messages import RESOURCE_NOT_FOUND, Message, Pending, notification
from snapshot_plugin.acp.offers import merged_list, page
from snapshot_plugin.acp.replay import TOOL_BYTES, replay
from snapshot_plugin.acp.restore import Restored, Wish, restore, show
from snapshot_plugin.acp.state import stored_setup
from snapshot_plugin.errors import InvalidInput, SnapshotError, SnapshotNotFound
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.model.lineage import fork as forked
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import StoredSnapshot, Trashed

if TYPE_CHECKING:
    from snapshot_plugin.live.outcome import Outcome
    from snapshot_plugin.live.sessions import LiveSessions

__all__ = ["PROVIDER", "SessionMethods"]

_AGENT_PAGES = 20
_SETTINGS = ("modes", "models", "configOptions")
_CANCEL_WITHIN = 5.0


class SessionMethods:
    """The methods of one connection.

    Args:
        adopt: a stored session that the client's first ``session/new`` continues.
        only_stored: refuse to begin new sessions.
        restores: answer load and resume here; else both are the agent's own.
        only_own: list only sessions of this very agent.
        on_deleted: told what the client deleted, so that it can be undone. May block.
        names_sessions: name a session in the first answer about it, for the routes of the SDK's HTTP server.
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
        self._adopt, self._only_stored, self._restores = adopt, only_stored, restores
        self._only_own, self._on_deleted, self._names_sessions = only_own, on_deleted, names_sessions
        self._named: set[str] = set()
        self._aliases: dict[tuple[str, int], tuple[str, ...]] = {}

    def by_name(self) -> dict[str, Method]:
        """What is answered here, by method."""
        own: dict[str, Method] = {
            "session/new": self.new, "session/list": self.list, "session/fork": self.fork,
            "session/close": self.close, "session/delete": self.delete,
        }  # fmt: skip
        return own | ({"session/load": self.load, "session/resume": self.resume} if self._restores else {})

    # Beginning --------------------------------------------------------------------------------------------

    def new(self, core: Core, pending: Pending) -> Steps[Message]:
        """Begin a session; durable before the client gets its id. The first may continue a stored session."""
        adopted, self._adopt = self._adopt, None
        if adopted is not None:
            try:
                return (yield from self._continued(core, pending, adopted))
            except Exception:
                self._adopt = adopted  # the client may log in and ask again
                raise
        if self._only_stored:
            raise InvalidInput("only stored sessions may continue here (--resume required); load one, or name it")
        with core.making_sessions():
            result = yield Ask("session/new", pending.params)
            agent_id = result.get("sessionId")
            if not isinstance(agent_id, str):
                return dict(result)
            first = {**core.agent_event(agent_id), "new": stored_setup(pending.params), "config": result}
            try:
                session_id, problem = yield Do(lambda sessions: begun(sessions, agent_id, first))
            except (SnapshotError, OSError) as error:  # the session matters more than its record
                session_id, problem = agent_id, str(error)
            core.setups[session_id] = _setup(pending.params)
            self._named.add(session_id)
            meta = {} if problem is None else {"_meta": _meta(result, {"recorded": False, "problem": problem})}
            yield EarlyAnswer({**result, "sessionId": session_id, **meta})
            if problem is not None:
                yield Say(f"session {session_id} is NOT recorded: {problem}")
            yield from show(session_id, core.bind(session_id, agent_id))
        return {}

    def _continued(self, core: Core, pending: Pending, session_id: str) -> Steps[Message]:
        restored = yield from _opened(core, session_id, _setup(pending.params))
        yield EarlyAnswer({"sessionId": session_id, **restored.answer()})
        yield from _replayed(core, session_id)  # after the answer: clients drop updates of unknown sessions
        return {}

    # Restoring ------------------------------------------------------------------------------------------

    def load(self, core: Core, pending: Pending) -> Steps[Message]:
        """Bring a session back and replay it. An open session is only replayed: its turn continues."""
        session_id = _named(pending)
        if session_id in core.open:
            snapshot = core.view(session_id)
            yield from _replay(core, snapshot)
            return self._as_it_is(session_id, snapshot)
        try:
            restored = yield from _opened(core, session_id, _setup(pending.params))
        except SnapshotNotFound:
            return (yield from _from_the_agent(core, pending, session_id))
        yield from _replayed(core, session_id)
        return self._name(session_id) | restored.answer()

    def resume(self, core: Core, pending: Pending) -> Steps[Message]:
        """Bring a session back without replaying it."""
        session_id = _named(pending)
        if session_id in core.open:
            return self._as_it_is(session_id, core.view(session_id))
        try:
            restored = yield from _opened(core, session_id, _setup(pending.params))
        except SnapshotNotFound:
            return (yield from _from_the_agent(core, pending, session_id))
        yield EarlyAnswer(self._name(session_id) | restored.answer())
        if restored.news:
            yield shown(session_id, chunk(restored.news))
        return {}

    def _name(self, session_id: str) -> Message:
        if not self._names_sessions or session_id in self._named:
            return {}
        self._named.add(session_id)
        return {"sessionId": session_id}

    def _as_it_is(self, session_id: str, snapshot: SessionSnapshot) -> Message:
        acp = snapshot.raw().get("metadata", {}).get("acp") or {}
        settings = {name: acp[name] for name in _SETTINGS if name in acp}
        tried = ("the session is open here",)
        restored = Restored(session_id, "native-load", "", settings, None, tried, snapshot)
        return self._name(session_id) | restored.answer()

    def fork(self, core: Core, pending: Pending) -> Steps[Message]:
        """A new session that begins as a copy; with ``_meta.asnap.at`` a copy of so many messages."""
        parent_id, at = _named(pending), _fork_point(pending)
        parent: StoredSnapshot = yield Do(lambda sessions: sessions.newest(parent_id))
        child = forked(parent.snapshot, session_id=new_id(), seq=parent.ref.seq, messages=at, now=core.clock())
        setup = {key: value for key, value in pending.params.items() if key not in ("sessionId", "_meta")}
        first = {"new": stored_setup({"cwd": parent.snapshot.config.cwd, **setup})}
        child_id = child.session_id
        yield Do(lambda sessions: ensure_recorded(sessions.begin(child, first)))
        try:
            wish = Wish(child_id, setup, core.require, _own_fork(core, parent_id, parent.snapshot, at))
            restored = yield from restore(core, wish)
        except Exception:
            core.drop(child_id)
            yield Do(lambda sessions: sessions.delete(child_id))  # a fork that the client did not get is no session
            raise
        if parent_id in core.notes and child_id not in core.notes:
            core.notes[child_id] = core.notes[parent_id]
        yield Checkpoint(child_id)
        self._named.add(child_id)
        return {**restored.answer(), "sessionId": child_id}

    # Ending -----------------------------------------------------------------------------------------------

    def close(self, core: Core, pending: Pending) -> Steps[Message]:
        """Cancel and settle running work, save the session, and let go of it."""
        session_id = _named(pending)
        is_ours = session_id in core.open
        if not is_ours and (core.only_known or not core.can("close")):
            raise SnapshotNotFound(f"session {session_id} is not open", session_id=session_id)
        yield from _settled(core, session_id)
        if core.can("close") and session_id not in core.lost:
            try:
                yield Ask("session/close", {"sessionId": core.ids.agents(session_id)})
            except AgentRefused as refused:
                if not is_ours:
                    raise
                yield Say(f"the agent did not close {session_id}", str(refused))
        _forget(core, session_id)  # first: what the agent says from now on is not shown, because nobody records it
        outcome: Outcome = yield Do(lambda sessions: sessions.finish(session_id))
        if outcome.status == "failed":
            yield Say(f"session {session_id} is not saved: {outcome.problem}. Its spool is kept.")
            return {"_meta": {"asnap": {"saved": False, "problem": outcome.problem}}}
        return {}

    def delete(self, core: Core, pending: Pending) -> Steps[Message]:
        """Move the session to the trash, and delete it in the agent; deleting an unknown session succeeds."""
        session_id = _named(pending)
        yield from _settled(core, session_id)
        names = yield Do(lambda sessions: names_of(sessions, session_id))
        if session_id in core.open and session_id not in core.lost and core.can("close"):
            with suppress(AgentRefused):  # some agents do not delete what is open
                yield Ask("session/close", {"sessionId": core.ids.agents(session_id)})
        if session_id in core.open:
            _forget(core, session_id)
        trashed = yield Do(lambda sessions: deleted(sessions, session_id, names))
        core.closed.add(session_id)
        if trashed is not None:
            yield Do(lambda _sessions: self._on_deleted(trashed))
        for name in names if core.can("delete") else ():
            try:
                yield Ask("session/delete", {"sessionId": name})
            except AgentRefused as refused:
                yield Say(f"the agent did not delete {session_id}", str(refused))
        return {}

    # Listing ----------------------------------------------------------------------------------------------

    def list(self, core: Core, pending: Pending) -> Steps[Message]:
        """Our sessions and the agent's, each once and under our id."""
        cwd, cursor = pending.params.get("cwd"), pending.params.get("cursor")
        if not isinstance(cwd, str | None):
            raise InvalidInput("cwd is not text")
        own: list[Message] = [] if self._only_own else (yield from _agents_own(core, cwd))
        name = core.agent.name if self._only_own else None
        sessions, gone = yield Do(lambda live: self._merged(live, own, cwd, name))
        for agent_id in gone if core.can("delete") else ():  # some agents write a session again after deleting it
            with suppress(AgentRefused):
                yield Ask("session/delete", {"sessionId": agent_id})
        return page(sessions, cursor)

    def _merged(
        self, live: LiveSessions, own: Sequence[Message], cwd: str | None, name: str | None
    ) -> tuple[Sequence[Message], Sequence[str]]:
        """The list, and the ids under which the agent still has what was deleted."""
        metas = [meta for meta in live.list() if meta.provider_type == PROVIDER and name in (None, meta.agent)]
        stored = {meta.session_id for meta in metas}
        listed = {str(info.get("sessionId")) for info in own}
        known: dict[str, str] = {}
        if not listed <= stored:  # the agent may have ids of its own for ours
            for meta in metas:
                known.update(dict.fromkeys(self._names_of(live, meta.session_id, meta.seq), meta.session_id))
        gone = listed - stored - known.keys()
        gone &= deleted_names(live) if gone else frozenset()
        return merged_list(metas, own, known, cwd, deleted=gone), sorted(gone)

    def _names_of(self, live: LiveSessions, session_id: str, seq: int) -> tuple[str, ...]:
        if (session_id, seq) not in self._aliases:
            self._aliases[session_id, seq] = names_of(live, session_id)
        return self._aliases[session_id, seq]


# Steps that several methods share -------------------------------------------------------------------------


def _opened(core: Core, session_id: str, setup: Message) -> Steps[Restored]:
    """Take a stored session and bring it back; given up again if that fails."""
    yield Do(lambda sessions: sessions.resume(session_id))
    core.open.add(session_id)
    try:
        restored = yield from restore(core, Wish(session_id, setup, core.require))
    except Exception:
        core.drop(session_id)
        yield Do(lambda sessions: sessions.finish(session_id))
        raise
    yield from told(restored)
    return restored


def told(restored: Restored) -> Steps[None]:
    """Record what the agent said by itself, and say how the session came back."""
    session_id = restored.session_id
    if restored.news:
        yield RecordEvent(session_id, {"update": chunk(restored.news)})
    yield Checkpoint(session_id)
    yield Say(f"session {session_id} was restored ({restored.grade}, {len(restored.record.messages)} messages)")


def _replayed(core: Core, session_id: str) -> Steps[None]:
    snapshot = yield Do(lambda sessions: sessions.open[session_id].snapshot())
    yield from _replay(core, snapshot)


def _replay(core: Core, snapshot: SessionSnapshot) -> Steps[None]:
    is_running = bool(core.prompts(snapshot.session_id))
    for update in replay(snapshot, core.client_capabilities, tool_bytes=TOOL_BYTES, is_running=is_running):
        yield shown(snapshot.session_id, update)


def _from_the_agent(core: Core, pending: Pending, session_id: str) -> Steps[Message]:
    """A session we never saw: if the agent has it, its replay becomes our record."""
    method = pending.method
    is_able = core.capabilities.get("loadSession") is True if method == "session/load" else core.can("resume")
    if not is_able or core.only_known:
        raise SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)
    with core.making_sessions():
        with core.withholding(session_id) as held:
            try:
                result = yield Ask(method, pending.params)
            except AgentRefused as refused:
                if refused.code is None or refused.wants_login:
                    raise
                raise AgentRefused(str(refused), refused.error, code=RESOURCE_NOT_FOUND) from refused
        first = {**core.agent_event(session_id), "new": stored_setup(pending.params)}
        yield Do(lambda sessions: begin(sessions, session_id, first))
        yield from show(session_id, [*held, *core.bind(session_id, session_id)])
    core.setups[session_id] = _setup(pending.params)
    yield RecordEvent(session_id, {"stop": {}, "config": result}, durable=True)
    yield Checkpoint(session_id)
    return dict(result)


def _settled(core: Core, session_id: str) -> Steps[None]:
    """Cancel the turn that runs. One that does not end is ended for the client."""
    if not core.prompts(session_id):
        return
    yield ToAgent(notification("session/cancel", {"sessionId": core.ids.agents(session_id)}))
    yield Wait(lambda _now: not core.prompts(session_id), min(_CANCEL_WITHIN, core.patience))
    for pending in core.prompts(session_id):
        yield from core.answer_instead(pending, {"stopReason": "cancelled"})  # type: ignore[misc]  # are steps


def _agents_own(core: Core, cwd: str | None) -> Steps[list[Message]]:
    sessions: list[Message] = []
    if not core.can("list"):
        return sessions
    params: Message = {"cwd": cwd} if cwd else {}
    try:
        for _ in range(_AGENT_PAGES):
            result = yield Ask("session/list", params)
            listed = result.get("sessions")
            sessions += [info for info in listed if isinstance(info, dict)] if isinstance(listed, list) else []
            if not isinstance(result.get("nextCursor"), str):
                break
            params = {**params, "cursor": result["nextCursor"]}
    except AgentRefused as refused:
        yield Say("the agent cannot list its sessions", str(refused))
    return sessions


def _forget(core: Core, session_id: str) -> None:
    core.drop(session_id)
    core.closed.add(session_id)


def _own_fork(core: Core, parent_id: str, parent: SessionSnapshot, at: int | None) -> str | None:
    """The agent's id of the parent, if its own fork would be a copy of the whole record."""
    is_whole = at in (None, len(parent.messages)) and not core.prompts(parent_id)
    if not core.can("fork") or not is_whole or parent_id in core.lost or parent_id in core.notes:
        return None
    return parent.agent_session_id


# Values ---------------------------------------------------------------------------------------------------


def _named(pending: Pending) -> str:
    if pending.session_id is None:
        raise InvalidInput(f"{pending.method} needs a sessionId that is text")
    return pending.session_id


def _fork_point(pending: Pending) -> int | None:
    meta = pending.params.get("_meta")
    wish = meta.get("asnap") if isinstance(meta, dict) else None
    if wish is None:
        return None
    at = wish.get("at") if isinstance(wish, dict) else wish
    if isinstance(wish, dict) and at is None:
        return None
    if not isinstance(at, int) or isinstance(at, bool) or not isinstance(wish, dict):
        raise InvalidInput(f"_meta.asnap is {wish!r}", hint='use {"at": <number of messages to keep>}')
    return at


def _setup(params: Message) -> Message:
    return {key: params[key] for key in ("cwd", "mcpServers", "additionalDirectories") if key in params}


def _meta(result: Message, ours: Message) -> Message:
    meta = result.get("_meta")
    return {**(meta if isinstance(meta, dict) else {}), "asnap": ours}
