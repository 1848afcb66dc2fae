"""Retention as users meet it: what is left after managers ran with certain settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin import (
    FilesystemStore,
    RetentionPolicy,
    SnapshotConfig,
    SnapshotManager,
    SnapshotMeta,
    SnapshotStore,
)
from snapshot_plugin.live.events import Reporter
from snapshot_plugin.manager.events import EventBus
from snapshot_plugin.manager.ports import utc_now
from snapshot_plugin.manager.resume import BEFORE_FALLBACK
from snapshot_plugin.manager.retention import Retention
from snapshot_plugin.store.base import ForgetResult
from snapshot_plugin.testing import make_snapshot
from tests.manager.sessions import Chat
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it

pytestmark = pytest.mark.anyio

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _time_to_trim(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing is limited in time; here it is about what is trimmed, on a busy machine too."""
    monkeypatch.setattr("snapshot_plugin.manager.retention._CLOSING", 60.0)


class Calendar:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


async def numbers(store: SnapshotStore, session_id: str = "chat") -> list[int]:
    return [meta.seq for meta in await store.history(session_id)]


async def opened_once(store: SnapshotStore, clock: Calendar, **settings: Any) -> None:
    async with SnapshotManager(store, SnapshotConfig(**settings), clock=clock):
        pass


@pytest.mark.requirement("ORBIT-CONFIG-MAX", "ORBIT-SECURITY-RETENTION")
@pytest.mark.parametrize(("settings", "limit"), [({}, 10), ({"max_snapshots_per_session": 3}, 3)])
async def test_short_runs_leave_no_more_snapshots_than_the_limit(
    tmp_path: Path, settings: dict[str, Any], limit: int
) -> None:
    chat = Chat("chat")
    async with FilesystemStore(tmp_path) as store:
        for run in range(12):
            async with SnapshotManager(store, SnapshotConfig(**settings)) as manager:
                await manager.start_auto_snapshot(chat)
                chat.say(f"{run}: first")
                await manager.snapshot(chat)
                chat.say(f"{run}: second")
                await manager.snapshot(chat)
                chat.say(f"{run}: last")

        assert len(await numbers(store)) == limit
        assert (await store.load("chat")).messages[-1].text == "11: last"


class SavedMeanwhile(FilesystemStore):
    """A store in which another save lands right after a history was read."""

    def __init__(self, root: Path, meanwhile: Callable[[FilesystemStore], Awaitable[None]]) -> None:
        super().__init__(root)
        self._meanwhile = [meanwhile]

    async def history(self, session_id: str, **options: Any) -> Sequence[SnapshotMeta]:
        found = await super().history(session_id, **options)
        if self._meanwhile:
            await self._meanwhile.pop()(self)
        return found


async def test_snapshot_saved_while_its_session_is_trimmed_is_counted(tmp_path: Path) -> None:
    async def save(store: FilesystemStore, number: int) -> None:
        await store.save(make_snapshot(*map(str, range(number)), session_id="chat"))
        retention.written("chat")

    async with SavedMeanwhile(tmp_path, lambda store: save(store, 4)) as store:
        report = Reporter(EventBus().emit, utc_now)
        retention = Retention(store, SnapshotConfig(max_snapshots_per_session=3), report, utc_now)
        for number in range(1, 4):
            await save(store, number)
        await retention.apply("chat")
        assert await numbers(store) == [4, 3, 2, 1]
        await retention.aclose()
        assert await numbers(store) == [4, 3, 2]


async def test_what_the_last_run_left_is_trimmed_although_nothing_is_saved(tmp_path: Path) -> None:
    chat = Chat("chat", "hello")
    async with FilesystemStore(tmp_path) as store:
        for _ in range(6):
            chat.say("more")
            await store.save(chat.snapshot())
        baseline = await store.read("chat")
        async with SnapshotManager(store, SnapshotConfig(max_snapshots_per_session=3)) as manager:
            await manager.start_auto_snapshot(chat, baseline=baseline)
        assert await numbers(store) == [6, 5, 4]


async def test_explicit_saves_of_a_manager_that_was_never_opened_are_trimmed(tmp_path: Path) -> None:
    chat = Chat("chat")
    async with FilesystemStore(tmp_path) as store:
        manager = SnapshotManager(store, SnapshotConfig(max_snapshots_per_session=4))
        for number in range(20):
            chat.say(str(number))
            await manager.snapshot(chat)

        assert len(await numbers(store)) <= 4 + 2, "the limit, and half of it again"


async def test_a_stopped_session_is_trimmed_to_the_limit(tmp_path: Path) -> None:
    chat = Chat("chat")
    async with (
        FilesystemStore(tmp_path) as store,
        SnapshotManager(store, SnapshotConfig(max_snapshots_per_session=3)) as manager,
    ):
        for number in range(4):
            await manager.start_auto_snapshot(chat)
            chat.say(str(number))
            await manager.stop_auto_snapshot("chat")

        assert len(await numbers(store)) == 3


async def test_snapshots_from_before_a_fallback_do_not_pile_up(tmp_path: Path) -> None:
    chat = Chat("chat")
    async with FilesystemStore(tmp_path) as store:
        for number in range(8):
            async with SnapshotManager(store, SnapshotConfig(max_snapshots_per_session=1)) as manager:
                chat.say(str(number))
                await manager.snapshot(chat, tags=[BEFORE_FALLBACK])
                await manager.snapshot(chat, tags=["mine"] if number == 0 else [])

        history = await store.history("chat")
        assert sum(BEFORE_FALLBACK in meta.snapshot_tags for meta in history) == 3
        assert history[-1].snapshot_tags == ("mine",), "what people tagged stays"


