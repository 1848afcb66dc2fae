"""`AcpProvider` behind the manager's own way to start sessions."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin import (
    AgentNoLoadSupport,
    AgentUnavailable,
    FilesystemStore,
    InvalidInput,
    MemoryStore,
    SnapshotConfig,
    SnapshotManager,
    SnapshotNotFound,
)
from snapshot_plugin.acp.hosts.sdk_provider import AcpProvider, AcpSession
from snapshot_plugin.acp.hosts.stdio_agent import StdioAgent
from snapshot_plugin.manager.events import SessionRestored, SnapshotFailed
from snapshot_plugin.manager.ports import RestoringProvider
from snapshot_plugin.manager.resume import BEFORE_FALLBACK, create_or_resume_session, stop_session
from tests.acp_sdk.orchestrator import AGENT, Orchestrator, prompt, said

pytestmark = pytest.mark.anyio
UNABLE = ("--no-load", "--no-resume")


@pytest.fixture
async def manager(store: FilesystemStore) -> AsyncIterator[SnapshotManager]:
    settings = SnapshotConfig(enable_persistence=True, snapshot_on_signal=False)
    async with SnapshotManager(store, settings) as opened:
        yield opened


@pytest.fixture
def agent(tmp_path: Path) -> tuple[str, ...]:
    return (*AGENT, "--state", str(tmp_path / "agent.json"))


def provider(manager: SnapshotManager, *command: str) -> AcpProvider:
    return AcpProvider(command, manager, client=lambda _agent: Orchestrator())


async def a_session(manager: SnapshotManager, *command: str) -> None:
    """One turn in a session named ``refactor``, properly stopped."""
    acp = provider(manager, *command)
    session, report = await create_or_resume_session(acp, "refactor", {"cwd": "/"}, manager)
    assert report.grade == "fresh"
    assert report.attached
    await prompt(session.connection, "refactor", "say hello")
    assert said(session.snapshot()) == [("user", "say hello"), ("assistant", "hello")]
    await stop_session(acp, session, manager)


async def test_a_session_is_created_saved_and_loaded_under_our_own_id(
    manager: SnapshotManager, agent: tuple[str, ...]
) -> None:
    await a_session(manager, *agent)
    assert not manager.live
    acp = provider(manager, *agent)
    session, report = await create_or_resume_session(acp, "refactor", None, manager, require_load=True)
    assert report.grade == "native-load"
    assert report.fell_back is None
    assert isinstance(session, AcpSession)
    assert session.report is not None
    assert session.report.grade == "native-load"
    assert session.report.transcript[0]["content"]["text"] == "say hello"
    await prompt(session.connection, "refactor", "remember")
    assert "earlier turns: 1" in session.snapshot().messages[-1].text
    await stop_session(acp, session, manager)
    assert len((await manager.store.load("refactor")).messages) == 4


async def test_an_agent_that_cannot_load_is_refused_when_loading_is_demanded(
    manager: SnapshotManager, agent: tuple[str, ...]
) -> None:
    await a_session(manager, *agent)
    for flags in (UNABLE, ("--misbehave", "blank-load"), ("--misbehave", "fake-load")):
        with pytest.raises(AgentNoLoadSupport):
            await create_or_resume_session(
                provider(manager, *agent, *flags), "refactor", None, manager, require_load=True
            )
    assert not manager.live
    assert len((await manager.store.load("refactor")).messages) == 2


async def test_agent_without_load_capability_is_not_asked_to_load(
    manager: SnapshotManager, agent: tuple[str, ...]
) -> None:
    await a_session(manager, *agent)
    told: list[Any] = []

    class Overheard(StdioAgent):
        async def send(self, message: dict[str, Any]) -> None:
            told.append(message["method"])
            await super().send(message)

    acp = AcpProvider(None, manager, client=Orchestrator(), connect=lambda: Overheard.start([*agent, "--no-load"]))
    with pytest.raises(AgentNoLoadSupport):
        await create_or_resume_session(acp, "refactor", None, manager, require_load=True)
    assert told == ["initialize"]


async def test_agent_without_load_gets_a_transcript_with_a_warning_and_the_past_is_kept(
    manager: SnapshotManager, agent: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    await a_session(manager, *agent)
    told: list[SessionRestored] = []
    manager.events.subscribe(told.append, SessionRestored)
    acp = provider(manager, *AGENT, *UNABLE)
    with caplog.at_level(logging.WARNING, "snapshot_plugin.acp"):
        session, report = await create_or_resume_session(acp, "refactor", None, manager)
    assert (report.grade, told[0].grade) == ("context", "context")
    assert report.fell_back
    assert [record.levelname for record in caplog.records if "refactor" in record.message] == ["WARNING"]
    await prompt(session.connection, "refactor", "echo-blocks")
    assert "restoration-note" in session.snapshot().messages[-1].text
    await stop_session(acp, session, manager)
    history = await manager.store.history("refactor")
    assert any(BEFORE_FALLBACK in meta.snapshot_tags for meta in history)
    assert len((await manager.store.load("refactor")).messages) == 4


async def test_streamed_output_survives_without_a_save(
    manager: SnapshotManager, store: FilesystemStore, agent: tuple[str, ...]
) -> None:
    acp = provider(manager, *agent)
    session, _ = await create_or_resume_session(acp, "refactor", {"cwd": "/"}, manager)
    await prompt(session.connection, "refactor", "say hello")
    await manager.stop_auto_snapshot("refactor", save=False)  # as if killed: no last save
    await acp.stop_session(session)
    async with SnapshotManager(store, manager.config) as another:
        acp = provider(another, *agent)
        session, report = await create_or_resume_session(acp, "refactor", None, another)
        assert report.grade == "native-load"
        assert said(session.snapshot()) == [("user", "say hello"), ("assistant", "hello")]
        await stop_session(acp, session, another)


async def test_with_persistence_off_nothing_is_written_unless_requested(
    store: FilesystemStore, agent: tuple[str, ...]
) -> None:
    async with SnapshotManager(store, SnapshotConfig(enable_persistence=False)) as manager:
        acp = provider(manager, *agent)
        session, report = await create_or_resume_session(acp, "refactor", {"cwd": "/"}, manager)
        assert not report.attached
        await prompt(session.connection, "refactor", "say hello")
        with pytest.raises(SnapshotNotFound):
            await manager.restore("refactor")
        await manager.snapshot(session)
        assert len((await manager.restore("refactor")).snapshot.messages) == 2
        await acp.stop_session(session)


async def test_store_without_a_spool_gets_a_snapshot_at_the_end_of_a_turn(agent: tuple[str, ...]) -> None:
    settings = SnapshotConfig(enable_persistence=True, snapshot_on_signal=False)
    async with SnapshotManager(MemoryStore(), settings) as manager:
        failed: list[SnapshotFailed] = []
        manager.events.subscribe(failed.append, SnapshotFailed)
        acp = provider(manager, *agent)
        session, _ = await create_or_resume_session(acp, "refactor", {"cwd": "/"}, manager)
        await prompt(session.connection, "refactor", "say hello")
        assert said(await manager.store.load("refactor")) == [("user", "say hello"), ("assistant", "hello")]
        assert failed == []
        await stop_session(acp, session, manager)


async def test_each_session_has_its_own_agent_process(manager: SnapshotManager) -> None:
    acp = provider(manager, *AGENT)
    one, _ = await create_or_resume_session(acp, "one", {"cwd": "/"}, manager)
    two, _ = await create_or_resume_session(acp, "two", {"cwd": "/"}, manager)
    await prompt(one.connection, "one", "say for one")
    await prompt(two.connection, "two", "say for two")
    await stop_session(acp, one, manager)
    await prompt(two.connection, "two", "say more")
    assert len(two.snapshot().messages) == 4
    await stop_session(acp, two, manager)


async def test_an_agent_that_does_not_start_leaves_nothing_behind(manager: SnapshotManager) -> None:
    with pytest.raises(AgentUnavailable):
        await create_or_resume_session(provider(manager, "no-such-agent"), "refactor", {"cwd": "/"}, manager)
    assert not manager.live
    with pytest.raises(SnapshotNotFound):
        await manager.restore("refactor")


async def test_start_that_is_cancelled_leaves_the_session_free(
    manager: SnapshotManager, agent: tuple[str, ...]
) -> None:
    await a_session(manager, *agent)
    waits = anyio.Event()

    async def never() -> Any:
        waits.set()
        await anyio.sleep_forever()

    acp = AcpProvider(None, manager, client=Orchestrator(), connect=never)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(create_or_resume_session, acp, "refactor", None, manager)
        await waits.wait()
        assert manager.live == ("refactor",)
        tasks.cancel_scope.cancel()
    assert not manager.live
    acp = provider(manager, *agent)
    session, report = await create_or_resume_session(acp, "refactor", None, manager)
    assert report.grade == "native-load"
    await stop_session(acp, session, manager)


async def test_remote_agent_is_reached_through_a_transport(
    manager: SnapshotManager, agent: tuple[str, ...]
) -> None:
    acp = AcpProvider(None, manager, client=Orchestrator(), connect=lambda: StdioAgent.start(agent))
    session, _ = await create_or_resume_session(acp, "refactor", {"cwd": "/"}, manager)
    await prompt(session.connection, "refactor", "say hello")
    await stop_session(acp, session, manager)
    assert len((await manager.store.load("refactor")).messages) == 2


async def test_provider_implements_the_managers_protocol(manager: SnapshotManager) -> None:
    acp = provider(manager, *AGENT)
    assert isinstance(acp, RestoringProvider)
    with pytest.raises(InvalidInput):
        AcpProvider(None, manager, client=Orchestrator())
