"""A recorded SDK connection: the same record as the proxy's, written down before anybody gets the message."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import acp
import anyio
import pytest
from acp._transport import memory_transport_pair

from snapshot_plugin import FilesystemStore, InvalidInput, MemoryStore, SnapshotManager, SnapshotNotFound
from snapshot_plugin.acp.hosts.sdk_client import record
from snapshot_plugin.live import spool
from snapshot_plugin.live.lease import Lease, Owner
from snapshot_plugin.live.spool import read_spool
from snapshot_plugin.manager.ports import utc_now
from snapshot_plugin.system import files
from tests.acp.proxied import proxied
from tests.acp_client import Client, Handler, allow
from tests.acp_sdk.agents.updates import text_block
from tests.acp_sdk.orchestrator import (
    PATIENCE,
    Json,
    Orchestrator,
    connected,
    new_session,
    prompt,
    recorded,
    said,
    shown,
    spawned,
    timeless,
)

pytestmark = pytest.mark.anyio

UNKNOWN = {"sessionUpdate": "made_up_later", "futureField": {"deep": [1, None]}}
EXTRA = {
    "sessionUpdate": "agent_message_chunk",
    "content": {"type": "text", "text": "more than the SDK knows", "zzz": 1},
    "futureField": True,
}
SCRIPTS = [
    "say one\nthink hard\nplan\nstream 30",
    "ask\ntool\nterminal ls",
    f"update {json.dumps(UNKNOWN)}\nupdate {json.dumps(EXTRA)}",
    "say before\nfail on purpose",
    "stop refusal",
]
TERMINAL: dict[str, Handler] = {
    "terminal/create": lambda _params: {"terminalId": "t-1"},
    "terminal/output": lambda _params: {"output": "shown in the terminal", "truncated": False},
    "terminal/wait_for_exit": lambda _params: {"exitCode": 0},
    "terminal/release": lambda _params: {},
}


# The same record as the proxy's ---------------------------------------------------------------------------


async def through_the_proxy(place: Path) -> Any:
    def run() -> str:
        with proxied(place, kind=Client) as client:
            client.answers |= TERMINAL | {"session/request_permission": allow}
            client.initialize()
            session_id = client.new_session()
            for script in SCRIPTS:
                client.answer_to(client.begin_prompt(session_id, script))
            client.request("session/set_mode", {"sessionId": session_id, "modeId": "code"})
            change = {"sessionId": session_id, "configId": "model", "value": "large"}
            client.request("session/set_config_option", change)
            return session_id

    session_id = await anyio.to_thread.run_sync(run)
    async with FilesystemStore(place) as store:
        return await store.load(session_id)


async def through_the_sdk(manager: SnapshotManager) -> Any:
    async with recorded(manager) as (connection, _, _):
        session_id = await new_session(connection)
        for script in SCRIPTS:
            with contextlib.suppress(acp.RequestError):
                await prompt(connection, session_id, script)
        await connection.set_session_mode(session_id=session_id, mode_id="code")
        await connection.set_config_option(session_id=session_id, config_id="model", value="large")
    return await manager.store.load(session_id)


async def test_sdk_record_equals_the_proxys_record_of_the_same_traffic(
    manager: SnapshotManager, tmp_path: Path
) -> None:
    theirs, ours = await through_the_proxy(tmp_path / "proxy"), await through_the_sdk(manager)
    assert shown(ours) == shown(theirs)
    assert timeless(ours) == timeless(theirs)
    assert [role for role, _ in said(ours)] == ["user", "assistant"] * len(SCRIPTS)
    assert ours.config.mode == "code"
    assert ours.config.model == "large"


async def test_fields_unknown_to_the_sdk_are_recorded(manager: SnapshotManager) -> None:
    async with recorded(manager) as (connection, recorder, _):
        session_id = await new_session(connection)
        await prompt(connection, session_id, f"update {json.dumps(UNKNOWN)}\nupdate {json.dumps(EXTRA)}")
        updates = shown(recorder.sessions[session_id].snapshot())
    assert UNKNOWN in updates
    assert EXTRA["content"] in [update.get("content") for update in updates]


# Before anybody gets it -----------------------------------------------------------------------------------


class Wire:
    """An agent in our hands, and the order in which things happen: syncs of the spool, messages on their way."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        pair: tuple[Any, Any] = memory_transport_pair()
        self.agent, self._inner = pair

    async def send(self, message: Json) -> None:
        self.log.append(f"sent {message.get('method') or 'answer'}")
        await self._inner.send(message)

    async def receive(self) -> Json | None:
        message: Json | None = await self._inner.receive()
        return message

    async def close(self) -> None:
        await self._inner.close()

    async def heard(self, method: str) -> Json:
        with anyio.fail_after(PATIENCE):
            while True:
                message: Json | None = await self.agent.receive()
                assert message is not None
                if message.get("method") == method:
                    return message

    async def answer(self, request: Json, result: Json) -> None:
        await self.agent.send({"jsonrpc": "2.0", "id": request["id"], "result": result})

    async def say(self, update: Json) -> None:
        params = {"sessionId": "s-1", "update": update}
        await self.agent.send({"jsonrpc": "2.0", "method": "session/update", "params": params})


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    happened: list[str] = []
    really = files.sync_data

    def sync(fd: int) -> None:
        really(fd)
        happened.append("synced")

    monkeypatch.setattr(spool, "sync_data", sync)
    return happened


