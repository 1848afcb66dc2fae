"""Making contact with an agent: a recorded connection, shaken hands, and a session brought back in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from snapshot_plugin.adapters.acp.ladder import AgentRefused, Grade
from snapshot_plugin.acp.replay import replay
from snapshot_plugin.acp.messages import Message
from snapshot_plugin.adapters.acp_sdk.observe import Transport, tap_connection
from snapshot_plugin.adapters.acp_sdk.recorded import RecordedSession
from snapshot_plugin.adapters.acp_sdk.recorder import Recorder
from snapshot_plugin.errors import AgentUnavailable, InvalidInput, MissingExtra
from snapshot_plugin.manager.manager import SnapshotManager
from snapshot_plugin.model.snapshot import SessionSnapshot

if TYPE_CHECKING:
    from acp.client.connection import ClientSideConnection

__all__ = ["Contact", "Handshake", "Require", "Restoration", "as_json", "bring_back", "check_require", "contact"]

Require = Literal["exact", "history", "context"]
_TOOL_BYTES = 1 << 20
_DIED = "load: the agent died of it"


@dataclass(frozen=True, kw_only=True)
class Handshake:
    """What an agent is told before there is a session.

    Args:
        capabilities: of the client: the SDK's ``ClientCapabilities``, or the same as JSON.
        info: who the client is: the SDK's ``Implementation``, or the same as JSON.
        auth_method: authenticate with this method, which the agent offers.
        patience: how long the agent may take over one request, in seconds.
    """

    capabilities: Any = field(default_factory=dict)
    info: Any = None
    auth_method: str | None = None
    patience: float = 60.0


@dataclass(frozen=True)
class Restoration:
    """How a session came back, and what was said in it."""

    session_id: str
    """The id to prompt with, whatever the agent calls it now."""
    grade: Grade
    """``native-load`` or ``native-resume``: the agent remembers. ``context``: it is told, with the next prompt."""
    messages: int
    tried: tuple[str, ...]
    """Each rung of the ladder, and what became of it."""
    notices: tuple[str, ...]
    """What had to be mended: tools that were running, and the like."""
    differences: tuple[str, ...]
    """Settings that could not be set as they were."""
    note: str | None
    """What the model is told with the next prompt."""
    result: Message
    """The agent's answer: modes and options, as they are now."""
    transcript: tuple[Message, ...]
    """The conversation as updates, raw, as ``session/load`` would send them."""
    record: SessionSnapshot

    def __str__(self) -> str:
        told = " and is told them with the next prompt" if self.grade == "context" else ""
        return (
            f"{self.session_id}: back with {self.messages} messages ({self.grade}){told}; {'; '.join(self.tried)}"
        )


class Contact:
    """A recorded connection to one agent."""

    def __init__(self, connection: ClientSideConnection, recorder: Recorder, handshake: Handshake) -> None:
        self.connection, self.recorder = connection, recorder
        self._handshake = handshake

    async def shake_hands(self) -> None:
        """Initialize the connection.

        Raises:
            AgentUnavailable: the agent does not answer, or speaks another version of the protocol.
        """
        params: Message = {"protocolVersion": 1, "clientCapabilities": as_json(self._handshake.capabilities)}
        if self._handshake.info is not None:
            params["clientInfo"] = as_json(self._handshake.info)
        result = await self._ask("initialize", params)
        if not self.recorder.introduced(result):
            version = result.get("protocolVersion")
            raise AgentUnavailable(
                f"the agent speaks version {version} of ACP", hint="use one that speaks version 1"
            )
        if self._handshake.auth_method is not None:
            await self._ask("authenticate", {"methodId": self._handshake.auth_method})

    async def begin(self, session_id: str, params: Message) -> RecordedSession:
        """A new session under our id."""
        result = await self._ask("session/new", params)
        return await self.recorder.begin(session_id, str(result.get("sessionId", "")), params, result)

    async def bring_back(
        self, session: RecordedSession, params: Message, *, require: Require, may_load: bool = True
    ) -> Restoration:
        """A stored session, as faithfully as the agent can.

        Raises:
            FidelityNotMet: not as faithfully as *require* demands.
            AgentUnavailable: not even a new session could be made.
        """
        setup = {"cwd": session.snapshot().config.cwd or "/", **params}
        try:
            restored, report = await self.recorder.restored(session, setup, require=require, may_load=may_load)
        except AgentRefused as refused:
            raise AgentUnavailable(f"the agent refused: {refused}", session_id=session.session_id) from refused
        session.touch()
        record = session.snapshot()
        shown = replay(record, as_json(self._handshake.capabilities), tool_bytes=_TOOL_BYTES)
        return Restoration(
            session_id=session.session_id,
            grade=restored.grade,
            messages=report["messages"],
            tried=tuple(report["tried"]) if may_load else (_DIED,),
            notices=tuple(report["notices"]),
            differences=tuple(report["differences"]),
            note=restored.note,
            result={key: value for key, value in restored.result.items() if key != "sessionId"},
            transcript=tuple(shown),
            record=record,
        )

    async def _ask(self, method: str, params: Message) -> Message:
        try:
            return await self.recorder.asking(method, params)
        except AgentRefused as refused:
            raise AgentUnavailable(f"the agent did not take {method}: {refused}") from refused


async def bring_back(
    start: Callable[[], Awaitable[Contact]], session: RecordedSession, params: Message, *, require: Require
) -> tuple[Contact, Restoration]:
    """Start an agent and bring a session back in it; raises as `Contact.bring_back`.

    An agent that dies of being asked to is started once more and told the conversation, if *require* allows that.
    """
    made = await start()
    try:
        return made, await made.bring_back(session, params, require=require)
    except AgentUnavailable:
        if not made.recorder.is_gone:
            raise
    made.recorder.hand_over(session)
    await made.connection.close()
    again = await start()
    return again, await again.bring_back(session, params, require=require, may_load=False)


def contact(
    transport: Transport,
    manager: SnapshotManager,
    client: Any,
    handshake: Handshake,
    *,
    command: Sequence[str] = (),
    saves: bool = True,
    use_unstable_protocol: bool = False,
) -> Contact:
    """A connection of the SDK's over *transport*, recorded from its first message.

    Raises:
        MissingExtra: the SDK is not installed.
    """
    try:
        import acp  # noqa: PLC0415 — heavy, and an extra
    except ModuleNotFoundError as error:
        raise MissingExtra(
            "this needs agent-client-protocol, the SDK", hint="pip install 'snapshot-plugin[acp]'"
        ) from error
    recorder = Recorder(manager, command=command, saves=saves)
    recorder.patience = handshake.patience
    connection = acp.connect_to_agent(client, transport, use_unstable_protocol=use_unstable_protocol)
    recorder.tap = tap_connection(connection, recorder)
    return Contact(connection, recorder, handshake)


def check_require(require: str) -> None:
    """Refuse a word that names no grade."""
    if require not in get_args(Require):
        raise InvalidInput(f"require={require!r} is none of {', '.join(get_args(Require))}")


def as_json(value: Any) -> Any:
    """A model of the SDK's as JSON; JSON as it is. The SDK's own defaults are not all what its models say."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json", by_alias=True, exclude_none=True, warnings=False) if dump else value
