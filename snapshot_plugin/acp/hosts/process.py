"""The agent's process: its environment, its start, its end; and what waits to be written to it and the client."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from snapshot_plugin.codec.sources import without_keys
from snapshot_plugin.errors import AgentUnavailable

__all__ = ["AgentProcess", "Outbox", "QueuedWrite", "agent_environment", "end_with_parent", "return_large_blocks"]

_CHUNK = 1 << 20
_PR_SET_PDEATHSIG = 1
_M_MMAP_THRESHOLD = -3


def agent_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of an agent: *environment*, or this process's own, without the keys of the store."""
    return without_keys(os.environ if environment is None else environment)


def end_with_parent() -> Callable[[], None] | None:
    """A ``preexec_fn`` that ends the child when the thread that started it does; None where the system cannot."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl

    def demand() -> None:
        # SIGTERM, not SIGKILL: an agent may still save its state.
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

    return demand


def return_large_blocks() -> None:
    """Have freed blocks of 256 KB and more given back to the system. By default glibc keeps those of long turns."""
    if sys.platform.startswith("linux") and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, 256 << 10)


class AgentProcess:
    """One run of the agent, in a process group of its own so that its children end with it.

    Start it in a thread that lives as long as this process: the system ends the agent with that thread.
    """

    def __init__(self, command: Sequence[str]) -> None:
        try:
            self._process = subprocess.Popen(  # noqa: S603 — the command is what the user asked to run
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                env=agent_environment(),
                preexec_fn=end_with_parent(),  # noqa: PLW1509 — one system call, nothing is allocated
            )
        except OSError as error:
            raise AgentUnavailable(
                f"the agent {command[0]!r} cannot be started: {error.strerror}", hint="check the command after --"
            ) from error
        assert self._process.stdin is not None  # noqa: S101 — both are pipes
        assert self._process.stdout is not None  # noqa: S101 — both are pipes
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        self.pid = self._process.pid

    def send(self, data: bytes) -> bytes:
        """Write everything; returns the lines that did not reach an agent that is gone."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._in, view) :]
        except OSError:
            written = len(data) - len(view)
            return data[data.rfind(b"\n", 0, written) + 1 :]
        return b""

    def read(self) -> bytes:
        """What it has said; empty once it is gone."""
        try:
            return os.read(self._out, _CHUNK)
        except OSError:
            return b""

    def signal(self, number: int) -> None:
        """Pass a signal on to the agent and its children."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def end(self, *, patience: float) -> int:
        """Close its input, wait, then insist. Returns its exit status."""
        with contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
        self.signal(signal.SIGKILL)
        status = self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        return status


_FULL = 8 << 20


class QueuedWrite:
    """A position in the queue. Nothing after it is written before it is released."""

    __slots__ = ("data", "is_ready")

    def __init__(self, data: bytes, *, is_ready: bool) -> None:
        self.data, self.is_ready = data, is_ready


class Outbox:
    """Adding never blocks; writing does, and happens in the thread that calls `drain`, or in one of its own.

    Two pumps that each wrote to the other's side while holding a lock could wait for each other for ever.

    Args:
        write: writes everything, and returns what it could not write.
        name: of the side, for threads.
    """

    def __init__(self, write: Callable[[bytes], bytes], name: str) -> None:
        self._write, self._name = write, name
        self._slots: deque[QueuedWrite] = deque()
        lock = threading.Lock()
        self._added = threading.Condition(lock)
        """For the thread of its own, which is not woken when another thread has written."""
        self._written = threading.Condition(lock)
        self._is_writing = self._is_started = self._is_over = False
        self._size, self._failed = 0, b""

    def add(self, data: bytes, *, is_ready: bool) -> QueuedWrite:
        """Append *data* to the queue; it is written once it is ready."""
        slot = QueuedWrite(data, is_ready=is_ready)
        with self._added:
            self._slots.append(slot)
            self._size += len(data)
        return slot

    def drain(self) -> None:
        """Write what is ready, unless another thread does so already. Blocks while the other side does not read."""
        while (batch := self._taken()) is not None:
            lost = b""
            try:
                lost = self._write(batch)
            finally:
                with self._written:
                    self._failed += lost
                    self._is_writing = False
                    self._size -= len(batch)
                    self._written.notify_all()

    def _taken(self) -> bytes | None:
        with self._added:
            if self._is_writing or not self._slots or not self._slots[0].is_ready:
                return None
            self._is_writing = True
            batch = [self._slots.popleft().data]
            while self._slots and self._slots[0].is_ready:
                batch.append(self._slots.popleft().data)
            return b"".join(batch) if len(batch) > 1 else batch[0]

    def reclaim(self, seconds: float) -> bytes:
        """Take out what was not written; waits, bounded, for the write that is under way."""
        with self._written:
            self._written.wait_for(lambda: not self._is_writing, seconds)
            unwritten = b"".join(slot.data for slot in self._slots)
            self._slots.clear()
            self._size -= len(unwritten)
            failed, self._failed = self._failed, b""
            return failed + unwritten

    def drain_elsewhere(self) -> None:
        """Have a thread of its own write: the caller must not block."""
        with self._added:
            if not self._is_started:
                self._is_started = True
                threading.Thread(target=self._run, daemon=True, name=f"asnap {self._name}").start()
            self._added.notify_all()

    def wait_for_room(self) -> None:
        """Wait while much is unwritten: what comes in is then not read either."""
        if self._size > _FULL:
            with self._written:
                self._written.wait_for(lambda: self._size <= _FULL or self._is_over)

    def close(self) -> None:
        """Nobody writes any more."""
        with self._added:
            self._is_over = True
            self._added.notify_all()
            self._written.notify_all()

    def _run(self) -> None:
        while not self._is_over:
            self.drain()
            with self._added:
                self._added.wait_for(
                    lambda: (
                        self._is_over or (bool(self._slots) and self._slots[0].is_ready and not self._is_writing)
                    )
                )
