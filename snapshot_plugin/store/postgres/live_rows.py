"""Leases and spools as rows, in plain data: `snapshot_plugin.live.rows` makes a `LivePlace` of them.

A lease is a row with an owner, an **epoch** and the time **until** which it counts, by the clock of the server.
Every statement of an owner names its epoch; once another owner has the session, the statement finds no row, and the
owner is fenced. A lease that is over still belongs to its owner until another one takes it. Deleting the session
raises the epoch too; **taken** is the epoch of the last owner, which tells a deletion from a takeover.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from snapshot_plugin.errors import Fenced, SnapshotError, StoreUnavailable
from snapshot_plugin.model.ids import new_id, short_id
from snapshot_plugin.store.postgres.database import IDLE_SECONDS, Database
from snapshot_plugin.store.postgres.outcomes import Held, Taken

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
_RENEW = f"""
{_FAST} ours AS (SELECT * FROM unnest(%s::text[], %s::bigint[]) AS o (sid, epoch))
UPDATE {{live}} l SET until = {_PROLONGED} FROM ours, fast
WHERE l.sid = ours.sid AND l.epoch = ours.epoch AND fast.set = 'off' RETURNING l.sid, l.asked
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
_LOOK = """
SELECT epoch, owner, base, last, owner IS NOT NULL AND until > clock_timestamp(),
       extract(epoch FROM until)::float8 - extract(epoch FROM clock_timestamp())::float8
FROM {live} WHERE sid = %s FOR UPDATE
"""
_APPEND_SECONDS = 5.0
"""How long an append may take. Callers pass their content on only afterwards, so they must not wait for ever."""
_ASK_AGAIN = 0.1
_ASK = """
UPDATE {live} SET asked = %s, answer = NULL
WHERE sid = %s AND owner IS NOT NULL AND asked IS NULL RETURNING sid
"""
_ANSWERED = "SELECT answer FROM {live} WHERE sid = %s AND asked = %s AND answer IS NOT NULL"
_ASK_NO_MORE = "UPDATE {live} SET asked = NULL, answer = NULL WHERE sid = %s AND asked = %s"
_ABANDONED = """
SELECT sid FROM {live} l WHERE (l.owner IS NOT NULL AND l.until <= clock_timestamp()) OR (
    l.owner IS NULL AND EXISTS (SELECT 1 FROM {spool} s WHERE s.sid = l.sid AND s.token = '' AND s.n > l.base))
"""


