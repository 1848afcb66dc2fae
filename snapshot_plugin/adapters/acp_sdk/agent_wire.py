"""Between the SDK's connection and its transport: every message passes here, raw, once in each direction.

The SDK's typed models drop what they do not know, and its observers are told after a message was sent. A transport
is the one place that sees everything, in order, and before it goes on. It serves stdio, HTTP and WebSocket alike,
and methods the SDK does not route can be answered here.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from snapshot_plugin.adapters.acp.journal import stamp
from snapshot_plugin.adapters.acp.ladder import AgentRefused
from snapshot_plugin.adapters.acp.offers import offered
from snapshot_plugin.adapters.acp.requests import Pending, key_of
from snapshot_plugin.adapters.acp.state import STATE_UPDATES
from snapshot_plugin.adapters.acp.traffic import (
    answered_by_agent,
    answered_by_client,
    asked_by_agent,
    is_echoed_note,
    prompted,
    updated,
    with_note,
)
from snapshot_plugin.adapters.acp.wire import (
    INTERNAL_ERROR,
    RESOURCE_NOT_FOUND,
    Message,
    failure,
    notification,
    request,
    success,
)
from snapshot_plugin.adapters.acp_sdk.agent_book import Book
from snapshot_plugin.adapters.acp_sdk.agent_desk import Desk

__all__ = ["Answer", "SessionWire", "Transport", "no_such_session"]

_PATIENCE = 60.0
_CANCEL_WITHIN = 5.0
log = logging.getLogger("snapshot_plugin.acp")

Answer = Callable[[Pending], Awaitable[Message]]
"""Answers a request with the whole response."""


class Transport(Protocol):
    """What the SDK reads messages from and writes them to; None is the end."""

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message."""

    async def receive(self) -> Any:
        """The next message."""

    async def close(self) -> None:
        """Stop sending."""


class _Asked(NamedTuple):
    pending: Pending
    answered: asyncio.Event
    until: contextlib.AbstractContextManager[None]
    """What holds for as long as it is not answered."""


