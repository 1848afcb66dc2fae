"""The last gasp: told to end, a process saves everything first, in bounded time, and then ends as it would have."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from pathlib import Path

import anyio
import pytest

from snapshot_plugin import FilesystemStore, MemoryStore, SnapshotManager
from snapshot_plugin.live.lease import lease_of
from snapshot_plugin.manager.signals import UNSAVED, SaveOnSignal
from tests.manager.processes import PATIENCE, heard, python
from tests.manager.sessions import quick

_LIFE = """
    import os, signal, sys, time, anyio, threading
    sys.path.insert(0, sys.argv[3])
    from snapshot_plugin.manager.config import SnapshotConfig
    from snapshot_plugin.errors import InvalidInput
    from snapshot_plugin.manager.manager import SnapshotManager
    from snapshot_plugin.manager.resume import create_or_resume_session
    from snapshot_plugin.store.filesystem import FilesystemStore
    from tests.manager.sessions import Chat

    path, backend, _, scene = sys.argv[1:]
    limit = 0.5 if scene == "stuck" else 20
    config = SnapshotConfig(
        enable_persistence=True, snapshot_interval=600, event_debounce=600, exit_timeout=limit
    )

    class Slow(FilesystemStore):
        def prepared(self, work, session_id=None):
            if getattr(work, "func", work).__name__ == "save":
                print("saving", flush=True)
                time.sleep(3600 if scene == "stuck" else 0.3)
            return super().prepared(work, session_id)

    async def live(session_id, store):
        async with SnapshotManager(store, config) as manager:
            chat = Chat(session_id, "one")
            await manager.start_auto_snapshot(chat)
            chat.say("two")
            if scene == "slow":
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(manager.snapshot, chat)
                    await anyio.sleep(0.1)
                    chat.say("three")
                    print("said", flush=True)
                    await anyio.sleep_forever()
            print("ready", manager.watches_signals, flush=True)
            if scene == "late":
                await start_more(manager)
            await anyio.sleep_forever()

    class Starter:
        async def create_session(self, session_id, config):
            print("started", session_id, flush=True)
            return Chat(session_id, "one")

        async def stop_session(self, session):
            print("stopped", session.session_id, flush=True)

    async def start_more(manager):
        for number in range(10_000):
            try:
                await create_or_resume_session(Starter(), f"late-{number}", None, manager)
            except InvalidInput as error:
                print("refused", error, flush=True)
                return
            await anyio.sleep(0.01)

    async def main():
        kind = Slow if scene in ("slow", "stuck", "late") else FilesystemStore
        async with kind(path) as store, anyio.create_task_group() as tasks:
            tasks.start_soon(live, "a", store)
            if scene == "two":
                tasks.start_soon(live, "b", store)

    if scene == "own handler":
        signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
    anyio.run(main, backend=backend)
