"""For clients written with the SDK: record a connection.

The core sits in the connection's transport, because the SDK's observers are called after a message was sent, and
its typed models drop unknown fields. Like the SDK, this runs on asyncio only.

On disk before the message is passed on: the answer to ``session/new``, a prompt, the start of a tool call, a
permission request and its answer, and the end of a turn. Every other streamed update is in the spool before the
client's handler is called.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from snapshot_plugin.acp.actions import AgentRefused, Ask, Steps, ToClient
from snapshot_plugin.acp.core import Core
from snapshot_plugin.acp.hosts.tasks import TaskHost, Transport
from snapshot_plugin.acp.messages import Message
from snapshot_plugin.acp.methods import SessionMethods, announce_restore
from snapshot_plugin.acp.reducer import AcpReducer
from snapshot_plugin.acp.replay import replay
from snapshot_plugin.acp.restore import Grade, Restored, RestoreRequest, restore
from snapshot_plugin.acp.supervise import Supervision
from snapshot_plugin.errors import AgentUnavailable, InvalidInput, MissingExtra
from snapshot_plugin.extras import needs_extra
from snapshot_plugin.live.session import LiveSession
from snapshot_plugin.live.sessions import LiveSessions
from snapshot_plugin.manager.manager import SnapshotManager
from snapshot_plugin.model.snapshot import SessionSnapshot

if TYPE_CHECKING:
    from acp.client.connection import ClientSideConnection

__all__ = [
    "ClientHost",
    "Handshake",
    "Recorder",
    "Require",
    "Restoration",
    "as_json",
    "connect",
    "record",
    "tap_connection",
]

Require = Literal["exact", "history", "context"]
_T = TypeVar("_T")
log = logging.getLogger("snapshot_plugin.acp")


@dataclass(frozen=True, kw_only=True)
class Handshake:
    """How to initialize a connection to an agent.

    Args:
        capabilities: the client's: the SDK's ``ClientCapabilities``, or the same as JSON.
        info: the client's name and version: the SDK's ``Implementation``, or the same as JSON.
        auth_method: the agent's method to authenticate with; None: do not authenticate.
        patience: timeout for each of our requests to the agent, in seconds.
    """

    capabilities: Any = field(default_factory=dict)
    info: Any = None
    auth_method: str | None = None
    patience: float = 60.0


@dataclass(frozen=True)
class Restoration:
    """How a session was restored, and its transcript."""

    session_id: str
    """The id to prompt with, even if the agent uses another id now."""
    grade: Grade
    """``native-load``, ``native-resume``: the agent remembers. ``context``: the next prompt tells it."""
    messages: int
    tried: tuple[str, ...]
    """Each step that was tried, and its outcome."""
    notices: tuple[str, ...]
    """What had to be repaired, such as tool calls that were still running."""
    differences: tuple[str, ...]
    """Settings that could not be restored."""
    note: str | None
    """What the model is told with the next prompt."""
    result: Message
    """The agent's answer: its current modes and options."""
    transcript: tuple[Message, ...]
    """The conversation as raw updates, as ``session/load`` would replay them."""
    record: SessionSnapshot

    def __str__(self) -> str:
        told_later = " and is told them with the next prompt" if self.grade == "context" else ""
        tried = "; ".join(self.tried)
        return f"{self.session_id}: restored with {self.messages} messages ({self.grade}){told_later}; {tried}"

    @classmethod
    def of(cls, restored: Restored, record: SessionSnapshot, capabilities: Message) -> Restoration:
        """Build the report on *restored*; *record* is its current record, *capabilities* the client's."""
        report = restored.report()
        return cls(
            session_id=restored.session_id,
            grade=restored.grade,
            messages=report["messages"],
            tried=restored.tried,
            notices=tuple(report["notices"]),
            differences=restored.differences,
            note=restored.note,
            result={key: value for key, value in restored.result.items() if key != "sessionId"},
            transcript=tuple(replay(record, capabilities)),
            record=record,
        )


