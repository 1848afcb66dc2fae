"""Forwards messages between the client and the agent, in order, as the core decides; records them first.

The messages of one read are spooled in one write before any of them is forwarded, and synced if one of them must
be durable. The core is called under one lock, and nothing blocks while it is held: syncs and writes happen outside.

In a store that several machines share, output waits in its outbox until the store has it: a machine that takes the
session over must know everything that was shown. While the lease is over, the agent is paused as well.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from snapshot_plugin.acp.actions import (
    Actions,
    Checkpoint,
    GiveUp,
    HostAction,
    Pass,
    PassAs,
    RecordEvent,
    Restart,
    RunBlocking,
    Say,
    ToAgent,
    ToClient,
)
from snapshot_plugin.acp.core import Core
from snapshot_plugin.acp.hosts.chain import ChainLink
from snapshot_plugin.acp.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    LINE_BYTES,
    ForeignLines,
    LongLine,
    Message,
    TextRuns,
    encode,
    failure,
    long_line_text,
    parse,
)
from snapshot_plugin.acp.reducer import record_events, recording_update
from snapshot_plugin.inert import say
from snapshot_plugin.live.outcome import log_failure
from snapshot_plugin.live.sessions import LiveSessions
from snapshot_plugin.system.lines import Lines
from snapshot_plugin.system.processes import READ_BYTES, AgentProcess

__all__ = ["Outbox", "Relay"]

_FULL = 8 << 20
"""Reading pauses while more bytes than this are unwritten."""
_SOONER = 0.005
"""The clock thread is woken early only if something is due this many seconds before its next wake-up."""
_LEASE_CHECK = 0.5
"""Seconds between two looks at the lease, besides the one at its end: a machine that slept has missed that."""
_HELD_CHECK = 0.05
"""Seconds between two looks while output is held back."""
_SAVE_AGAIN = 1.0
"""Seconds between two saves while output is held back."""


class QueuedWrite:
    """Data in the queue. Nothing after it is written until it is ready."""

    __slots__ = ("data", "is_ready")

    def __init__(self, data: bytes, *, is_ready: bool) -> None:
        self.data, self.is_ready = data, is_ready


class Outbox:
    """A queue of bytes for one side. Adding never blocks; writing does, in `drain` or in the outbox's own thread.

    It prevents a deadlock of two pumps that write to each other's side while holding a lock.

    Args:
        write: writes everything, and returns what it could not write.
        name: the side, for the name of the thread.
    """

    def __init__(self, write: Callable[[bytes], bytes], name: str) -> None:
        self._write, self._name = write, name
        self._slots: deque[QueuedWrite] = deque()
        lock = threading.Lock()
        self._added = threading.Condition(lock)
        """For the outbox's own thread, which is not woken when another thread has written."""
        self._written = threading.Condition(lock)
        self._is_writing = self._is_started = self._is_over = False
        self._size, self._failed = 0, b""

    def add(self, data: bytes, *, is_ready: bool, is_urgent: bool = False) -> QueuedWrite:
        """Append *data* to the queue, or put it first if it is urgent; it is written once it is ready."""
        slot = QueuedWrite(data, is_ready=is_ready)
        with self._added:
            (self._slots.appendleft if is_urgent else self._slots.append)(slot)
            self._size += len(data)
        return slot

    def drop(self, slot: QueuedWrite) -> bytes:
        """Write nothing in place of *slot*, which must not be ready yet; return its data."""
        with self._added:
            data, slot.data, slot.is_ready = slot.data, b"", True
            self._size -= len(data)
        return data

    def drain(self) -> None:
        """Write what is ready, unless another thread is writing. Blocks while the other side does not read."""
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
        """Remove and return what was not written; waits up to *seconds* for a running write."""
        with self._written:
            self._written.wait_for(lambda: not self._is_writing, seconds)
            unwritten = b"".join(slot.data for slot in self._slots)
            self._slots.clear()
            self._size -= len(unwritten)
            failed, self._failed = self._failed, b""
            return failed + unwritten

    def drain_elsewhere(self) -> None:
        """Write what is ready in the outbox's own thread. Never blocks on the other side."""
        with self._added:
            if not self._is_started:
                self._is_started = True
                threading.Thread(target=self._run, daemon=True, name=f"asnap {self._name}").start()
            self._added.notify_all()

    def wait_for_room(self) -> None:
        """Block while too much is unwritten, so that the caller does not read more."""
        if self._size > _FULL:
            with self._written:
                self._written.wait_for(lambda: self._size <= _FULL or self._is_over)

    def close(self) -> None:
        """Stop writing, and wake every thread that waits."""
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


