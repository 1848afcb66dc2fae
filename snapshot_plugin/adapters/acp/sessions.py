"""The session methods we answer ourselves, whatever the agent can do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from snapshot_plugin.adapters.acp.journal import PROVIDER, Journal, Journals
from snapshot_plugin.adapters.acp.ladder import AgentRefused, Restored
from snapshot_plugin.adapters.acp.offers import BadCursor, can, merged_list, page
from snapshot_plugin.adapters.acp.relay import Relay
from snapshot_plugin.adapters.acp.replay import replay
from snapshot_plugin.adapters.acp.requests import Pending
from snapshot_plugin.adapters.acp.restore import restore
from snapshot_plugin.adapters.acp.state import stored_setup
from snapshot_plugin.adapters.acp.wire import (
    AUTH_REQUIRED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    RESOURCE_NOT_FOUND,
    Message,
    encode,
    failure,
    notification,
    success,
)
from snapshot_plugin.errors import InvalidInput, SnapshotError, SnapshotNotFound
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.model.lineage import fork
from snapshot_plugin.model.snapshot import SessionSnapshot

__all__ = ["Sessions"]

_TOOL_BYTES = 1 << 20
_AGENT_PAGES = 20


class Sessions(Relay):
    """A relay that records sessions and brings them back.

    Args:
        require: the least grade a restore may have: ``exact``, ``history`` or ``context``.
        resume: ``auto`` restores on load and resume; ``off`` leaves both to the agent alone; ``required`` also
            refuses to begin a session anew, so that nobody goes on in an empty one by mistake.
        adopt: a stored session that the client's first ``session/new`` continues.
    """

    def __init__(
        self,
        command: Sequence[str],
        journals: Journals,
        *,
        client_in: int,
        client_out: int,
        require: str = "context",
        resume: str = "auto",
        adopt: str | None = None,
    ) -> None:
        super().__init__(command, journals, client_in=client_in, client_out=client_out)
        self._require, self._adopt = require, adopt
        self.setups: dict[str, Message] = {}
        """Servers and directories as the client named them, for an agent that dies; never stored: secrets."""
        self.answered_by_us = {
            "session/list": self._list,
            "session/fork": self._fork,
            "session/close": self._close,
            "session/delete": self._delete,
        }
        if resume != "off":
            self.answered_by_us |= {"session/load": self._load, "session/resume": self._resume}
        self._only_stored = resume == "required"
        if adopt or self._only_stored:
            self.answered_by_us["session/new"] = self._new

    def _answer(self, pending: Pending, result: Message) -> None:
        self.to_client(encode(success(pending.id, result)))

    def _refuse(self, pending: Pending, code: int, text: str, **data: Any) -> None:
        self.to_client(encode(failure(pending.id, code, text, {"sessionId": pending.session_id, **data})))

    # Beginning --------------------------------------------------------------------------------------------

    def began(self, pending: Pending, result: Message) -> Message:
        """Record a session the agent has just made; durable before the client hears of it.

        Agents count their sessions from 0 in each process: one whose id is taken gets one of ours.
        """
        agent_id = result.get("sessionId")
        if not isinstance(agent_id, str):
            return result
        session_id = new_id() if self._is_taken(agent_id) else agent_id
        journal = self._record(session_id, agent_id, pending.params, result)
        if journal is None or session_id == agent_id:
            return result
        self.bind(session_id, agent_id)
        return {**result, "sessionId": session_id}

    def _is_taken(self, session_id: str) -> bool:
        try:
            return self.journals.has(session_id)
        except (SnapshotError, OSError):
            return False  # that it cannot be recorded will be said in a moment

    def _record(self, session_id: str, agent_id: str, params: Message, result: Message) -> Journal | None:
        now = datetime.now(UTC)
        self.setups[session_id] = _setup(params)
        try:
            blank = SessionSnapshot(session_id=session_id, created_at=now, updated_at=now, provider_type=PROVIDER)
            return self.journals.begin(blank, self.beginning(agent_id, params, result))
        except (SnapshotError, OSError) as error:
            self.say(f"session {session_id} is NOT recorded: {error}")
            return None

    def _new(self, pending: Pending) -> None:
        """The first new session is the stored one we were told to go on with; later ones are new."""
        session_id, self._adopt = self._adopt, None
        if session_id is None and self._only_stored:
            text = "only stored sessions may go on here (--resume required); load one, or name it with --session"
            self._refuse(pending, INVALID_PARAMS, text)
            return
        if session_id is None:
            self._plain_new(pending)
            return
        self._bring_back(pending._replace(session_id=session_id), show=True, name_it=True)

    def _plain_new(self, pending: Pending) -> None:
        try:
            result = self.ask("session/new", pending.params)
        except AgentRefused as refused:
            self._refuse(pending, refused.error.get("code", INTERNAL_ERROR), str(refused))
            return
        self._answer(pending, self.began(pending, result))

    # Coming back ------------------------------------------------------------------------------------------

    def _load(self, pending: Pending) -> None:
        self._bring_back(pending, show=True)

    def _resume(self, pending: Pending) -> None:
        self._bring_back(pending, show=False)

    def _bring_back(self, pending: Pending, *, show: bool, name_it: bool = False) -> None:
        session_id = pending.session_id or ""
        try:
            journal = self.journals.resume(session_id)
            restored, report = self.restore(journal, pending.params)
        except SnapshotNotFound:
            self._from_the_agent(pending)
            return
        except InvalidInput as error:
            self._refuse(pending, RESOURCE_NOT_FOUND, error.message)
            return
        except SnapshotError as error:
            self._refuse(pending, INTERNAL_ERROR, str(error), reason=error.code)
            return
        except AgentRefused as refused:
            self._refuse(pending, INTERNAL_ERROR, f"the agent refused: {refused}", error=refused.error)
            return
        if show:
            for update in replay(journal.snapshot(), self.client_capabilities, tool_bytes=_TOOL_BYTES):
                self.to_client(encode(notification("session/update", {"sessionId": session_id, "update": update})))
        result = {key: value for key, value in restored.result.items() if key != "sessionId"}
        named = {"sessionId": session_id} if name_it else {}
        meta = {**(result.get("_meta") or {}), "asnap": {"restored": report}}
        self._answer(pending, {**named, **result, "_meta": meta})

    def restore(self, journal: Journal, params: Message) -> tuple[Restored, Message]:
        """Bring a session back in the agent, and say how it went."""
        setup = {"cwd": journal.snapshot().config.cwd or "/", **params}
        self.setups[journal.session_id] = _setup(setup)
        restored, report = restore(self, journal, setup, require=self._require)
        journal.checkpoint()
        self.say(f"session {journal.session_id} is back: {restored.grade}, {report['messages']} messages")
        return restored, report

    def _from_the_agent(self, pending: Pending) -> None:
        """A session we never saw: if the agent can load it, its replay becomes our record."""
        method = "session/load" if pending.method == "session/new" else pending.method
        able = (
            self.capabilities.get("loadSession") is True
            if method == "session/load"
            else can(self.capabilities, "resume")
        )
        session_id = pending.session_id or ""
        if not able or pending.method == "session/new":
            self._refuse(pending, RESOURCE_NOT_FOUND, f"there is no session {session_id}")
            return
        journal = self._record(session_id, session_id, pending.params, {})
        try:
            result = self.ask(method, pending.params)
        except AgentRefused as refused:
            self._drop(journal)
            self._refuse(pending, _code_for_unknown(refused), str(refused), error=refused.error)
            return
        if journal:
            journal.record({"stop": {}, "config": result}, durable=True)
            journal.checkpoint()
        self._answer(pending, result)

    def _drop(self, journal: Journal | None) -> None:
        if journal:
            self.journals.finish(journal.session_id)
            self.journals.delete(journal.session_id)

    # Listing and the rest ---------------------------------------------------------------------------------

    def _list(self, pending: Pending) -> None:
        cwd = pending.params.get("cwd")
        try:
            metas = [meta for meta in self.journals.list() if meta.provider_type == PROVIDER]
            own, deleted = self._agents_own(cwd), self.journals.deleted()
            sessions = merged_list(metas, own, self.known_ids(), cwd, deleted=deleted)
            self._answer(pending, page(sessions, pending.params.get("cursor")))
        except BadCursor:
            self._refuse(pending, INVALID_PARAMS, "that cursor is not one of ours")
        except SnapshotError as error:
            self._refuse(pending, INTERNAL_ERROR, str(error), reason=error.code)

    def _agents_own(self, cwd: Any) -> list[Message]:
        sessions: list[Message] = []
        if not can(self.capabilities, "list"):
            return sessions
        params: Message = {"cwd": cwd} if cwd else {}
        try:
            for _ in range(_AGENT_PAGES):
                result = self.ask("session/list", params)
                sessions += [info for info in result.get("sessions") or [] if isinstance(info, dict)]
                if not result.get("nextCursor"):
                    break
                params = {**params, "cursor": result["nextCursor"]}
        except AgentRefused as refused:
            self.say(f"the agent cannot list its sessions: {refused}")
        return sessions

    def _fork(self, pending: Pending) -> None:
        """A new session that begins as a copy; by ``_meta.asnap.at`` a copy up to that message."""
        session_id = pending.session_id or ""
        wish = (pending.params.get("_meta") or {}).get("asnap") or {}
        try:
            parent, seq = self.journals.newest(session_id)
            child = fork(parent, session_id=new_id(), seq=seq, messages=wish.get("at"), now=datetime.now(UTC))
            restored, report = self._begin_fork(child, parent.config.cwd, pending.params)
        except (SnapshotNotFound, InvalidInput) as error:
            self._refuse(pending, RESOURCE_NOT_FOUND, error.message)
            return
        except (SnapshotError, AgentRefused) as error:
            self._refuse(pending, INTERNAL_ERROR, str(error))
            return
        result = {**restored.result, "sessionId": child.session_id}
        self._answer(pending, {**result, "_meta": {**(result.get("_meta") or {}), "asnap": {"restored": report}}})

    def _begin_fork(self, child: SessionSnapshot, cwd: str | None, params: Message) -> tuple[Restored, Message]:
        setup = {key: value for key, value in params.items() if key not in ("sessionId", "_meta")}
        journal = self.journals.begin(child, {"new": stored_setup({"cwd": cwd, **setup})})
        try:
            return self.restore(journal, setup)
        except (SnapshotError, AgentRefused):  # a fork that nobody got is no session
            self.journals.finish(child.session_id)
            self.journals.delete(child.session_id)
            raise

    def _close(self, pending: Pending) -> None:
        """Running work is cancelled and settled first; then the session is saved and let go."""
        session_id = pending.session_id or ""
        known = session_id in self.journals.open
        if not known and not can(self.capabilities, "close"):
            self._refuse(pending, RESOURCE_NOT_FOUND, f"session {session_id} is not open")
            return
        self._settle(session_id)
        if can(self.capabilities, "close"):
            try:
                self.ask("session/close", {"sessionId": self.agent_id(session_id)})
            except AgentRefused as refused:
                if not known:
                    self._refuse(pending, refused.error.get("code", INTERNAL_ERROR), str(refused))
                    return
                self.say(f"the agent did not close {session_id}: {refused}")
        self.journals.finish(session_id)
        self._answer(pending, {})

    def _settle(self, session_id: str) -> None:
        running = [
            p for p in self.from_client.values() if p.method == "session/prompt" and p.session_id == session_id
        ]
        if running:
            self.to_agent(encode(notification("session/cancel", {"sessionId": self.agent_id(session_id)})))
            self.wait_until(lambda: not any(p in running for p in self.from_client.values()))

    def _delete(self, pending: Pending) -> None:
        """To our trash, and from the agent where it can; deleting what is not there succeeds."""
        session_id = pending.session_id or ""
        self._settle(session_id)
        if can(self.capabilities, "delete"):
            try:
                self.ask("session/delete", {"sessionId": self.agent_id(session_id)})
            except AgentRefused as refused:
                self.say(f"the agent did not delete {session_id}: {refused}")
        self.journals.finish(session_id)
        self.journals.delete_for_user(session_id)
        self._answer(pending, {})


def _code_for_unknown(refused: AgentRefused) -> int:
    """Agents that do not have a session say so in many ways; being logged out, dead or slow is something else."""
    code = refused.error.get("code")
    if code is None:
        return INTERNAL_ERROR
    return AUTH_REQUIRED if code == AUTH_REQUIRED else RESOURCE_NOT_FOUND


def _setup(params: Message) -> Message:
    return {key: params[key] for key in ("cwd", "mcpServers", "additionalDirectories") if key in params}
