"""For clients written with the SDK: record a connection; start an agent and go on with a stored session.

The SDK runs on asyncio alone, and so does this. What is promised: the answer to ``session/new``, the user's prompt
(before the agent gets it), a tool call that starts, a permission request and its answer, and the end of a turn
(before the caller gets it) are on disk first; every streamed update is in the spool before the client's handler is
called. So ``kill -9`` of client and agent, at any instant, costs nothing the user has seen.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snapshot_plugin.acp.messages import Message
from snapshot_plugin.adapters.acp_sdk.contact import (
    Contact,
    Handshake,
    Require,
    Restoration,
    as_json,
    bring_back,
    check_require,
    contact,
)
from snapshot_plugin.adapters.acp_sdk.observe import Transport, tap_connection
from snapshot_plugin.adapters.acp_sdk.process import StdioAgent
from snapshot_plugin.adapters.acp_sdk.recorded import RecordedSession
from snapshot_plugin.adapters.acp_sdk.recorder import Recorder
from snapshot_plugin.errors import AgentUnavailable, InvalidInput, SessionLocked
from snapshot_plugin.manager.manager import SnapshotManager

if TYPE_CHECKING:
    from acp.client.connection import ClientSideConnection

__all__ = ["record", "resume_agent", "resume_over"]


def record(connection: ClientSideConnection, manager: SnapshotManager, *, command: Sequence[str] = ()) -> Recorder:
    """Record every session of an SDK connection from now on. Call it right after the connection was made.

    Sessions are live in *manager* from ``session/new`` until the connection is closed, which saves them once
    more. A session that began before the recorder was there is not recorded. One whose id is already taken in the
    store (some agents count) is given one of ours, which the client sees in place of the agent's.

    Args:
        connection: made by ``connect_to_agent`` or ``spawn_agent_process``, over any transport.
        manager: open; it saves the sessions whether or not its settings enable persistence.
        command: how the agent was started; kept with the sessions, for people.

    Returns:
        The recorder; ``recorder.sessions`` are the sessions that are recorded now.

    Raises:
        InvalidInput: the manager is not open, or the connection is no client's or is recorded already.
        MissingExtra: the installed SDK has no message transports.
    """
    if not manager.is_open:
        raise InvalidInput(
            "the manager is not open", hint="use it as: async with SnapshotManager(store) as manager"
        )
    recorder = Recorder(manager, command=command)
    recorder.tap = tap_connection(connection, recorder)
    return recorder


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
    """Start an agent and go on with a stored session in it; recorded, and ended with the block.

    The connection is initialized and has the session open. Prompt with ``report.session_id``, which is *session_id*
    whatever the agent calls it. What the agent has forgotten rides along with the next prompt. Nothing is re-run.

    Args:
        command: the agent's program and its arguments.
        session_id: ours.
        manager: open; keeps the session saved.
        client: the SDK's ``Client``, or a function that makes one.
        env: the agent's whole environment; None: this process's own.
        cwd: where the agent and the session work; None: where the session did.
        require: the least that is accepted: ``exact`` (the agent loads it, and everything is there), ``history``
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
    check_require(require)
    async with AsyncExitStack() as stack:
        session = await _taken(stack, session_id, manager)
        workplace = cwd if cwd is not None else session.snapshot().config.cwd
        agents: list[StdioAgent] = []

        async def start() -> Contact:
            agents.append(await StdioAgent.start(command, env=env, cwd=workplace))
            stack.push_async_callback(agents[-1].close)
            return await _greeted(
                stack,
                contact(
                    agents[-1],
                    manager,
                    client,
                    handshake or Handshake(),
                    command=command,
                    use_unstable_protocol=use_unstable_protocol,
                ),
            )

        try:
            made, report = await bring_back(start, session, _params(workplace, mcp_servers), require=require)
        except AgentUnavailable as error:
            if agents and (words := await agents[-1].last_words()):
                error.add_note(f"the agent's last words:\n{words}")
            raise
        yield made.connection, report


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
    """As `resume_agent`, with an agent that runs elsewhere: over HTTP, WebSocket, or any transport of the SDK's.

    The transport is closed with the block.
    """
    async with AsyncExitStack() as stack:
        stack.push_async_callback(transport.close)
        check_require(require)
        session = await _taken(stack, session_id, manager)
        unstable = use_unstable_protocol
        made = contact(transport, manager, client, handshake or Handshake(), use_unstable_protocol=unstable)
        await _greeted(stack, made)
        report = await made.bring_back(session, _params(cwd, mcp_servers), require=require)
        yield made.connection, report


async def _taken(stack: AsyncExitStack, session_id: str, manager: SnapshotManager) -> RecordedSession:
    """The stored session, ours until the stack is closed."""
    async with manager.claiming(session_id) as claim, claim.starting:
        if session_id in manager.live:
            raise SessionLocked(f"session {session_id!r} is live in this manager", session_id=session_id)
        session, found = await RecordedSession.reopen(session_id, manager)
        stack.push_async_callback(session.close)
        await session.save_by_itself(baseline=found)
        return session


async def _greeted(stack: AsyncExitStack, made: Contact) -> Contact:
    stack.push_async_callback(made.connection.close)
    await made.shake_hands()
    return made


def _params(cwd: str | Path | None, mcp_servers: Sequence[Any]) -> Message:
    place = {"cwd": str(cwd)} if cwd is not None else {}
    return {**place, "mcpServers": [as_json(server) for server in mcp_servers]}
