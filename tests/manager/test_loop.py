"""The event loop is never blocked: not by saving, not by attaching, not by closing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from blockbuster import BlockBuster, BlockingError, blockbuster_ctx

from snapshot_plugin import FilesystemStore, SnapshotError
from snapshot_plugin.codec.keys import generate_key
from snapshot_plugin.manager.events import SnapshotCreated
from snapshot_plugin.model import SessionSnapshot
from snapshot_plugin.testing import make_message, make_snapshot
from tests.manager.sessions import Chat, managing

pytestmark = pytest.mark.anyio
_TOLERATED = 2.0
"""Above the noise of a busy machine (0.6 s was seen); blockbuster is the sharp detector, this one sees trio."""


@pytest.fixture
def unblocked(anyio_backend: str) -> Iterator[BlockBuster | None]:
    """Every blocking system call in the event loop raises; blockbuster knows asyncio only."""
    if anyio_backend != "asyncio":
        yield None
        return
    with blockbuster_ctx() as buster:
        yield buster


class Pulse:
    """Measures how late the loop is for a task that only wants to run."""

    def __init__(self) -> None:
        self.latest = 0.0
        self.beats = 0

    async def run(self) -> None:
        while True:
            before = time.perf_counter()
            await anyio.sleep(0.001)
            self.latest = max(self.latest, time.perf_counter() - before - 0.001)
            self.beats += 1


def _large(session_id: str) -> Chat:
    text = "The quick brown fox. " * 5000
    messages = tuple(make_message(f"{number} {text}") for number in range(40))
    return Chat(session_id, snapshot=make_snapshot(session_id=session_id, messages=messages))


@pytest.mark.requirement(
    "MANAGER-AUTO-LOOP", "ONERING-CARE-LOOP", "ORBIT-ACP-BACKGROUND", "TERMINAL-FEATURE-NON-BLOCKING"
)
@pytest.mark.parametrize("key", [None, generate_key()], ids=["plain", "encrypted"])
async def test_saving_attaching_and_closing_do_not_block_the_loop(
    tmp_path: Path, key: str | None, unblocked: BlockBuster | None
) -> None:
    pulse = Pulse()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pulse.run)
        async with FilesystemStore(tmp_path, key=key) as store, managing(store) as (manager, diary):
            for number in range(6):
                await manager.start_auto_snapshot(_large(f"chat-{number}"))
            await diary.wait_for(SnapshotCreated, 6)
            await manager.snapshot_all()
            await manager.restore("chat-0")
            await manager.recover()
        tasks.cancel_scope.cancel()
    assert pulse.beats > 10
    assert pulse.latest < _TOLERATED


async def test_blocking_session_is_detected(unblocked: BlockBuster | None, tmp_path: Path) -> None:
    pulse = Pulse()

    class Blocking(Chat):
        def snapshot(self) -> SessionSnapshot:
            time.sleep(2 * _TOLERATED)
            return super().snapshot()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pulse.run)
        async with FilesystemStore(tmp_path) as store, managing(store) as (manager, _):
            if unblocked is None:
                await manager.snapshot(Blocking("chat"))
                await anyio.wait_all_tasks_blocked()
                assert pulse.latest > _TOLERATED
            else:
                with pytest.raises(SnapshotError) as caught:
                    await manager.snapshot(Blocking("chat"))
                assert isinstance(caught.value.__cause__, BlockingError)
        tasks.cancel_scope.cancel()
