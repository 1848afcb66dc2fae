"""For orchestrators: resume a stored session in an agent, or have the manager start an agent for each session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import anyio
import anyio.to_thread

from snapshot_plugin.acp.actions import Ask, Do, Steps
from snapshot_plugin.acp.hosts.sdk_client import ClientHost, Handshake, Require, Restoration, as_json, connect
from snapshot_plugin.acp.hosts.stdio_agent import StdioAgent
from snapshot_plugin.acp.hosts.tasks import Transport
from snapshot_plugin.acp.messages import Message
from snapshot_plugin.acp.methods import begin
from snapshot_plugin.acp.reducer import AcpReducer
from snapshot_plugin.acp.replay import show
from snapshot_plugin.acp.state import setup_in, stored_setup
from snapshot_plugin.errors import AgentNoLoadSupport, AgentUnavailable, InvalidInput, SessionLocked
from snapshot_plugin.live.session import LiveSession
from snapshot_plugin.live.sessions import LiveSessions
from snapshot_plugin.manager.managed import ManagedSession
from snapshot_plugin.manager.manager import SnapshotManager
from snapshot_plugin.manager.ports import RestoredAs
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.hop import in_thread
from snapshot_plugin.store.memory import MemoryStore

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
    """Start an agent and resume a stored session in it. The session is recorded; the agent ends with the block.

    The connection is initialized and has the session open. Prompt with ``report.session_id``, which is always
    *session_id*, even if the agent uses another id. The next prompt tells the model what the agent has forgotten.
    No tool or prompt is run again.

    Args:
        command: the agent's program and its arguments.
        session_id: the id in the store.
        manager: an open manager; it saves the session.
        client: the SDK's ``Client``, or a function that makes one.
        env: the agent's whole environment; None: this process's own. The keys of a store are removed from either.
        cwd: working directory of the agent and the session; None: the session's last one.
        require: the lowest accepted grade: ``exact`` (the agent loads it, and its memory is verified), ``history``
            (it remembers, by load or resume), ``context`` (it may have to be told).
        mcp_servers: for the session; they are never stored, so they must be passed again.
        handshake: the client's capabilities and name, how to authenticate, how long to wait.
        use_unstable_protocol: passed to the SDK.

    Raises:
        SnapshotNotFound: there is no such session.
        SessionLocked: the session is live, here or elsewhere. No agent was started.
        FidelityNotMet: the session cannot be restored as *require* demands. Nothing was lost.
        AgentUnavailable: the agent cannot be started, dies, or refuses even a new session.
    """
    provider = AcpProvider(
        command, manager, client=client, env=env, handshake=handshake, use_unstable_protocol=use_unstable_protocol
    )
    async with provider._resumed(session_id, cwd, mcp_servers, require) as resumed:  # noqa: SLF001 — the same module
        yield resumed


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
    """Resume a session like `resume_agent`, in an agent that runs elsewhere, over any transport of the SDK.

    The transport is closed with the block.
    """

    async def given() -> Transport:
        return transport

    provider = AcpProvider(
        None,
        manager,
        client=client,
        handshake=handshake,
        connect=given,
        use_unstable_protocol=use_unstable_protocol,
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(transport.close)
        resumed = provider._resumed(session_id, cwd, mcp_servers, require, restarts=False)  # noqa: SLF001 — as above
        yield await stack.enter_async_context(resumed)


async def _let_go(sessions: LiveSessions) -> None:
    """Save the sessions a last time and release their leases, even when cancelled."""
    with anyio.CancelScope(shield=True):
        await anyio.to_thread.run_sync(sessions.close)


@asynccontextmanager
async def _quoting(agents: Sequence[Transport]) -> AsyncIterator[None]:
    """Add the end of the agent's stderr to the error, if the agent cannot be used."""
    try:
        yield
    except AgentUnavailable as error:
        agent = agents[-1] if agents else None
        if isinstance(agent, StdioAgent) and (tail := await agent.stderr_tail()):
            error.add_note(f"the agent's last words:\n{tail}")
        raise


