"""Resuming from an orchestrator: the ladder, the report, the note, and agents that are not as one hopes."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest
from acp.schema import ClientCapabilities, Implementation

from snapshot_plugin import (
    AgentUnavailable,
    FidelityNotMet,
    FilesystemStore,
    InvalidInput,
    SessionLocked,
    SnapshotManager,
    SnapshotNotFound,
)
from snapshot_plugin.acp.hosts.sdk_client import Handshake, Restoration
from snapshot_plugin.acp.hosts.sdk_provider import resume_agent, resume_over
from snapshot_plugin.acp.hosts.stdio_agent import StdioAgent
from snapshot_plugin.live.lease import Lease, Owner, lease_of
from snapshot_plugin.live.session import LiveSession
from snapshot_plugin.live.sessions import LiveSessions
from snapshot_plugin.manager.events import SessionRestored
from snapshot_plugin.manager.ports import utc_now
from tests.acp_sdk.orchestrator import AGENT, PATIENCE, Orchestrator, new_session, prompt, recorded, said, shown

pytestmark = pytest.mark.anyio

NO_LOAD = ("--no-load",)
UNABLE = ("--no-load", "--no-resume")


@pytest.fixture
def state(tmp_path: Path) -> tuple[str, str]:
    """The scripted agent's own memory."""
    return "--state", str(tmp_path / "agent.json")


async def a_conversation(manager: SnapshotManager, *flags: str, cwd: Path, last: str = "say two\ntool") -> str:
    """Two turns, recorded; the agent has ended."""
    async with recorded(manager, *flags) as (connection, _, _):
        session_id = await new_session(connection, str(cwd))
        await prompt(connection, session_id, "say one\nplan")
        await prompt(connection, session_id, last)
        await connection.set_session_mode(session_id=session_id, mode_id="code")
        await connection.set_config_option(session_id=session_id, config_id="model", value="large")
    return session_id


# The ladder -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "steps"),
    [
        ((), ("load: whole", "native-load")),
        (("--misbehave", "late-replay"), ("load: whole", "native-load")),
        (NO_LOAD, ("load: not advertised", "resume: accepted", "native-resume")),
        (UNABLE, ("load: not advertised", "resume: not advertised", "context")),
        (("--misbehave", "blank-load"), ("load: came back blank", "resume: not tried", "context")),
        (("--misbehave", "partial-load"), ("load: partial, 2 messages told", "native-load")),
        (
            ("--misbehave", "fake-load", "--no-resume"),
            ("load: not advertised", "resume: not advertised", "context"),
        ),
    ],
)
async def test_session_is_restored_at_the_best_level_the_agent_supports(
    manager: SnapshotManager, state: tuple[str, str], tmp_path: Path, flags: tuple[str, ...], steps: tuple[str, ...]
) -> None:
    session_id = await a_conversation(manager, *state, cwd=tmp_path)
    before = await manager.store.load(session_id)
    client = Orchestrator()
    command = [*AGENT, *state, *flags]
    events: list[Any] = []
    manager.events.subscribe(events.append)
    async with resume_agent(command, session_id, manager, client=client) as (connection, report):
        happened = (*report.tried, report.grade)
        assert [event.grade for event in events if isinstance(event, SessionRestored)] == [report.grade]
        assert [step[: len(begins)] for step, begins in zip(happened, steps, strict=True)] == list(steps)
        assert list(report.transcript) == shown(before)
        assert report.session_id == session_id
        assert client.heard == ""  # the transcript is handed over, not replayed as if it were news
        await prompt(connection, session_id, "echo-blocks")
        assert ("<restoration-note" in client.heard) == (report.note is not None)
        assert (await prompt(connection, session_id, "say three")).stop_reason == "end_turn"
        assert client.heard.endswith("three")
    after = await manager.store.load(session_id)
    assert said(after)[:4] == said(before)
    assert said(after)[-2:] == [("user", "say three"), ("assistant", "three")]
    assert [role for role, _ in said(after)] == ["user", "assistant"] * 4


