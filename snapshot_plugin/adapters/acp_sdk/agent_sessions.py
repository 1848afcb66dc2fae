"""The session methods an SDK agent gets: load, resume, list, fork, close, delete."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVarTuple, Unpack

from snapshot_plugin.adapters.acp.journal import PROVIDER, Journal, Journals
from snapshot_plugin.adapters.acp.ladder import AgentRefused, Grade, Restored
from snapshot_plugin.adapters.acp.offers import BadCursor, merged_list, page
from snapshot_plugin.adapters.acp.replay import replay
from snapshot_plugin.adapters.acp.requests import Pending
from snapshot_plugin.adapters.acp.settings import missing_settings, with_setting
from snapshot_plugin.adapters.acp.state import stored_setup
from snapshot_plugin.adapters.acp.traffic import Entry
from snapshot_plugin.adapters.acp.wire import INTERNAL_ERROR, INVALID_PARAMS, Message, failure, success
from snapshot_plugin.adapters.acp_sdk.agent_book import Book
from snapshot_plugin.adapters.acp_sdk.agent_desk import Desk
from snapshot_plugin.adapters.acp_sdk.agent_transport import Answer
from snapshot_plugin.adapters.acp_sdk.agent_wire import SessionWire, no_such_session
from snapshot_plugin.adapters.acp_sdk.history import kept_history, note_about, storable
from snapshot_plugin.errors import InvalidInput, InvalidSessionId, SnapshotError, SnapshotNotFound
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.model.lineage import fork
from snapshot_plugin.model.snapshot import Message as Said
from snapshot_plugin.model.snapshot import SessionSnapshot

__all__ = ["AgentSessions", "Author"]

_TOOL_BYTES = 1 << 20
_Args = TypeVarTuple("_Args")
log = logging.getLogger("snapshot_plugin.acp")


class Author(Protocol):
    """What the author of an agent says about its memory; see `agent.SnapshotAgentMixin`."""

    @property
    def keeps_history(self) -> bool:
        """Whether it has a `history` of its own."""

    def history(self, session_id: str) -> Any:
        """What the agent remembers of the session."""

    def take_back(self, session_id: str, history: Any, transcript: Sequence[Said]) -> Any:
        """Remember it again."""


def _answering(work: Callable[[AgentSessions, Pending], Awaitable[Message]]) -> Callable[..., Awaitable[Message]]:
    """The result of *work* as a response, and what goes wrong in it as an error the client can act on."""

    @functools.wraps(work)
    async def answered(self: AgentSessions, asked: Pending) -> Message:
        about = {"sessionId": asked.session_id}
        try:
            return success(asked.id, await work(self, asked))
        except BadCursor:
            return failure(asked.id, INVALID_PARAMS, "that cursor is not one of ours")
        except (SnapshotNotFound, InvalidSessionId):
            return no_such_session(asked)
        except InvalidInput as error:
            return failure(asked.id, INVALID_PARAMS, str(error), about)
        except SnapshotError as error:
            return failure(asked.id, INTERNAL_ERROR, str(error), {**about, "reason": error.code})
        except AgentRefused as refused:
            code = refused.error.get("code", INTERNAL_ERROR)
            return failure(asked.id, code, str(refused), {**about, "error": refused.error})

    return answered


class AgentSessions:
    """Answers for the author's code whatever the record is enough for, and asks it for a new session otherwise.

    Args:
        author: the agent.
        wire: its connection.
        book: the ids of its sessions.
        desk: its journals.
        name_sessions: whether the answer to load and resume names the session, which the SDK's HTTP server
            needs in order to route what comes after.
    """

    def __init__(self, author: Author, wire: SessionWire, book: Book, desk: Desk, *, name_sessions: bool) -> None:
        self._author, self._wire, self._book, self._desk = author, wire, book, desk
        self._name_sessions = name_sessions
        self._one_at_a_time = asyncio.Lock()

    def answers(self) -> Mapping[str, Answer]:
        """What is answered here, by method."""
        return {
            "session/load": self._load,
            "session/resume": self._resume,
            "session/list": self._list,
            "session/fork": self._fork,
            "session/close": self._close,
            "session/delete": self._delete,
        }

    async def history(self, session_id: str) -> Message:
        """What the author's code remembers of a session, as an event; nothing, and said so, if it cannot say."""
        authors_id = self._book.authors_id(session_id)
        if authors_id is None or not self._author.keeps_history:
            return {}
        try:
            value = await _awaited(self._author.history(authors_id))
            return {} if value is None else {"history": storable(value)}
        except Exception as error:  # noqa: BLE001 — the turn is over all the same, and the transcript is safe
            log.warning("session %s: the agent's history is not kept: %s", session_id, error)
            return {}

    # Coming back ------------------------------------------------------------------------------------------

    @_answering
    async def _load(self, asked: Pending) -> Message:
        journal, result = await self._come_back(asked.params, Journals.resume, asked.session_id or "")
        for update in replay(journal.snapshot(), self._book.client, tool_bytes=_TOOL_BYTES):
            await self._wire.show(journal.session_id, update)
        return result

    @_answering
    async def _resume(self, asked: Pending) -> Message:
        _, result = await self._come_back(asked.params, Journals.resume, asked.session_id or "")
        return result

    async def _come_back(
        self, params: Message, opened: Callable[[Journals, Unpack[_Args]], Journal], *which: *_Args
    ) -> tuple[Journal, Message]:
        """Open the record, give the session to the author's code unless it has it, and say how that went."""
        async with self._one_at_a_time:
            journal = await self._desk.run(opened, *which)
            record = journal.snapshot()
            named = self._name(record.session_id)
            try:
                restored, differences = self._as_it_is(record) or await self._anew(journal, record, params)
            except AgentRefused:
                await self._desk.run(Journals.finish, record.session_id)
                raise
        report = {**restored.report(record), "differences": differences}
        how = Entry({"config": restored.result, "restored": report})
        await self._desk.write(journal, how, checkpoint=True)
        result = {key: value for key, value in restored.result.items() if key != "sessionId"}
        return journal, {**named, **result, "_meta": {**(result.get("_meta") or {}), "asnap": {"restored": report}}}

    def _name(self, session_id: str) -> Message:
        """For the SDK's HTTP server: it sends on what it has not heard of before together with what was shown."""
        is_news = self._name_sessions and not self._book.has_been_here(session_id)
        return {"sessionId": session_id} if is_news else {}

    def _as_it_is(self, record: SessionSnapshot) -> tuple[Restored, list[str]] | None:
        authors_id = self._book.authors_id(record.session_id)
        if authors_id is None:
            return None
        acp = record.metadata.get("acp") or {}
        settings = {key: acp[key] for key in ("modes", "configOptions") if key in acp}
        return Restored("native-load", authors_id, settings, None, ("the agent has it",)), []

    async def _anew(self, journal: Journal, record: SessionSnapshot, params: Message) -> tuple[Restored, list[str]]:
        """A new session in the author's code, which is then given its memory and its settings."""
        setup = {"cwd": record.config.cwd or "/", "mcpServers": [], **_without_session(params)}
        with self._wire.beginning():
            result = await self._wire.ask("session/new", setup)
            authors_id = str(result.get("sessionId", ""))
            remembered, tried = await self._take_back(authors_id, record)
            has_it = Entry({"agent": self._book.has_it(authors_id), "new": stored_setup(setup)}, durable=True)
            await self._desk.write(journal, has_it)
            await self._wire.bind(record.session_id, authors_id, is_new=False)
        result, differences = await self._reapply(record, authors_id, result)
        note = note_about(record, remembered=remembered)
        if note:
            self._book.notes[record.session_id] = note
        grade: Grade = "native-load" if remembered else "context"
        return Restored(grade, authors_id, result, note, (tried,)), differences

    async def _reapply(
        self, record: SessionSnapshot, authors_id: str, result: Message
    ) -> tuple[Message, list[str]]:
        """Set mode and options as they were. Returns how it stands then, and what could not be set."""
        differences: list[str] = []
        for method, setting in missing_settings(record, result):
            try:
                answer = await self._wire.ask(method, {"sessionId": authors_id, **setting})
                result = with_setting(result, setting, answer)
            except AgentRefused as refused:
                differences.append(f"{method} {setting}: {refused}")
        return result, differences

    async def _take_back(self, authors_id: str, record: SessionSnapshot) -> tuple[int, str]:
        """How many messages the author's code remembers now, and how that came about."""
        kept = kept_history(record, self._book.agent.name)
        if kept is None and self._author.keeps_history:
            return 0, "no history was kept"
        value, covers = kept or (None, len(record.messages))
        try:
            taken = await _awaited(self._author.take_back(authors_id, value, record.messages))
        except Exception as error:
            log.exception("session %s: the agent did not take its history back", record.session_id)
            return 0, f"the agent did not take its history back: {error}"
        return (0, "the agent keeps no history") if taken is False else (covers, "the agent took its history back")

    # Listing and the rest ---------------------------------------------------------------------------------

    @_answering
    async def _list(self, asked: Pending) -> Message:
        metas = await self._desk.run(Journals.list)
        own = [meta for meta in metas if meta.provider_type == PROVIDER and meta.agent == self._book.agent.name]
        return page(merged_list(own, [], {}, asked.params.get("cwd")), asked.params.get("cursor"))

    @_answering
    async def _fork(self, asked: Pending) -> Message:
        """A new session that begins as a copy; by ``_meta.asnap.at`` a copy up to that message."""
        wish = (asked.params.get("_meta") or {}).get("asnap") or {}
        journal, result = await self._come_back(asked.params, _forked, asked.session_id or "", wish.get("at"))
        return {**result, "sessionId": journal.session_id}

    @_answering
    async def _close(self, asked: Pending) -> Message:
        session_id = asked.session_id or ""
        if self._book.authors_id(session_id) is None:
            raise SnapshotNotFound(f"session {session_id} is not open", session_id=session_id)
        await self._let_go(session_id)
        return {}

    @_answering
    async def _delete(self, asked: Pending) -> Message:
        """To the trash; deleting what is not there succeeds."""
        session_id = asked.session_id or ""
        await self._let_go(session_id)
        await self._desk.run(Journals.delete, session_id)
        return {}

    async def _let_go(self, session_id: str) -> None:
        """Running work is settled first; then the author's code and the record are done with the session."""
        authors_id = self._book.authors_id(session_id)
        if authors_id is not None:
            await self._wire.settle(session_id)
            await self._tell_author(authors_id)
            self._book.forget(session_id)
        await self._desk.run(Journals.finish, session_id)

    async def _tell_author(self, authors_id: str) -> None:
        close = getattr(self._author, "close_session", None)
        try:
            await _awaited(close(session_id=authors_id) if close else None)
        except Exception:
            log.exception("session %s: the agent did not close it", authors_id)


def _forked(journals: Journals, session_id: str, at: int | None) -> Journal:
    parent, seq = journals.newest(session_id)
    child = fork(parent, session_id=new_id(), seq=seq, messages=at, now=datetime.now(UTC))
    return journals.begin(child, {})


def _without_session(params: Message) -> Message:
    return {key: value for key, value in params.items() if key not in ("sessionId", "_meta")}


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