class _Batch:
    """The core's actions for the messages of one read."""

    def __init__(self) -> None:
        self.records: dict[str, list[dict[str, Any]]] = {}
        self.durable: set[str] = set()
        self.to_client: list[bytes] = []
        self.to_agent: list[bytes] = []
        self.later: list[HostAction] = []

    def add(
        self,
        actions: Actions,
        passed: list[bytes],
        line: bytes = b"",
        under: Callable[[str], bytes] | None = None,
    ) -> None:
        """Add actions. A message passed on is appended to *passed*: as *line*, or *under* another session id."""
        for action in actions:
            if type(action) is Pass:
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
            elif type(action) is PassAs:
                passed.append(line if under is None else under(action.session_id))
            elif type(action) is ToClient:
                self.to_client.append(encode(action.message))
            elif type(action) is ToAgent:
                self.to_agent.append(encode(action.message))
            else:
                self.later.append(action)


class Relay:
    """Passes the messages of each side to the core, and carries out the actions it returns.

    Args:
        core: decides what to do with each message.
        sessions: records the sessions.
        client_in, client_out: the client's file descriptors.
        hung_up: called when the client is gone.
        restarts: carries out `Restart` and `GiveUp`.
        line_bytes: the longest message that is read from either side. A longer one is left out, and both are told.
    """

    def __init__(
        self,
        core: Core,
        sessions: LiveSessions,
        *,
        client_in: int,
        client_out: int,
        hung_up: Callable[[], None],
        restarts: Callable[[Restart | GiveUp], None],
        line_bytes: int = LINE_BYTES,
    ) -> None:
        self._core, self._sessions = core, sessions
        self.to_client, self.to_agent = Outbox(self._write_client, "client"), Outbox(self._write_agent, "agent")
        self.agent: AgentProcess | ChainLink | None = None
        """The agent's current process, or the next component of a proxy chain."""
        self.unwrap: Callable[[Message], Message | None] | None = None
        """In a proxy chain: returns the client's message as plain ACP, or None if it was the successor's."""
        self._client_in, self._client_out, self._hung_up = client_in, client_out, hung_up
        self._restarts, self._line_bytes = restarts, line_bytes
        self._lock, self._is_over, self.has_failed = threading.Lock(), False, False
        self._tick_due, self._wakes_at, self._is_closed = threading.Event(), math.inf, False
        self._holding = threading.Lock()
        self._held: list[tuple[Outbox, QueuedWrite]] = []
        """What waits until the store has what it shows."""
        self._lease_due = threading.Event()
        self._fenced = ""
        """Why nothing of the agent may be shown any more: another process owns a session of it."""

    def stop(self) -> None:
        """Record and send nothing from now on."""
        with self._lock:
            self._is_over = True

    def close(self) -> None:
        """Stop the clock and both outboxes."""
        self._is_closed = True
        self._tick_due.set()
        self._lease_due.set()
        self.to_client.close()
        self.to_agent.close()

    # Threads: one for each direction, the clock, and for shared stores the lease --------------------------

    def guard(self, work: Callable[[], None]) -> None:
        """Run the *work* of a thread. If it fails, hang up: the client must not wait for answers forever."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 — it is logged
            log_failure("a thread of the proxy failed", error)
            self.has_failed = True
            self._hung_up()

    def pump_client(self) -> None:
        """Handle the client's messages until it hangs up."""
        lines = Lines(self._line_bytes, self._client_said_too_much)
        while not self._is_closed and (data := self._read_client()):
            for line in lines.feed(data):
                self._client_line(line)
        self._hung_up()

    def _client_said_too_much(self, head: bytes, tail: bytes) -> bytes:
        """Refuse a request; an answer to the agent becomes an error."""
        found, text = LongLine.of(head, tail), long_line_text("client", self._line_bytes)
        say(text)
        if found.method is None:
            return found.stand_in(text)
        if found.id is not None:
            self.send_client(encode(failure(found.id, INVALID_REQUEST, text, {"sessionId": found.session_id})))
        return b""

    def _agent_said_too_much(self, head: bytes, tail: bytes) -> bytes:
        text = long_line_text("agent", self._line_bytes)
        say(text)
        return LongLine.of(head, tail).stand_in(text)

    def _client_line(self, line: bytes) -> None:
        message = parse(line)
        if message is None:
            self.to_agent.add(line, is_ready=True)
        else:
            if self.unwrap is not None:
                inner = self.unwrap(message)
                if inner is None:
                    return
                if inner is not message:
                    message, line = inner, encode(inner)
            self.carry_out(partial(self._core.from_client, message), line, is_client=True)
        self.to_agent.drain()
        self.to_agent.wait_for_room()

    def pump_agent(self, read: Callable[[], bytes]) -> None:
        """Handle the agent's messages until *read* returns nothing."""
        lines = Lines(self._line_bytes, self._agent_said_too_much)
        runs, foreign = TextRuns(self._core.may_coalesce, lines), ForeignLines()
        while data := read():
            if self._fenced:
                continue
            batch = _Batch()
            with self._lock:
                for message, line in runs.read(data):
                    if message is None:
                        if foreign.add():
                            say(f"the agent wrote something that is not ACP (line {foreign.count}): {line[:200]!r}")
                    else:
                        under = partial(runs.under, message=message, data=line)
                        batch.add(self._core.from_agent(message), batch.to_client, line, under)
                slots = self._commit(batch, is_agent=True)
            self._finish(batch, slots)
            if batch.to_agent:
                self.to_agent.drain_elsewhere()
            self.to_client.drain()
            self.to_client.wait_for_room()

    def keep_time(self) -> None:
        """Call the core's `tick` when it is due, until `close`."""
        core = self._core
        while not self._is_closed:
            with self._lock:
                seconds = core.next_tick()
            self._wakes_at = math.inf if seconds is None else core.now() + seconds
            self._tick_due.wait(seconds)
            self._tick_due.clear()
            if core.now() >= self._wakes_at and not self._is_closed:
                self.carry_out(lambda: core.tick(core.now()))

    def watch_lease(self) -> None:
        """Pause the agent while another machine could own one of its sessions; pass on what was held back."""
        sessions, is_paused = self._sessions, False
        catching_up = threading.Thread()
        while not self._is_closed:
            left = sessions.seconds_left
            if left <= 0 and self.agent is not None:
                self.agent.signal(signal.SIGSTOP)  # each time: it may have been restarted meanwhile
            if (left <= 0) != is_paused:
                is_paused = left <= 0
                self._tell_pause(is_paused=is_paused)
                if not is_paused and self.agent is not None:
                    self.agent.signal(signal.SIGCONT)
            if self._held and sessions.may_be_shown:
                self._pass_held()
            elif self._held and left > 0 and not catching_up.is_alive():  # sooner than the next scheduled save
                catching_up = threading.Thread(target=self._catch_up, daemon=True, name="asnap catch up")
                catching_up.start()
            is_waiting = is_paused or bool(self._held)
            self._lease_due.wait(_HELD_CHECK if is_waiting else min(_LEASE_CHECK, max(left, 0.0)))
            self._lease_due.clear()

    def _tell_pause(self, *, is_paused: bool) -> None:
        why = "the lease of the session has run out, because the database does not answer; the agent is paused"
        say(why if is_paused else "the lease is renewed; the agent goes on")
        for live in tuple(self._sessions.open.values()):
            told = recording_update(live, why if is_paused else str(live.trouble or ""))
            self.to_client.add(encode(told), is_ready=True, is_urgent=True)
        self.to_client.drain_elsewhere()

    def _catch_up(self) -> None:
        """Save what the store does not have, so that it can be shown. At most once a second."""
        for live in tuple(self._sessions.open.values()):
            if not live.may_be_shown:
                live.save()
        time.sleep(_SAVE_AGAIN)

    def _pass_held(self) -> None:
        with self._holding:
            held, self._held = self._held, []
        for _, slot in held:
            slot.is_ready = True
        self.to_client.drain_elsewhere()
        self.to_agent.drain_elsewhere()

    def fence(self, why: str) -> None:
        """Show nothing more of the agent: another process owns its session. Messages of the core still pass."""
        with self._holding:
            self._fenced = why
            held, self._held = self._held, []
        for side, slot in held:
            if side is self.to_client:
                self._refuse(side.drop(slot))
        self.to_client.drain_elsewhere()  # the end of the agent settles what it was to be sent

    def _refuse(self, data: bytes) -> None:
        """Answer the requests of the client whose answers in *data* are not shown."""
        for message in map(parse, data.splitlines()):
            if message is not None and "method" not in message and "id" in message:
                self.to_client.add(encode(failure(message["id"], INTERNAL_ERROR, self._fenced)), is_ready=True)

    # Carrying actions out ---------------------------------------------------------------------------------

    def carry_out(self, decide: Callable[[], Actions], line: bytes = b"", *, is_client: bool = False) -> None:
        """Call *decide* and carry out its actions. With *is_client* the caller drains `to_agent`, and may block."""
        batch = _Batch()
        with self._lock:
            batch.add(decide(), batch.to_agent, line)
            slots = self._commit(batch)
        self._finish(batch, slots)
        if batch.to_client:
            self.to_client.drain_elsewhere()
        if batch.to_agent and not is_client:
            self.to_agent.drain_elsewhere()

    def _commit(self, batch: _Batch, *, is_agent: bool = False) -> list[tuple[Outbox, QueuedWrite]]:
        """Spool and reduce the events, and queue the messages in order. Called under the lock; does not block."""
        if self._is_over:
            return []
        told = []
        for session_id, events in batch.records.items():
            live = self._sessions.open.get(session_id)
            if live is not None and (news := record_events(live, events)) is not None:
                told.append(encode(news))
        if self._sessions.is_shared:
            is_ready = False  # `_finish` decides
            if told:  # first: what was not recorded is held back
                self.to_client.add(b"".join(told), is_ready=True, is_urgent=True)
            if is_agent and self._fenced:
                self._refuse(b"".join(batch.to_client))
                batch.to_client.clear()
        else:
            is_ready = not batch.durable
            batch.to_client += told
        sides = ((self.to_client, batch.to_client), (self.to_agent, batch.to_agent))
        return [(side, side.add(b"".join(data), is_ready=is_ready)) for side, data in sides if data]

    def _finish(self, batch: _Batch, slots: Iterable[tuple[Outbox, QueuedWrite]]) -> None:
        """Sync sessions with durable events, then release the queued messages. Called outside the lock."""
        for session_id in batch.durable:
            live = self._sessions.open.get(session_id)
            try:
                if live is not None:
                    live.make_durable()
            except Exception as error:  # noqa: BLE001 — recording must not end the connection
                log_failure(f"session {session_id}: something is not durable", error)
        if not self._are_held(slots):
            for _, slot in slots:
                slot.is_ready = True
        for action in batch.later:
            self._do(action)
        if self._core.jobs.asks or self._core.jobs.waits:
            with self._lock:
                seconds = self._core.next_tick()
            if seconds is not None and self._core.now() + seconds < self._wakes_at - _SOONER:
                self._tick_due.set()

    def _are_held(self, slots: Iterable[tuple[Outbox, QueuedWrite]]) -> bool:
        """Hold *slots* back if the store may not have what they show."""
        if not self._sessions.is_shared or self._sessions.may_be_shown:
            return False
        with self._holding:
            if self._fenced:
                return False
            self._held += slots
        self._lease_due.set()
        return True

    def _do(self, action: HostAction) -> None:
        if isinstance(action, Checkpoint):
            if live := self._sessions.open.get(action.session_id):
                live.checkpoint()
        elif isinstance(action, Say):
            say(f"{action.text}: {action.words}" if action.words else action.text)
        elif isinstance(action, RunBlocking):
            threading.Thread(target=self._work, args=action, daemon=True, name="asnap work").start()
        else:
            self._restarts(action)

    def _work(self, number: int, run: Callable[[LiveSessions], Any]) -> None:
        try:
            result = run(self._sessions)
        except BaseException as error:  # noqa: BLE001 — it is raised in the job
            failed = error
            self.carry_out(lambda: self._core.done(number, error=failed))
        else:
            self.carry_out(lambda: self._core.done(number, result))

    def send_client(self, data: bytes) -> None:
        """Send the client something that is not from the core. Does not block."""
        self.to_client.add(data, is_ready=True)
        self.to_client.drain_elsewhere()

    def _write_agent(self, data: bytes) -> bytes:
        """Write everything; returns what could not be written. The agent's pump notices that the agent is gone."""
        return self.agent.send(data) if self.agent is not None else b""

    def _read_client(self) -> bytes:
        with suppress(OSError):
            return os.read(self._client_in, READ_BYTES)
        return b""

    def _write_client(self, data: bytes) -> bytes:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._client_out, view) :]
        except OSError:
            self._hung_up()
        return b""