@pytest.mark.parametrize("flags", [(), NO_LOAD, UNABLE])
async def test_mode_and_options_are_restored(
    manager: SnapshotManager, state: tuple[str, str], tmp_path: Path, flags: tuple[str, ...]
) -> None:
    session_id = await a_conversation(manager, *state, cwd=tmp_path)
    async with resume_agent([*AGENT, *state, *flags], session_id, manager, client=Orchestrator()) as (_, report):
        assert report.result["modes"]["currentModeId"] == "code"
        assert report.result["configOptions"][0]["currentValue"] == "large"
        assert report.differences == ()
    assert (await manager.store.load(session_id)).config.mode == "code"


@pytest.mark.parametrize(
    ("flags", "require"), [(NO_LOAD, "exact"), (UNABLE, "history"), (("--misbehave", "blank-load"), "history")]
)
async def test_restore_below_the_required_fidelity_is_refused_and_loses_nothing(
    manager: SnapshotManager, state: tuple[str, str], tmp_path: Path, flags: tuple[str, ...], require: Any
) -> None:
    session_id = await a_conversation(manager, *state, cwd=tmp_path)
    before = said(await manager.store.load(session_id))
    with pytest.raises(FidelityNotMet):
        async with resume_agent(
            [*AGENT, *state, *flags], session_id, manager, client=Orchestrator(), require=require
        ):
            pytest.fail("it came back")
    assert not manager.live
    assert said(await manager.store.load(session_id)) == before


async def test_unknown_fidelity_requirement_is_refused_before_anything_starts(manager: SnapshotManager) -> None:
    wrong: Any = "perfect"
    with pytest.raises(InvalidInput):
        async with resume_agent(["no-such-agent"], "s", manager, client=Orchestrator(), require=wrong):
            pass


async def test_interrupted_turn_is_reported_with_the_next_prompt_and_not_shown_as_user_text(
    manager: SnapshotManager, state: tuple[str, str], tmp_path: Path
) -> None:
    async with recorded(manager, *state) as (connection, _, _):
        session_id = await new_session(connection, str(tmp_path))
        await prompt(connection, session_id, "say one")
        with pytest.raises(ConnectionError):
            await prompt(connection, session_id, "crash 5")
    client = Orchestrator()
    command = [*AGENT, *state, "--misbehave", "echo-prompts"]
    async with resume_agent(command, session_id, manager, client=client) as (connection, report):
        assert report.note is not None
        assert "part-004." in report.note
        await prompt(connection, session_id, "say two")
        echoed = [update.content.text for update in client.updates if update.session_update == "user_message_chunk"]
        assert echoed == ["say two"]
        await prompt(connection, session_id, "echo-blocks")
        assert client.heard.count("<restoration-note") == 0
    assert "restoration-note" not in str(said(await manager.store.load(session_id)))


async def test_running_tool_is_closed_in_the_transcript(
    manager: SnapshotManager, state: tuple[str, str], tmp_path: Path
) -> None:
    client, runs = Orchestrator(), asyncio.Event()
    client.on_update = lambda _id, update: runs.set() if getattr(update, "status", "") == "in_progress" else None
    async with recorded(manager, *state, client=client) as (connection, _, agent):
        session_id = await new_session(connection, str(tmp_path))
        running = asyncio.ensure_future(prompt(connection, session_id, "slow-tool 60"))
        await asyncio.wait_for(runs.wait(), PATIENCE)
        os.kill(agent.pid, signal.SIGKILL)
        with pytest.raises(ConnectionError):
            await running
    async with resume_agent([*AGENT, *state], session_id, manager, client=Orchestrator()) as (_, report):
        call = next(update for update in report.transcript if update["sessionUpdate"] == "tool_call")
        assert call["status"] == "failed"
        assert report.notices


