"""What was read goes on to the other side: recorded first, in order, as the core says.

What arrived in one read is spooled in one write before any of it goes on, and synced first if something in it must
be durable. The core is called under one lock, during which nothing blocks: syncing and writing happen outside it.
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from snapshot_plugin.acp.actions import (
    PASS,
    Actions,
    Checkpoint,
    GiveUp,
    PassAs,
    RecordEvent,
    Restart,
    RunBlocking,
    Say,
    ToAgent,
    ToClient,
    shown,
)
from snapshot_plugin.acp.core import Core
from snapshot_plugin.acp.messages import Message, TextRuns, encode
from snapshot_plugin.acp.transcript import plain
from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.live.session import LiveSession
from snapshot_plugin.live.sessions import LiveSessions

__all__ = ["Outbox", "Relay"]

_FULL = 8 << 20
"""With so many bytes unwritten, nothing more is read."""
_SOONER = 0.005
"""The clock is woken only for what is due so many seconds earlier than it wakes by itself."""


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


_Later = Checkpoint | Say | RunBlocking | Restart | GiveUp


class _Batch:
    """The core's actions for the messages of one read."""

    def __init__(self) -> None:
        self.records: dict[str, list[dict[str, Any]]] = {}
        self.durable: set[str] = set()
        self.to_client: list[bytes] = []
        self.to_agent: list[bytes] = []
        self.later: list[_Later] = []

    def add(
        self,
        actions: Actions,
        passed: list[bytes],
        line: bytes = b"",
        under: Callable[[str], bytes] | None = None,
    ) -> None:
        """Take actions in; *passed* is where a message goes on: as *line*, or *under* another id of its session."""
        for action in actions:
            if action is PASS:
                passed.append(line)
            elif type(action) is RecordEvent:
                session_id, event, durable = action
                events = self.records.get(session_id)
                if events is None:
                    self.records[session_id] = [event]
                else:
                    events.append(event)
                if durable:
                    self.durable.add(session_id)
            elif type(action) is PassAs and under is not None:
                passed.append(under(action.session_id))
            elif type(action) is ToClient:
                self.to_client.append(encode(action.message))
            elif type(action) is ToAgent:
                self.to_agent.append(encode(action.message))
            else:
                self.later.append(action)  # type: ignore[arg-type]  # nothing else is left


