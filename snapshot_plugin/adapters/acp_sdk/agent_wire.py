"""Between the SDK's connection and its transport: every message passes here, raw, once in each direction.

The SDK's typed models drop what they do not know, and its observers are told after a message was sent. A transport
is the one place that sees everything, in order, and before it goes on. It serves stdio, HTTP and WebSocket alike,
and methods the SDK does not route can be answered here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import NamedTuple

from snapshot_plugin.adapters.acp.journal import stamp
from snapshot_plugin.acp.offers import offered
from snapshot_plugin.acp.messages import Pending, key_of
from snapshot_plugin.acp.state import STATE_UPDATES
from snapshot_plugin.acp.events import (
    answered_by_agent,
    answered_by_client,
    asked_by_agent,
    is_echoed_note,
    prompted,
    updated,
    with_note,
)
from snapshot_plugin.acp.messages import (
    RESOURCE_NOT_FOUND,
    Message,
    failure,
    notification,
    success,
)
from snapshot_plugin.adapters.acp_sdk.agent_book import Book
from snapshot_plugin.adapters.acp_sdk.agent_desk import Desk
from snapshot_plugin.adapters.acp_sdk.agent_transport import Answer, TappedTransport, Transport

__all__ = ["SessionWire", "no_such_session"]

_CANCEL_WITHIN = 5.0


class _Asked(NamedTuple):
    pending: Pending
    answered: asyncio.Event
    until: contextlib.AbstractContextManager[None]
    """What holds for as long as it is not answered."""


class SessionWire(TappedTransport):
    """A transport that writes down what passes, under the ids of `Book`, and answers what it is told to."""

    def __init__(self, inner: Transport, book: Book, desk: Desk) -> None:
        super().__init__(inner)
        self._book, self._desk = book, desk
        self.answers: Mapping[str, Answer] = {}
        """The requests of the client that never reach the author's code, by method."""
        self.history: Callable[[str], Awaitable[Message]] | None = None
        """What the author's code remembers of a session of ours, as an addition to the event that ends a turn."""
        self._sending = asyncio.Lock()
        self._from_client: dict[str, _Asked] = {}
        self._from_author: dict[str, Pending] = {}
        self._beginning = 0
        self._strays: dict[str, list[Message]] = {}
        self._too_late: set[str] = set()
        self._transparent = False

    async def ending(self) -> None:
        """Save what is open."""
        await self._desk.close()

    # For those who answer instead of the author -----------------------------------------------------------

    @contextlib.contextmanager
    def beginning(self) -> Iterator[None]:
        """While a session is made, what the author's code says of one nobody knows waits until `bind` names it."""
        self._beginning += 1
        try:
            yield
        finally:
            self._beginning -= 1
            if not self._beginning:
                self._strays.clear()

    async def bind(self, session_id: str, authors_id: str, *, is_new: bool) -> None:
        """Name the author's session, and pass on what was said of it. To one that is not new nothing is added."""
        self._book.bind(session_id, authors_id)
        for update in self._strays.pop(authors_id, []):
            if is_new or update.get("sessionUpdate") in STATE_UPDATES:
                await self._say_update(session_id, update)

    async def show(self, session_id: str, update: Message) -> None:
        """Show the client an update that is in the record already."""
        await self.tell_client(notification("session/update", {"sessionId": session_id, "update": update}))

    async def settle(self, session_id: str) -> None:
        """Cancel the turn that runs. One that does not end is ended for the client."""
        for key, asked in list(self._from_client.items()):
            if asked.pending.method != "session/prompt" or asked.pending.session_id != session_id:
                continue
            authors_id = self._book.authors_id(session_id)
            self.tell_author(notification("session/cancel", {"sessionId": authors_id}))
            try:
                async with asyncio.timeout(_CANCEL_WITHIN):
                    await asked.answered.wait()
            except TimeoutError:
                if key in self._from_client:
                    self._too_late.add(key)
                    await self._author_answers(success(asked.pending.id, {"stopReason": "cancelled"}))

    # From the client --------------------------------------------------------------------------------------

    async def client_says(self, message: Message) -> Message | None:
        """Write down what the client says, under the ids the author's code knows."""
        method, params = message.get("method"), message.get("params")
        if self._transparent or not isinstance(method, str):
            return message if self._transparent or method is not None else await self._client_answers(message)
        params = params if isinstance(params, dict) else {}
        session_id = params.get("sessionId") if isinstance(params.get("sessionId"), str) else None
        pending = Pending(message.get("id"), method, session_id, params)
        if "id" in message and method in self.answers:
            self.answer_ourselves(self.answers[method], pending)
            return None
        if session_id is not None:
            return await self._about_session(message, pending, self._book.authors_id(session_id))
        if method == "initialize":
            capabilities = params.get("clientCapabilities")
            self._book.client = capabilities if isinstance(capabilities, dict) else {}
        return self._expecting_answer(message, pending)

    async def _about_session(self, message: Message, pending: Pending, authors_id: str | None) -> Message | None:
        """The author's code is asked only about sessions it has made."""
        session_id, params = pending.session_id or "", pending.params
        if authors_id is None:
            return await self._about_no_session(message, pending)
        if pending.method == "session/prompt" and "id" in message:
            await self._desk.write(self._desk.journal(session_id), prompted(params, at=stamp()))
            note = self._book.notes.pop(session_id, None)
            params = params if note is None else with_note(params, note)
        return self._expecting_answer({**message, "params": {**params, "sessionId": authors_id}}, pending)

    async def _about_no_session(self, message: Message, pending: Pending) -> Message | None:
        if not pending.method.startswith("session/"):
            return self._expecting_answer(message, pending)
        if "id" in message:
            await self.tell_client(no_such_session(pending))
        return None

    def _expecting_answer(self, message: Message, pending: Pending) -> Message:
        if "id" in message:
            made = self.beginning() if pending.method == "session/new" else contextlib.nullcontext()
            made.__enter__()
            self._from_client[key_of(message["id"])] = _Asked(pending, asyncio.Event(), made)
        return message

    async def _client_answers(self, message: Message) -> Message:
        pending = self._from_author.pop(key_of(message.get("id")), None)
        if pending is not None:
            journal = self._desk.journal(pending.session_id or "")
            await self._desk.write(journal, answered_by_client(pending, message))
        return message

    # From the author's code -------------------------------------------------------------------------------

    async def author_says(self, message: Message) -> None:
        """Write down what the author's code says, then pass it on."""
        if self._transparent:
            await self.tell_client(message)
        elif "method" not in message:
            await self._author_answers(message)
        else:
            await self._author_speaks(message)

    async def _author_speaks(self, message: Message) -> None:
        raw = message.get("params")
        params: Message = raw if isinstance(raw, dict) else {}
        authors_id = params.get("sessionId")
        session_id = self._book.our_id(authors_id) if isinstance(authors_id, str) else None
        if message["method"] == "session/update" and isinstance(authors_id, str):
            await self._author_updates(authors_id, session_id, message, params)
            return
        async with self._sending:
            if "id" in message:
                asked = Pending(message["id"], message["method"], session_id, params)
                self._from_author[key_of(message["id"])] = asked
                await self._desk.write(self._desk.journal(session_id or ""), asked_by_agent(asked))
            await self.tell_client(_renamed(message, params, session_id))

    async def _author_updates(
        self, authors_id: str, session_id: str | None, message: Message, params: Message
    ) -> None:
        update = params.get("update")
        if session_id is None and (self._book.is_over(authors_id) or self._beginning):
            if isinstance(update, dict) and not self._book.is_over(authors_id):
                self._strays.setdefault(authors_id, []).append(update)
        elif isinstance(update, dict) and session_id is not None:
            await self._say_update(session_id, update, message, params)
        else:
            await self.tell_client(message)

    async def _say_update(
        self, session_id: str, update: Message, message: Message | None = None, params: Message | None = None
    ) -> None:
        if is_echoed_note(update):
            return
        said = message or notification("session/update", {"update": update})
        async with self._sending:
            await self._desk.write(self._desk.journal(session_id), updated(update))
            await self.tell_client(_renamed(said, params or said["params"], session_id))

    async def _author_answers(self, message: Message) -> None:
        key = key_of(message.get("id"))
        asked = self._from_client.pop(key, None)
        if asked is not None:
            with contextlib.ExitStack() as stack:
                stack.push(asked.until)
                await self._author_answered(asked.pending, message)
            asked.answered.set()
        elif key in self._too_late:
            self._too_late.discard(key)
        else:
            await self.tell_client(message)

    async def _author_answered(self, pending: Pending, message: Message) -> None:
        result = message.get("result")
        if pending.method == "session/new":
            message = await self._began(pending, message)
        elif pending.method == "initialize" and isinstance(result, dict):
            message = self._initialized(message, result)
        await self._settled(pending, message)

    async def _settled(self, pending: Pending, message: Message) -> None:
        session_id = pending.session_id or ""
        journal = self._desk.journal(session_id)
        entry = answered_by_agent(pending, message, at=stamp()) if journal else None
        ends_turn = pending.method == "session/prompt"
        if entry and ends_turn and self.history:
            # outside the lock: the author's code may well say something before it answers
            entry = entry._replace(event={**entry.event, **await self.history(session_id)})
        async with self._sending:
            await self._desk.write(journal, entry, checkpoint=ends_turn)
            await self.tell_client(message)

    async def _began(self, pending: Pending, message: Message) -> Message:
        """A session was made. It is durable before the client hears of it."""
        result = message.get("result")
        authors_id = result.get("sessionId") if isinstance(result, dict) else None
        if not isinstance(result, dict) or not isinstance(authors_id, str):
            return message
        first = self._book.first_event(authors_id, pending.params, result)
        journal = await self._desk.begin(authors_id, first)
        session_id = journal.session_id if journal else authors_id
        await self.bind(session_id, authors_id, is_new=True)
        return {**message, "result": {**result, "sessionId": session_id}}

    def _initialized(self, message: Message, result: Message) -> Message:
        if result.get("protocolVersion") != 1:
            self._transparent = True
            return message
        info = result.get("agentInfo")
        known = {key: info[key] for key in ("name", "version") if info.get(key)} if isinstance(info, dict) else {}
        self._book.agent = self._book.agent.evolve(**known)
        return {**message, "result": offered(result)}


def no_such_session(pending: Pending) -> Message:
    """What is answered about a session nobody knows."""
    text = f"there is no session {pending.session_id}"
    return failure(pending.id, RESOURCE_NOT_FOUND, text, {"sessionId": pending.session_id})


def _renamed(message: Message, params: Message, session_id: str | None) -> Message:
    return message if session_id is None else {**message, "params": {**params, "sessionId": session_id}}