async def opened(wire: Wire, manager: SnapshotManager, client: Any) -> Any:
    """A recorded connection over *wire* with the session ``s-1``."""
    connection = connected(client, wire)
    record(connection, manager)
    begun = asyncio.ensure_future(connection.new_session(cwd="/", mcp_servers=[]))
    await wire.answer(await wire.heard("session/new"), {"sessionId": "s-1"})
    await asyncio.wait_for(begun, PATIENCE)
    return connection


def spooled(store: FilesystemStore) -> list[Json]:
    directory = store.session_dir("s-1")
    return [dict(entry.data) for entry in read_spool(directory, session_id="s-1").records]


@pytest.fixture
def quiet() -> Orchestrator:
    return Orchestrator()


async def test_a_prompt_is_on_disk_before_the_agent_gets_it(
    manager: SnapshotManager, store: FilesystemStore, log: list[str], quiet: Orchestrator
) -> None:
    wire = Wire(log)
    connection = await opened(wire, manager, quiet)
    log.clear()
    asked = asyncio.ensure_future(prompt(connection, "s-1", "remember this"))
    request = await wire.heard("session/prompt")
    assert log == ["synced", "sent session/prompt"]
    await wire.answer(request, {"stopReason": "end_turn"})
    await asked
    await connection.close()


async def test_session_is_on_disk_before_the_caller_gets_its_id(
    manager: SnapshotManager, store: FilesystemStore, log: list[str], quiet: Orchestrator
) -> None:
    connection = await opened(Wire(log), manager, quiet)
    assert log[:2] == ["sent session/new", "synced"]
    assert spooled(store)[0]["agent"]["sessionId"] == "s-1"
    await connection.close()


@pytest.mark.parametrize(
    ("update", "expected"),
    [({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "rm"}, ["synced"]), (EXTRA, [])],
    ids=["a tool call that starts", "a chunk"],
)
async def test_update_is_recorded_before_the_client_sees_it(
    manager: SnapshotManager, log: list[str], quiet: Orchestrator, update: Json, expected: list[str]
) -> None:
    assert isinstance(manager.store, FilesystemStore)
    store = manager.store
    wire = Wire(log)
    connection = await opened(wire, manager, quiet)
    await manager.snapshot(session_of(connection))
    log.clear()
    seen: list[tuple[list[str], list[Json]]] = []
    shown_it = anyio.Event()

    def look(_session_id: str, _update: Any) -> None:
        seen.append((list(log), spooled(store)))
        shown_it.set()

    quiet.on_update = look
    await wire.say(update)
    with anyio.fail_after(PATIENCE):
        await shown_it.wait()
    assert seen[0][0] == expected
    assert {"update": update} in seen[0][1]
    await connection.close()


def session_of(connection: Any, session_id: str = "s-1") -> Any:
    return connection._conn._transport.sessions.open[session_id]


async def test_permission_request_and_answer_are_on_disk_before_they_are_forwarded(
    manager: SnapshotManager, log: list[str], quiet: Orchestrator
) -> None:
    wire = Wire(log)
    connection = await opened(wire, manager, quiet)
    log.clear()
    options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
    params = {"sessionId": "s-1", "toolCall": {"toolCallId": "c", "title": "rm"}, "options": options}
    await wire.agent.send({"jsonrpc": "2.0", "id": 7, "method": "session/request_permission", "params": params})
    with anyio.fail_after(PATIENCE):
        answer = await wire.agent.receive()
    assert answer["result"]["outcome"]["optionId"] == "yes"
    assert log == ["synced", "synced", "sent answer"]
    await connection.close()