async def test_turn_abandoned_by_the_client_is_recorded_as_interrupted(
    manager: SnapshotManager, state: tuple[str, str], tmp_path: Path
) -> None:
    client, runs = Orchestrator(), asyncio.Event()
    client.on_update = lambda _id, update: runs.set() if "part-003." in str(update) else None
    async with recorded(manager, *state, client=client) as (connection, _, _):
        session_id = await new_session(connection, str(tmp_path))
        running = asyncio.ensure_future(prompt(connection, session_id, "stream 4\nslow-tool 60"))
        await asyncio.wait_for(runs.wait(), PATIENCE)
    with pytest.raises(ConnectionError):
        await running
    async with resume_agent([*AGENT, *state], session_id, manager, client=client) as (connection, report):
        assert report.record.messages[-1].metadata["acp"]["interrupted"] == "the client hung up"
        await prompt(connection, session_id, "say two")
    assert said(await manager.store.load(session_id))[2:] == [("user", "say two"), ("assistant", "two")]


async def test_another_agent_gets_the_conversation_as_context(
    manager: SnapshotManager, state: tuple[str, str], tmp_path: Path
) -> None:
    session_id = await a_conversation(manager, *state, cwd=tmp_path)
    other = [*AGENT, "--name", "another-agent"]
    async with resume_agent(other, session_id, manager, client=Orchestrator()) as (_, report):
        assert report.grade == "context"
    assert (await manager.store.load(session_id)).agent.name == "another-agent"  # type: ignore[union-attr]


async def test_report_summarises_the_restore_in_one_line(manager: SnapshotManager, tmp_path: Path) -> None:
    session_id = await a_conversation(manager, cwd=tmp_path)
    async with resume_agent([*AGENT, *UNABLE], session_id, manager, client=Orchestrator()) as (_, report):
        assert isinstance(report, Restoration)
        assert "context" in str(report)
        assert "load: not advertised" in str(report)


# Whose session it is --------------------------------------------------------------------------------------


async def test_session_live_in_this_process_is_not_resumed_twice(manager: SnapshotManager, tmp_path: Path) -> None:
    async with recorded(manager) as (connection, _, _):
        session_id = await new_session(connection, str(tmp_path))
        with pytest.raises(SessionLocked):
            async with resume_agent(["no-such-agent"], session_id, manager, client=Orchestrator()):
                pass


async def test_session_owned_by_another_process_is_refused_before_an_agent_starts(
    manager: SnapshotManager, store: FilesystemStore, tmp_path: Path
) -> None:
    session_id = await a_conversation(manager, cwd=tmp_path)
    lease = Lease.acquire(store.session_dir(session_id), Owner.this_process(since=utc_now()))
    with pytest.raises(SessionLocked):
        async with resume_agent(["no-such-agent"], session_id, manager, client=Orchestrator()):
            pass
    lease.release()


async def test_session_is_leased_during_resume_and_released_afterwards(
    manager: SnapshotManager, store: FilesystemStore, tmp_path: Path
) -> None:
    session_id = await a_conversation(manager, cwd=tmp_path)
    async with resume_agent(AGENT, session_id, manager, client=Orchestrator()):
        owner = lease_of(store.session_dir(session_id)).owner
        assert owner is not None
        assert owner.pid == os.getpid()
    assert lease_of(store.session_dir(session_id)).owner is None


async def test_unknown_session_is_not_found(manager: SnapshotManager) -> None:
    with pytest.raises(SnapshotNotFound):
        async with resume_agent(["no-such-agent"], "nobody", manager, client=Orchestrator()):
            pass


async def test_many_sessions_are_resumed_at_once_with_few_threads(
    manager: SnapshotManager, state: tuple[str, str], tmp_path: Path
) -> None:
    """Those who wait for their agents must leave threads to the disk, which all of them need to come back."""
    session_ids = [await a_conversation(manager, *state, cwd=tmp_path) for _ in range(2)]
    threads = anyio.to_thread.current_default_thread_limiter()
    before, threads.total_tokens = threads.total_tokens, 1

    async def come_back(session_id: str) -> None:
        command = [*AGENT, *UNABLE]
        async with resume_agent(command, session_id, manager, client=Orchestrator()) as (connection, _):
            await prompt(connection, session_id, "say three")

    try:
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                for session_id in session_ids:
                    tasks.start_soon(come_back, session_id)
    finally:
        threads.total_tokens = before