class ClientHost(TaskHost):
    """A transport that wraps the agent's: every message passes through the core, in both directions."""

    def __init__(
        self,
        inner: Transport,
        sessions: LiveSessions,
        *,
        command: Sequence[str] = (),
        timeout: float = 60.0,
        restart: Callable[[], Awaitable[Transport]] | None = None,
    ) -> None:
        core = Core(view=self.view, methods=SessionMethods().by_name(), command=command, timeout=timeout)
        super().__init__(inner, core, sessions)
        self.supervision = Supervision(self.core, restarts=restart is not None)
        self._restart = restart

    # The transport, as the SDK sees it --------------------------------------------------------------------

    async def send(self, message: dict[str, Any]) -> None:
        """Record a message of the client, then send it. Both happen even if the caller is cancelled."""
        self._start()
        sent = self.take(self.core.from_client(message), message, self.to_agent)
        for each in sent:
            try:
                await asyncio.shield(each)
            except (OSError, RuntimeError):
                self._never_sent(message)
                if not self.supervision.restarts:
                    raise  # the caller gets it instead of an answer

    def _never_sent(self, message: Message) -> None:
        actions = self.supervision.unsent(message)
        is_answered = self.supervision.restarts
        self.take([action for action in actions if is_answered or not isinstance(action, ToClient)])

    async def end(self, *, drain: bool = False) -> None:
        """See `TaskHost`. The SDK, which closes the connection, reads no more."""
        await super().end(drain=drain)

    # The two sides ----------------------------------------------------------------------------------------

    async def _to_client(self, message: Message) -> None:
        self._inbox.put_nowait(message)

    async def _to_agent(self, message: Message) -> None:
        await self._inner.send(message)

    async def _read(self) -> None:
        try:
            while (message := await self._inner.receive()) is not None:
                if not isinstance(message, dict):
                    log.warning("the agent wrote something that is not ACP: a %s", type(message).__name__)
                    continue
                self.take(self.core.from_agent(message), message, self.to_client)
                await self._room()
        except Exception as error:  # noqa: BLE001 — `receive` raises it in the SDK's loop
            await self._ended()
            self._inbox.put_nowait(error)
            return
        if not await self._ended():
            self._inbox.put_nowait(None)

    async def _ended(self) -> bool:
        """Handle the end of the agent. Returns whether it is restarted."""
        for message in await self.to_agent.reclaim():
            self._never_sent(message)
        self.take(self.supervision.agent_ended())
        await self.to_client.drained()
        return not self.core.is_over

    async def _restarted(self, delay: float) -> None:
        assert self._restart is not None  # noqa: S101 — the supervision restarts only with it
        await asyncio.sleep(delay)
        await self._inner.close()
        try:
            self._inner = await self._restart()
        except Exception as error:  # noqa: BLE001 — it counts as another end of the agent
            log.warning("the agent cannot be started again: %s", error)
            if not await self._ended():
                self._inbox.put_nowait(None)
            return
        self._pump = None
        self._start()
        self.take(self.supervision.agent_started())

    # For callers that start an agent ----------------------------------------------------------------------

    async def shake_hands(self, handshake: Handshake) -> None:
        """Initialize the connection.

        Raises:
            AgentUnavailable: the agent does not answer, or speaks another version of the protocol.
        """
        self._start()
        params: Message = {"protocolVersion": 1, "clientCapabilities": as_json(handshake.capabilities)}
        if handshake.info is not None:
            params["clientInfo"] = as_json(handshake.info)
        self.core.initialize_params = params
        self.core.client_capabilities = params["clientCapabilities"]
        result = await self.asked("initialize", params)
        if not self.core.introduced(result):
            version = result.get("protocolVersion")
            hint = "use one that speaks version 1"
            raise AgentUnavailable(f"the agent speaks version {version} of ACP", hint=hint)
        if handshake.auth_method is not None:
            self.core.login = {"methodId": handshake.auth_method}
            await self.asked("authenticate", self.core.login)

    async def asked(self, method: str, params: Message) -> Message:
        """Send the agent a request of our own. Raises `AgentUnavailable` if it fails."""

        def ask() -> Steps[Message]:
            result: Message = yield Ask(method, params)
            return result

        return await self.run(ask())

    async def run(self, steps: Steps[_T], session_id: str | None = None) -> _T:
        """Run a job with exclusive access to *session_id*. Raises `AgentUnavailable` if the agent refuses."""
        try:
            return await super().run(steps, session_id)
        except AgentRefused as refused:
            raise AgentUnavailable(f"the agent refused: {refused}", session_id=session_id) from refused

    async def restore_session(self, session_id: str, params: Message, *, require: str) -> Restored:
        """Restore a session that is live here with the best grade the agent can; an agent that dies is restarted.

        Raises:
            FidelityNotMet: the grade does not meet *require*.
            AgentUnavailable: not even a new session could be created.
        """
        self.core.sessions.open(session_id)

        def steps() -> Steps[Restored]:
            restored = yield from restore(self.core, RestoreRequest(session_id, params, require))
            yield from announce_restore(self.core, restored)
            return restored

        try:
            return await self.run(steps(), session_id)
        finally:
            self.supervision.restarts = False


