"""A disk whose syncs never return: closing gives up at `exit_timeout`, says so, and the process can exit."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from snapshot_plugin import FilesystemStore
from snapshot_plugin.live.recovery import recover
from tests.live.events import NOW, reduce_said, texts
from tests.manager.processes import heard, python

BOUND = 15.0
"""Seconds for all that follows an `exit_timeout` of one second, on a busy machine. A sync would hang for ever."""

_LIFE = """
    import os, sys, threading, time, anyio
    from snapshot_plugin import FilesystemStore, SnapshotConfig, SnapshotManager, persistent_session
    from snapshot_plugin.live.sessions import LiveSessions
    from snapshot_plugin.store.hop import in_thread
    from tests.live.events import Said, blank
    from tests.manager.sessions import Chat

    path, backend, scene = sys.argv[1:]
    is_hanging, hung = False, threading.Event()

    def hanging(sync):
        def call(fd):
            if is_hanging:
                hung.set()
                threading.Event().wait()
            sync(fd)
        return call

    os.fsync, os.fdatasync = hanging(os.fsync), hanging(os.fdatasync)

    async def main():
        global is_hanging
        config = SnapshotConfig(snapshot_interval=600, event_debounce=600, exit_timeout=1)
        async with FilesystemStore(path) as store, SnapshotManager(store, config) as manager:
            chats = [Chat(f"chat-{number}", "one") for number in range(40 if scene == "many" else 1)]
            for chat in chats:
                await manager.start_auto_snapshot(chat)
                await manager.snapshot(chat)
            if scene == "hosted":
                live = await in_thread(manager.recording(Said).begin, blank(), {"say": "one"})
                await in_thread(live.save)
            is_hanging = True
            for chat in chats:
                chat.say("two")
                assert manager.record(chat.session_id, {"say": "two"})
            if scene == "hosted":
                live.record({"say": "two"})
            if scene == "saving":
                manager.touch("chat-0")
                await manager.start_auto_snapshot(chats[0], 0.01)
                while not hung.is_set():
                    await anyio.sleep(0.01)
            print("closing", flush=True)
            outcomes = await manager.close()
            print(*sorted({outcome.status for outcome in outcomes}), flush=True)
        print("closed", flush=True)

    anyio.run(main, backend=backend)
"""


@pytest.mark.requirement("MANAGER-AUTO-EXIT")
@pytest.mark.parametrize("scene", ["idle", "saving", "many", "hosted"])
def test_manager_closes_in_time_and_the_process_exits_although_the_disk_hangs(
    tmp_path: Path, anyio_backend: str, scene: str
) -> None:
    with python(_LIFE, tmp_path, anyio_backend, scene) as process:
        assert heard(process) == "closing"
        rest, _ = process.communicate(timeout=BOUND)
        assert rest.split() == ["timeout", "closed"]
        assert process.returncode == 0

    async def recovered() -> list[str]:
        async with FilesystemStore(tmp_path) as store:
            await recover(store, reducers={"said": reduce_said}, now=NOW)
            return texts(await store.load("s"))

    if scene == "hosted":
        assert anyio.run(recovered) == ["one", "two"]