"""


def _end(tmp_path: Path, backend: str, scene: str, number: signal.Signals, ready: int = 1) -> int:
    with python(_LIFE, tmp_path, backend, Path(__file__).parents[2], scene) as process:
        for _ in range(ready):
            assert heard(process)
        if number is not signal.SIGTERM:
            process.send_signal(number)  # once: a second Ctrl-C exits immediately
            return process.wait(PATIENCE)
        return _terminated(process)


def _terminated(process: subprocess.Popen[str]) -> int:
    """Send SIGTERM until the process ends.

    Senders repeat theirs. A handler set with `signal.signal` may also be late for the first one: if that comes just
    before the event loop waits, Python calls the handler when the wait ends.
    """
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(1)
    return process.wait(0)


async def _said(tmp_path: Path, session_id: str = "a") -> list[str]:
    async with FilesystemStore(tmp_path) as store:
        return [message.text for message in (await store.load(session_id)).messages]


@pytest.mark.requirement("MANAGER-AUTO-SIGNAL", "ORBIT-SUCCESS-SHUTDOWN")
def test_sigterm_saves_everything_and_then_ends_the_process(tmp_path: Path, anyio_backend: str) -> None:
    assert _end(tmp_path, anyio_backend, "plain", signal.SIGTERM) == -signal.SIGTERM
    assert anyio.run(_said, tmp_path) == ["one", "two"]
    assert lease_of(FilesystemStore(tmp_path).session_dir("a")).died is None


@pytest.mark.requirement("MANAGER-FAULT-SIGNAL-SAVE")
def test_sigterm_during_a_save_saves_what_came_after_it_too(tmp_path: Path, anyio_backend: str) -> None:
    assert _end(tmp_path, anyio_backend, "slow", signal.SIGTERM, ready=2) == -signal.SIGTERM
    assert anyio.run(_said, tmp_path) == ["one", "two", "three"]


def test_both_of_two_managers_save_on_sigterm(tmp_path: Path, anyio_backend: str) -> None:
    assert _end(tmp_path, anyio_backend, "two", signal.SIGTERM, ready=2) == -signal.SIGTERM
    assert anyio.run(_said, tmp_path, "a") == ["one", "two"]
    assert anyio.run(_said, tmp_path, "b") == ["one", "two"]


@pytest.mark.requirement("MANAGER-AUTO-SIGNAL", "MANAGER-AUTO-EXIT-STATUS")
def test_hanging_disk_does_not_prevent_the_process_from_exiting_and_the_exit_status_tells(
    tmp_path: Path, anyio_backend: str
) -> None:
    assert _end(tmp_path, anyio_backend, "stuck", signal.SIGTERM) == UNSAVED


@pytest.mark.requirement("MANAGER-AUTO-SIGNAL-REFUSES")
def test_session_started_during_the_last_saves_is_refused_and_all_others_are_saved(
    tmp_path: Path, anyio_backend: str
) -> None:
    with python(_LIFE, tmp_path, anyio_backend, Path(__file__).parents[2], "late") as process:
        while not heard(process).startswith("started late-3"):
            pass
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGTERM
    said = out.splitlines()
    assert any("refused the process is ending because of a signal" in line for line in said)
    stopped = {line.split()[1] for line in said if line.startswith("stopped")}
    started = {line.split()[1] for line in said if line.startswith("started")}
    for session_id in {"a", "late-0", "late-1", "late-2", "late-3", *started} - stopped:
        assert anyio.run(_said, tmp_path, session_id)[0] == "one"


def test_ctrl_c_unwinds_the_program_and_saves(tmp_path: Path, anyio_backend: str) -> None:
    assert _end(tmp_path, anyio_backend, "plain", signal.SIGINT) not in (0, -signal.SIGKILL)
    assert anyio.run(_said, tmp_path) == ["one", "two"]


def test_applications_own_signal_handler_is_left_alone(tmp_path: Path, anyio_backend: str) -> None:
    assert _end(tmp_path, anyio_backend, "own handler", signal.SIGTERM) == 7


@pytest.mark.anyio
async def test_signal_handlers_are_restored_after_the_manager_closed() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    config = quick(snapshot_on_signal=True)
    async with SnapshotManager(MemoryStore(), config) as first, SnapshotManager(MemoryStore(), config) as second:
        await anyio.wait_all_tasks_blocked()
        assert signal.getsignal(signal.SIGTERM) is not before[0]
        assert first.watches_signals
        assert second.watches_signals
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


@pytest.mark.anyio
async def test_signal_watch_moves_to_another_manager_when_the_first_closes() -> None:
    config = quick(snapshot_on_signal=True)
    async with anyio.create_task_group() as tasks:
        second = SnapshotManager(MemoryStore(), config)
        async with SnapshotManager(MemoryStore(), config):
            first_open = anyio.Event()
            close = anyio.Event()

            async def live() -> None:
                async with second:
                    first_open.set()
                    await close.wait()

            tasks.start_soon(live)
            await first_open.wait()
        await anyio.wait_all_tasks_blocked()
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        close.set()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.anyio
@pytest.mark.parametrize(
    "settings", [{"snapshot_on_signal": False}, {"snapshot_on_signal": True, "enable_persistence": False}]
)
async def test_signals_are_watched_only_if_configured(settings: dict[str, bool]) -> None:
    async with SnapshotManager(MemoryStore(), quick(**settings)) as manager:
        await anyio.wait_all_tasks_blocked()
        assert not manager.watches_signals
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_signals_are_not_watched_outside_the_main_thread() -> None:
    seen: list[bool] = []
    thread = threading.Thread(target=lambda: seen.append(SaveOnSignal.is_possible()))
    thread.start()
    thread.join(PATIENCE)
    assert seen == [False]
    assert SaveOnSignal.is_possible()
