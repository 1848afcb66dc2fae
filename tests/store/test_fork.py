"""`os.fork` with an open store: both processes go on using it. `multiprocessing` does this on Linux."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import os, signal, sys, threading
from snapshot_plugin import FilesystemStore
from snapshot_plugin.testing import FixedClock, make_message, make_snapshot

class Clock(FixedClock):
    entered, go_on, is_slow = threading.Event(), threading.Event(), False

    def __call__(self):
        if self.is_slow:
            self.entered.set()
            self.go_on.wait(30)
        return super().__call__()

clock = Clock()
store = FilesystemStore(sys.argv[1], clock=clock, lock_timeout=1.0)
first = make_snapshot("a")
store.sync.save(first)
ready, told = os.pipe()


def child(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # a child that hangs ends, and fails the test
        work()
        os.write(told, b".")
        os._exit(0)
    return pid


def ended(pid):
    assert os.waitpid(pid, 0)[1] == 0
"""

_LOCKED = (
    _PROGRAM
    + """
hold, let_go = os.pipe()
with store.frames.exclusively("session"):
    pid = child(lambda: os.read(hold, 1))
store.sync.save(first.append(make_message("b")))
os.write(let_go, b".")
ended(pid)
"""
)

_IN_TURN = (
    _PROGRAM
    + """
clock.is_slow = True
saving = threading.Thread(target=store.sync.save, args=(first.append(make_message("b")),))
saving.start()
clock.entered.wait(30)


def work():
    clock.is_slow = False
    assert len(store.sync.load("session").messages) == 1
    store.sync.save(store.sync.load("session").append(make_message("of the child")), tags=["child"])


ended(child(work))
clock.go_on.set()
saving.join(30)
assert store.sync.load("session").messages[-1].text == "of the child"
"""
)


@pytest.mark.parametrize("program", [_LOCKED, _IN_TURN], ids=["while the session is locked", "during a save"])
def test_a_fork_during_a_save_stops_neither_process(tmp_path: Path, program: str) -> None:
    run(program, tmp_path)


def run(program: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", program, str(tmp_path / "store")]
    path = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=path)

    assert done.returncode == 0, done.stderr


HELD = (
    _PROGRAM
    + """
from snapshot_plugin.live.sessions import LiveSessions
from tests.live.events import Said, blank, texts

store = FilesystemStore(sys.argv[1] + "-sealed", key="asnap-key-" + "A" * 43, lock_timeout=1.0)
store.sync.save(first)
sessions = LiveSessions(store, Said)
live = sessions.begin(blank("live"))
live.record({"say": "of the parent"}, durable=True)
late = FilesystemStore(sys.argv[1] + "-sealed", key="asnap-key-" + "A" * 43)
held, go_on = threading.Event(), threading.Event()


def hold():
    with LOCK:
        held.set()
        go_on.wait(30)


holder = threading.Thread(target=hold)
holder.start()
held.wait(30)


def work():
    store.sync.save(store.sync.load("session").append(make_message("of the child")), tags=["child"])
    store.sync.page("session")
    assert len(late.sync.list()) == 1  # the live session is not saved yet
    store.reload_keys()
    other = sessions.begin(blank("of the child"))
    assert other.record({"say": "a word"}, durable=True)
    assert sessions.finish("of the child")
    store.close()


ended(child(work))
go_on.set()
holder.join(30)
assert live.record({"say": "more"}, durable=True)
sessions.close()
assert texts(store.sync.load("live")) == ["of the parent", "more"]
assert texts(store.sync.load("of the child")) == ["a word"]
"""
)

_LOCKS = [
    "store.frames._known._lock",
    "store._keys._lock",
    "late._opening",
    "store.core._views._lock",
    "store._worker._starting",
    "sessions._free",
    "sessions._saves._changed",
    "sessions._flushes._starting",
]


@pytest.mark.parametrize("lock", _LOCKS)
def test_a_child_does_not_wait_for_a_lock_that_a_thread_of_its_parent_holds(tmp_path: Path, lock: str) -> None:
    run(HELD.replace("LOCK", lock), tmp_path)


RECORDED = (
    _PROGRAM
    + """
from snapshot_plugin.live.sessions import LiveSessions
from tests.live.events import Said, blank, texts

sessions = LiveSessions(store, Said)
live = sessions.begin(blank("live"))
assert live.record({"say": "before"}, durable=True)
said, heard = os.pipe()


def work():
    os.read(said, 1)
    assert not live.record({"say": "by the child, which does not own the session"})
    assert not live.record({"say": "by the child"}, durable=True)
    sessions.close()


pid = child(work)
assert live.record({"say": "after"}, durable=True)
os.write(heard, b".")
ended(pid)
assert live.record({"say": "last"}, durable=True)
sessions.close()
assert texts(store.sync.load("live")) == ["before", "after", "last"]
"""
)


@pytest.mark.requirement("STORE-LIVE-FORK")
def test_a_child_cannot_write_to_the_live_session_of_its_parent(tmp_path: Path) -> None:
    run(RECORDED, tmp_path)
