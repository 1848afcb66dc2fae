"""Events reach every subscriber, and no subscriber can harm another."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

import anyio
import pytest

from snapshot_plugin import InvalidInput, MemoryStore, SnapshotManager
from snapshot_plugin.manager.events import (
    QUEUE_SIZE,
    Event,
    EventBus,
    PartNotKept,
    SessionRecovered,
    SessionRestored,
    SnapshotCreated,
    SnapshotFailed,
    SnapshotSkipped,
)
from tests.manager.sessions import PATIENCE, Chat, Diary, managing, quick

pytestmark = pytest.mark.anyio

_AT = datetime(2026, 1, 1, tzinfo=UTC)
_SKIPPED = SnapshotSkipped(session_id="s", at=_AT, reason="unchanged")
_RECOVERED = SessionRecovered(session_id="s", at=_AT, records=1)


@pytest.mark.requirement("ORBIT-EVENT-CREATED", "ORBIT-EVENT-RESTORED", "ORBIT-EVENT-FAILED")
def test_event_names_match_the_documentation() -> None:
    kinds: list[type[Event]] = [
        SnapshotCreated,
        SessionRestored,
        SnapshotFailed,
        SnapshotSkipped,
        SessionRecovered,
        PartNotKept,
    ]
    assert [kind.name for kind in kinds] == [
        "snapshot_created",
        "session_restored",
        "snapshot_failed",
        "snapshot_skipped",
        "session_recovered",
        "part_not_kept",
    ]


def test_plain_subscriber_is_called_immediately_with_the_events_it_chose() -> None:
    bus, everything, recovered = EventBus(), Diary(), Diary()
    bus.subscribe(everything)
    bus.subscribe(recovered, SessionRecovered)
    bus.emit(_SKIPPED)
    bus.emit(_RECOVERED)
    assert everything.events == [_SKIPPED, _RECOVERED]
    assert recovered.events == [_RECOVERED]


def test_unsubscribed_callback_is_not_called_again() -> None:
    bus, diary = EventBus(), Diary()
    leave = bus.subscribe(diary)
    leave()
    leave()
    bus.emit(_SKIPPED)
    assert diary.events == []


@pytest.mark.requirement("MANAGER-FAULT-SUBSCRIBER")
@pytest.mark.parametrize("error", [ZeroDivisionError, asyncio.CancelledError])
def test_raising_subscriber_is_logged_and_the_others_are_called(
    caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    bus, diary = EventBus(), Diary()

    def broken(_event: Event) -> None:
        raise error

    bus.subscribe(broken)
    bus.subscribe(diary)
    with caplog.at_level(logging.ERROR):
        bus.emit(_SKIPPED)
        bus.emit(_SKIPPED)
    assert len(diary.events) == 2
    assert len(caplog.records) == 2


def test_plain_subscriber_that_returns_a_coroutine_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    bus = EventBus()

    async def quiet(_event: Event) -> None:
        """Never runs."""

    bus.subscribe(lambda event: quiet(event))  # noqa: PLW0108 — hidden on purpose
    with caplog.at_level(logging.ERROR):
        bus.emit(_SKIPPED)
    assert len(caplog.records) == 1


def test_non_callable_subscriber_is_refused() -> None:
    with pytest.raises(InvalidInput):
        EventBus().subscribe("diary")  # type: ignore[arg-type]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_subscriber_that_awaits_a_cancelled_task_gets_the_next_event() -> None:
    chat, told = Chat(), Diary()

    async def broken(event: Event) -> None:
        told(event)
        task = asyncio.ensure_future(asyncio.sleep(PATIENCE))
        task.cancel()
        await task

    async with managing(MemoryStore()) as (manager, _):
        manager.events.subscribe(broken, SnapshotCreated)
        for text in ("one", "two"):
            chat.say(text)
            await manager.snapshot(chat)

    assert len(told.events) == 2


@pytest.mark.requirement("MANAGER-EVENT-ASYNC")
async def test_subscribers_of_a_manager_get_its_events_in_order() -> None:
    plain, told = Diary(), Diary()

    async def slow(event: Event) -> None:
        await anyio.lowlevel.checkpoint()
        told(event)

    manager, chat = SnapshotManager(MemoryStore(), quick(snapshot_interval=600, event_debounce=600)), Chat("chat")
    manager.events.subscribe(plain)
    manager.events.subscribe(slow)
    with anyio.fail_after(PATIENCE):
        async with manager:
            for number in range(20):
                chat.say(str(number))
                await manager.snapshot(chat)
                await manager.snapshot(chat)
    assert [event.seq for event in told.of(SnapshotCreated)] == list(range(1, 21))
    assert told.events == plain.events
    assert len(plain.events) == 40


@pytest.mark.requirement("MANAGER-EVENT-ASYNC")
async def test_async_subscriber_gets_its_events_in_order_including_earlier_ones() -> None:
    bus, told = EventBus(), Diary()

    class Writer:
        async def __call__(self, event: Event) -> None:
            await anyio.lowlevel.checkpoint()
            told(event)

    bus.subscribe(Writer())
    bus.emit(_SKIPPED)
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            bus.open(tasks)
            bus.emit(_RECOVERED)
            await bus.aclose(PATIENCE)
    assert told.events == [_SKIPPED, _RECOVERED]


async def test_raising_async_subscriber_still_gets_the_next_event() -> None:
    bus, told = EventBus(), Diary()

    async def clumsy(event: Event) -> None:
        told(event)
        raise ZeroDivisionError

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            bus.open(tasks)
            bus.subscribe(clumsy)
            bus.emit(_SKIPPED)
            bus.emit(_RECOVERED)
            await bus.aclose(PATIENCE)
    assert told.events == [_SKIPPED, _RECOVERED]


@pytest.mark.requirement("MANAGER-FAULT-SUBSCRIBER")
async def test_hanging_async_subscriber_delays_neither_others_nor_closing() -> None:
    bus, told = EventBus(), Diary()

    async def stuck(_event: Event) -> None:
        await anyio.sleep_forever()

    async def awake(event: Event) -> None:
        told(event)

    bus.subscribe(stuck)
    bus.subscribe(awake)
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            bus.open(tasks)
            bus.emit(_SKIPPED)
            await told.wait_for(SnapshotSkipped)
            await bus.aclose(0.01)
            tasks.cancel_scope.cancel()


async def test_events_beyond_a_slow_subscribers_queue_are_dropped_and_counted() -> None:
    bus = EventBus()

    async def never_runs(_event: Event) -> None:
        """The bus is not open."""

    leave = bus.subscribe(never_runs)
    for _ in range(QUEUE_SIZE + 3):
        bus.emit(_SKIPPED)
    assert bus.dropped == 3
    leave()
    assert bus.dropped == 0
