"""For clients written with the SDK: start or reach an agent, and continue a stored session in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import anyio
import anyio.to_thread

from snapshot_plugin.acp.hosts.sdk_client import ClientHost, Handshake, Require, Restoration, as_json, connect
from snapshot_plugin.acp.hosts.stdio_agent import StdioAgent
from snapshot_plugin.acp.hosts.tasks import Transport
from snapshot_plugin.acp.messages import Message
from snapshot_plugin.acp.reducer import AcpReducer
from snapshot_plugin.errors import AgentUnavailable, InvalidInput, SessionLocked
from snapshot_plugin.live.session import LiveSession
from snapshot_plugin.live.sessions import LiveSessions
from snapshot_plugin.manager.manager import SnapshotManager
from snapshot_plugin.store.base import StoredSnapshot

if TYPE_CHECKING:
    from acp.client.connection import ClientSideConnection

__all__ = ["resume_agent", "resume_over"]


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
