"""The ledgers of all sessions in a bucket, and the objects they name: looking, and changing by compare-and-swap.

There is no lock. Inside `exclusively` a writer sees one version of the ledger, and its changes are one conditional
write that replaces exactly that version. `docs/decisions/2026-11-16-object-stores.md` shows why a stalled writer
cannot undo acknowledged saves of others.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from weakref import WeakValueDictionary

from snapshot_plugin.errors import (
    Damaged,
    InvalidInput,
    InvalidSnapshotVersion,
    SessionLocked,
    SnapshotCorrupted,
    SnapshotError,
)
from snapshot_plugin.model.ids import dirname_of, new_id, session_id_of
from snapshot_plugin.store.bucket import Bucket, ObjectMoved, Stored, many_at_once
from snapshot_plugin.store.ledger import Ledger, LedgerPart
from snapshot_plugin.store.ledger_index import LedgerIndex
from snapshot_plugin.store.log import Segment, Tip, tip_of
from snapshot_plugin.store.marker import MARKER, without_marker
from snapshot_plugin.store.recent import Recent
from snapshot_plugin.system import forks

__all__ = ["Ledgers", "PartReader", "Seen", "busy", "frames_path", "unique_name"]

_ATTEMPTS = 20
_KNOWN = 256
_MADE, _LARGEST_MADE = 64, 256 << 10
"""How many objects made by this process are cached, and up to which size, so that merging them reads none."""
_RACERS = 8
_TAG_ATTEMPTS = 12


class PartReader:
    """Reads a part, as `Segment` wants it. Readers of equal parts are equal: objects never change."""

    def __init__(self, log: Ledgers, session_id: str, part: LedgerPart) -> None:
        self._log, self._session_id, self.part = log, session_id, part

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartReader) and self.part == other.part

    def __hash__(self) -> int:
        return hash(self.part.name)

    def __call__(self) -> bytes:
        """The bytes, or `FileNotFoundError`."""
        return self._log.content(self._session_id, self.part)


class Seen:
    """A ledger as it was found or written, with the tag of that version (None: there is no such object)."""

    def __init__(
        self, log: Ledgers, session_id: str, ledger: Ledger, tag: str | None, listed_tag: str = ""
    ) -> None:
        self._log, self._session_id = log, session_id
        self.ledger, self.tag, self.listed_tag = ledger, tag, listed_tag
        self._tips: list[Tip | None] = []

    @property
    def segments(self) -> list[Segment]:
        """Its parts, as the store reads them."""
        return self._log.as_segments(self._session_id, self.ledger.parts)

    @property
    def tip(self) -> Tip | None:
        """See `FrameLog.tip`; looked for once."""
        if not self._tips:
            self._tips = [tip_of(self.segments)]
        return self._tips[0]


class Ledgers:
    """The ledgers of the sessions in a bucket, and the only way to change them."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._locks: WeakValueDictionary[str, threading.RLock] = WeakValueDictionary()
        self._locking = forks.lock()
        self._checking = forks.lock()
        self._own: dict[str, Seen] = {}
        self._thread = threading.local()
        self._index = LedgerIndex(bucket)
        self._made: Recent[bytes] = Recent(_MADE)

    # Looking ---------------------------------------------------------------------------------------------

    @property
    def _pins(self) -> dict[str, Seen | None]:
        """The sessions this thread works on exclusively, each with the version of the ledger that it sees."""
        pins: dict[str, Seen | None] = self._thread.__dict__.setdefault("pins", {})
        return pins

    @contextlib.contextmanager
    def exclusively(self, session_id: str) -> Iterator[None]:
        """See `FrameLog`. Other machines are not locked out; their writes make ours fail."""
        with self._locking:
            lock = self._locks.setdefault(session_id, forks.rlock())  # gone with its last user
        with lock:  # threads of this process run one at a time
            self._pins[session_id] = None
            try:
                yield
            finally:
                del self._pins[session_id]

    def _look(self, session_id: str) -> Seen:
        seen = self._pins.get(session_id) or self._fetch(session_id)
        if session_id in self._pins:
            self._pins[session_id] = seen
        return seen

    def _fetch(self, session_id: str) -> Seen:
        stored = self._bucket.get(f"sessions/{dirname_of(session_id)}")
        ledger = Ledger.decoded(stored.data, session_id) if stored else Ledger()
        own = self._own.get(session_id)
        if own and own.ledger.ids != ledger.ids:  # others have written since
            self._own.pop(session_id, None)
        return Seen(self, session_id, ledger, *(stored[1:] if stored else (None,)))

    def _doubt(self, session_id: str) -> None:
        """Drop what is cached of this session, because it is out of date."""
        self._own.pop(session_id, None)
        if session_id in self._pins:
            self._pins[session_id] = None

    def as_segments(self, session_id: str, parts: Sequence[LedgerPart]) -> list[Segment]:
        """Parts as the store reads them."""
        return [
            Segment(part.name, part.first, part.last, part.rewritten, PartReader(self, session_id, part))
            for part in parts
        ]

    def content(self, session_id: str, part: LedgerPart) -> bytes:
        """The bytes of a part; `FileNotFoundError` if it was replaced since.

        Inside `exclusively`, the caller sees one version to the end, because a decision about an old version must
        not be applied to a new one. `SessionLocked` asks the caller to retry.
        """
        if not part.object:
            return part.data
        if self._trusts_memory and (made := self._made.get(part.object)) is not None:
            return made
        stored = self._bucket.get(frames_path(session_id, part.object))
        if stored is None:
            if session_id in self._pins:
                raise busy(session_id)
            self._doubt(session_id)
            raise FileNotFoundError(part.object)
        return stored.data

    @contextlib.contextmanager
    def trusting_memory(self) -> Iterator[None]:
        """Use cached objects in this thread instead of reading them. Not for a check, which must read."""
        self._thread.trusts_memory = True
        try:
            yield
        finally:
            self._thread.trusts_memory = False

    @property
    def _trusts_memory(self) -> bool:
        return getattr(self._thread, "trusts_memory", False)

    def _with_trash(self) -> list[tuple[str, Seen]]:
        """The ledgers that may have something in the trash."""
        tags = self._bucket.tags("sessions")
        known = self._index.read(tags)
        return self._everything([name for name in tags if name not in known or known[name].has_trash])

    def _everything(self, names: Sequence[str] | None = None) -> list[tuple[str, Seen]]:
        def look(name: str) -> tuple[str, Seen] | None:
            with contextlib.suppress(Damaged, InvalidSnapshotVersion):  # `check` reports those
                session_id = session_id_of(name)
                return (session_id, self._fetch(session_id)) if session_id else None
            return None

        names = self._bucket.names("sessions") if names is None else names
        return [each for each in many_at_once(look, names) if each]

    # Changing --------------------------------------------------------------------------------------------

    def _change(self, session_id: str, edit: Callable[[Seen], Ledger]) -> Ledger:
        """Replace the ledger by the result of *edit*, conditional on the version it was made from.

        Durable on return.

        If another writer was faster, *edit* gets the newer version; it raises if its change no longer applies. The
        objects it makes are new for each version: `purge` relies on that. `FileNotFoundError` if others removed an
        object it reads: the caller starts over.
        """
        self.make_sure_that_conditions_count()
        try:
            seen = self._look(session_id)
            for _ in range(_ATTEMPTS):
                ledger = edit(seen).written_as(new_id())
                now = self._swapped(session_id, seen, ledger)
                if ledger.ids[-1] in now.ledger.ids:
                    self._written(session_id, now, is_last=now.ledger.ids == ledger.ids)
                    self._remove(session_id, seen.ledger.objects() - now.ledger.objects())
                    return ledger
                self._remove(session_id, ledger.objects() - seen.ledger.objects() - now.ledger.objects())
                seen = now
        except BaseException:
            self._doubt(session_id)
            raise
        raise busy(session_id)

    def _swapped(self, session_id: str, seen: Seen, ledger: Ledger) -> Seen:
        """The current ledger: *ledger*, unless another writer was faster."""
        try:
            tag = self._bucket.put(f"sessions/{dirname_of(session_id)}", ledger.encoded(), tag=seen.tag)
        except ObjectMoved:
            return self._fetch(session_id)
        return Seen(self, session_id, ledger, tag)

    def _written(self, session_id: str, seen: Seen, *, is_last: bool) -> None:
        if not is_last:  # another writer has built on it already
            self._doubt(session_id)
            return
        self._own.pop(session_id, None)
        self._own[session_id] = seen
        for oldest in list(self._own)[:-_KNOWN]:
            self._own.pop(oldest, None)
        if session_id in self._pins:
            self._pins[session_id] = seen

    def _remove(self, session_id: str, objects: set[str]) -> None:
        with contextlib.suppress(SnapshotError):  # no ledger refers to them; `purge` removes leftovers
            self._bucket.delete([frames_path(session_id, name) for name in sorted(objects)])

    def make_sure_that_conditions_count(self) -> None:
        """Check that the service honours conditions; otherwise writers would silently overwrite each other."""
        if not self._bucket.is_conditional:
            with self._checking:  # each check changes the version that another one has seen
                if not self._bucket.is_conditional:
                    self._check_conditions()

    def _check_conditions(self) -> None:
        marker = self._marker()
        for tag in (None, self._bucket.wrong_tag):
            try:
                self._bucket.put(MARKER, marker.data, tag=tag)
            except ObjectMoved:
                continue
            raise unconditional(self._bucket.name, "ignores conditional writes")
        self._find_out_about_tags()
        self.race()
        self._bucket.is_conditional = True

    def _find_out_about_tags(self) -> None:
        """Make sure that the right tag is accepted. Some services want it without its quotation marks."""
        marker = self._marker()
        for _ in range(_TAG_ATTEMPTS):
            try:
                self._bucket.put(MARKER, marker.data, tag=marker.tag)
            except ObjectMoved:
                before, marker = marker.tag, self._marker()
            else:
                return
            if marker.tag == before:  # no other process was faster: the tag is refused in this form
                self._bucket.bare_tags = not self._bucket.bare_tags
        raise unconditional(self._bucket.name, "refuses to change an object whose tag is right")

    def _marker(self) -> Stored:
        marker = self._bucket.get(MARKER)
        if marker is None:
            raise without_marker(self._bucket.name)
        return marker

    def race(self) -> None:
        """Unless that was done before, let eight writers create one object concurrently.

        Raises:
            InvalidInput: more than one succeeded: writers would overwrite each other.
        """
        if self._bucket.is_atomic:
            return
        path = f"probe/{new_id()}"

        def wins(number: str) -> bool:
            try:
                self._bucket.put(path, number.encode(), tag=None)
            except ObjectMoved:
                return False
            return True

        winners = sum(many_at_once(wins, [f"{number}" for number in range(_RACERS)]))
        with contextlib.suppress(SnapshotError):
            self._bucket.delete([path])
        if winners > 1:
            raise unconditional(self._bucket.name, f"let {winners} writers of {_RACERS} make the same object")
        self._bucket.is_atomic = True

    def _moved_out(self, session_id: str, parts: Sequence[LedgerPart]) -> list[LedgerPart]:
        """The same parts, each in an object of its own."""
        return [
            part._replace(object=self._put(session_id, part.first, part.data), data=b"") if part.data else part
            for part in parts
        ]

    def _put(self, session_id: str, first: int, data: bytes) -> str:
        name = f"{unique_name(first)}.snap.gz"
        self._put_new(frames_path(session_id, name), data)
        if len(data) <= _LARGEST_MADE:
            self._made.put(name, data)
        return name

    def _put_new(self, path: str, data: bytes) -> None:
        try:
            self._bucket.put(path, data, tag=None)
        except ObjectMoved:  # the name is unique: a response was lost
            stored = self._bucket.get(path)
            if stored is None:  # and `purge` took it for a leftover
                raise FileNotFoundError(path) from None
            if stored.data != data:
                raise SnapshotCorrupted(f"{path} does not read back as it was written") from None


def unconditional(name: str, why: str) -> InvalidInput:
    """The error of a service that cannot keep writers apart."""
    return InvalidInput(
        f"{name} cannot hold snapshots: its service {why}",
        hint="use a service that honours If-None-Match and If-Match when an object is put",
    )


def unique_name(first: int) -> str:
    """A new, unique name for frames from number *first* on."""
    return f"{first:010d}-{new_id()}"


def frames_path(session_id: str, name: str) -> str:
    """Where an object with frames of a session is."""
    return f"frames/{dirname_of(session_id)}/{name}"


def busy(session_id: str) -> SessionLocked:
    """The error of a writer whose change no longer applies after concurrent writes."""
    return SessionLocked(
        f"another writer is changing session {session_id}", session_id=session_id, hint="try again in a moment"
    )
