"""Sessions go on where they were; where they cannot, that is said, and nothing is lost."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin import (
    AgentNoLoadSupport,
    FilesystemStore,
    InvalidSnapshotVersion,
    MemoryStore,
    SessionLocked,
    SnapshotConfig,
    SnapshotCorrupted,
    SnapshotManager,
    SnapshotRef,
    StoreUnavailable,
)
from snapshot_plugin.manager.events import SessionRestored, SnapshotFailed, SnapshotSkipped
from snapshot_plugin.manager.ports import Grade, RestoredAs
from snapshot_plugin.manager.resume import BEFORE_FALLBACK, create_or_resume_session, stop_session
from snapshot_plugin.model import CURRENT_VERSION, SessionSnapshot
from snapshot_plugin.store import core
from snapshot_plugin.testing import Fault, FaultyStore, every
from tests.manager.sessions import Chat, managing

pytestmark = pytest.mark.anyio
_SLOW = {"snapshot_interval": 600, "event_debounce": 600}


class Starter:
    """Can start and stop sessions, no more."""

    def __init__(self) -> None:
        self.log: list[str] = []

    async def create_session(self, session_id: str, config: Any) -> Chat:
        self.log.append(f"create {config}")
        return Chat(session_id)

    async def stop_session(self, session: Chat) -> None:
        self.log.append(f"stop {session.session_id}")


class Loader(Starter):
    """Can load, unless it turns out that it cannot."""

    error: Exception | None = None

    async def load_session(self, session_id: str, config: Any, snapshot: SessionSnapshot) -> Chat:
        self.log.append(f"load {config}")
        if self.error is not None:
            raise self.error
        return Chat(session_id, snapshot=snapshot)


class Teller(Starter):
    """Cannot load, but can tell a new session about the old one."""

    async def continue_session(self, session_id: str, config: Any, snapshot: SessionSnapshot) -> Chat:
        self.log.append(f"tell {len(snapshot.messages)}")
        return Chat(session_id, f"[{len(snapshot.messages)} earlier messages]")


async def _saved(store: Any, *said: str) -> None:
    await store.save(Chat("chat", *said).snapshot())


@pytest.mark.requirement("MANAGER-RESUME-FRESH", "ORBIT-FACTORY-CREATE", "ONERING-ERROR-MISSING")
async def test_a_session_without_a_snapshot_starts_fresh() -> None:
    provider = Loader()
    async with managing(MemoryStore(), **_SLOW) as (manager, diary):
        session, report = await create_or_resume_session(provider, "chat", "cfg", manager, require_load=True)
        assert manager.live == ("chat",)
    assert provider.log == ["create cfg"]
    assert (session.said, report.grade, report.resumed, report.fell_back) == ([], "fresh", False, None)
    assert diary.of(SessionRestored) == []
    assert str(report) == "chat: started fresh"


@pytest.mark.requirement(
    "ORBIT-FACTORY-RESUME",
    "ORBIT-FACTORY-RESUMABLE",
    "MANAGER-RESUME-ATTACH",
    "ORBIT-TEST-ROUND-TRIP",
)
async def test_a_session_with_a_snapshot_is_loaded_and_an_unchanged_one_not_saved_again() -> None:
    store, provider = MemoryStore(), Loader()
    await _saved(store, "one", "two")
    async with managing(store, **_SLOW) as (manager, diary):
        session, report = await create_or_resume_session(provider, "chat", "cfg", manager)
    assert provider.log == ["load cfg"]
    assert session.said == ["one", "two"]
    assert (report.grade, report.seq, report.messages, report.attached) == ("native-load", 1, 2, True)
    assert report.age is not None
    assert [event.grade for event in diary.of(SessionRestored)] == ["native-load"]
    assert len(await store.history("chat")) == 1


@pytest.mark.requirement(
    "ORBIT-FACTORY-FALLBACK",
    "ORBIT-PROTOCOL-FALLBACK",
    "ORBIT-PROTOCOL-WARNING",
    "MANAGER-RESUME-REPORT",
    "ORBIT-TEST-COMPATIBILITY",
    "MANAGER-RESUME-DEMAND",
)
@pytest.mark.parametrize("provider", [Starter(), Loader()], ids=["cannot", "finds out that it cannot"])
async def test_fallback_without_load_support_is_reported_and_the_old_session_kept(provider: Starter) -> None:
    if isinstance(provider, Loader):
        provider.error = AgentNoLoadSupport("this agent does not advertise loadSession")
    store = MemoryStore()
    await _saved(store, "one", "two")
    async with managing(store, max_snapshots_per_session=1) as (manager, diary):
        session, report = await create_or_resume_session(provider, "chat", None, manager)
        for number in range(6):
            session.say(str(number))
            await manager.snapshot(session)
    assert (report.grade, report.resumed) == ("fresh", False)
    assert report.fell_back
    assert [(event.grade, event.fell_back) for event in diary.of(SessionRestored)] == [("fresh", report.fell_back)]
    kept = [meta for meta in await store.history("chat") if BEFORE_FALLBACK in meta.snapshot_tags]
    assert len((await store.load("chat", at=kept[0].seq)).messages) == 2


@pytest.mark.requirement("MANAGER-RESUME-CONTEXT")
async def test_provider_that_only_accepts_context_gets_a_transcript() -> None:
    store, provider = MemoryStore(), Teller()
    await _saved(store, "one", "two")
    async with managing(store, **_SLOW) as (manager, _):
        session, report = await create_or_resume_session(provider, "chat", None, manager)
    assert provider.log == ["tell 2"]
    assert session.said == ["[2 earlier messages]"]
    assert (report.grade, report.resumed) == ("context", True)


class Restorer(Starter):
    """Finds out only after a start what its agent can do."""

    grade: Grade = "context"

    async def restore_session(
        self, session_id: str, config: Any, snapshot: SessionSnapshot, /, *, require_load: bool
    ) -> RestoredAs[Chat]:
        self.log.append("start")
        if require_load and self.grade == "context":
            raise AgentNoLoadSupport("this agent cannot load")
        if self.grade == "context":
            told = Chat(session_id, f"[{len(snapshot.messages)} earlier messages]")
            return RestoredAs(told, "context", "this agent cannot load")
        return RestoredAs(Chat(session_id, snapshot=snapshot), self.grade)


async def test_fallback_starts_one_agent_and_report_event_metric_and_log_agree(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, provider = MemoryStore(), Restorer()
    await _saved(store, "one", "two")
    async with managing(store, **_SLOW) as (manager, diary):
        session, report = await create_or_resume_session(provider, "chat", None, manager)
    assert provider.log == ["start"]
    assert session.said == ["[2 earlier messages]"]
    assert (report.grade, report.fell_back) == ("context", "this agent cannot load")
    assert [(event.grade, event.fell_back) for event in diary.of(SessionRestored)] == [
        ("context", report.fell_back)
    ]
    assert manager.metrics.snapshot().restored == {"context": 1}
    told = [record.getMessage() for record in caplog.records if record.name.endswith("resume")]
    assert told == [f"session {report.evolve(attached=False)}"]
    assert "given its 2 messages as context because this agent cannot load" in told[0]


async def test_agent_that_resumes_by_itself_is_reported_so_and_not_saved_again() -> None:
    store, provider = MemoryStore(), Restorer()
    provider.grade = "native-resume"
    await _saved(store, "one", "two")
    async with managing(store, **_SLOW) as (manager, diary):
        _, report = await create_or_resume_session(provider, "chat", None, manager, require_load=True)
    assert (report.grade, report.resumed, report.fell_back) == ("native-resume", True, None)
    assert str(report).startswith("chat: resumed with 2 messages")
    assert [event.grade for event in diary.of(SessionRestored)] == ["native-resume"]
    assert len(await store.history("chat")) == 1


@pytest.mark.requirement("MANAGER-RESUME-DEMAND", "ORBIT-ERROR-NO-LOAD")
@pytest.mark.parametrize("provider", [Starter(), Loader(), Teller(), Restorer()])
async def test_required_load_succeeds_or_fails_without_starting_an_agent(provider: Starter) -> None:
    if isinstance(provider, Loader):
        provider.error = AgentNoLoadSupport("no")
    store = MemoryStore()
    await _saved(store, "one")
    async with managing(store) as (manager, _):
        with pytest.raises(AgentNoLoadSupport):
            await create_or_resume_session(provider, "chat", None, manager, require_load=True)
        assert manager.live == ()
    assert [line for line in provider.log if line not in ("load None", "start")] == []
    assert len(await store.history("chat")) == 1


async def test_provider_error_is_raised_and_nothing_changes(tmp_path: Path) -> None:
    provider = Loader()
    provider.error = ZeroDivisionError("the agent crashed")
    async with FilesystemStore(tmp_path) as store:
        await _saved(store, "one")
        async with managing(store) as (manager, _):
            with pytest.raises(ZeroDivisionError):
                await create_or_resume_session(provider, "chat", None, manager)
            provider.error = None
            session, _ = await create_or_resume_session(provider, "chat", None, manager)
    assert session.said == ["one"]


def _segment(root: Path) -> Path:
    return next((root / "sessions" / "chat").glob("*.snap.gz"))


@pytest.mark.requirement("MANAGER-RESUME-CORRUPT")
async def test_damaged_newest_snapshot_loses_only_itself_and_is_reported(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path) as store:
        await _saved(store, "one")
        await _saved(store, "one", "two")
    data = bytearray(_segment(tmp_path).read_bytes())
    data[-20] ^= 1  # in the content: the header still says which one it is
    _segment(tmp_path).write_bytes(data)
    async with FilesystemStore(tmp_path) as store, managing(store, **_SLOW) as (manager, diary):
        session, report = await create_or_resume_session(Loader(), "chat", None, manager)
        session.say("three")
        await manager.snapshot(session)
    assert (report.grade, report.seq) == ("native-load", 1)
    assert [finding.seq for finding in report.skipped] == [2]
    assert diary.of(SessionRestored)[0].skipped == 1
    assert "damaged" in str(report)
    assert [m.text for m in (await FilesystemStore(tmp_path).load("chat")).messages] == ["one", "three"]


@pytest.mark.requirement("MANAGER-RESUME-CORRUPT", "ONERING-ERROR-CORRUPTED")
async def test_session_without_an_intact_snapshot_starts_fresh_with_a_warning(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path) as store:
        await _saved(store, "one")
    segment = _segment(tmp_path)
    segment.write_bytes(b"x" * segment.stat().st_size)
    async with FilesystemStore(tmp_path) as store, managing(store, **_SLOW) as (manager, diary):
        with pytest.raises(SnapshotCorrupted):
            await create_or_resume_session(Loader(), "chat", None, manager, require_load=True)
        session, report = await create_or_resume_session(Loader(), "chat", None, manager)
        session.say("anew")
    assert (report.grade, report.seq) == ("fresh", None)
    assert report.fell_back
    assert {event.operation for event in diary.of(SnapshotFailed)} == {"restore"}
    assert [m.text for m in (await FilesystemStore(tmp_path).load("chat")).messages] == ["anew"]


async def test_snapshot_of_an_older_release_is_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = Chat("chat", "one").snapshot().evolve(version=1, metadata={"title": "from version 1"})
    with monkeypatch.context() as older:
        older.setattr(core, "CURRENT_VERSION", 1)
        async with FilesystemStore(tmp_path) as store:
            await store.save(old)
    async with FilesystemStore(tmp_path) as store, managing(store, **_SLOW) as (manager, _):
        session, report = await create_or_resume_session(Loader(), "chat", None, manager)
        session.say("two")
    assert (report.grade, report.fell_back) == ("native-load", None)
    assert (session.state.version, session.state.title) == (CURRENT_VERSION, "from version 1")
    assert len((await FilesystemStore(tmp_path).load("chat")).messages) == 2


async def test_snapshot_of_a_newer_release_is_not_replaced_by_a_fresh_session() -> None:
    newer = Fault(error=InvalidSnapshotVersion("written by a newer release"))
    provider = Loader()
    async with managing(FaultyStore(MemoryStore(), every(1, newer, "read"))) as (manager, _):
        with pytest.raises(InvalidSnapshotVersion):
            await create_or_resume_session(provider, "chat", None, manager)
    assert provider.log == []


async def test_a_session_live_elsewhere_is_refused_before_an_agent_starts(tmp_path: Path) -> None:
    provider = Loader()
    async with (
        FilesystemStore(tmp_path) as store,
        FilesystemStore(tmp_path) as again,
        managing(store) as (first, _),
        managing(again) as (second, _),
    ):
        await create_or_resume_session(provider, "chat", None, first)
        for manager in (first, second):
            with pytest.raises(SessionLocked):
                await create_or_resume_session(provider, "chat", None, manager)
    assert provider.log == ["create None"]


@pytest.mark.requirement("ORBIT-CONFIG-ENABLE")
@pytest.mark.parametrize("given", ["store", "path", "config"])
async def test_manager_that_is_given_a_place_or_settings_saves_sessions(tmp_path: Path, given: str) -> None:
    async with AsyncExitStack() as stack:
        if given == "store":
            manager = SnapshotManager(await stack.enter_async_context(FilesystemStore(tmp_path)))
        elif given == "path":
            manager = SnapshotManager(tmp_path)
        else:
            manager = SnapshotManager(config=SnapshotConfig(storage_path=tmp_path, snapshot_on_signal=False))
        async with manager:
            session, report = await create_or_resume_session(Loader(), "chat", None, manager)
            session.say("one")
            assert report.attached
            assert manager.record("chat", {"said": "one"})
    async with FilesystemStore(tmp_path) as store:
        assert len((await store.load("chat")).messages) == 1


@pytest.mark.requirement("ORBIT-CONFIG-ENABLE")
async def test_manager_that_is_given_nothing_does_not_save_to_the_users_own_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASNAP_STORE", str(tmp_path))
    async with SnapshotManager() as manager:
        session, report = await create_or_resume_session(Loader(), "chat", None, manager)
        session.say("one")
        assert "enable_persistence is off" in str(report)
    async with FilesystemStore(tmp_path) as store:
        assert await store.list() == []


async def test_with_persistence_off_the_session_resumes_and_is_reported_unsaved() -> None:
    store = MemoryStore()
    await _saved(store, "one")
    async with managing(store, enable_persistence=False) as (manager, diary):
        session, report = await create_or_resume_session(Loader(), "chat", None, manager)
        session.say("two")
    assert (report.grade, report.attached) == ("native-load", False)
    assert report.notices
    assert [event.reason for event in diary.of(SnapshotSkipped)] == ["persistence_off"]
    assert len(await store.history("chat")) == 1


async def test_session_that_cannot_be_attached_is_stopped() -> None:
    class Misnamed(Starter):
        async def create_session(self, session_id: str, config: Any) -> Chat:
            return Chat("..")

    provider = Misnamed()
    async with managing(MemoryStore()) as (manager, _):
        with pytest.raises(Exception, match="session id"):
            await create_or_resume_session(provider, "chat", None, manager)
    assert provider.log == ["stop .."]


async def test_session_is_stopped_when_the_caller_gives_up_after_the_agent_started() -> None:
    class GivesUp(MemoryStore):
        async def save(self, snapshot: SessionSnapshot, **how: Any) -> SnapshotRef:
            if how.get("trigger") == "fallback":
                scope.cancel()
                await anyio.sleep_forever()
            return await super().save(snapshot, **how)

    store, provider = GivesUp(), Teller()
    await _saved(store, "one")
    async with managing(store) as (manager, _):
        with anyio.CancelScope() as scope:
            await create_or_resume_session(provider, "chat", None, manager)
        assert scope.cancelled_caught
        assert provider.log == ["tell 1", "stop chat"]
        assert not manager.live


@pytest.mark.requirement("ORBIT-CONFIG-STOPS", "MANAGER-RESUME-ATTACH")
async def test_stop_saves_before_stopping() -> None:
    store, provider = MemoryStore(), Loader()
    async with managing(store, **_SLOW) as (manager, _):
        session, _ = await create_or_resume_session(provider, "chat", None, manager)
        session.say("last words")
        outcome = await stop_session(provider, session, manager)
    assert (outcome.status, outcome.seq) == ("saved", 1)
    assert provider.log == ["create None", "stop chat"]
    assert (await store.load("chat")).messages[0].text == "last words"


async def test_failing_lease_does_not_prevent_the_agent_from_starting(tmp_path: Path) -> None:
    store = FilesystemStore(tmp_path)
    await _saved(store, "one")

    def refused(_session_id: str) -> Path:
        raise StoreUnavailable("read-only file system")

    store.session_dir = refused  # type: ignore[method-assign, assignment]
    async with store, managing(store, **_SLOW) as (manager, diary):
        session, report = await create_or_resume_session(Loader(), "chat", None, manager)
    assert (session.said, report.grade) == (["one"], "native-load")
    assert "spool" in {event.operation for event in diary.of(SnapshotFailed)}


async def test_concurrent_starts_of_one_session_start_one_agent() -> None:
    provider = Loader()
    results: list[str] = []

    async def start() -> None:
        try:
            results.append((await create_or_resume_session(provider, "chat", None, manager))[1].grade)
        except SessionLocked as error:
            results.append(error.code)

    async with managing(MemoryStore(), **_SLOW) as (manager, _), anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(start)
    assert sorted(results) == ["fresh", "locked", "locked"]
    assert len([line for line in provider.log if line.startswith("create")]) == 1