class Relay:
    """Asks the core what to do with what each side said, and does it.

    Args:
        core: decides.
        sessions: where sessions are recorded.
        client_out: the client's file descriptor.
        write_agent: writes everything, and returns what it could not write.
        hung_up: called when the client does not read any more.
        do: carries out what is neither recorded nor sent.
        said: tells the person who watches.
        observed: called with a session's id and each update that was recorded of it; must not block or raise.
    """

    def __init__(
        self,
        core: Core,
        sessions: LiveSessions,
        *,
        client_out: int,
        write_agent: Callable[[bytes], bytes],
        hung_up: Callable[[], None],
        do: Callable[[_Later], None],
        said: Callable[[str], None],
        observed: Callable[[str, Message], object] | None = None,
    ) -> None:
        self._core, self._sessions = core, sessions
        self.to_client, self.to_agent = Outbox(self._write_client, "client"), Outbox(write_agent, "agent")
        self._client_out, self._hung_up = client_out, hung_up
        self._do, self._said, self._observed = do, said, observed
        self._lock, self._is_over = threading.Lock(), False
        self._troubled: set[str] = set()
        self._tick_due, self._wakes_at, self._is_closed = threading.Event(), math.inf, False

    def stop(self) -> None:
        """Record and send nothing from now on."""
        with self._lock:
            self._is_over = True

    def close(self) -> None:
        """Nobody reads what is sent any more, and nothing is due."""
        self._is_closed = True
        self._tick_due.set()
        self.to_client.close()
        self.to_agent.close()

    def pump_agent(self, read: Callable[[], bytes]) -> None:
        """Pass on what the agent says until *read* returns nothing."""
        runs = TextRuns(self._core.joins)
        while data := read():
            batch = _Batch()
            with self._lock:
                for message, line in runs.read(data):
                    if message is None:
                        self._said(f"the agent wrote something that is not ACP: {line[:200]!r}")
                    else:
                        under = partial(runs.under, message=message, data=line)
                        batch.add(self._core.from_agent(message), batch.to_client, line, under)
                slots = self._commit(batch)
            self._finish(batch, slots)
            if self._observed is not None:
                self._observe(batch, self._observed)
            if batch.to_agent:
                self.to_agent.drain_elsewhere()
            self.to_client.drain()
            self.to_client.wait_for_room()

    def _observe(self, batch: _Batch, observed: Callable[[str, Message], object]) -> None:
        for session_id, events in batch.records.items():
            for event in events:
                if isinstance(update := event.get("update"), dict):
                    observed(session_id, update)

    def carry_out(self, decide: Callable[[], Actions], line: bytes = b"", *, is_client: bool = False) -> None:
        """Ask the core and do what it says. Only the client's pump may block on the agent, and only it drains."""
        batch = _Batch()
        with self._lock:
            batch.add(decide(), batch.to_agent, line)
            slots = self._commit(batch)
        self._finish(batch, slots)
        if batch.to_client:
            self.to_client.drain_elsewhere()
        if batch.to_agent and not is_client:
            self.to_agent.drain_elsewhere()

    def keep_time(self) -> None:
        """Tell the core when something has waited long enough, until `close`."""
        core = self._core
        while not self._is_closed:
            seconds = core.next_tick()
            self._wakes_at = math.inf if seconds is None else core.now() + seconds
            self._tick_due.wait(seconds)
            self._tick_due.clear()
            if core.now() >= self._wakes_at and not self._is_closed:
                self.carry_out(lambda: core.tick(core.now()))

    def _commit(self, batch: _Batch) -> list[QueuedWrite]:
        """Spool and reduce, and take a place in the order of what is sent. Under the lock; does not block."""
        if self._is_over:
            return []
        for session_id, events in batch.records.items():
            live = self._sessions.open.get(session_id)
            if live is not None:
                self._record(live, events, batch)
        is_ready = not batch.durable
        sides = ((self.to_client, batch.to_client), (self.to_agent, batch.to_agent))
        return [side.add(b"".join(data), is_ready=is_ready) for side, data in sides if data]

    def _record(self, live: LiveSession, events: list[dict[str, Any]], batch: _Batch) -> None:
        try:
            live.record_all(events)
        except InvalidInput:  # a number that JSON cannot carry
            live.record_all([plain(event) for event in events])
        if (live.trouble is not None) != (live.session_id in self._troubled):
            batch.to_client.append(encode(self._recorded(live)))

    def _recorded(self, live: LiveSession) -> Message:
        """Tell the client whether the session is recorded."""
        self._troubled ^= {live.session_id}
        problem = {"problem": str(live.trouble)} if live.trouble else {}
        meta = {"asnap": {"recorded": live.trouble is None, **problem}}
        return shown(live.session_id, {"sessionUpdate": "session_info_update", "_meta": meta}).message

    def _finish(self, batch: _Batch, slots: Iterable[QueuedWrite]) -> None:
        """Make durable what must be, then release what waits for that. Outside the lock."""
        for session_id in batch.durable:
            live = self._sessions.open.get(session_id)
            if live is not None and not live.flush() and not live.is_recorded:
                live.save()
        for slot in slots:
            slot.is_ready = True
        for action in batch.later:
            self._do(action)
        if self._core.jobs.asks or self._core.jobs.waits:
            seconds = self._core.next_tick()
            if seconds is not None and self._core.now() + seconds < self._wakes_at - _SOONER:
                self._tick_due.set()

    def send_client(self, data: bytes) -> None:
        """Send the client something that is not from the core. Does not block."""
        self.to_client.add(data, is_ready=True)
        self.to_client.drain_elsewhere()

    def _write_client(self, data: bytes) -> bytes:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._client_out, view) :]
        except OSError:
            self._hung_up()
        return b""
