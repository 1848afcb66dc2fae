"""A server that stops answering: the program goes on, and what was acknowledged is stored."""

from __future__ import annotations

import anyio
import anyio.to_thread
import pytest

from snapshot_plugin import SnapshotManager
from snapshot_plugin.live.place import required_place
from snapshot_plugin.store.postgres.store import PostgresStore
from tests.manager.sessions import PATIENCE, Chat, quick
from tests.postgres.line import line_to

pytestmark = pytest.mark.anyio
TICK = 0.02


class Pulse:
    """How long the event loop was late at most."""

    def __init__(self) -> None:
        self.latest = 0.0

    async def run(self) -> None:
        while True:
            before = anyio.current_time()
            await anyio.sleep(TICK)
            self.latest = max(self.latest, anyio.current_time() - before - TICK)


def said(word: str) -> dict[str, object]:
    return {"message": {"role": "user", "content": word}}


async def words_in_spool(url: str) -> list[str]:
    async with PostgresStore(url) as store:
        records = await anyio.to_thread.run_sync(required_place(store).records, "chat")
        return [record.data["message"]["content"] for record in records]


@pytest.mark.requirement("MANAGER-SPOOL-STALL")
async def test_stalled_server_does_not_stop_the_event_loop_and_acknowledged_records_are_stored(
    postgres_url: str,
) -> None:
    pulse, chat = Pulse(), Chat("chat")
    slow = quick(snapshot_interval=600, event_debounce=600)
    with line_to(postgres_url) as (line, through):
        async with (
            PostgresStore(through) as store,
            SnapshotManager(store, slow) as manager,
            anyio.create_task_group() as tasks,
        ):
            await manager.start_auto_snapshot(chat)
            await manager.snapshot(chat)
            assert await manager.spool("chat", said("a"))
            assert await words_in_spool(postgres_url) == ["a"]
            tasks.start_soon(pulse.run)
            line.freeze()
            try:
                with anyio.fail_after(PATIENCE / 2):
                    assert not await manager.spool("chat", said("b"))
                assert manager.record("chat", said("c")) is False
            finally:
                line.mend()
            assert pulse.latest < 1.0
            with anyio.fail_after(PATIENCE):
                for word in "abc":
                    chat.say(word)
                await manager.snapshot(chat)  # holds what the spool did not take
                assert await manager.spool("chat", said("d"))
            tasks.cancel_scope.cancel()
            assert await words_in_spool(postgres_url) == ["d"]


@pytest.mark.requirement("MANAGER-SPOOL-ORDER")
async def test_concurrent_records_are_spooled_in_the_order_of_the_calls(postgres_url: str) -> None:
    chat, words = Chat("chat"), [f"{number}" for number in range(100)]
    slow = quick(snapshot_interval=600, event_debounce=600)
    async with PostgresStore(postgres_url) as store, SnapshotManager(store, slow) as manager:
        await manager.start_auto_snapshot(chat)
        await manager.snapshot(chat)
        spooled: list[bool] = []

        async def spool(word: str) -> None:
            spooled.append(await manager.spool("chat", said(word)))

        for word in words[:10]:  # one after the other: the order of tasks that start together is not defined
            assert not manager.record("chat", said(word))
        await spool(words[10])
        assert await anyio.to_thread.run_sync(manager.record, "chat", said(words[11]))
        assert spooled == [True]
        assert await words_in_spool(postgres_url) == words[:12]
