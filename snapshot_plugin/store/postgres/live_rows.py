"""Leases and spools as rows, in plain data: `snapshot_plugin.live.rows` makes a `LivePlace` of them.

A lease is a row with an owner, an **epoch** and the time **until** which it counts, by the clock of the server.
Every statement of an owner names its epoch; once another owner has the session, the statement finds no row, and the
owner is fenced. A lease that is over still belongs to its owner until another one takes it. Deleting the session
raises the epoch too; **taken** is the epoch of the last owner, which tells a deletion from a takeover.

An epoch is made of the server's time and a random number, so that no two takes share one, not even if the database
lost the first take: after a restored backup, or on a standby that was promoted before it had received everything.

An owner also counts the lease down by a clock of its own, from before each renewal was sent (`seconds_left`): cut
off from the database, it stops before another owner may begin.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from snapshot_plugin.errors import Fenced, SnapshotError, StoreUnavailable
from snapshot_plugin.model.ids import new_id, short_id
from snapshot_plugin.store.postgres.database import IDLE_SECONDS, Database
from snapshot_plugin.store.postgres.outcomes import Held, Taken
from snapshot_plugin.system import forks

__all__ = ["LiveRows"]

_FAST = "WITH fast AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true) AS set),"
"""Commit without waiting for the disk: the server has it, so the death of this process costs nothing."""
_PROLONGED = "clock_timestamp() + make_interval(secs => %s)"
_APPEND = f"""
{_FAST} mine AS (
    UPDATE {{live}} l SET until = {_PROLONGED}, last = %s FROM fast
    WHERE l.sid = %s AND l.epoch = %s AND l.last = %s AND fast.set = 'off' RETURNING l.sid
)
INSERT INTO {{spool}} (sid, n, body)
SELECT mine.sid, r.n, r.body FROM mine, unnest(%s::bigint[], %s::bytea[]) AS r (n, body) RETURNING n
"""
_NEXT_EPOCH = """
greatest(epoch, (extract(epoch FROM clock_timestamp()) * 1000)::bigint << 10) + 1 + floor(random() * 1023)::bigint
"""
"""Higher than all before and never the same twice; below 2^53 until the year 2248, for JSON."""
_RECLAIM = f"""
INSERT INTO {{live}} AS l (sid, epoch, taken, owner, until) VALUES (%s, %s, %s, %s, {_PROLONGED})
ON CONFLICT (sid) DO UPDATE
SET epoch = excluded.epoch, taken = excluded.taken, owner = excluded.owner, until = excluded.until
WHERE l.taken <= %s AND (l.owner IS NULL OR l.until <= clock_timestamp()) RETURNING sid
"""
"""Take again a lease that the database forgot: the row is as before the take, and nobody has taken it since."""
_RENEW = f"""
{_FAST} ours AS (SELECT * FROM unnest(%s::text[], %s::bigint[]) AS o (sid, epoch))
UPDATE {{live}} l SET until = {_PROLONGED} FROM ours, fast
WHERE l.sid = ours.sid AND l.epoch = ours.epoch AND fast.set = 'off'
RETURNING l.sid, CASE WHEN l.asked_until > clock_timestamp() THEN l.asked END
"""
_RELEASE = """
WITH released AS (
    UPDATE {live} SET owner = %s, until = '-infinity', asked = NULL, answer = NULL
    WHERE sid = %s AND epoch = %s RETURNING sid
)
SELECT pg_notify(%s, sid) FROM released
"""
_TRUNCATE = f"""
{_FAST} mine AS (
    UPDATE {{live}} l SET base = greatest(l.base, %s), last = greatest(l.last, %s) FROM fast
    WHERE l.sid = %s AND l.epoch = %s AND fast.set = 'off' RETURNING l.sid
), gone AS (DELETE FROM {{spool}} s USING mine WHERE s.sid = mine.sid AND s.token = '' AND s.n <= %s)
SELECT sid FROM mine
"""
_LOOK = f"""
SELECT {_NEXT_EPOCH}, taken, owner, base, last, owner IS NOT NULL AND until > clock_timestamp(),
       extract(epoch FROM until)::float8 - extract(epoch FROM clock_timestamp())::float8