class SessionWire:
    """A transport that writes down what passes, under the ids of `Book`, and answers what it is told to."""

    def __init__(self, inner: Transport, book: Book, desk: Desk) -> None:
        self._inner, self._book, self._desk = inner, book, desk
        self.answers: Mapping[str, Answer] = {}
        """The requests of the client that never reach the author's code, by method."""
        self.history: Callable[[str], Awaitable[Message]] | None = None
        """What the author's code remembers of a session of ours, as an addition to the event that ends a turn."""
        self._inbox: asyncio.Queue[dict[str, Any] | BaseException | None] = asyncio.Queue()
        self._pump: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._waiters: dict[str, asyncio.Future[Message]] = {}
        self._from_client: dict[str, _Asked] = {}
        self._from_author: dict[str, Pending] = {}
        self._beginning = 0
        self._strays: dict[str, list[Message]] = {}
        self._too_late: set[str] = set()
        self._transparent = self._closed = False

    # The transport, as the SDK sees it --------------------------------------------------------------------

    async def receive(self) -> dict[str, Any] | None:
        """The next message for the author's code."""
        if self._pump is None:
            self._pump = asyncio.create_task(self._read(), name="snapshot_plugin.wire")
        message = await self._inbox.get()
        if isinstance(message, BaseException):
            raise message
        return message

    async def send(self, message: dict[str, Any]) -> None:
        """Write down what the author's code says, then pass it on."""
        if self._closed or self._transparent:
            await self._inner.send(message)
        elif "method" not in message:
            await self._author_answers(message)
        else:
            await self._author_says(message)

    async def close(self) -> None:
        """Save what is open, then close the transport."""
        if self._closed:
            return
        self._closed = True
        for task in [*self._tasks, *([self._pump] if self._pump else [])]:
            task.cancel()
        try:
            await self._desk.close()
        finally:
            await self._inner.close()

    # For those who answer instead of the author -----------------------------------------------------------

    async def ask(self, method: str, params: Message) -> Message:
        """Ask the author's code, as a client would.

        Raises:
            AgentRefused: it answered with an error, or not in time.
        """
        number = f"asnap-{next(self._numbers)}"
        waiter = self._waiters[number] = asyncio.get_running_loop().create_future()
        self._inbox.put_nowait(request(number, method, params))
        try:
            async with asyncio.timeout(_PATIENCE):
                answer = await waiter
        except TimeoutError:
            raise AgentRefused(f"no answer to {method} in {_PATIENCE:g} s") from None
        finally:
            self._waiters.pop(number, None)
        if (error := answer.get("error")) is not None:
            raise AgentRefused(str(error.get("message")), error)
        result = answer.get("result")
        return result if isinstance(result, dict) else {}

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
        await self._inner.send(notification("session/update", {"sessionId": session_id, "update": update}))

    async def settle(self, session_id: str) -> None:
        """Cancel the turn that runs. One that does not end is ended for the client."""
        for key, asked in list(self._from_client.items()):
            if asked.pending.method != "session/prompt" or asked.pending.session_id != session_id:
                continue
            authors_id = self._book.authors_id(session_id)
            self._inbox.put_nowait(notification("session/cancel", {"sessionId": authors_id}))
            try:
                async with asyncio.timeout(_CANCEL_WITHIN):
                    await asked.answered.wait()
            except TimeoutError:
                if key in self._from_client:
                    self._too_late.add(key)
                    await self._author_answers(success(asked.pending.id, {"stopReason": "cancelled"}))

    # From the client --------------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            while (message := await self._inner.receive()) is not None:
                passed = await self._client_says(message) if isinstance(message, dict) else message
                if passed is not None:
                    self._inbox.put_nowait(passed)
            self._inbox.put_nowait(None)
        except Exception as error:  # noqa: BLE001 — the SDK's loop gets what its transport raised
            self._inbox.put_nowait(error)

    async def _client_says(self, message: Message) -> Message | None:
        method, params = message.get("method"), message.get("params")
        if self._transparent or not isinstance(method, str):
            return message if self._transparent or method is not None else await self._client_answers(message)
        params = params if isinstance(params, dict) else {}
        session_id = params.get("sessionId") if isinstance(params.get("sessionId"), str) else None
        pending = Pending(message.get("id"), method, session_id, params)
        if "id" in message and method in self.answers:
            self._in_background(self.answers[method], pending)
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
            await self._inner.send(no_such_session(pending))
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

    def _in_background(self, answer: Answer, pending: Pending) -> None:
        async def work() -> None:
            try:
                response = await answer(pending)
            except Exception as error:
                log.exception("%s failed", pending.method)
                response = failure(pending.id, INTERNAL_ERROR, str(error), {"sessionId": pending.session_id})
            await self._inner.send(response)

        task = asyncio.create_task(work(), name=f"snapshot_plugin {pending.method}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # From the author's code -------------------------------------------------------------------------------

    async def _author_says(self, message: Message) -> None:
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
            await self._inner.send(_renamed(message, params, session_id))

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
            await self._inner.send(message)

    async def _say_update(
        self, session_id: str, update: Message, message: Message | None = None, params: Message | None = None
    ) -> None:
        if is_echoed_note(update):
            return
        said = message or notification("session/update", {"update": update})
        async with self._sending:
            await self._desk.write(self._desk.journal(session_id), updated(update))
            await self._inner.send(_renamed(said, params or said["params"], session_id))

    async def _author_answers(self, message: Message) -> None:
        waiter = self._waiters.get(message["id"]) if isinstance(message.get("id"), str) else None
        if waiter is not None:
            if not waiter.done():
                waiter.set_result(message)
            return
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
            await self._inner.send(message)

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
            await self._inner.send(message)

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
