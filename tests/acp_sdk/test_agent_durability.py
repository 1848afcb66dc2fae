"""What is on disk at the moment a message goes on: looked at from the transport, message by message."""

# mypy: disable-error-code="abstract"
# The SDK's agents leave methods out.
from __future__ import annotations

import asyncio
import errno
import gzip
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from acp._transport import Transport

from snapshot_plugin import FilesystemStore
from snapshot_plugin.live.session import LiveSession
from snapshot_plugin.live.spool import Spool, read_spool
from snapshot_plugin.system.files import sync_data
from tests.acp_sdk.agents.scripted import RememberingAgent, ScriptedAgent
from tests.acp_sdk.agents.updates import tool_begins
from tests.acp_sdk.connected import Json, allow, connected, words

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # the SDK knows no other


class Disk:
    """What the spools of a store hold, and how much of it was forced to the disk."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._store = FilesystemStore(path)
        self.synced: list[Json] = []

        def sync(fd: int) -> None:
            sync_data(fd)
            self.synced = self.written()

        monkeypatch.setattr("snapshot_plugin.live.spool.sync_data", sync)

    def written(self) -> list[Json]:
        directory = self._store.session_dir("0")
        return [record.data for record in read_spool(directory, session_id="0").records]


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(LiveSession, "checkpoint", lambda _self: None)  # no snapshot empties the spool meanwhile
    return Disk(tmp_path, monkeypatch)


class Sent(NamedTuple):
    message: Json
    written: list[Json]
    synced: list[Json]


class Watching:
    """A transport that looks at the disk before it sends."""

    def __init__(self, inner: Transport, disk: Disk) -> None:
        self._inner, self._disk = inner, disk
        self.sent: list[Sent] = []

    async def send(self, message: Json) -> None:
        self.sent.append(Sent(message, self._disk.written(), self._disk.synced))
        await self._inner.send(message)

    async def receive(self) -> Json | None:
        return await self._inner.receive()

    async def close(self) -> None:
        await self._inner.close()

    def first(self, fits: Callable[[Json], bool]) -> Sent:
        return next(sent for sent in self.sent if fits(sent.message))


class Looking(RememberingAgent):
    """Looks at the disk when it gets a prompt."""

    def __init__(self, store: Path, disk: Disk) -> None:
        super().__init__(store)
        self._disk = disk
        self.seen: list[Json] = []

    async def prompt(self, session_id: str, prompt: list[Any], **kwargs: Any) -> Any:
        self.seen = list(self._disk.synced)
        return await super().prompt(session_id, prompt, **kwargs)


async def watched(tmp_path: Path, disk: Disk) -> tuple[Watching, Looking]:
    """One turn with a tool, through a transport that looks."""
    watching: list[Watching] = []
    agent = Looking(tmp_path, disk)

    def through(inner: Transport) -> Transport:
        watching.append(Watching(inner, disk))
        return watching[0]

    async with connected(agent, through=through) as peer:
        peer.answers["session/request_permission"] = permit
        await peer.initialize()
        session_id = await peer.new_session()
        await peer.prompt(session_id, "use a tool")
    return watching[0], agent


async def permit(params: Json) -> Json:
    return allow(params)


def keys(events: list[Json]) -> list[str]:
    return [key for event in events for key in event]


async def test_new_session_is_durable_before_the_client_gets_its_id(tmp_path: Path, disk: Disk) -> None:
    watching, _ = await watched(tmp_path, disk)
    answer = watching.first(lambda message: "sessionId" in message.get("result", {}))
    assert {"new", "agent"} <= set(keys(answer.synced))


async def test_a_prompt_is_durable_before_the_agents_code_sees_it(tmp_path: Path, disk: Disk) -> None:
    _, agent = await watched(tmp_path, disk)
    assert agent.seen[-1]["prompt"] == [{"type": "text", "text": "use a tool"}]


async def test_started_tool_is_durable_before_the_client_sees_it(tmp_path: Path, disk: Disk) -> None:
    watching, _ = await watched(tmp_path, disk)
    start = watching.first(lambda message: "tool_call" in str(message))
    assert start.synced[-1]["update"] == start.message["params"]["update"]


async def test_permission_request_is_durable_before_the_client_gets_it(tmp_path: Path, disk: Disk) -> None:
    watching, _ = await watched(tmp_path, disk)
    asked = watching.first(lambda message: message.get("method") == "session/request_permission")
    assert asked.synced[-1]["permission"]["toolCall"]["title"] == "Write"


async def test_streamed_updates_are_written_before_they_are_sent(tmp_path: Path, disk: Disk) -> None:
    watching, _ = await watched(tmp_path, disk)
    chunk = watching.first(lambda message: "heard use a tool" in str(message))
    assert chunk.written[-1]["update"] == chunk.message["params"]["update"]
    assert [event["outcome"]["outcome"] for event in chunk.written if "outcome" in event] == ["selected"]


async def test_end_of_a_turn_and_its_history_are_durable_before_the_client_gets_the_response(
    tmp_path: Path, disk: Disk
) -> None:
    watching, _ = await watched(tmp_path, disk)
    answer = watching.first(lambda message: "stopReason" in message.get("result", {}))
    assert answer.synced[-1]["stop"] == {"stopReason": "end_turn"}
    assert answer.synced[-1]["history"] == {"heard": ["use a tool"]}


async def test_order_on_disk_is_the_order_on_the_wire_with_concurrent_senders(tmp_path: Path, disk: Disk) -> None:
    agent = ScriptedAgent(tmp_path)
    async with connected(agent) as peer:
        await peer.initialize()
        session_id = await peer.new_session()
        await talk_at_once(agent)
        live = story(peer.updates(session_id))
        assert live.count("call") == 8
        assert story((await peer.load(session_id))[1]) == live


def story(updates: list[Json]) -> str:
    """Words and tool calls, in order."""
    return "".join(update.get("toolCallId") or update["content"]["text"] for update in updates)


async def talk_at_once(agent: ScriptedAgent) -> None:
    async def say(number: int) -> None:
        if number % 7 == 0:
            await agent.client.session_update("0", tool_begins(f"call-{number}", "Tool"))
        await agent._say("0", f"{number};")

    await asyncio.gather(*(say(number) for number in range(50)))


async def test_secrets_of_mcp_servers_are_never_written(tmp_path: Path, disk: Disk) -> None:
    server = {
        "name": "tools",
        "command": "x",
        "args": ["--key=s3cret"],
        "env": [{"name": "KEY", "value": "s3cret"}],
    }
    async with connected(ScriptedAgent(tmp_path)) as peer:
        await peer.initialize()
        session_id = await peer.new_session(mcpServers=[server])
        await peer.prompt(session_id, "one")
        assert "tools" in str(disk.written())
        assert "s3cret" not in str(disk.written())
    async with connected(ScriptedAgent(tmp_path)) as peer:
        await peer.initialize()
        await peer.about("session/load", session_id, mcpServers=[server])
        assert "s3cret" not in str(disk.written())
    assert not files_with(tmp_path, b"s3cret")


def files_with(root: Path, needle: bytes) -> list[Path]:
    found = []
    for path in root.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            found += [path] if needle in (gzip.decompress(data) if path.suffix == ".gz" else data) else []
    return found


async def test_failing_store_loses_the_record_but_not_the_session(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "file"
    place.write_text("not a store")
    async with connected(ScriptedAgent(place)) as peer:
        await peer.initialize()
        session_id = await peer.new_session()
        assert await peer.prompt(session_id, "one") == "heard one"
        answer = await peer.answer_to(await peer.begin("session/list", {}))
        assert "error" in answer
    assert logging.WARNING in {entry.levelno for entry in caplog.records}


async def test_temporarily_failing_disk_loses_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(ScriptedAgent(tmp_path)) as peer:
        await peer.initialize()
        session_id = await peer.new_session()
        with monkeypatch.context() as full:
            full.setattr(Spool, "_write", refuse_updates)
            assert await peer.prompt(session_id, "one") == "heard one"
        assert await peer.prompt(session_id, "two") == "heard two"
    async with connected(ScriptedAgent(tmp_path)) as peer:
        await peer.initialize()
        assert "".join(text for _, text in words((await peer.load(session_id))[1])) == "oneheard onetwoheard two"
    assert {entry.levelno for entry in caplog.records} == {logging.WARNING}


async def test_unexpected_error_in_the_recorder_loses_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(ScriptedAgent(tmp_path)) as peer:
        peer.answers["session/request_permission"] = permit
        await peer.initialize()
        session_id = await peer.new_session()
        with monkeypatch.context() as broken:
            broken.setattr(LiveSession, "record_all", lambda *_, **__: 1 / 0)
            assert await peer.prompt(session_id, "use a tool") == "heard use a tool"


write = Spool._write


def refuse_updates(spool: Spool, data: bytes) -> None:
    if b'"update"' in data:
        raise OSError(errno.ENOSPC, "no space left")
    write(spool, data)
