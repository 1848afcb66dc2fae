"""`os.fork` with an open store: both processes go on using it. `multiprocessing` does this on Linux."""

from __future__ import annotations

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
    command = [sys.executable, "-W", "ignore", "-c", program, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
