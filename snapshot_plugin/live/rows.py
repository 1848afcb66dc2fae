"""Leases and spools in a database: the `LivePlace` of stores that several machines share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from snapshot_plugin.errors import (
    Damaged,
    Fenced,
    SessionLocked,
    SnapshotCorrupted,
    SnapshotError,
    StoreUnavailable,
)
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.live.owners import Ownership
from snapshot_plugin.live.ports import Record
from snapshot_plugin.live.spool import Sealing, encoded, unsaved
from snapshot_plugin.model.ids import short_id
from snapshot_plugin.store.postgres.outcomes import Held, LostConnection, Taken
from snapshot_plugin.system import forks, sockets

if TYPE_CHECKING:
    from snapshot_plugin.codec.encrypt import SessionKeys
    from snapshot_plugin.live.ports import Hold
    from snapshot_plugin.store.postgres.live_rows import LiveRows

__all__ = ["RowHold", "RowPlace"]


_ANSWER_SECONDS = 120.0
_LONGEST_ANSWER = 64 << 10


class RowPlace:
    """A `LivePlace` over database rows. An owner that does not renew its lease in time may be replaced."""

    def __init__(self, rows: LiveRows, keys_of: Callable[[str], SessionKeys | None]) -> None:
        self._rows, self._keys_of = rows, keys_of

    def take(self, session_id: str, owner: Owner) -> Hold:
        """See `LivePlace`."""
        sealing = Sealing(session_id, self._keys_of(session_id))
        with self._rows.taking(short_id(session_id), owner.model_dump_json()) as found:
            if isinstance(found, Held):
                raise _locked(session_id, found)
            hold = RowHold(session_id, self._rows, sealing, found, owner, keys_of=self._keys_of)
        hold.begin()
        return hold

    def ask(self, requests: Mapping[str, str], *, seconds: float) -> dict[str, str]:
        """Send each session's owner, on any node, a request through the database; the answers by session."""
        names = {short_id(session_id): session_id for session_id in requests}
        answers = self._rows.ask({sid: requests[names[sid]] for sid in names}, seconds=seconds)
        return {names[sid]: answer for sid, answer in answers.items()}

    def owner(self, session_id: str) -> Owner | None:
        """See `LivePlace`."""
        found = self._rows.owners(short_id(session_id)).get(short_id(session_id))
        return None if found is None else _owner(found)

    def owners(self) -> Mapping[str, Owner]:
        """See `LivePlace`."""
        return {session_id: _owner(text) for session_id, text in self._rows.owners().items()}

    def ownerships(self) -> dict[str, Ownership]:
        """The sessions that are live, or ended without a proper stop, in one query."""
        return {
            session_id: Ownership(owner=_owner(text))
            if is_alive
            else Ownership(died=_owner(text), last_sign=datetime.fromtimestamp(sign, UTC))
            for session_id, text, is_alive, sign in self._rows.leases()
        }

    def abandoned(self) -> Sequence[str]:
        """See `LivePlace`."""
        return self._rows.abandoned()

    def is_abandoned(self, session_id: str) -> bool:
        """See `LivePlace`."""
        return bool(self._rows.abandoned(short_id(session_id)))

    def spool_mark(self, session_id: str) -> tuple[int, ...]:
        """See `LivePlace`."""
        base, last = self._rows.span(short_id(session_id))
        return (base, last) if last > base else ()

    def records(self, session_id: str) -> Sequence[Record]:
        """See `LivePlace`."""
        sealing = Sealing(session_id, self._keys_of(session_id))
        return [Record(n, sealing.open(n, body)) for n, body in self._rows.records(short_id(session_id))]


