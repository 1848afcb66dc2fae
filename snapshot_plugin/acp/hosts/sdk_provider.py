"""For orchestrators: continue a stored session in an agent, or have the manager start an agent for each session."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import anyio
import anyio.to_thread

from snapshot_plugin.acp.actions import Ask, RecordEvent, Steps
from snapshot_plugin.acp.hosts.sdk_client import ClientHost, Handshake, Require, Restoration, as_json, connect
from snapshot_plugin.acp.hosts.stdio_agent import StdioAgent
from snapshot_plugin.acp.hosts.tasks import Transport
from snapshot_plugin.acp.messages import Message
from snapshot_plugin.acp.methods import PROVIDER
from snapshot_plugin.acp.reducer import AcpReducer
from snapshot_plugin.acp.restore import show
from snapshot_plugin.acp.state import stored_setup
from snapshot_plugin.errors import AgentNoLoadSupport, AgentUnavailable, InvalidInput, SessionLocked, SnapshotError
from snapshot_plugin.live.session import LiveSession
from snapshot_plugin.live.sessions import LiveSessions
from snapshot_plugin.manager.managed import ManagedSession
from snapshot_plugin.manager.manager import SnapshotManager
from snapshot_plugin.manager.ports import RestoredAs
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.base import StoredSnapshot

if TYPE_CHECKING:
    from acp.client.connection import ClientSideConnection

__all__ = ["AcpProvider", "AcpSession", "resume_agent", "resume_over"]


@asynccontextmanager
async def resume_agent(
    command: Sequence[str],
    session_id: str,
    manager: SnapshotManager,
    *,
    client: Any,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    require: Require = "context",
    mcp_servers: Sequence[Any] = (),
    handshake: Handshake | None = None,
    use_unstable_protocol: bool = False,
) -> AsyncIterator[tuple[ClientSideConnection, Restoration]]:
    """Start an agent and continue a stored session in it; recorded, and ended with the block.

    The connection is initialized and has the session open. Prompt with ``report.session_id``, which is *session_id*
    whatever the agent calls it. What the agent has forgotten is told with the next prompt. Nothing is re-run.

    Args:
        command: the agent's program and its arguments.
        session_id: ours.
        manager: open; keeps the session saved.
        client: the SDK's ``Client``, or a function that makes one.
        env: the agent's whole environment; None: this process's own. The keys of a store are left out of either.
        cwd: where the agent and the session work; None: where the session did.
        require: the least that is accepted: ``exact`` (the agent loads it, and its memory is verified), ``history``
            (it remembers, by load or resume), ``context`` (it may have to be told).
        mcp_servers: for the session; they are never stored, so they are needed again.
        handshake: the client's capabilities and name, how to authenticate, how long to wait.
        use_unstable_protocol: as the SDK's.

    Raises:
        SnapshotNotFound: there is no such session.
        SessionLocked: it is live, here or elsewhere. No agent was started.
        FidelityNotMet: it cannot come back as *require* demands. Nothing was lost.
        AgentUnavailable: the agent cannot be started, dies, or refuses even a new session.
    """
    _check_require(require)
    async with AsyncExitStack() as stack:
        taken = await _Taken.from_(stack, session_id, manager)
        workplace = cwd if cwd is not None else taken.live.snapshot().config.cwd
        agents: list[StdioAgent] = []

        async def start() -> Transport:
            agents.append(await StdioAgent.start(command, env=env, cwd=workplace))
            stack.push_async_callback(agents[-1].close)
            return agents[-1]

        hands = handshake or Handshake()
        sessions, patience = taken.sessions, hands.patience
        make = partial(ClientHost, sessions=sessions, command=command, patience=patience, restart=start)
        connection, host = connect(await start(), client, make, unstable=use_unstable_protocol)
        stack.push_async_callback(connection.close)
        try:
            await host.shake_hands(hands)
            report = await taken.brought_back(host, _params(workplace, mcp_servers), require, hands)
        except AgentUnavailable as error:
            if words := await agents[-1].last_words():
                error.add_note(f"the agent's last words:\n{words}")
            raise
        yield connection, report


@asynccontextmanager
async def resume_over(
    transport: Transport,
    session_id: str,
    manager: SnapshotManager,
    *,
    client: Any,
    cwd: str | Path | None = None,
    require: Require = "context",
    mcp_servers: Sequence[Any] = (),
    handshake: Handshake | None = None,
    use_unstable_protocol: bool = False,
) -> AsyncIterator[tuple[ClientSideConnection, Restoration]]:
    """As `resume_agent`, with an agent that runs elsewhere: over HTTP, WebSocket, or any transport of the SDK.

    The transport is closed with the block.
    """
    async with AsyncExitStack() as stack:
        stack.push_async_callback(transport.close)
        _check_require(require)
        taken = await _Taken.from_(stack, session_id, manager)
        hands = handshake or Handshake()
        make = partial(ClientHost, sessions=taken.sessions, patience=hands.patience)
        connection, host = connect(transport, client, make, unstable=use_unstable_protocol)
        stack.push_async_callback(connection.close)
        await host.shake_hands(hands)
        yield connection, await taken.brought_back(host, _params(cwd, mcp_servers), require, hands)


class _Taken(NamedTuple):
    """A stored session that is ours until a stack is closed."""

    manager: SnapshotManager
    sessions: LiveSessions
    live: LiveSession
    found: StoredSnapshot

    @classmethod
    async def from_(cls, stack: AsyncExitStack, session_id: str, manager: SnapshotManager) -> _Taken:
        if session_id in manager.live:
            raise SessionLocked(f"session {session_id!r} is live in this manager", session_id=session_id)
        sessions = manager.recording(AcpReducer)
        live = await anyio.to_thread.run_sync(sessions.resume, session_id)
        stack.push_async_callback(anyio.to_thread.run_sync, sessions.close)
        return cls(manager, sessions, live, await anyio.to_thread.run_sync(sessions.newest, session_id))

    async def brought_back(self, host: ClientHost, params: Message, require: str, hands: Handshake) -> Restoration:
        """Report, event, metric and log carry the same grade."""
        started = anyio.current_time()
        restored = await host.bring_back(self.live.session_id, params, require=require)
        took = anyio.current_time() - started
        fell_back = None if restored.grade.startswith("native") else "; ".join(restored.tried)
        self.manager.report.restored(self.found, grade=restored.grade, duration=took, fell_back=fell_back)
        return Restoration.of(restored, self.live.snapshot(), hands.capabilities)


def _check_require(require: str) -> None:
    """Refuse a word that names no grade."""
    if require not in get_args(Require):
        raise InvalidInput(f"require={require!r} is none of {', '.join(get_args(Require))}")


def _params(cwd: str | Path | None, mcp_servers: Sequence[Any]) -> Message:
    place = {"cwd": str(cwd)} if cwd is not None else {}
    return {**place, "mcpServers": [as_json(server) for server in mcp_servers]}


_SETUP = ("cwd", "mcpServers", "additionalDirectories")
log = logging.getLogger("snapshot_plugin.acp")


class AcpSession:
    """A live session of an agent. Prompt it over `connection` with `session_id`, which is ours."""

    def __init__(
        self,
        provided: _Provided,
        connection: ClientSideConnection,
        report: Restoration | None,
        ending: AsyncExitStack,
    ) -> None:
        self.session_id = provided.session_id
        self.connection = connection
        self.report = report
        """How it came back; None for one that is new."""
        self._provided, self._ending = provided, ending
        provided.face = self

    def snapshot(self) -> SessionSnapshot:
        """The session as recorded so far; the same object while nothing happens."""
        return self._provided.snapshot()

    async def aclose(self) -> None:
        """End the connection, and the agent with it."""
        await self._ending.aclose()


class _Provided:
    """A session that is reduced here and spooled and saved by its manager. Used like a `LiveSession`."""

    trouble: SnapshotError | None = None

    def __init__(self, base: SessionSnapshot, manager: SnapshotManager, managed: ManagedSession) -> None:
        self.session_id = base.session_id
        self.face: Any = self
        self._manager, self._managed = manager, managed
        self._recording = AcpReducer(base)
        self._taken: SessionSnapshot | None = base
        self.is_recorded = True

    def snapshot(self) -> SessionSnapshot:
        if self._taken is None:
            self._taken = self._recording.snapshot(self._manager.clock())
        return self._taken

    def record_all(self, events: Sequence[Mapping[str, Any]]) -> bool:
        is_spooled = self._manager.config.enable_persistence and self._managed.live.record_all(events)
        self.is_recorded = bool(is_spooled)
        for event in events:
            self._recording.apply(event)
        if self._recording.is_long:
            self.checkpoint()
        self._taken = None
        return self.is_recorded

    def checkpoint(self) -> None:
        self._manager.touch(self.session_id)

    def interrupt(self, why: str) -> None:
        if self._recording.running:
            self.record_all([{"interrupted": why}])

    async def make_durable(self) -> None:
        """On disk on return: in the spool, or where there is none in a snapshot of its own."""
        if not self._manager.config.enable_persistence:
            return
        if self.is_recorded:
            await self._managed.flush()
            return
        try:
            await self._manager.snapshot(self.face, trigger="event")
        except Exception as error:  # noqa: BLE001 — the session goes on, and everybody is told
            self._manager.report.failed(self.session_id, "save", error)


class _ProvidedSessions:
    """What `Core` needs of `LiveSessions`, for the one session of a provider's connection."""

    def __init__(self, provided: _Provided) -> None:
        self.open = {provided.session_id: provided}

    def close(self) -> Sequence[Any]:
        """The manager saves it and lets it go."""
        return ()