# Agents that fail -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cannot start", "dies", "hangs", "another version"])
async def test_unusable_agent_is_reported_and_the_session_released(
    manager: SnapshotManager, tmp_path: Path, how: str
) -> None:
    session_id = await a_conversation(manager, cwd=tmp_path)
    answer = "{'id': json.loads(line)['id'], 'result': {'protocolVersion': 2, 'sessionId': 'x'}}"
    agreeable = f"import json, sys\nfor line in sys.stdin:\n    print(json.dumps({answer}), flush=True)"
    commands = {
        "cannot start": ["no-such-agent"],
        "dies": [sys.executable, "-c", "import sys; sys.exit('the licence has expired')"],
        "hangs": [sys.executable, "-c", "import time; time.sleep(60)"],
        "another version": [sys.executable, "-c", agreeable],
    }
    patience = 0.3 if how == "hangs" else PATIENCE
    with anyio.fail_after(PATIENCE), pytest.raises(AgentUnavailable) as caught:
        async with resume_agent(
            commands[how], session_id, manager, client=Orchestrator(), handshake=Handshake(patience=patience)
        ):
            pass
    if how == "dies":
        assert "the licence has expired" in caught.value.__notes__[0]
    assert not manager.live


async def test_agent_that_crashes_on_load_gets_the_conversation_as_context(
    manager: SnapshotManager, state: tuple[str, str], tmp_path: Path
) -> None:
    session_id = await a_conversation(manager, *state, cwd=tmp_path)
    command = [*AGENT, *state, "--no-resume", "--misbehave", "crash-on-load"]
    client = Orchestrator()
    async with resume_agent(command, session_id, manager, client=client) as (connection, report):
        assert (report.grade, report.tried) == ("context", ("load: the agent died of it", "resume: not advertised"))
        assert manager.live == (session_id,)
        await prompt(connection, session_id, "echo-blocks")
        assert "<restoration-note" in client.heard
    assert len((await manager.store.load(session_id)).messages) == 6
    with pytest.raises(FidelityNotMet):
        async with resume_agent(command, session_id, manager, client=client, require="history"):
            pass


async def test_abandoning_an_unresponsive_agent_is_immediate(manager: SnapshotManager, tmp_path: Path) -> None:
    session_id = await a_conversation(manager, cwd=tmp_path)
    with anyio.fail_after(PATIENCE):
        with anyio.move_on_after(0.3) as gave_up:
            command = [*AGENT, "--misbehave", "load-hangs"]
            async with resume_agent(command, session_id, manager, client=Orchestrator()):
                pass
    assert gave_up.cancelled_caught
    assert not manager.live


async def test_agent_whose_command_is_gone_at_the_restart_is_given_up(
    manager: SnapshotManager, tmp_path: Path
) -> None:
    session_id = await a_conversation(manager, cwd=tmp_path)
    script = tmp_path / "agent"
    agent = " ".join(map(shlex.quote, [*AGENT, "--misbehave", "crash-on-load"]))
    script.write_text(f'#!/bin/sh\nrm "$0"\nexec {agent}\n')
    script.chmod(0o700)
    with anyio.fail_after(PATIENCE), pytest.raises(AgentUnavailable):
        async with resume_agent([str(script)], session_id, manager, client=Orchestrator()):
            raise AssertionError("the agent cannot be restarted")
    assert not manager.live


async def test_abandoning_it_while_the_session_is_read_releases_the_session(tmp_path: Path) -> None:
    class Interrupted(FilesystemStore):
        scope: anyio.CancelScope | None = None

        def prepared(self, work: Any, session_id: str | None = None) -> Any:
            if self.scope is not None:
                anyio.from_thread.run_sync(self.scope.cancel, token=token)
            return super().prepared(work, session_id)

    store, token = Interrupted(tmp_path / "store"), anyio.lowlevel.current_token()
    async with SnapshotManager(store) as manager:
        session_id = await a_conversation(manager, cwd=tmp_path)
        with anyio.CancelScope() as store.scope:
            async with resume_agent(AGENT, session_id, manager, client=Orchestrator()):
                pass
        assert store.scope.cancelled_caught
        assert not manager.live
        assert lease_of(store.session_dir(session_id)).owner is None


