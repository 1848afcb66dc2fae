"""For agents written with the SDK: a mixin that lets their sessions survive restarts.

The core sits between the SDK's connection, which calls the author's code, and its transport to the client. It
works over stdio, HTTP and WebSocket, and answers methods that the SDK does not route.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from snapshot_plugin.acp.actions import Action, Ask, RecordEvent, Steps
from snapshot_plugin.acp.core import Core
from snapshot_plugin.acp.draft import to_json_safe
from snapshot_plugin.acp.hosts.tasks import TaskHost, Transport
from snapshot_plugin.acp.messages import Message, success
from snapshot_plugin.acp.methods import SessionMethods
from snapshot_plugin.acp.notes import note_about
from snapshot_plugin.acp.reducer import AcpReducer
from snapshot_plugin.acp.restore import Grade, Restored, RestoreRequest
from snapshot_plugin.acp.state import HISTORY
from snapshot_plugin.errors import InvalidSnapshot, MissingExtra, SnapshotError
from snapshot_plugin.live.outcome import log_failure
from snapshot_plugin.live.place import required_place
from snapshot_plugin.live.recovery import recover
from snapshot_plugin.live.sessions import LiveSessions
from snapshot_plugin.manager.manager import SnapshotManager
from snapshot_plugin.manager.opening import open_place
from snapshot_plugin.model.frozen import freeze, thaw
from snapshot_plugin.model.snapshot import Message as TranscriptMessage
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import SnapshotStore

__all__ = ["AgentHost", "Kept", "Place", "SnapshotAgentMixin", "kept_history", "note_about", "storable"]

Place = SnapshotManager | SnapshotStore | str | Path | None
"""Where sessions are kept: a manager's store, a store, a path, or (None) the user's own store."""

_TAKE_BACK, _CLOSE = "_asnap/take_back", "session/close"
log = logging.getLogger("snapshot_plugin.acp")


class SnapshotAgentMixin:
    """Records and restores an agent's sessions: ``class MyAgent(SnapshotAgentMixin, Agent)``, with no other change.

    The agent offers ``session/load``, ``resume``, ``list``, ``fork``, ``close`` and ``delete`` with any transport
    and flags, and its output is recorded before the client gets it. Its ``initialize``, ``new_session`` and
    ``prompt`` are called as before. Its own ``load_session`` and the like are no longer called.

    A restored session is a new one for the agent's code: ``new_session`` is called, and `take_back` and ``prompt``
    are then called with the id it returned. The client keeps the same session id.

    Without `history` and `take_back`, the next prompt tells the model the conversation, up to a size limit. With
    them, it tells only what was said after the last history: the interrupted turn, if there is one.
    """

    snapshot_store: Place = None
    """Where sessions are kept: a store with leases, its path or URL, a manager; the user's own store by default."""

    def history(self, session_id: str) -> Any:
        """Return what the agent remembers of the session: a dict of JSON values, or None. May be ``async``.

        Called at the end of each turn, before the client gets the response. The whole value is stored each time.
        """

    def take_back(self, session_id: str, history: Any, transcript: Sequence[TranscriptMessage]) -> Any:
        """Restore what `history` last returned, in the new session *session_id*. May be ``async``.

        Args:
            session_id: the id ``new_session`` has just returned.
            history: the value as it was returned; None if the agent does not override `history`.
            transcript: the conversation as the client saw it, for agents without `history`.

        Returns:
            False if the agent remembers nothing, so that the model must be told the conversation.
        """
        _ = session_id, history, transcript
        return False

    def on_connect(self, conn: Any) -> None:
        """Record the sessions of *conn* from now on. Called by the SDK."""
        _keep_sessions(self, conn)
        further = getattr(super(), "on_connect", None)
        if further is not None:
            further(conn)

    @property
    def keeps_history(self) -> bool:
        """Whether the agent overrides `history`."""
        return type(self).history is not SnapshotAgentMixin.history

    @property
    def takes_back(self) -> bool:
        """Whether the agent overrides `take_back`."""
        return type(self).take_back is not SnapshotAgentMixin.take_back

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Agents override on_connect to keep their connection, and seldom call super().
        if "on_connect" in vars(cls):
            setattr(cls, "on_connect", _connecting(cls.on_connect))  # noqa: B010 — mypy rejects a plain assignment