class RowHold:
    """An `ExpiringHold` of rows."""

    def __init__(
        self,
        session_id: str,
        rows: LiveRows,
        sealing: Sealing,
        taken: Taken,
        owner: Owner,
        *,
        keys_of: Callable[[str], SessionKeys | None],
    ) -> None:
        self._owner, self._asked = owner, ""
        self._keys_of = keys_of
        self.epoch = taken.epoch
        self.previous = _owner(taken.previous) if taken.previous else None
        self.damage: str | None = None
        self._overtaken: Callable[[], None] = lambda: None
        self._rolled_back: Callable[[], None] = lambda: None
        self._taken = taken
        self._session_id, self._rows, self._sealing = session_id, rows, sealing
        self._sid = short_id(session_id)
        self._previous = taken.previous
        self._lock = forks.lock()
        """Guards the order of appends, and which request was taken. Never held during a flush."""
        self._is_over = self._unsynced = False
        self._last = taken.last
        self._found = self._opened(taken)
        forks.in_child(self._leave_to_parent)

    def begin(self) -> None:
        """Start renewing the lease. Call this once the lease is durable."""
        self._rows.hold(
            self._sid,
            self._taken,
            self._owner.model_dump_json(),
            fenced=self._on_fenced,
            asked=self._on_asked,
            rolled_back=self._on_rollback,
        )
        self._taken = self._taken._replace(records=())  # they are in `_found`

    def _leave_to_parent(self) -> None:
        self._is_over = True

    def watch(self, overtaken: Callable[[], None]) -> None:
        """See `Hold`. Detected at the next statement, or when the lease is renewed."""
        self._overtaken = overtaken

    def watch_rollback(self, rolled_back: Callable[[], None]) -> None:
        """See `ExpiringHold`."""
        self._rolled_back = rolled_back

    def _on_rollback(self) -> None:
        self._rolled_back()

    def seconds_left(self) -> float:
        """See `ExpiringHold`. Compares a clock; never waits for the database."""
        return self._rows.seconds_left(self._sid, self.epoch)

    def _on_asked(self, request: str) -> None:
        """Forward a request from another node to this process's own control socket, and write the answer."""
        control = self._owner.control
        with self._lock:
            is_new, self._asked = request != self._asked, request
        if control and is_new:
            self._answer(control, request)

    def _answer(self, control: str, request: str) -> None:
        with contextlib.suppress(SnapshotError, OSError):
            line = request.encode() + b"\n"
            answer = sockets.ask(control, line, timeout=_ANSWER_SECONDS, longest=_LONGEST_ANSWER)
            self._rows.answer(self._sid, self.epoch, request, answer.decode())

    def _on_fenced(self) -> None:
        """Tell the session if another owner took it. Raises `SnapshotError` if the database does not say so."""
        if self._rows.is_overtaken(self._sid, self.epoch, self._taken.before):
            told, self._overtaken = self._overtaken, lambda: None
            told()

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except Fenced:
            with contextlib.suppress(SnapshotError):  # the next renewal asks again
                self._on_fenced()
            raise

    def _opened(self, taken: Taken) -> tuple[Record, ...]:
        """The records up to the first that is missing or does not open; later ones are set aside."""
        records: list[Record] = []
        for n, body in taken.records:
            try:
                records.append(self._record(n, body, records[-1].n if records else n - 1))
            except Damaged as error:
                self._last = records[-1].n if records else n - 1
                aside = self._rows.set_aside(self._sid, first=n, last=self._last)
                self.damage = f"{error.message}; kept as {aside}"
                break
        return tuple(records)

    def _record(self, n: int, body: bytes, before: int) -> Record:
        if n != before + 1:
            raise SnapshotCorrupted(f"record {before + 1} of the spool is missing", session_id=self._session_id)
        return Record(n, self._sealing.open(n, body))

    @property
    def is_fenced(self) -> bool:
        """See `Hold`. Queries the database; False while it does not answer. Tells who watches of a takeover."""
        try:
            if self._is_over:
                return True
            if self._rows.is_current(self._sid, self.epoch):
                return False
            self._on_fenced()
        except SnapshotError:
            return False
        return True

    @property
    def last(self) -> int:
        """See `Hold`."""
        return self._last

    def append(self, records: Sequence[Mapping[str, Any]]) -> int:
        """See `Hold`. Numbers that may have been written before the connection broke are not reused."""
        bodies = [encoded(record, self._session_id) for record in records]
        with self._lock:
            self._must_be_held()
            if not bodies:
                return self._last
            numbered = [(n, self._sealing.seal(n, body)) for n, body in enumerate(bodies, self._last + 1)]
            try:
                with self._telling():
                    self._rows.append(self._sid, self.epoch, self._last, numbered)
            except LostConnection:
                self._last = numbered[-1][0]
                raise
            self._last = numbered[-1][0]
            self._unsynced = True
            return self._last

    def _must_be_held(self) -> None:
        if self._is_over:
            raise StoreUnavailable(
                f"session {self._session_id!r} was released", session_id=self._session_id, hint="take it again"
            )

    def flush(self) -> None:
        """See `Hold`."""
        unsynced, self._unsynced = self._unsynced, False
        try:
            with self._telling():
                self._rows.flush(self._sid, self.epoch)
        except BaseException:
            self._unsynced |= unsynced  # `append` may have set it meanwhile
            raise

    def unsaved(self, after: int) -> Sequence[Record]:
        """See `Hold`."""
        return unsaved(self._found, after, self._session_id)

    def truncate(self, upto: int) -> None:
        """See `Hold`."""
        with self._lock, self._telling():
            self._must_be_held()
            if upto > self._last or not self._rows.are_dropped(self._sid, self.epoch, upto):
                self._rows.truncate(self._sid, self.epoch, upto)
            self._last = max(self._last, upto)
            self._found = ()
            if self._sealing.keys is not None:  # the key may have been rotated since
                self._sealing.keys = self._keys_of(self._session_id) or self._sealing.keys

    def set_aside(self, after: int) -> str | None:
        """See `Hold`."""
        with self._lock:
            self._last = max(after, self._last)
            aside = self._rows.set_aside(self._sid, first=0, last=self._last)
            self._rows.begin_after(self._sid, self._last)
            self._found = ()
        return aside

    def release(self) -> None:
        """See `Hold`."""
        self._end(None)

    def hand_back(self) -> None:
        """See `Hold`."""
        self._end(self._previous)

    def _end(self, previous: str | None) -> None:
        """Release the session. If the database does not answer, the lease expires."""
        with self._lock:
            is_over, self._is_over = self._is_over, True
        if is_over:
            return
        self._rows.let_go(self._sid, self.epoch)
        with contextlib.suppress(SnapshotError):
            if self._unsynced:
                self._rows.flush(self._sid, self.epoch)
        with contextlib.suppress(SnapshotError):
            self._rows.release(self._sid, self.epoch, previous)


def _owner(text: str) -> Owner:
    try:
        return Owner.model_validate_json(text)
    except ValidationError:
        return Owner(pid=0, host="unknown", since=datetime.now(UTC))


def _locked(session_id: str, held: Held) -> SessionLocked:
    seconds = max(1, round(held.seconds))
    return SessionLocked(
        f"session {session_id!r} belongs to {_owner(held.owner)}",
        session_id=session_id,
        hint=f"stop that process, or fork the session; if it died, its lease ends in {seconds} s",
    )
