"""Processes that are killed between any two writes, or in the middle of one."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.manager.processes import heard, python
from tests.memory.opening import Opener

_HOLD = """
    import sys, anyio
    from snapshot_plugin.memory import ProjectMemory
    from pathlib import Path

    async def main():
        async with ProjectMemory(sys.argv[1], state=Path(sys.argv[2])) as memory:
            await memory.save("a", "k", "from the child")
            await memory.record_error("buffered")
            print("ready", flush=True)
            await anyio.to_thread.run_sync(sys.stdin.readline)

    import anyio.to_thread
    anyio.run(main)
    print("ended", flush=True)
"""


@pytest.mark.requirement("GASOLINE-P-EDGE-CRASH")
@pytest.mark.anyio
async def test_killed_process_blocks_no_other_and_loses_only_buffered_data(
    open_memory: Opener, project: Path
) -> None:
    with python(_HOLD, project, project.parent / "state") as child:
        assert heard(child) == "ready"
        child.send_signal(signal.SIGKILL)
        child.wait(30)
        async with open_memory() as memory:
            assert (memory.persistence, memory.session_count) == ("disk", 2)
            assert await memory.load("a", "k") == "from the child"
            assert (await memory.load_context()).error_history.unresolved == ()


_KILLED_EVERYWHERE = """
    import json, os, shutil, signal, sys
    from datetime import UTC, datetime
    from pathlib import Path
    from snapshot_plugin.errors import MemoryReadOnly
    from snapshot_plugin.memory import engine as engines
    from snapshot_plugin.memory.changes import MemoryChange
    from snapshot_plugin.memory.engine import MemoryEngine
    from snapshot_plugin.memory.limits import MemoryLimits
    from snapshot_plugin.memory.files import name_of
    from snapshot_plugin.model.times import rfc3339
    from snapshot_plugin.system.files import locked

    engines._TIMEOUT = 0
    base = Path(sys.argv[1])
    now = lambda: datetime.now(UTC)

    def engine(project):
        return MemoryEngine(project, limits=MemoryLimits(baselines=2), state=base / "state", clock=now)

    def change(op, namespace="", key="", data=None):
        return MemoryChange(op, namespace, key, data, 1, rfc3339(now()))

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def work(project, value, *, kill_at=None):
        if kill_at is not None:
            arm(kill_at)
        memory = engine(project)
        memory.write(change("begin"))
        memory.write(change("save", "a", "k", {"value": value, "filler": value * 3000}))
        for name in ("one", "two", "three"):
            memory.write(change("save", "baselines", name, {"value": value}))
        memory.queue.append(change("save", "errors", "history", {"fingerprint": "E"}))
        with locked(project / ".asnap/.lease", session_id="", timeout=1):
            try:
                memory.write(change("save", "b", "put-off", value))
            except MemoryReadOnly:
                assert memory.persistence == "read-only"
        memory.write(change("delete", "baselines", "three"))
        memory.close()

    def arm(kill_at):
        count = [0]
        def watch(name):
            real = getattr(os, name)
            def call(*args, **kwargs):
                count[0] += 1
                if count[0] == kill_at:
                    if name == "write":  # in the middle of it
                        real(args[0], bytes(args[1])[: len(args[1]) // 2])
                    die()
                return real(*args, **kwargs)
            setattr(os, name, call)
        for name in ("write", "fsync", "rename", "unlink", "mkdir", "ftruncate"):
            watch(name)

    def whole(project):
        for file in project.glob(".asnap/**/*.json"):
            json.loads(file.read_text())
        memory = engine(project)
        memory.write(change("begin"))
        data = memory.load(name_of("a", "k"))
        assert data["value"] in ("old", "new") and data["filler"] == data["value"] * 3000, data
        assert memory.load(name_of("b", "put-off")) in ("old", "new")
        assert memory.notices == (), memory.notices
        view = memory.view()
        assert view.meta["session_count"] in (2, 3)
        assert not list(project.glob(".asnap/**/*.tmp"))
        baselines = [name for name in view.entries if name.namespace == "baselines"]
        assert len(baselines) in (1, 2), baselines
        memory.close()

    before = base / "before"
    before.mkdir()
    work(before, "old")
    kill_at = 0
    while True:
        kill_at += 1
        project = base / str(kill_at)
        shutil.copytree(before, project)
        pid = os.fork()
        if pid == 0:
            work(project, "new", kill_at=kill_at)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        whole(project)
        shutil.rmtree(project)
        print("killed" if status else "ended", flush=True)
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
"""


def test_kill_at_any_write_leaves_every_file_old_or_new(tmp_path: Path) -> None:
    with python(_KILLED_EVERYWHERE, tmp_path) as child:
        places = 0
        while heard(child) == "killed":
            places += 1
        assert child.wait(30) == 0
    assert places > 30