async def test_end_of_a_turn_is_on_disk_before_the_caller_gets_it(
    manager: SnapshotManager, log: list[str], quiet: Orchestrator
) -> None:
    wire = Wire(log)
    connection = await opened(wire, manager, quiet)
    asked = asyncio.ensure_future(prompt(connection, "s-1", "go"))
    request = await wire.heard("session/prompt")
    log.clear()
    await wire.answer(request, {"stopReason": "end_turn"})
    await asked
    assert log == ["synced"]
    await connection.close()


async def test_cancel_never_overtakes_its_prompt(
    manager: SnapshotManager, quiet: Orchestrator, log: list[str]
) -> None:
    wire = Wire(log)
    connection = await opened(wire, manager, quiet)
    log.clear()
    asked = asyncio.ensure_future(connection.prompt(session_id="s-1", prompt=[text_block("go")]))
    await asyncio.sleep(0)
    await connection.cancel(session_id="s-1")
    assert [line for line in log if line.startswith("sent")] == ["sent session/prompt", "sent session/cancel"]
    await wire.answer(await wire.heard("session/prompt"), {"stopReason": "cancelled"})
    await asked
    await connection.close()


async def test_cancelled_caller_leaves_record_and_prompt_consistent(
    manager: SnapshotManager, quiet: Orchestrator, log: list[str]
) -> None:
    wire = Wire(log)
    connection = await opened(wire, manager, quiet)
    asked = asyncio.ensure_future(connection.prompt(session_id="s-1", prompt=[text_block("go")]))
    await asyncio.sleep(0)
    asked.cancel()
    request = await wire.heard("session/prompt")
    assert said(session_of(connection).snapshot()) == [("user", "go")]
    await wire.answer(request, {"stopReason": "end_turn"})
    later = asyncio.ensure_future(connection.set_session_mode(session_id="s-1", mode_id="m"))
    await wire.answer(await wire.heard("session/set_mode"), {})
    await asyncio.wait_for(later, PATIENCE)
    assert not session_of(connection).running
    await connection.close()