class AcpSession:
    """A live session of an agent. Prompt it over `connection` with `session_id`, the id in the store."""

    def __init__(
        self,
        live: LiveSession,
        connection: ClientSideConnection,
        report: Restoration | None,
        ending: AsyncExitStack,
    ) -> None:
        self.session_id = live.session_id
        self.connection = connection
        self.report = report
        """How it was restored; None for a new session."""
        self._live, self._ending = live, ending

    def snapshot(self) -> SessionSnapshot:
        """Return the session as recorded so far."""
        return self._live.snapshot()

    async def aclose(self) -> None:
        """Close the connection and end the agent."""
        await self._ending.aclose()


class AcpProvider:
    """Starts one agent for each session.

    A session is loaded if the agent advertises ``loadSession`` and its memory is verified; otherwise the agent
    resumes it or is told the conversation. Each needs one start of the agent. `AcpSession.report` has the outcome.

    Args:
        command: the agent's program and its arguments; None if *connect* is given.
        manager: the manager that starts the sessions. If it enables persistence, they are spooled and saved.
        client: the SDK's ``Client`` or, for several sessions at once, a function that makes one.
        env: the agent's whole environment; None: this process's own. The keys of a store are removed from either.
        handshake: the client's capabilities and name, how to authenticate, how long to wait.
        connect: makes a transport of the SDK (HTTP, WebSocket), for agents that run elsewhere.
        use_unstable_protocol: passed to the SDK.

    The *config* of a session is a mapping with any of ``cwd``, ``mcpServers`` and ``additionalDirectories``. The
    default ``cwd`` is the session's last one, or this process's.
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
        async with AsyncExitStack() as stack:
            taken, agents = await self._taken(stack, session_id), list[Transport]()
            async with _quoting(agents):
                connection, host = await self._started(stack, taken.sessions, params["cwd"], agents)
                live = await host.run(_begun(host, taken, params), session_id)
            return AcpSession(live, connection, None, stack.pop_all())

    async def restore_session(
        self, session_id: str, config: Any, snapshot: SessionSnapshot, /, *, require_load: bool
    ) -> RestoredAs[AcpSession]:
        """Start an agent and restore the session by the best means it offers: loaded, resumed, or told as context.

        Raises:
            AgentNoLoadSupport: *require_load* is set and the session cannot be loaded.
        """
        params = _configured(config, snapshot.config.cwd or Path.cwd())
        async with AsyncExitStack() as stack:
            taken, agents = await self._taken(stack, session_id), list[Transport]()
            live = await in_thread(taken.resumed, snapshot)
            async with _quoting(agents):
                connection, host = await self._started(stack, taken.sessions, params["cwd"], agents)
                if require_load and not host.core.can("load"):
                    name = host.core.agent.name or "the agent"
                    raise AgentNoLoadSupport(f"{name} does not offer loadSession", session_id=session_id)
                restored = await host.restore_session(session_id, params, require="context")
            if require_load and restored.grade != "native-load":
                raise AgentNoLoadSupport("; ".join(restored.tried), session_id=session_id)
            report = Restoration.of(restored, live.snapshot(), host.core.client_capabilities)
            session = AcpSession(live, connection, report, stack.pop_all())
            return RestoredAs(session, restored.grade, restored.fell_back)

    async def stop_session(self, session: AcpSession, /) -> None:
        """End the session's agent."""
        await session.aclose()

    @asynccontextmanager
    async def _resumed(
        self,
        session_id: str,
        cwd: str | Path | None,
        mcp_servers: Sequence[Any],
        require: str,
        *,
        restarts: bool = True,
    ) -> AsyncIterator[tuple[ClientSideConnection, Restoration]]:
        """Resume a stored session in an agent until the block ends. Always recorded; see `resume_agent`.

        Report, event, metric and log have the same grade.
        """
        manager, agents = self._manager, list[Transport]()
        if require not in get_args(Require):
            raise InvalidInput(f"require={require!r} is none of {', '.join(get_args(Require))}")
        if session_id in manager.live:
            raise SessionLocked(f"session {session_id!r} is live in this manager", session_id=session_id)
        async with AsyncExitStack() as stack:
            sessions = manager.recording(AcpReducer)
            stack.push_async_callback(
                _let_go, sessions
            )  # first: a cancelled caller never sees what `resume` returns
            live = await in_thread(sessions.resume, session_id)
            await live.save_as("event")
            found = await manager.store.read(session_id)
            workplace = cwd if cwd is not None else live.snapshot().config.cwd
            place = {} if workplace is None else {"cwd": str(workplace)}
            params = {**place, "mcpServers": [as_json(server) for server in mcp_servers]}
            async with _quoting(agents):
                connection, host = await self._started(stack, sessions, workplace, agents, restarts=restarts)
                started = anyio.current_time()
                restored = await host.restore_session(session_id, params, require=require)
            took = anyio.current_time() - started
            manager.report.restored(found, grade=restored.grade, duration=took, fell_back=restored.fell_back)
            yield connection, Restoration.of(restored, live.snapshot(), host.core.client_capabilities)

    async def _taken(self, stack: AsyncExitStack, session_id: str) -> _Taken:
        manager = self._manager
        managed = await stack.enter_async_context(manager.leasing(session_id))
        await managed.try_to_take()
        if manager.config.enable_persistence:
            taken = _Taken(session_id, manager.recording(AcpReducer), managed)
        else:  # still recorded, but only in memory
            taken = _Taken(session_id, LiveSessions(MemoryStore(), AcpReducer, clock=manager.clock), None)
        stack.push_async_callback(_let_go, taken.sessions)
        return taken

    async def _started(
        self,
        stack: AsyncExitStack,
        sessions: LiveSessions,
        cwd: str | Path | None,
        agents: list[Transport],
        *,
        restarts: bool = True,
    ) -> tuple[ClientSideConnection, ClientHost]:
        """Start an agent, connect to it and initialize the connection; *stack* closes both.

        *agents* gets each agent that is started: it is started again if it dies before its session is there.
        """

        async def start() -> Transport:
            if self._connect is not None:
                transport = await self._connect()
            else:
                limit = self._manager.config.max_message_bytes
                transport = await StdioAgent.start(self._command, env=self._env, cwd=cwd, line_bytes=limit)
            stack.push_async_callback(transport.close)
            agents.append(transport)
            return transport

        make = partial(
            ClientHost,
            sessions=sessions,
            command=self._command,
            restart=start if restarts else None,
            timeout=self._handshake.patience,
        )
        connection, host = connect(await start(), self._client, make, unstable=self._unstable)
        stack.push_async_callback(connection.close)
        await host.shake_hands(self._handshake)
        return connection, host