def _connecting(on_connect: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    @functools.wraps(on_connect)
    def connect(self: SnapshotAgentMixin, conn: Any) -> None:
        _keep_sessions(self, conn)
        on_connect(self, conn)

    return connect


def _keep_sessions(agent: SnapshotAgentMixin, conn: Any) -> None:
    """Put a host between the SDK's connection and its transport. Idempotent."""
    try:
        from acp._transport import NdjsonTransport  # noqa: PLC0415 — a connection exists, so the SDK does

        inner = conn._conn._transport  # noqa: SLF001 — the SDK has no public access to it
    except (ImportError, AttributeError) as error:
        what = f"sessions cannot be kept with this release of agent-client-protocol: {error}"
        raise MissingExtra(what, hint="pip install --upgrade 'snapshot-plugin[acp]'") from error
    if not isinstance(inner, AgentHost):
        names = not isinstance(inner, NdjsonTransport)
        conn._conn._transport = AgentHost(inner, agent, names_sessions=names)  # noqa: SLF001 — as above


class AgentHost(TaskHost):
    """A transport that wraps the client's: every message passes through the core, in both directions.

    Raises:
        InvalidInput: the agent's store has no leases, which live sessions need.
    """

    def __init__(self, inner: Transport, author: SnapshotAgentMixin, *, names_sessions: bool) -> None:
        self._author, self._place = author, _checked(author.snapshot_store)
        self._owned: SnapshotStore | None = None
        self._opening = asyncio.Lock()
        core = Core(
            view=self.view,
            methods=SessionMethods(only_own=True, names_sessions=names_sessions).by_name(),
            restore_strategy=_restored_by_author,
            remembers=author.keeps_history or author.takes_back,
            name=type(author).__name__,
        )
        super().__init__(inner, core, None)

    # The transport, as the SDK sees it --------------------------------------------------------------------

    async def send(self, message: dict[str, Any]) -> None:
        """Record a message of the author's code, then send it."""
        if self._closed:
            await self._inner.send(message)
            return
        memory = await self._memory_after(message)
        actions = self.core.from_agent(message)
        if memory:
            actions = [_with_memory(action, memory) for action in actions]
        for sent in self.take(actions, message, self.to_client):
            await asyncio.shield(sent)

    async def end(self, *, drain: bool = True) -> None:
        """See `TaskHost`. Also closes a store that was opened here."""
        await super().end(drain=drain)
        if self._owned is not None:
            await self._owned.aclose()

    async def _read(self) -> None:
        try:
            while (message := await self._inner.receive()) is not None:
                if isinstance(message, dict):
                    self.take(self.core.from_client(message), message, self.to_agent)
                    await self.to_agent.drained()
                else:
                    self._inbox.put_nowait(message)
            self._inbox.put_nowait(None)
        except Exception as error:  # noqa: BLE001 — `receive` raises it in the SDK's loop
            self._inbox.put_nowait(error)

    # The author's code ------------------------------------------------------------------------------------

    async def _to_client(self, message: Message) -> None:
        await self._inner.send(message)

    async def _to_agent(self, message: Message) -> None:
        """Pass a message on. Requests of the core that the SDK does not route call the author directly."""
        method, number = message.get("method"), message.get("id")
        if isinstance(number, str) and number.startswith("asnap-") and method in (_TAKE_BACK, _CLOSE):
            _ = self.spawn(self._called(number, str(method), message["params"]))
        else:
            self._inbox.put_nowait(message)

    async def _called(self, number: str, method: str, params: Message) -> None:
        try:
            result = await (self._taken_back(params) if method == _TAKE_BACK else self._author_closed(params))
        except Exception as error:  # noqa: BLE001 — the core gets it as the result
            log_failure(f"session {params.get('sessionId')}: the agent's {method} failed", error)
            result = {"failed": str(error)}
        self.take(self.core.from_agent(success(number, result)))

    async def _author_closed(self, params: Message) -> Message:
        close = getattr(self._author, "close_session", None)
        await _awaited(close(session_id=params["sessionId"]) if close else None)
        return {}

    async def _taken_back(self, params: Message) -> Message:
        """Call the author's `take_back`. Returns how many messages the agent remembers now, and why."""
        record: SessionSnapshot = params["record"]
        kept = kept_history(record, self.core.agent.name)
        if kept is None and self._author.keeps_history:
            return {"remembered": 0, "tried": "no history was kept"}
        value, covers = kept or (None, len(record.messages))
        taken = await _awaited(self._author.take_back(params["sessionId"], value, record.messages))
        if taken is False:
            return {"remembered": 0, "tried": "the agent keeps no history"}
        return {"remembered": covers, "tried": "the agent took its history back"}

    async def _memory_after(self, message: Message) -> Message:
        """Return the agent's history as fields for the event, if *message* ends a turn; else nothing."""
        ended = (
            [asked for asked in self.core.prompts() if asked.id == message.get("id")]
            if "method" not in message
            else []
        )
        if not ended or not self._author.keeps_history or not self.core.sessions.is_open(ended[0].session_id):
            return {}
        try:
            value = await _awaited(self._author.history(self.core.sessions.agents_id(ended[0].session_id or "")))
            return {} if value is None else {"history": storable(value)}
        except Exception as error:  # noqa: BLE001 — the turn is over and its transcript is safe
            log.warning("session %s: the agent's history is not kept: %s", ended[0].session_id, error)
            return {}

    # The store --------------------------------------------------------------------------------------------

    async def opened(self) -> LiveSessions:
        """Open the store on first use, and recover the sessions of killed processes."""
        async with self._opening:
            if self.sessions is None:
                store, is_ours = open_place(self._place)
                if is_ours:
                    self._owned = store
                required_place(store)
                try:
                    for found in await recover(store, now=datetime.now(UTC)):
                        if found.problem:
                            log.warning("session %s was not all recovered: %s", found.session_id, found.problem)
                except (SnapshotError, OSError) as error:
                    log.warning("sessions that were killed could not be looked for: %s", error)
                self.sessions = LiveSessions(store, AcpReducer)
            return self.sessions


def _restored_by_author(record: SessionSnapshot, request: RestoreRequest) -> Steps[Restored]:
    """Restore a session: create a new one in the author's code, and have it take its history back."""
    result = yield Ask("session/new", {"mcpServers": [], **request.setup})
    agent_id = str(result.get("sessionId", ""))
    taken = yield Ask(_TAKE_BACK, {"sessionId": agent_id, "record": record})
    remembered = taken.get("remembered", 0)
    tried = taken.get("tried") or f"the agent did not take its history back: {taken.get('failed')}"
    note = note_about(record, remembered=remembered)
    grade: Grade = "native-load" if remembered else "context"
    return Restored(record.session_id, grade, agent_id, result, note, (str(tried),), record)


def _with_memory(action: Action, memory: Message) -> Action:
    if isinstance(action, RecordEvent) and "stop" in action.event:
        return action._replace(event={**action.event, **memory})
    return action


def _checked(place: Place) -> SnapshotStore | str | Path | None:
    store = place.store if isinstance(place, SnapshotManager) else place
    if store is not None and not isinstance(store, str | Path):
        required_place(store)
    return store


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


class Kept(NamedTuple):
    """A history as the agent returned it, and how many messages of the record it covers."""

    value: dict[str, Any]
    messages: int


def storable(value: Any) -> dict[str, Any]:
    """Return a storable copy of a history.

    Raises:
        InvalidSnapshot: it is not a JSON object, or would not survive a round trip unchanged.
    """
    if not isinstance(value, dict):
        raise InvalidSnapshot(f"a history is a JSON object, not a {type(value).__name__}", hint="return a dict")
    frozen = freeze(value, "history")
    if to_json_safe(frozen) != frozen:
        raise InvalidSnapshot("the history is nested too deeply", hint="flatten it")
    copy: dict[str, Any] = thaw(frozen)
    return copy


def kept_history(record: SessionSnapshot, agent: str | None) -> Kept | None:
    """Return the history that *agent* can take back; None if there is none that fits this conversation.

    A history of another agent is ignored, and so is one that covers more messages than the record (a fork) has.
    """
    kept = record.plugins.get(HISTORY)
    if not isinstance(kept, dict) or not isinstance(kept.get("value"), dict) or kept.get("agent") != agent:
        return None
    messages = kept.get("messages")
    if not isinstance(messages, int) or messages > len(record.messages):
        return None
    return Kept(thaw(kept["value"]), messages)