async def test_prompt_that_cannot_be_sent_is_recorded_as_interrupted(
    manager: SnapshotManager, quiet: Orchestrator, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = Wire(log)
    connection = await opened(wire, manager, quiet)

    async def refuse(_message: Json) -> None:
        raise ConnectionError("the line is cut")

    monkeypatch.setattr(wire, "send", refuse)
    with pytest.raises(ConnectionError):
        await prompt(connection, "s-1", "go")
    assert not session_of(connection).running
    await connection.close()


async def test_store_without_a_spool_gets_snapshots_for_durable_events(quiet: Orchestrator) -> None:
    async with SnapshotManager(MemoryStore()) as manager:
        wire = Wire([])
        connection = await opened(wire, manager, quiet)
        asked = asyncio.ensure_future(prompt(connection, "s-1", "remember this"))
        request = await wire.heard("session/prompt")
        assert said(await manager.store.load("s-1")) == [("user", "remember this")]
        await wire.answer(request, {"stopReason": "end_turn"})
        await asked
        await connection.close()


# Which sessions -------------------------------------------------------------------------------------------


async def test_recorder_attached_after_the_handshake_misses_no_session(
    manager: SnapshotManager,
) -> None:
    async with spawned() as (connection, _):
        await connection.initialize(protocol_version=1)
        recorder = record(connection, manager)
        session_id = await new_session(connection)
        await prompt(connection, session_id, "say hello")
        assert said(recorder.sessions[session_id].snapshot()) == [("user", "say hello"), ("assistant", "hello")]


async def test_sessions_are_live_in_the_manager_until_the_connection_is_closed(manager: SnapshotManager) -> None:
    async with recorded(manager) as (connection, _, _):
        session_id = await new_session(connection)
        assert manager.live == (session_id,)
        await prompt(connection, session_id, "say hello")
    assert not manager.live
    assert said(await manager.store.load(session_id)) == [("user", "say hello"), ("assistant", "hello")]


async def test_closed_session_is_released_while_the_connection_stays_open(manager: SnapshotManager) -> None:
    async with recorded(manager) as (connection, _, _):
        session_id = await new_session(connection)
        await connection.close_session(session_id=session_id)
        assert manager.live == ()


@pytest.mark.parametrize("where", ["stored", "live here", "live elsewhere"])
async def test_taken_id_is_not_overwritten(
    manager: SnapshotManager, store: FilesystemStore, quiet: Orchestrator, where: str
) -> None:
    """Agents that count their sessions begin with the same id in every process."""
    lease = None
    if where == "live elsewhere":
        lease = Lease.acquire(store.session_dir("s-1"), Owner.this_process(since=utc_now()))
    else:
        first = await opened(Wire([]), manager, quiet)
        if where == "stored":
            await first.close()
    wire = Wire([])
    connection = connected(quiet, wire)
    record(connection, manager)
    begun = asyncio.ensure_future(connection.new_session(cwd="/", mcp_servers=[]))
    await wire.answer(await wire.heard("session/new"), {"sessionId": "s-1"})
    session_id = (await asyncio.wait_for(begun, PATIENCE)).session_id
    assert session_id != "s-1"
    asked = asyncio.ensure_future(prompt(connection, session_id, "go"))
    request = await wire.heard("session/prompt")
    assert request["params"]["sessionId"] == "s-1"
    await wire.answer(request, {"stopReason": "end_turn"})
    await asked
    assert said(session_of(connection, session_id).snapshot())[0] == ("user", "go")
    await connection.close()
    if lease:
        lease.release()


async def test_session_loaded_by_the_client_itself_is_not_recorded_twice(
    manager: SnapshotManager, tmp_path: Path
) -> None:
    state = ("--state", str(tmp_path / "agent.json"))
    async with recorded(manager, *state) as (connection, _, _):
        session_id = await new_session(connection)
        await prompt(connection, session_id, "say hello\ntool")
    before = shown(await manager.store.load(session_id))
    for flags in ((), ("--misbehave", "late-replay")):
        async with recorded(manager, *state, *flags) as (connection, _, _):
            await connection.load_session(session_id=session_id, cwd="/", mcp_servers=[])
        assert shown(await manager.store.load(session_id)) == before


async def test_unrecorded_session_is_recorded_from_the_agents_replay(
    manager: SnapshotManager, tmp_path: Path
) -> None:
    state = ("--state", str(tmp_path / "agent.json"))
    async with spawned(*state) as (connection, _):
        await connection.initialize(protocol_version=1)
        session_id = await new_session(connection)
        await prompt(connection, session_id, "say hello")
    async with recorded(manager, *state) as (connection, _, _):
        await connection.load_session(session_id=session_id, cwd="/", mcp_servers=[])
    assert said(await manager.store.load(session_id)) == [("user", "say hello"), ("assistant", "hello")]


async def test_client_loads_a_session_under_the_agents_own_id(manager: SnapshotManager, tmp_path: Path) -> None:
    state = ("--state", str(tmp_path / "agent.json"))
    async with recorded(manager, *state) as (connection, _, _):
        agents_id = await new_session(connection)
        await prompt(connection, agents_id, "say hello")
    ours = await manager.fork(agents_id, as_id="ours")
    await manager.store.save(ours.evolve(agent_session_id=agents_id))
    async with recorded(manager, *state) as (connection, _, _):
        await connection.load_session(session_id="ours", cwd="/", mcp_servers=[])
        await prompt(connection, "ours", "remember")
    assert "earlier turns: 1" in (await manager.store.load("ours")).messages[-1].text


async def test_loading_a_live_session_continues_it(manager: SnapshotManager) -> None:
    async with recorded(manager) as (connection, recorder, _):
        session_id = await new_session(connection)
        await prompt(connection, session_id, "say hello")
        before = shown(recorder.sessions[session_id].snapshot())
        await connection.load_session(session_id=session_id, cwd="/", mcp_servers=[])
        assert shown(recorder.sessions[session_id].snapshot()) == before


async def test_stored_session_the_agent_refuses_to_load_is_released(
    manager: SnapshotManager, tmp_path: Path
) -> None:
    refuse = tmp_path / "refuse"
    async with recorded(manager, "--refuse", str(refuse)) as (connection, _, _):
        session_id = await new_session(connection)
        await prompt(connection, session_id, "say hello")
    refuse.touch()
    async with recorded(manager, "--refuse", str(refuse)) as (connection, _, _):
        with pytest.raises(acp.RequestError):
            await connection.load_session(session_id=session_id, cwd="/", mcp_servers=[])
        assert not manager.live
    assert len((await manager.store.load(session_id)).messages) == 2


async def test_fork_is_recorded_as_a_copy_and_its_parent_is_unchanged(manager: SnapshotManager) -> None:
    async with recorded(manager) as (connection, recorder, _):
        parent = await new_session(connection)
        await prompt(connection, parent, "say hello")
        await connection.set_session_mode(session_id=parent, mode_id="code")
        child = (await connection.fork_session(session_id=parent, cwd="/")).session_id
        await prompt(connection, child, "say more")
        assert said(recorder.sessions[child].snapshot())[1:] == [
            ("assistant", "hello"),
            ("user", "say more"),
            ("assistant", "more"),
        ]
        assert len(recorder.sessions[parent].snapshot().messages) == 2
        assert recorder.sessions[parent].snapshot().config.mode == "code"


async def test_a_deleted_session_goes_to_the_trash(manager: SnapshotManager) -> None:
    async with recorded(manager) as (connection, _, _):
        session_id = await new_session(connection)
        await prompt(connection, session_id, "say hello")
        await connection._conn.send_request("session/delete", {"sessionId": session_id})
        assert not manager.live
    with pytest.raises(SnapshotNotFound):
        await manager.store.load(session_id)


async def test_session_unknown_to_the_agent_leaves_nothing_behind(manager: SnapshotManager) -> None:
    async with recorded(manager) as (connection, _, _):
        with pytest.raises(acp.RequestError):
            await connection.load_session(session_id="nobody", cwd="/", mcp_servers=[])
    with pytest.raises(SnapshotNotFound):
        await manager.store.load("nobody")


# When things go wrong -------------------------------------------------------------------------------------


async def test_agent_death_leaves_an_interrupted_turn(manager: SnapshotManager) -> None:
    async with recorded(manager) as (connection, recorder, _):
        session_id = await new_session(connection)
        with pytest.raises(ConnectionError):
            await prompt(connection, session_id, "crash 5")
        record_of_it = recorder.sessions[session_id].snapshot()
    assert record_of_it.messages[-1].metadata["acp"]["interrupted"] == "the agent died"
    assert "part-004." in record_of_it.messages[-1].text


async def test_lines_that_are_not_messages_do_not_end_the_connection(manager: SnapshotManager) -> None:
    async with recorded(manager, "--misbehave", "garbage-stdout") as (connection, _, _):
        session_id = await new_session(connection)
        assert (await prompt(connection, session_id, "say hello")).stop_reason == "end_turn"


async def test_non_objects_do_not_end_the_connection_over_any_transport(
    manager: SnapshotManager, quiet: Orchestrator
) -> None:
    wire = Wire([])
    connection = await opened(wire, manager, quiet)
    await wire._inner._inbox.put(["no", "message"])
    asked = asyncio.ensure_future(prompt(connection, "s-1", "go"))
    await wire.answer(await wire.heard("session/prompt"), {"stopReason": "end_turn"})
    assert (await asked).stop_reason == "end_turn"
    await connection.close()


async def test_unsupported_protocol_version_is_passed_through(
    manager: SnapshotManager, quiet: Orchestrator
) -> None:
    wire = Wire([])
    connection = connected(quiet, wire)
    recorder = record(connection, manager)
    asked = asyncio.ensure_future(connection.initialize(protocol_version=2))
    await wire.answer(await wire.heard("initialize"), {"protocolVersion": 2})
    await asked
    begun = asyncio.ensure_future(connection.new_session(cwd="/", mcp_servers=[]))
    await wire.answer(await wire.heard("session/new"), {"sessionId": "s-1"})
    await begun
    assert recorder.sessions == {}
    await connection.close()


async def test_failing_recorder_does_not_block_the_connection(
    manager: SnapshotManager, quiet: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with recorded(manager, client=quiet) as (connection, recorder, _):
        session_id = await new_session(connection)

        def fail(_events: Any) -> None:
            raise RuntimeError("a bug of ours")

        monkeypatch.setattr(recorder.sessions[session_id], "record_all", fail)
        assert (await prompt(connection, session_id, "say hello\ntool")).stop_reason == "end_turn"
        assert quiet.heard == "hello"


async def test_unopened_manager_is_refused_immediately(store: FilesystemStore, quiet: Orchestrator) -> None:
    connection = connected(quiet, Wire([]))
    with pytest.raises(InvalidInput):
        record(connection, SnapshotManager(store))
    await connection.close()


async def test_a_connection_is_recorded_once(manager: SnapshotManager, quiet: Orchestrator) -> None:
    connection = connected(quiet, Wire([]))
    record(connection, manager)
    with pytest.raises(InvalidInput):
        record(connection, manager)
    with pytest.raises(InvalidInput):
        record(object(), manager)  # type: ignore[arg-type]
    await connection.close()
