"""One hop to a thread and back, on either event loop: results, errors, and what cancellation may not do."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from snapshot_plugin import FilesystemStore, MemoryStore, Message, SessionSnapshot
from snapshot_plugin.store import segments
from snapshot_plugin.store.hop import in_thread
from snapshot_plugin.system import files

pytestmark = pytest.mark.anyio

PATIENCE = 60
_NOW = datetime(2026, 3, 14, 9, tzinfo=UTC)
_COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("colour")


def _raise_zero() -> None:
    _ = 1 // 0


async def test_result_comes_from_another_thread() -> None:
    assert await in_thread(lambda a, b: (a + b, threading.current_thread()), 1, 2) != (
        3,
        threading.current_thread(),
    )
    assert (await in_thread(lambda a, b: a + b, 1, 2)) == 3


async def test_exception_is_raised_in_the_caller_and_the_next_job_runs() -> None:
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await in_thread(_raise_zero)
    assert await in_thread(lambda: "on") == "on"


async def test_jobs_run_concurrently() -> None:
    meeting = threading.Barrier(3, timeout=PATIENCE)
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(in_thread, meeting.wait)


async def test_context_variables_are_passed_to_the_thread() -> None:
    _COLOUR.set("blue")
    assert await in_thread(_COLOUR.get) == "blue"


async def test_cancelled_caller_waits_for_its_job_and_gets_the_result() -> None:
    started, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    results: list[str] = []

    def job() -> str:
        started.set()
        assert go_on.wait(PATIENCE)
        ended.set()
        return "done"

    async def caller() -> None:
        results.append(await in_thread(job))

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(caller)
            await anyio.to_thread.run_sync(started.wait, PATIENCE)
            tasks.cancel_scope.cancel()
            threading.Timer(0, go_on.set).start()
    assert ended.is_set()
    assert results == ["done"]


async def test_job_of_a_caller_cancelled_before_start_does_not_run() -> None:
    ran = threading.Event()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await in_thread(ran.set)
    assert scope.cancelled_caught
    assert not ran.is_set()


def test_forked_child_has_its_own_threads() -> None:
    program = """
import asyncio, os
from snapshot_plugin.store.hop import in_thread

asyncio.run(in_thread(int))
child = os.fork()
if child:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os._exit(asyncio.run(in_thread(lambda: 7)))
"""
    asked = [sys.executable, "-W", "ignore", "-c", program]  # 3.12 warns of forks beside threads
    with subprocess.Popen(asked, start_new_session=True) as process:
        try:
            assert process.wait(PATIENCE) == 7
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_plain_call_interrupted_while_it_waits_does_not_block_the_session(tmp_path: Path) -> None:
    snapshot = SessionSnapshot(session_id="s", created_at=_NOW, updated_at=_NOW)
    with FilesystemStore(tmp_path).sync as store:
        store.save(snapshot)
        turns = store.store.turns
        assert turns.enter("s", threading.Event) is None
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):  # noqa: PT012 — the alarm may not come before
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                store.load("s")
        finally:
            signal.signal(signal.SIGALRM, before)
        turns.leave("s")
        found: list[SessionSnapshot] = []
        reader = threading.Thread(target=lambda: found.append(store.load("s")), daemon=True)
        reader.start()
        reader.join(PATIENCE)
        assert found == [snapshot]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_asyncio_may_cancel_a_save_at_any_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anyio_backend: str
) -> None:
    """`asyncio.wait_for` and `Task.cancel` know nothing of anyio's shields; saves still keep their order."""
    _ = anyio_backend
    syncing, go_on, sync = threading.Event(), threading.Event(), files.sync_data

    def slow(fd: int) -> None:
        syncing.set()
        assert go_on.wait(PATIENCE)
        sync(fd)

    async with FilesystemStore(tmp_path) as store:
        one = SessionSnapshot(session_id="s", created_at=_NOW, updated_at=_NOW)
        await store.save(one)
        two = one.append(Message(role="user", content="two"))
        three = two.append(Message(role="user", content="three"))
        monkeypatch.setattr(segments, "sync_data", slow)
        cancelled = asyncio.create_task(store.save(two))
        await asyncio.to_thread(syncing.wait, PATIENCE)
        later = asyncio.create_task(store.save(three))
        for _ in range(3):
            cancelled.cancel()
            await asyncio.sleep(0)
        go_on.set()
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            assert (await later).seq == 3
        assert (await store.load("s", at=2)) == two
        assert (await store.load("s")) == three


async def test_calls_that_wait_for_their_turn_in_threads_leave_a_thread_to_those_that_have_it() -> None:
    """Live sessions save in worker threads, behind calls that wait for their turn in the event loop."""
    store, names = MemoryStore(), [f"session-{number}" for number in range(40)]
    for name in names:
        assert store.turns.enter(name, threading.Event) is None
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(store.tip, name)
            await anyio.wait_all_tasks_blocked()
            for name in names:
                tasks.start_soon(in_thread, store.sync.tip, name)
            await anyio.wait_all_tasks_blocked()
            for name in names:
                store.turns.leave(name)