class AcpProvider:
    """Starts one agent for each session.

    Loading demands that the agent advertises ``loadSession`` and that its memory is verified; else the agent is
    told the conversation. Either takes one start of the agent. `AcpSession.report` says how it went.

    Args:
        command: the agent's program and its arguments; None where *connect* is given.
        manager: the one the sessions are started with. Where it enables persistence, they are spooled and saved.
        client: the SDK's ``Client`` or, for several sessions at once, a function that makes one.
        env: the agent's whole environment; None: this process's own. The keys of a store are left out of either.
        handshake: the client's capabilities and name, how to authenticate, how long to wait.
        connect: makes a transport of the SDK's (HTTP, WebSocket), for agents that run elsewhere.
        use_unstable_protocol: as the SDK's.

    The *config* of a session is a mapping with ``cwd``, ``mcpServers`` and ``additionalDirectories``, as far as
    wanted; None: where the session was before, or here.
    """

    def __init__(
        self,
        command: Sequence[str] | None,
        manager: SnapshotManager,
        *,
        client: Any,
        env: Mapping[str, str] | None = None,
        handshake: Handshake | None = None,
        connect: Callable[[], Awaitable[Transport]] | None = None,
        use_unstable_protocol: bool = False,
    ) -> None:
        if (command is None) == (connect is None):
            raise InvalidInput("an agent is either started by a command or reached by connect")
        self._command, self._manager, self._client = tuple(command or ()), manager, client
        self._env, self._connect = env, connect
        self._handshake = handshake or Handshake()
        self._unstable = use_unstable_protocol

    async def create_session(self, session_id: str, config: Any, /) -> AcpSession:
        """Start an agent and a new session in it."""
        params = _configured(config, Path.cwd())
        now = self._manager.clock()
        blank = SessionSnapshot(session_id=session_id, created_at=now, updated_at=now, provider_type=PROVIDER)
        async with AsyncExitStack() as stack:
            provided = await self._provided(stack, blank)
            connection, host = await self._started(stack, provided, params["cwd"])
            await host.host.run(_begun(host, session_id, params))
            return AcpSession(provided, connection, None, stack.pop_all())

    async def restore_session(
        self, session_id: str, config: Any, snapshot: SessionSnapshot, /, *, require_load: bool
    ) -> RestoredAs[AcpSession]:
        """Start an agent once and bring the session back as well as it can: loaded, or told what was said.

        Raises:
            AgentNoLoadSupport: it cannot be loaded, and *require_load*.
        """
        params = _configured(config, snapshot.config.cwd or Path.cwd())
        async with AsyncExitStack() as stack:
            provided = await self._provided(stack, snapshot)
            provided.interrupt("the client hung up")
            connection, host = await self._started(stack, provided, params["cwd"])
            if require_load and host.core.capabilities.get("loadSession") is not True:
                name = host.core.agent.name or "the agent"
                raise AgentNoLoadSupport(f"{name} does not offer loadSession", session_id=session_id)
            restored = await host.bring_back(session_id, params, require="context")
            if require_load and restored.grade != "native-load":
                raise AgentNoLoadSupport("; ".join(restored.tried), session_id=session_id)
            report = Restoration.of(restored, provided.snapshot(), self._handshake.capabilities)
            fell_back = None if restored.grade.startswith("native") else "; ".join(restored.tried)
            return RestoredAs(AcpSession(provided, connection, report, stack.pop_all()), restored.grade, fell_back)

    async def stop_session(self, session: AcpSession, /) -> None:
        """End the session's agent."""
        await session.aclose()

    async def _provided(self, stack: AsyncExitStack, base: SessionSnapshot) -> _Provided:
        managed = await stack.enter_async_context(self._manager.leasing(base.session_id))
        await managed.try_to_take()
        return _Provided(base, self._manager, managed)

    async def _started(
        self, stack: AsyncExitStack, provided: _Provided, cwd: str
    ) -> tuple[ClientSideConnection, ClientHost]:
        async def start() -> Transport:
            if self._connect is not None:
                transport = await self._connect()
            else:
                transport = await StdioAgent.start(self._command, env=self._env, cwd=cwd)
            stack.push_async_callback(transport.close)
            return transport

        sessions: Any = _ProvidedSessions(provided)
        patience = self._handshake.patience
        make = partial(ClientHost, sessions=sessions, command=self._command, patience=patience, restart=start)
        connection, host = connect(await start(), self._client, make, unstable=self._unstable)
        stack.push_async_callback(connection.close)
        await host.shake_hands(self._handshake)
        return connection, host


def _begun(host: ClientHost, session_id: str, params: Message) -> Steps[None]:
    core = host.core
    with core.making_sessions():
        result = yield Ask("session/new", params)
        agent_id = str(result.get("sessionId", ""))
        first = {
            "provider_type": PROVIDER,
            **core.agent_event(agent_id),
            "new": stored_setup(params),
            "config": result,
        }
        yield RecordEvent(session_id, first, durable=True)
        yield from show(session_id, core.bind(session_id, agent_id))
    host.supervision.restarts = False


def _configured(config: Any, cwd: str | Path) -> Message:
    given = config if isinstance(config, Mapping) else {}
    params = {"cwd": str(cwd), "mcpServers": [], **{key: given[key] for key in _SETUP if key in given}}
    return {**params, "cwd": str(params["cwd"]), "mcpServers": [as_json(server) for server in params["mcpServers"]]}