class _Held(NamedTuple):
    """A session of this process: called once another owner has it, and when another node asks something."""

    epoch: int
    fenced: Callable[[], None]
    asked: Callable[[str], None]


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
        self._guard = threading.Lock()
        self._changed = threading.Event()
        self._renewing: threading.Thread | None = None

    # Taking ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def taking(self, session_id: str, owner: str) -> Iterator[Taken | Held]:
        """Take the session, if it is free. If the body raises, nothing has changed."""
        self._prepare()
        with self._database.transaction():
            self._database.rows(
                "INSERT INTO {live} (sid, epoch, until) VALUES (%s, 0, '-infinity') ON CONFLICT DO NOTHING",
                session_id,
            )
            # Waits for a save of the present owner that is under way: see `must_not_be_fenced`.
            ((epoch, present, base, last, is_held, seconds),) = self._database.rows(_LOOK, session_id)
            if is_held:
                yield Held(present, seconds)
                return
            self._database.rows(
                f"UPDATE {{live}} SET epoch = %s, taken = %s, owner = %s, until = {_PROLONGED} WHERE sid = %s",
                epoch + 1, epoch + 1, owner, self.lease, session_id,
            )  # fmt: skip
            yield Taken(epoch + 1, present, base, last, self.records(session_id))

    def hold(self, session_id: str, epoch: int, fenced: Callable[[], None], asked: Callable[[str], None]) -> None:
        """Renew the lease from now on.

        *fenced* is called once another owner has the session, *asked* with what another node asks (`ask`), perhaps
        several times until `answer` is called. Both must be quick.
        """
        with self._guard:
            self._held[session_id] = _Held(epoch, fenced, asked)
            if self._renewing is None or not self._renewing.is_alive():
                self._renewing = threading.Thread(target=self._renew, name="asnap-lease", daemon=True)
                self._renewing.start()

    def let_go(self, session_id: str, epoch: int) -> None:
        """Stop renewing the lease."""
        with self._guard:
            held = self._held.get(session_id)
            if held is not None and held.epoch == epoch:
                del self._held[session_id]
                self._dropped.pop(session_id, None)
            if not self._held:
                self._changed.set()

    def _renew(self) -> None:
        while True:
            self._changed.wait(self.lease / 3)
            with self._guard:
                if not self._held:
                    self._renewing = None
                    self._changed.clear()
                    return
                self._changed.clear()
                held = dict(self._held)
            with contextlib.suppress(SnapshotError):  # unreachable: the owner's next statement reports it
                self._renew_all(held)

    def _renew_all(self, held: Mapping[str, _Held]) -> None:
        epochs = [each.epoch for each in held.values()]
        found: dict[str, str | None] = dict(self._database.rows(_RENEW, list(held), epochs, self.lease))
        for session_id, each in held.items():
            if session_id not in found:
                self.let_go(session_id, each.epoch)
                each.fenced()
            elif request := found[session_id]:
                each.asked(request)

    # Asking an owner on another node ---------------------------------------------------------------------

    def ask(self, session_id: str, request: str, *, seconds: float) -> str | None:
        """Leave a request for the owner, which finds it when it renews its lease; its answer, or None in time.

        One request is under way at a time. Requests differ, so that an answer is known to be to ours.
        """
        deadline, is_asked = time.monotonic() + seconds, False
        try:
            while time.monotonic() < deadline:
                is_asked = is_asked or bool(self._database.rows(_ASK, request, session_id))
                answer = self._database.rows(_ANSWERED, session_id, request)
                if answer:
                    return str(answer[0][0])
                time.sleep(_ASK_AGAIN)  # in a worker thread
        finally:
            if is_asked:
                self._database.rows(_ASK_NO_MORE, session_id, request)
        return None

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
        """Whether the last save has dropped the records up to *upto*."""
        return self._dropped.get(session_id) == (epoch, upto)

    def must_not_be_fenced(self, session_id: str) -> None:
        """Called in the transaction of every save. Until that ends, no other process can take the session.

        Raises:
            Fenced: this process holds the session, and another owner has taken it over.
        """
        held = self._held.get(session_id := short_id(session_id))
        if held is not None and not self._database.rows(
            # Weak enough for appends to the spool, which change no key; strong enough to make `taking` wait.
            "SELECT 1 FROM {live} WHERE sid = %s AND epoch = %s FOR KEY SHARE", session_id, held.epoch,
        ):  # fmt: skip
            held.fenced()
            raise fenced_error(session_id)

    def is_current(self, session_id: str, epoch: int) -> bool:
        """Whether the session still has this epoch."""
        return bool(self._database.rows("SELECT 1 FROM {live} WHERE sid = %s AND epoch = %s", session_id, epoch))

    def is_overtaken(self, session_id: str, epoch: int) -> bool:
        """Whether another owner took the session after this epoch. A deletion is not counted."""
        return bool(self._database.rows("SELECT 1 FROM {live} WHERE sid = %s AND taken > %s", session_id, epoch))

    def append(self, session_id: str, epoch: int, after: int, records: Sequence[tuple[int, bytes]]) -> None:
        """Add records behind the one numbered *after*, and prolong the lease: one statement.

        Raises:
            Fenced: another owner has the session.
            StoreUnavailable: the server lost records in a crash, and those would not follow each other.
            LostConnection: they may be there, or not.
        """
        numbers, bodies = [n for n, _ in records], [body for _, body in records]
        added = self._database.rows(
            _APPEND, self.lease, numbers[-1], session_id, epoch, after, numbers, bodies, within=_APPEND_SECONDS
        )
        if not added:
            if not self.is_current(session_id, epoch):
                raise fenced_error(session_id)
            raise StoreUnavailable(
                f"the database lost records of session {session_id}", session_id=session_id, hint="take a snapshot"
            )

    def flush(self, session_id: str, epoch: int) -> None:
        """Make all that was appended durable: the commit of a message forces everything before it to disk.

        The row of the lease is not touched, so appends do not wait.
        """
        if not self._database.rows(
            "SELECT pg_logical_emit_message(true, 'asnap', '')::text FROM {live} WHERE sid = %s AND epoch = %s",
            session_id, epoch,
        ):  # fmt: skip
            raise fenced_error(session_id)

    def truncate(self, session_id: str, epoch: int, upto: int) -> None:
        """Drop the records numbered up to *upto*; numbers continue behind it."""
        if not self._database.rows(_TRUNCATE, upto, upto, session_id, epoch, upto):
            raise fenced_error(session_id)

    def set_aside(self, session_id: str, *, first: int, last: int) -> str | None:
        """Keep the records from number *first* on where nothing reads them; numbers continue behind *last*."""
        token = f"aside-{new_id()}"
        with self._database.transaction():
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
        records = self._database.rows(
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


def fenced_error(session_id: str) -> Fenced:
    """The error of an owner that was overtaken."""
    return Fenced(
        f"another process took session {session_id!r} over, or it was deleted, while it was live here",
        session_id=session_id,
    )