FROM {{live}} WHERE sid = %s FOR UPDATE
"""
_APPEND_SECONDS = 5.0
"""How long an append may take. Callers pass their content on only afterwards, so they must not wait for ever."""
_POLL_SECONDS = 0.1
_ASKED_SECONDS = 3.0
"""How long a request counts after a process was killed that waits for its answer."""
_ASK = f"""
WITH free AS (
    SELECT l.sid, r.request FROM {{live}} l JOIN unnest(%s::text[], %s::text[]) AS r (sid, request) USING (sid)
    WHERE l.owner IS NOT NULL
      AND (l.asked IS NULL OR l.asked = r.request OR l.asked_until <= clock_timestamp())
    FOR NO KEY UPDATE OF l SKIP LOCKED
)
UPDATE {{live}} l SET asked = free.request, answer = CASE WHEN l.asked = free.request THEN l.answer END,
    asked_until = {_PROLONGED}
FROM free WHERE l.sid = free.sid
"""
"""Ask, or prolong the request. Rows that are locked are left for the next time: an owner renews many rows at once,
so waiting for one of them while we have locked others could end in a deadlock."""
_ANSWERED = """
SELECT l.sid, l.answer FROM {live} l JOIN unnest(%s::text[], %s::text[]) AS r (sid, request) USING (sid)
WHERE l.asked = r.request AND l.answer IS NOT NULL
"""
_ASK_NO_MORE = """
WITH ours AS (
    SELECT l.sid FROM {live} l JOIN unnest(%s::text[], %s::text[]) AS r (sid, request) USING (sid)
    WHERE l.asked = r.request FOR NO KEY UPDATE OF l SKIP LOCKED
)
UPDATE {live} l SET asked = NULL, answer = NULL FROM ours WHERE l.sid = ours.sid
"""
_ANSWERING = 8
"""How many requests of other nodes this process carries out at once."""
_ABANDONED = """
SELECT sid FROM {live} l WHERE (l.owner IS NOT NULL AND l.until <= clock_timestamp()) OR (
    l.owner IS NULL AND EXISTS (SELECT 1 FROM {spool} s WHERE s.sid = l.sid AND s.token = '' AND s.n > l.base))
"""


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that nobody sets and that also counts while the machine sleeps; on macOS, CLOCK_MONOTONIC does."""
_MARGIN = 0.1
"""The part of the lease time by which an owner stops early: what it has begun must end before the lease does."""
_SOON = 0.05
"""The part of the lease time after which a failed renewal is tried again."""


def _now() -> float:
    return time.clock_gettime(_CLOCK)


class _Held(NamedTuple):
    """A session of this process, and what to call if something happened to it; see `LiveRows.hold`."""

    epoch: int
    before: int
    owner: str
    fenced: Callable[[], None]
    asked: Callable[[str], None]
    rolled_back: Callable[[], None]