class Recorder:
    """The recorded sessions of one connection; `record` returns it."""

    def __init__(self, host: ClientHost) -> None:
        self._host = host

    @property
    def sessions(self) -> Mapping[str, LiveSession]:
        """The sessions that are recorded now, by the client's session id."""
        live = self._host.sessions
        return live.open if live is not None else {}


def record(connection: ClientSideConnection, manager: SnapshotManager, *, command: Sequence[str] = ()) -> Recorder:
    """Record every session of an SDK connection from now on. Call it right after the connection was made.

    As with the proxy, ``session/load``, ``resume``, ``list``, ``fork``, ``close`` and ``delete`` work with any
    agent. Sessions are live in *manager* until the connection is closed, which saves them a last time. A session
    that started before this call is not recorded. A session whose id is taken in the store gets a new id.

    Args:
        connection: made by ``connect_to_agent`` or ``spawn_agent_process``, over any transport.
        manager: an open manager; it saves the sessions whether or not its settings enable persistence.
        command: how the agent was started; stored with the sessions for information.

    Raises:
        InvalidInput: the manager is not open, or the connection is not a client's or is already recorded.
        MissingExtra: the installed SDK has no message transports.
    """
    sessions = manager.recording(AcpReducer)
    return Recorder(tap_connection(connection, lambda inner: ClientHost(inner, sessions, command=command)))


# With the SDK ---------------------------------------------------------------------------------------------


def connect(
    transport: Transport, client: Any, make: Callable[[Transport], ClientHost], *, unstable: bool
) -> tuple[ClientSideConnection, ClientHost]:
    """Connect with the SDK over *transport*, with a host made by *make* in between.

    Raises:
        MissingExtra: the SDK is not installed, or its version is not supported.
    """
    with needs_extra("acp", "this needs agent-client-protocol, the SDK"):
        import acp  # noqa: PLC0415 — heavy, and an extra
    connection: Any = acp.connect_to_agent(client, transport, use_unstable_protocol=unstable)
    return connection, tap_connection(connection, make)


def tap_connection(connection: Any, make: Callable[[Transport], ClientHost]) -> ClientHost:
    """Put a host between a connection of the SDK and its transport."""
    inside: Any = getattr(connection, "_conn", None)
    if not hasattr(inside, "send_request"):
        raise InvalidInput(f"a {type(connection).__name__} is not a connection of the SDK to an agent")
    inner = getattr(inside, "_transport", None)
    if inner is None or not hasattr(inside, "_recv_task"):
        raise MissingExtra(
            "this release of agent-client-protocol has no message transports that we know",
            hint="pip install 'snapshot-plugin[acp]'",
        )
    if isinstance(inner, ClientHost):
        raise InvalidInput("this connection is recorded already")
    host = make(inner)
    inside._transport = host  # noqa: SLF001 — the SDK has no public access to it
    _read_through(inside)
    return host


def _read_through(inside: Any) -> None:
    """Restart the receive loop of a connection that already waits on the old transport, so that it reads ours."""
    waiting: asyncio.Task[None] | None = inside._recv_task  # noqa: SLF001 — as above
    if waiting is None or inspect.getcoroutinestate(waiting.get_coro()) == inspect.CORO_CREATED:  # type: ignore[arg-type]
        return
    waiting.cancel()
    inside._recv_task = inside._tasks.create(  # noqa: SLF001 — as above
        inside._receive_loop(),  # noqa: SLF001 — as above
        name="acp.Connection.receive",
        on_error=inside._on_receive_error,  # noqa: SLF001 — as above
    )


def as_json(value: Any) -> Any:
    """Return an SDK model as JSON; JSON unchanged. No warnings: some SDK defaults do not fit its own types."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json", by_alias=True, exclude_none=True, warnings=False) if dump else value