async def test_task_cancelled_while_the_session_is_taken_releases_the_session(
    manager: SnapshotManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await a_conversation(manager, cwd=tmp_path)
    takes, may_end, ended = threading.Event(), threading.Event(), threading.Event()
    take = LiveSessions.resume

    def slow(sessions: LiveSessions, session_id: str) -> LiveSession:
        takes.set()
        assert may_end.wait(PATIENCE)
        try:
            return take(sessions, session_id)
        finally:
            ended.set()

    monkeypatch.setattr(LiveSessions, "resume", slow)

    async def resume() -> None:
        async with resume_agent(AGENT, session_id, manager, client=Orchestrator()):
            raise AssertionError("it was cancelled")

    resuming = asyncio.create_task(resume())
    assert await anyio.to_thread.run_sync(takes.wait, PATIENCE)
    resuming.cancel()
    await asyncio.wait({resuming}, timeout=0.2)  # it must wait for the thread; if not, it ends now
    may_end.set()
    assert await anyio.to_thread.run_sync(ended.wait, PATIENCE)
    await asyncio.wait({resuming}, timeout=PATIENCE)
    assert resuming.cancelled()
    assert not manager.live


# What the agent is given ----------------------------------------------------------------------------------


async def test_agent_starts_in_the_sessions_directory_unless_overridden(
    manager: SnapshotManager, tmp_path: Path
) -> None:
    there, elsewhere = tmp_path / "there", tmp_path / "elsewhere"
    there.mkdir()
    elsewhere.mkdir()
    session_id = await a_conversation(manager, cwd=there)
    for cwd, expected in ((None, there), (elsewhere, elsewhere)):
        async with resume_agent(AGENT, session_id, manager, client=Orchestrator(), cwd=cwd) as (connection, _):
            agent = connection._conn._transport._inner  # type: ignore[attr-defined]
            assert await anyio.Path(f"/proc/{agent.pid}/cwd").resolve() == anyio.Path(expected)


class Overheard(StdioAgent):
    """An agent, and what it was told."""

    told: list[Any]

    async def send(self, message: dict[str, Any]) -> None:
        self.told = [*getattr(self, "told", []), message]
        await super().send(message)


async def test_mcp_servers_reach_the_agent_but_not_the_disk(
    manager: SnapshotManager, store: FilesystemStore, tmp_path: Path
) -> None:
    session_id = await a_conversation(manager, cwd=tmp_path)
    server = {"name": "files", "command": "run", "args": [], "env": [{"name": "TOKEN", "value": "s3cret"}]}
    agent = await Overheard.start([*AGENT, *UNABLE])
    assert isinstance(agent, Overheard)
    async with resume_over(agent, session_id, manager, client=Orchestrator(), mcp_servers=[server]):
        asked = next(message for message in agent.told if message["method"] == "session/new")
        assert asked["params"]["mcpServers"] == [server]
    kept = [path.read_bytes() for path in store.path.rglob("*") if path.is_file()]
    assert not any(b"s3cret" in data for data in kept)


async def test_handshake_carries_the_clients_name_and_capabilities(
    manager: SnapshotManager, tmp_path: Path
) -> None:
    session_id = await a_conversation(manager, cwd=tmp_path)
    agent = await Overheard.start([*AGENT, *UNABLE])
    assert isinstance(agent, Overheard)
    introduction = Handshake(
        capabilities=ClientCapabilities(terminal=True),
        info=Implementation(name="orchestrator", version="1"),
        auth_method="token",
    )
    async with resume_over(agent, session_id, manager, client=Orchestrator(), handshake=introduction):
        told = agent.told
    assert [message["method"] for message in told][:3] == ["initialize", "authenticate", "session/new"]
    assert told[0]["params"]["clientCapabilities"]["terminal"] is True
    assert told[0]["params"]["clientInfo"]["name"] == "orchestrator"
    assert told[1]["params"] == {"methodId": "token"}