class LiveRows:
    """Leases and spools of one store, by `short_id`. While sessions are held, a thread renews their leases.

    Args:
        database: where the tables are.
        prepare: makes sure that the tables are there.
    """

    def __init__(self, database: Database, prepare: Callable[[], None]) -> None:
        self._database, self._prepare = database, prepare
        self.lease = database.address.lease
        self._held: dict[str, _Held] = {}
        self._dropped: dict[str, tuple[int, int]] = {}
        self._torn: set[str] = set()
        """Sessions whose row in the database fell behind: `truncate` must set it right."""
        self._ends: dict[str, float] = {}
        """When the lease of each held session is over, by our own clock."""
        self._guard = forks.lock()
        self._changed = forks.event()
        self._renewing: threading.Thread | None = None
        forks.in_child(self._forked)

    def _forked(self) -> None:
        self._held, self._dropped, self._renewing = {}, {}, None  # the parent renews its leases
        self._torn, self._ends = set(), {}

    # Taking ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def taking(self, session_id: str, owner: str) -> Iterator[Taken | Held]:
        """Take the session, if it is free. If the body raises, nothing has changed."""
        self._prepare()
        # The owner cannot renew its lease meanwhile, so a process that freezes here must not keep the row.
        with self._database.transaction(idle=min(self.lease, IDLE_SECONDS)):
            self._database.rows(
                "INSERT INTO {live} (sid, epoch, until) VALUES (%s, 0, '-infinity') ON CONFLICT DO NOTHING",
                session_id,
            )
            # Waits for a save of the present owner that is under way: see `must_not_be_fenced`.
            ((epoch, before, present, base, last, is_held, seconds),) = self._database.rows(_LOOK, session_id)
            if is_held:
                yield Held(present, seconds)
                return
            sent = _now()
            self._database.rows(
                f"UPDATE {{live}} SET epoch = %s, taken = %s, owner = %s, until = {_PROLONGED} WHERE sid = %s",
                epoch, epoch, owner, self.lease, session_id,
            )  # fmt: skip
            yield Taken(epoch, before, sent, present, base, last, self.records(session_id))

    def hold(
        self,
        session_id: str,
        taken: Taken,
        owner: str,
        *,
        fenced: Callable[[], None],
        asked: Callable[[str], None],
        rolled_back: Callable[[], None],
    ) -> None:
        """Renew the lease from now on. The functions are called from other threads, and must be quick.

        Args:
            session_id: the session.
            taken: what `taking` gave.
            owner: who has the session, for others.
            fenced: called once the session is not ours any more; raises `SnapshotError` to be called again.
            asked: called in a thread of its own with what another node asks (`ask`), perhaps several times until
                `answer` is called.
            rolled_back: called if the database lost the take, and we have it again: newer records and snapshots
                are lost too.
        """
        with self._guard:
            self._held[session_id] = _Held(taken.epoch, taken.before, owner, fenced, asked, rolled_back)
            self._ends[session_id] = self._end_of(taken.sent)
            if self._renewing is None or not self._renewing.is_alive():
                self._renewing = threading.Thread(target=self._renew, name="asnap-lease", daemon=True)
                self._renewing.start()

    def let_go(self, session_id: str, epoch: int) -> None:
        """Stop renewing the lease."""
        with self._guard:
            held = self._held.get(session_id)
            if held is not None and held.epoch == epoch:
                del self._held[session_id]
                self._ends.pop(session_id, None)
                self._dropped.pop(session_id, None)
                self._torn.discard(session_id)
            if not self._held:
                self._changed.set()

    def seconds_left(self, session_id: str, epoch: int) -> float:
        """For how long nobody else can take the session, by our own clock; infinite if we do not hold it."""
        held, end = self._held.get(session_id), self._ends.get(session_id)
        return math.inf if held is None or end is None or held.epoch != epoch else end - _now()

    def _end_of(self, sent: float) -> float:
        """The end of a lease that was prolonged by a statement sent at that time: the server got it later."""
        return sent + self.lease * (1 - _MARGIN)

    def _prolonged(self, session_id: str, epoch: int, sent: float) -> None:
        with self._guard:
            held = self._held.get(session_id)
            if held is not None and held.epoch == epoch:
                self._ends[session_id] = max(self._ends[session_id], self._end_of(sent))

    def _renew(self) -> None:
        pause = self.lease / 3
        while True:
            self._changed.wait(pause)
            with self._guard:
                if not self._held:
                    self._renewing = None
                    self._changed.clear()
                    return
                self._changed.clear()
                held = dict(self._held)
            try:
                self._renew_all(held)
                pause = self.lease / 3
            except SnapshotError:  # unreachable: the owner's next statement reports it
                pause = self.lease * _SOON

    def _renew_all(self, held: Mapping[str, _Held]) -> None:
        epochs, sent = [each.epoch for each in held.values()], _now()
        renewed = self._database.rows(_RENEW, list(held), epochs, self.lease, within=self.lease)
        found: dict[str, str | None] = dict(renewed)
        asked = deque[Callable[[], None]]()
        for session_id, each in held.items():
            if session_id in found:
                self._prolonged(session_id, each.epoch, sent)
                if request := found[session_id]:
                    asked.append(partial(each.asked, request))
            elif not self._is_reclaimed(session_id, each.epoch):
                with contextlib.suppress(SnapshotError):  # not known for sure: ask again
                    each.fenced()
                    self.let_go(session_id, each.epoch)
        for _ in range(min(_ANSWERING, len(asked))):
            threading.Thread(target=_call_all, args=(asked,), name="asnap-answer", daemon=True).start()

    def _is_reclaimed(self, session_id: str, epoch: int) -> bool:
        """Whether the database had only forgotten that the session is ours, and knows it again now."""
        held, sent = self._held.get(session_id), _now()
        if held is None or held.epoch != epoch:
            return False
        if not self._database.rows(_RECLAIM, session_id, epoch, epoch, held.owner, self.lease, held.before):
            return False
        self._torn.add(session_id)
        self._prolonged(session_id, epoch, sent)
        held.rolled_back()
        return True

    # Asking an owner on another node ---------------------------------------------------------------------

    def ask(self, requests: Mapping[str, str], *, seconds: float) -> dict[str, str]:
        """Leave a request for the owner of each session, and return the answers that come in time.

        An owner finds its requests when it renews its leases. A session has one request at a time; ours waits until
        another one is answered, or until its sender is dead. Requests differ, so an answer is known to be to ours.
        """
        deadline, ask_again = time.monotonic() + seconds, 0.0
        waiting, answers = dict(requests), dict[str, str]()
        try:
            while waiting and (now := time.monotonic()) < deadline:
                if now >= ask_again:
                    ask_again = now + _ASKED_SECONDS / 3
                    self._database.rows(_ASK, list(waiting), list(waiting.values()), _ASKED_SECONDS)
                for session_id, answer in self._database.rows(_ANSWERED, list(waiting), list(waiting.values())):
                    answers[session_id] = answer
                    del waiting[session_id]
                time.sleep(_POLL_SECONDS if waiting else 0)  # in a worker thread
        finally:
            self._database.rows(_ASK_NO_MORE, list(requests), list(requests.values()))
        return answers

    def answer(self, session_id: str, epoch: int, request: str, answer: str) -> None:
        """Answer *request*, if its sender still waits and the session is still ours."""
        self._database.rows(
            "UPDATE {live} SET answer = %s WHERE sid = %s AND epoch = %s AND asked = %s",
            answer, session_id, epoch, request,
        )  # fmt: skip

    # What an owner does ----------------------------------------------------------------------------------

    def idle_seconds(self, session_id: str) -> float:
        """How long a transaction about the session may wait for this process: an owner that stops loses it."""
        return self.lease if short_id(session_id) in self._held else IDLE_SECONDS

    def epoch(self, session_id: str) -> int | None:
        """The epoch under which this process holds the session; None if it does not."""
        held = self._held.get(session_id)
        return None if held is None else held.epoch

    def dropped(self, session_id: str, epoch: int | None, upto: int) -> None:
        """A save has just dropped the records up to *upto*, in its own transaction."""
        if epoch is not None:
            self._dropped[session_id] = epoch, upto

    def are_dropped(self, session_id: str, epoch: int, upto: int) -> bool:
        """Whether the last save has dropped the records up to *upto*, and the row of the lease agrees."""
        return session_id not in self._torn and self._dropped.get(session_id) == (epoch, upto)

    def must_not_be_fenced(self, session_id: str) -> None:
        """Called in the transaction of every save. Until that ends, no other process can take the session.

        Raises:
            Fenced: this process holds the session, and another owner has taken it over.
        """
        held = self._held.get(session_id := short_id(session_id))
        if held is not None and not self._database.rows(
            # Weak enough for appends to the spool, which change no key; strong enough to make `taking` wait.
            "SELECT 1 FROM {live} WHERE sid = %s AND epoch = %s FOR KEY SHARE", session_id, held.epoch,
        ) and not self._is_reclaimed(session_id, held.epoch):  # fmt: skip
            with contextlib.suppress(SnapshotError):  # not known for sure: the next renewal finds out
                held.fenced()
            raise fenced_error(session_id)

    def is_current(self, session_id: str, epoch: int) -> bool:
        """Whether the session is still ours. If the database forgot that, and nobody took it, it is ours again."""
        found = self._database.rows("SELECT 1 FROM {live} WHERE sid = %s AND epoch = %s", session_id, epoch)
        return bool(found) or self._is_reclaimed(session_id, epoch)

    def is_overtaken(self, session_id: str, epoch: int, before: int) -> bool:
        """Whether another owner took the session after us, who took it after *before*. A deletion is not counted.

        After a rollback the other's epoch may be lower than ours, but it is higher than any that we found.
        """
        query = "SELECT 1 FROM {live} WHERE sid = %s AND taken > %s AND taken <> %s"
        return bool(self._database.rows(query, session_id, before, epoch))

    def append(self, session_id: str, epoch: int, after: int, records: Sequence[tuple[int, bytes]]) -> None:
        """Add records behind the one numbered *after*, and prolong the lease: one statement.

        Raises:
            Fenced: another owner has the session.
            StoreUnavailable: the server lost records in a crash, and those would not follow each other.
            LostConnection: they may be there, or not.
        """
        numbers, bodies, sent = [n for n, _ in records], [body for _, body in records], _now()
        added = self._database.rows(
            _APPEND, self.lease, numbers[-1], session_id, epoch, after, numbers, bodies, within=_APPEND_SECONDS
        )
        if not added:
            self._must_be_ours(session_id, epoch)
            raise _lost_records(session_id)
        self._prolonged(session_id, epoch, sent)

    def _must_be_ours(self, session_id: str, epoch: int) -> None:
        if not self.is_current(session_id, epoch):
            raise fenced_error(session_id)
        self._torn.add(session_id)

    def flush(self, session_id: str, epoch: int) -> None:
        """Make all that was appended durable: the commit of a message forces everything before it to disk.

        The row of the lease is not touched, so appends do not wait.
        """
        if not self._database.rows(
            "SELECT pg_logical_emit_message(true, 'asnap', '')::text FROM {live} WHERE sid = %s AND epoch = %s",
            session_id, epoch,
        ):  # fmt: skip
            self._must_be_ours(session_id, epoch)
            raise _lost_records(session_id)

    def truncate(self, session_id: str, epoch: int, upto: int) -> None:
        """Drop the records numbered up to *upto*; numbers continue behind it."""
        truncate = (_TRUNCATE, upto, upto, session_id, epoch, upto)
        if not self._database.rows(*truncate):
            self._must_be_ours(session_id, epoch)
            self._database.rows(*truncate)
        self._torn.discard(session_id)

    def set_aside(self, session_id: str, *, first: int, last: int) -> str | None:
        """Keep the records from number *first* on where nothing reads them; numbers continue behind *last*."""
        token = f"aside-{new_id()}"
        with self._database.transaction(idle=self.lease):
            moved = self._database.rows(
                "UPDATE {spool} SET token = %s WHERE sid = %s AND token = '' AND n >= %s RETURNING n",
                token, session_id, first,
            )  # fmt: skip
            self._database.rows(
                "UPDATE {live} SET last = %s, base = least(base, %s) WHERE sid = %s", last, last, session_id
            )
        return f"{len(moved)} rows of {self._database.address.table('spool')} with token {token}" if moved else None

    def count(self, session_id: str) -> int:
        """How many records the spool holds."""
        query = (
            "SELECT count(*) FROM {spool} s JOIN {live} l USING (sid) WHERE sid = %s AND token = '' AND n > base"
        )
        return int(self._database.rows(query, session_id)[0][0])

    def begin_after(self, session_id: str, last: int) -> None:
        """The spool is empty, and numbers continue behind *last*."""
        self._database.rows("UPDATE {live} SET base = %s, last = %s WHERE sid = %s", last, last, session_id)

    def release(self, session_id: str, epoch: int, previous: str | None = None) -> None:
        """Give the session up: as properly stopped, or, with *previous*, as that dead owner left it."""
        self._database.rows(_RELEASE, previous, session_id, epoch, self.channel)

    @property
    def channel(self) -> str:
        """Where the database says (``NOTIFY``) that a session was released; the payload is its id."""
        return f"{self._database.address.schema}_{self._database.address.prefix}released"

    # Looking ---------------------------------------------------------------------------------------------

    def owners(self, session_id: str | None = None) -> dict[str, str]:
        """Every session with a living owner, or just one."""
        self._prepare()
        query = "SELECT sid, owner FROM {live} WHERE owner IS NOT NULL AND until > clock_timestamp()"
        if session_id is None:
            return dict(self._database.rows(query))
        return dict(self._database.rows(f"{query} AND sid = %s", session_id))

    def leases(self) -> list[tuple[str, str, bool, float]]:
        """Every lease that was not released: session, owner, whether it counts, and when it last gave a sign."""
        self._prepare()
        rows = self._database.rows(
            "SELECT sid, owner, until > clock_timestamp(),"
            " CASE WHEN isfinite(until) THEN extract(epoch FROM until)::float8 ELSE 0 END"
            " FROM {live} WHERE owner IS NOT NULL"
        )
        return [(sid, owner, is_alive, max(0.0, until - self.lease)) for sid, owner, is_alive, until in rows]

    def span(self, session_id: str) -> tuple[int, int]:
        """The numbers behind which, and up to which, the spool has records."""
        self._prepare()
        found = self._database.rows("SELECT base, last FROM {live} WHERE sid = %s", session_id)
        return (int(found[0][0]), int(found[0][1])) if found else (0, 0)

    def records(self, session_id: str) -> list[tuple[int, bytes]]:
        """The records of the spool: number and body."""
        self._prepare()
        records = self._database.read(
            "SELECT n, body FROM {spool} JOIN {live} USING (sid)"
            " WHERE sid = %s AND token = '' AND n > base ORDER BY n",
            session_id,
        )
        return [(n, bytes(body)) for n, body in records]

    def abandoned(self, session_id: str | None = None) -> list[str]:
        """The sessions without a living owner whose last one died, or that have records; or just one."""
        self._prepare()
        if session_id is None:
            found = self._database.rows(f"{_ABANDONED} ORDER BY sid")
        else:
            found = self._database.rows(f"SELECT sid FROM ({_ABANDONED}) a WHERE a.sid = %s", session_id)
        return [sid for (sid,) in found]


def _call_all(calls: deque[Callable[[], None]]) -> None:
    """Make the calls, together with other threads that take from the same queue."""
    with contextlib.suppress(IndexError):  # it is empty
        while True:
            calls.popleft()()


def fenced_error(session_id: str) -> Fenced:
    """The error of an owner that was overtaken."""
    return Fenced(
        f"another process took session {session_id!r} over, or it was deleted, while it was live here",
        session_id=session_id,
    )


def _lost_records(session_id: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"the database lost records of session {session_id}", session_id=session_id, hint="take a snapshot"
    )