class _Taken(NamedTuple):
    """A session that a provider starts, and its recording."""

    session_id: str
    sessions: LiveSessions
    managed: ManagedSession | None
    """Holds the lease until recording starts, which takes its own; None if it is recorded only in memory."""

    def begun(self, first: Message) -> LiveSession:
        """Start recording it as a new session. May block."""
        self._hand_over()
        begin(self.sessions, self.session_id, first)
        return self.sessions.open[self.session_id]

    def resumed(self, snapshot: SessionSnapshot) -> LiveSession:
        """Resume recording from *snapshot*, the newest. May block."""
        if self.managed is not None:
            self._hand_over()
            return self.sessions.resume(self.session_id)
        live = self.sessions.begin(snapshot)
        live.interrupt("the client hung up")
        return live

    def _hand_over(self) -> None:
        if self.managed is not None:
            self.managed.live.release()


def _begun(host: ClientHost, taken: _Taken, params: Message) -> Steps[LiveSession]:
    core = host.core
    with core.withheld.making_sessions():
        result = yield Ask("session/new", params)
        agent_id = str(result.get("sessionId", ""))
        first = {**core.agent_event(agent_id), "new": stored_setup(params), "config": result}
        live: LiveSession = yield Do(lambda _sessions: taken.begun(first))
        yield from show(taken.session_id, core.bind(taken.session_id, agent_id))
    host.supervision.restarts = False
    return live


def _configured(config: Any, cwd: str | Path) -> Message:
    params = {"cwd": str(cwd), "mcpServers": [], **setup_in(config if isinstance(config, Mapping) else {})}
    return {**params, "cwd": str(params["cwd"]), "mcpServers": [as_json(server) for server in params["mcpServers"]]}
