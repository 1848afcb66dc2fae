"""Agents that speak ACP as a provider of the manager's: `create_or_resume_session` starts, loads and tells them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snapshot_plugin.adapters.acp.journal import PROVIDER, reduce_spool
from snapshot_plugin.adapters.acp.wire import Message
from snapshot_plugin.adapters.acp_sdk.contact import (
    Contact,
    Handshake,
    Require,
    Restoration,
    as_json,
    bring_back,
    contact,
)
from snapshot_plugin.adapters.acp_sdk.observe import Transport
from snapshot_plugin.adapters.acp_sdk.process import StdioAgent
from snapshot_plugin.adapters.acp_sdk.recorded import RecordedSession
from snapshot_plugin.errors import AgentNoLoadSupport, FidelityNotMet, InvalidInput
from snapshot_plugin.manager.manager import SnapshotManager
from snapshot_plugin.model.snapshot import SessionSnapshot

if TYPE_CHECKING:
    from acp.client.connection import ClientSideConnection

__all__ = ["AcpProvider", "AcpSession"]

_SETUP = ("cwd", "mcpServers", "additionalDirectories")
log = logging.getLogger("snapshot_plugin.acp")


class AcpSession:
    """A live session of an agent. Prompt it over `connection` with `session_id`, which is ours."""

    def __init__(
        self,
        recorded: RecordedSession,
        connection: ClientSideConnection,
        report: Restoration | None,
        ending: AsyncExitStack,
    ) -> None:
        self.session_id = recorded.session_id
        self.connection = connection
        self.report = report
        """How it came back; None for one that is new."""
        self._recorded, self._ending = recorded, ending
        recorded.face = self

    def snapshot(self) -> SessionSnapshot:
        """The session as recorded so far."""
        return self._recorded.snapshot()

    async def aclose(self) -> None:
        """End the connection, and the agent with it."""
        await self._ending.aclose()


class AcpProvider:
    """Starts one agent for each session.

    Loading demands that the agent advertises ``loadSession`` and that its replay has every finished turn; else
    `AgentNoLoadSupport` is raised, and the manager falls back to `continue_session`, which walks the whole ladder
    and at worst tells a new session the old one. `AcpSession.report` says how it went.

    Args:
        command: the agent's program and its arguments; None where *connect* is given.
        manager: the one the sessions are started with. Where it enables persistence, they are spooled and saved.
        client: the SDK's ``Client`` or, for several sessions at once, a function that makes one.
        env: the agent's whole environment; None: this process's own.
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
        manager.add_reducer(PROVIDER, reduce_spool)  # the manager recovers a session before it asks for it here
        self._command, self._manager, self._client = tuple(command or ()), manager, client
        self._env, self._connect = env, connect
        self._handshake = handshake or Handshake()
        self._unstable = use_unstable_protocol

    async def create_session(self, session_id: str, config: Any, /) -> AcpSession:
        """Start an agent and a new session in it."""
        params = _params(config, Path.cwd())
        async with AsyncExitStack() as stack:
            made = await self._contact(stack, params["cwd"])
            recorded = await made.begin(session_id, params)
            return AcpSession(recorded, made.connection, None, stack.pop_all())

    async def load_session(self, session_id: str, config: Any, snapshot: SessionSnapshot, /) -> AcpSession:
        """Start an agent and have it load the session.

        Raises:
            AgentNoLoadSupport: it does not offer to, or came back with less than it had.
        """

        def refuse_early(made: Contact) -> None:
            if made.recorder.capabilities.get("loadSession") is not True:
                name = made.recorder.agent_info.name or "the agent"
                raise AgentNoLoadSupport(f"{name} does not offer loadSession", session_id=session_id)

        try:
            return await self._bring_back(config, snapshot, "exact", refuse_early)
        except FidelityNotMet as error:
            raise AgentNoLoadSupport(error.message, session_id=session_id) from error

    async def continue_session(self, session_id: str, config: Any, snapshot: SessionSnapshot, /) -> AcpSession:
        """Start an agent and bring the session back as well as can be: at worst it is told what was said."""
        _ = session_id  # the manager logs the fallback
        return await self._bring_back(config, snapshot, "context")

    async def stop_session(self, session: AcpSession, /) -> None:
        """End the session's agent."""
        await session.aclose()

    async def _bring_back(
        self,
        config: Any,
        snapshot: SessionSnapshot,
        require: Require,
        check: Callable[[Contact], None] = lambda _made: None,
    ) -> AcpSession:
        params = _params(config, snapshot.config.cwd or Path.cwd())
        async with AsyncExitStack() as stack:
            recorded = await RecordedSession.going_on(snapshot, self._manager)
            stack.push_async_callback(recorded.close)

            async def start() -> Contact:
                made = await self._contact(stack, params["cwd"])
                check(made)
                return made

            made, report = await bring_back(start, recorded, params, require=require)
            return AcpSession(recorded, made.connection, report, stack.pop_all())

    async def _contact(self, stack: AsyncExitStack, cwd: str) -> Contact:
        if self._connect is not None:
            transport = await self._connect()
        else:
            transport = await StdioAgent.start(self._command, env=self._env, cwd=cwd)
        stack.push_async_callback(transport.close)
        made = contact(
            transport,
            self._manager,
            self._client,
            self._handshake,
            command=self._command,
            saves=False,
            use_unstable_protocol=self._unstable,
        )
        stack.push_async_callback(made.connection.close)
        await made.shake_hands()
        return made


def _params(config: Any, cwd: str | Path) -> Message:
    given = config if isinstance(config, Mapping) else {}
    params = {"cwd": str(cwd), "mcpServers": [], **{key: given[key] for key in _SETUP if key in given}}
    return {**params, "cwd": str(params["cwd"]), "mcpServers": [as_json(server) for server in params["mcpServers"]]}