@pytest.mark.requirement("ORBIT-SECURITY-PERIOD")
async def test_stopped_session_expires_too(tmp_path: Path) -> None:
    clock = Calendar()
    async with FilesystemStore(tmp_path, clock=clock) as store:
        for day in range(10):
            clock.now = START + timedelta(days=day)
            await store.save(make_snapshot(*map(str, range(day + 1)), session_id="chat"))

        await opened_once(store, clock, retention={"keep_within": "3d"})
        assert await numbers(store) == [10, 9, 8, 7]
        clock.now += timedelta(days=30)
        await opened_once(store, clock, retention={"keep_within": "3d"})
        assert await numbers(store) == [10], "the newest always stays"


async def test_sessions_over_the_limits_go_to_the_trash(tmp_path: Path) -> None:
    clock = Calendar()
    async with FilesystemStore(tmp_path, clock=clock) as store:
        for day in range(6):
            at = START + timedelta(days=day)
            await store.save(make_snapshot(session_id=f"s{day}", updated_at=at, pinned=day == 0))
        clock.now = START + timedelta(days=6)

        await opened_once(store, clock)
        assert len(await store.list()) == 6, "without limits nothing goes"
        await opened_once(store, clock, max_sessions=4)
        assert {meta.session_id for meta in await store.list()} == {"s0", "s2", "s3", "s4", "s5"}
        await opened_once(store, clock, max_session_age="3d")
        assert {meta.session_id for meta in await store.list()} == {"s0", "s3", "s4", "s5"}
        assert {each.session_id for each in await store.trash()} == {"s1", "s2"}


async def test_session_live_elsewhere_is_left_to_its_owner(tmp_path: Path) -> None:
    clock = Calendar()
    chat = Chat("chat", "hello")
    async with (
        FilesystemStore(tmp_path, clock=clock) as theirs,
        FilesystemStore(tmp_path, clock=clock) as store,
        SnapshotManager(theirs) as owner,
    ):
        await owner.start_auto_snapshot(chat)
        for number in range(6):
            chat.say(str(number))
            await owner.snapshot(chat)
        before = await numbers(store)
        clock.now += timedelta(days=4000)
        await opened_once(store, clock, max_snapshots_per_session=2, max_session_age="1d")
        assert await numbers(store) == before


async def test_damaged_session_is_not_thinned(tmp_path: Path) -> None:
    clock = Calendar()
    async with FilesystemStore(tmp_path, clock=clock, segment_frames=2) as store:
        for number in range(8):
            await store.save(make_snapshot(*map(str, range(number + 1)), session_id="chat"))
    damaged = min((tmp_path / "sessions" / "chat").glob("*.snap.gz"))
    damaged.write_bytes(damaged.read_bytes()[:-10])

    async with FilesystemStore(tmp_path, clock=clock) as store:
        before = await numbers(store)
        await opened_once(store, clock, max_snapshots_per_session=2)
        assert await numbers(store) == before


async def test_bookkeeping_about_sessions_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snapshot_plugin.manager.retention._REMEMBERED", 5)
    async with FilesystemStore(tmp_path) as store:
        manager = SnapshotManager(store)
        for number in range(20):
            await manager.snapshot(Chat(f"s{number}", "hello"))

        kept = manager.retention
        assert isinstance(kept, Retention)
        assert len(kept._lengths) <= 5
        assert not kept._dirty


@pytest.mark.parametrize(
    "make",
    [
        lambda: SnapshotConfig(retention={"keep_within": "12h", "keep_last": 2}).retention,
        lambda: RetentionPolicy(keep_within="12h", keep_last=2),
        lambda: RetentionPolicy(keep_within=timedelta(hours=12), keep_last=2),
    ],
)
def test_durations_are_written_as_in_settings_files(make: Callable[[], RetentionPolicy]) -> None:
    assert make().keep_within == timedelta(hours=12)


def test_the_same_table_works_in_a_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('max_sessions = 100\nmax_session_age = "90d"\n[retention]\nkeep_within = "2w"\n')

    config = SnapshotConfig.load(environ={}, user_file=file)

    assert config.retention == RetentionPolicy(keep_within=timedelta(weeks=2))
    assert (config.max_sessions, config.max_session_age) == (100, 90 * 86400.0)


class StoreThatForgetsSlowly(FilesystemStore):
    """Forgets once the test lets it."""

    def __init__(self, place: Path) -> None:
        super().__init__(place, background=False)
        self.is_forgetting, self.may_forget = anyio.Event(), anyio.Event()

    async def forget(self, *what: Any, **how: Any) -> ForgetResult:
        self.is_forgetting.set()
        await self.may_forget.wait()
        return await super().forget(*what, **how)


async def test_a_session_starts_while_the_sweep_of_its_own_manager_trims_it(tmp_path: Path) -> None:
    chat = Chat("chat")
    async with StoreThatForgetsSlowly(tmp_path) as store:
        for word in "abc":
            chat.say(word)
            await store.save(chat.snapshot())
        async with SnapshotManager(store, SnapshotConfig(retention=RetentionPolicy(keep_last=1))) as manager:
            with anyio.fail_after(30):
                await store.is_forgetting.wait()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(manager.start_auto_snapshot, chat)
                    await anyio.wait_all_tasks_blocked()
                    store.may_forget.set()
            assert manager.live == ("chat",)

        assert await numbers(store) == [3]
