"""The operations of a store, as synchronous functions over a `FrameLog`.

Two faces call it: `LogStore` (asyncio, trio) and `SyncStore` (threads). Both make sure that calls for one session
run one at a time; nothing here takes a turn or hops to a thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from snapshot_plugin.codec.frame import Header, encode_frame
from snapshot_plugin.errors import (
    Conflict,
    InvalidInput,
    InvalidSnapshot,
    SnapshotCorrupted,
    SnapshotNotFound,
)
from snapshot_plugin.model.ids import check_number, check_session_id, new_id
from snapshot_plugin.model.meta import LoadedFrom, SnapshotMeta, SnapshotRef
from snapshot_plugin.model.policy import Decision, RetentionPolicy, plan
from snapshot_plugin.model.snapshot import CURRENT_VERSION, SessionSnapshot, upto_of, with_origin
from snapshot_plugin.model.times import as_utc, rfc3339
from snapshot_plugin.store import check, copies, rewrite, transfer, trash
from snapshot_plugin.store.arguments import check_kind, checked_labels, checked_numbers, not_text
from snapshot_plugin.store.base import GRACE, CheckReport, Finding, ForgetResult, StoredSnapshot, Trashed
from snapshot_plugin.store.listing import listed, meta_of, with_labels
from snapshot_plugin.store.log import Tip, check_end
from snapshot_plugin.store.salvage import SALVAGED
from snapshot_plugin.store.transfer import Copied
from snapshot_plugin.store.views import Page, StoredLines, Views
from snapshot_plugin.store.walk import warn_of
from snapshot_plugin.store.writer import SessionWriter, Writers

if TYPE_CHECKING:
    from snapshot_plugin.store.engine import LogStore

__all__ = ["StoreCore"]

_AT_ONCE = 8
_SPARE = 512
"""Bytes that the header of a new frame leaves, so that everything accepted can also be rewritten."""
_NO_LABELS: Mapping[str, str] = MappingProxyType({})


class _About(NamedTuple):
    """What a caller gives with a snapshot: trigger, tags, labels."""

    trigger: str
    tags: tuple[str, ...]
    labels: Mapping[str, str]


class StoreCore:
    """The work of a store. Method names and promises are those of `SnapshotStore`."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._log = store.frames
        self._author = new_id()
        self._writers = Writers(store.frames, store.session_keys, store.place_id, limit=store.limits.heads)
        self.repairs = check.Repairs(
            store, self._writers, lambda snapshot: self.save(snapshot, trigger="salvage", tags=(SALVAGED,))
        )
        self.begin()

    def begin(self) -> None:
        """Start without cached sessions: initially, and in a forked child."""
        store = self._store
        self._views = Views(store.frames, store.session_keys, cache_bytes=store.limits.page_bytes)
        self._writers.begin()

    # Saving ----------------------------------------------------------------------------------------------

    def save(
        self,
        snapshot: SessionSnapshot,
        *,
        trigger: str = "manual",
        tags: Sequence[str] = (),
        base: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> SnapshotRef:
        """Append the change to *snapshot*; durable on return."""
        session_id = snapshot.session_id
        labels = _NO_LABELS if labels is None else labels
        if snapshot.version != CURRENT_VERSION:
            raise InvalidSnapshot(
                f"session {session_id} is given with version {snapshot.version}, not {CURRENT_VERSION}",
                session_id=session_id, hint="migrate it with snapshot_plugin.migrate first",
            )  # fmt: skip
        if isinstance(tags, str) or not isinstance(tags, Iterable):
            raise not_text(session_id, tags)
        if not isinstance(labels, Mapping):
            raise not_text(session_id, labels)
        if base is not None:
            check_number("base", base)
        about = _About(trigger, tuple(tags), labels)
        for word in (trigger, *about.tags, *labels, *labels.values()):
            if not isinstance(word, str):
                raise not_text(session_id, word)
        try:
            return self._save(self._writers.base(snapshot, base), snapshot, about)
        except Conflict:
            self._writers.drop(session_id)
            writer = None if base is not None else self._writers.at_origin(snapshot)
            if writer is None:
                raise
            return self._save(writer, snapshot, about)

    def _save(self, writer: SessionWriter, snapshot: SessionSnapshot, about: _About) -> SnapshotRef:
        session_id, store = snapshot.session_id, self._store
        step = writer.step_to(snapshot)
        written = step.changed or bool(about.tags or about.labels) or self._confirm(writer, session_id)
        notices: tuple[str, ...] = ()
        if written:
            at, delete, insert = step.splice
            header = Header(
                v=CURRENT_VERSION, id=new_id(), sid=session_id, lo=writer.seq + 1,
                hi=writer.tip.seq + 1 if writer.tip else 1, root=step.root, prev=writer.root,
                at=at, delete=delete, insert=insert, full=step.full, t=rfc3339(store.clock()), w=self._author,
                trigger=about.trigger, tags=about.tags,
                other={"labels": dict(about.labels)} if about.labels else {},
            )  # fmt: skip
            keys = store.session_keys(session_id)
            frame = encode_frame(header, step.payload, keys, effort=store.effort, spare=_SPARE)
            finished = self._append(writer, snapshot, header, frame)
            writer.accept(step, seq=header.hi, frame_id=header.id, size_bytes=len(frame))
            if finished:
                store.segment_finished(session_id)
            notices = (*store.limits.notices(step), *snapshot.notices)
        self._writers.accepted(session_id, writer)
        return SnapshotRef(
            session_id=session_id, seq=writer.seq, root=writer.root, size_bytes=writer.size_bytes,
            written=written, notices=notices,
        )  # fmt: skip

    def _append(self, writer: SessionWriter, snapshot: SessionSnapshot, header: Header, frame: bytes) -> bool:
        """Append *frame* where *writer* expects the end of the log; returns whether a segment was finished."""
        session_id, refused = snapshot.session_id, frozenset(writer.refused)
        to_read_back = bool(header.tags or snapshot.pinned)
        with self._log.exclusively(session_id):
            if to_read_back:  # a log may commit an append that comes first, and others could then write before us
                self._confirm(writer, session_id)
            writer.refused.add(header.id)
            try:
                finished = self._log.append(
                    session_id, frame, header, after=writer.tip, refused=refused,
                    fresh=writer.after_damage or bool(refused), covered=upto_of(snapshot),
                )  # fmt: skip
            except Conflict:  # nothing was written
                writer.refused.discard(header.id)
                raise
            if to_read_back:
                self._read_back(session_id, frame)
        return finished

    def _read_back(self, session_id: str, frame: bytes) -> None:
        """Read back a pinned or tagged snapshot immediately, because people rely on it (before a deploy)."""
        if self._log.tail(session_id) != frame:
            raise SnapshotCorrupted(
                f"the snapshot of session {session_id} does not read back as it was written",
                session_id=session_id, hint="save it again; asnap check names what else is damaged",
            )  # fmt: skip

    def _confirm(self, writer: SessionWriter, session_id: str) -> bool:
        """Check that nothing was appended since. Returns True if the only newer frame is our own failed save."""
        tip = self._log.tip(session_id)
        check_end(session_id, tip, writer.tip, writer.refused)
        return tip is not None and tip.id in writer.refused

    # Loading ---------------------------------------------------------------------------------------------

    def load(self, session_id: str, *, at: int | None = None, strict: bool = False) -> SessionSnapshot:
        """The snapshot alone."""
        return self.read(session_id, at=at, strict=strict).snapshot

    def read(self, session_id: str, *, at: int | None = None, strict: bool = False) -> StoredSnapshot:
        """Rebuild a snapshot."""
        check_number("at", at)
        known = self._views.take_found(session_id) if at is None else None
        found, snapshot = self._writers.load(session_id, at, strict=strict, known=known)
        warn_of(found, session_id)
        header, size = found.header, found.size_bytes
        return StoredSnapshot(
            snapshot=snapshot,
            ref=SnapshotRef(session_id=session_id, seq=header.hi, root=header.root, size_bytes=size, written=False),
            meta=meta_of(header, found.document.summary(), size),
            skipped=found.skipped,
        )

    def tip(self, session_id: str) -> Tip | None:
        """The end of the log."""
        return self._log.tip(session_id)

    def saved_tip(self, session_id: str) -> Tip | None:
        """The frame of this object's last save."""
        return self._writers.saved(session_id)

    def page(self, session_id: str, *, at: int | None = None, start: int | None = None, count: int = 50) -> Page:
        """Some messages of a snapshot."""
        check_number("at", at)
        return self._views.page(session_id, at, start, count)

    def lines(self, session_id: str, *, at: int | None = None) -> StoredLines:
        """A snapshot without its messages, and those as stored lines."""
        check_number("at", at)
        return self._views.lines(session_id, at)

    def section(self, session_id: str, *path: str, at: int | None = None) -> Any:
        """One section alone."""
        check_number("at", at)
        for name in path:
            check_kind("path", name, str)
        return self._views.section(session_id, path, at)

    def walk(self, session_id: str, seqs: Sequence[int]) -> Sequence[SessionSnapshot]:
        """Several snapshots that share their messages."""
        place, found = self._store.place_id(), self._views.walk(session_id, checked_numbers(seqs))
        return [with_origin(each, LoadedFrom(session_id, seq, id_, place)) for seq, id_, each in found]

    def list(self, *, labels: Mapping[str, str] | None = None) -> Sequence[SnapshotMeta]:
        """Every session's newest snapshot."""
        wanted = checked_labels({} if labels is None else labels)
        return with_labels(listed(self._log, self._store.session_keys, wanted), wanted)

    def newest(self, session_id: str) -> SnapshotMeta | None:
        """One session as a list shows it."""
        found = listed(self._log, self._store.session_keys, only=check_session_id(session_id))
        return found[0] if found else None

    def history(self, session_id: str, *, labels: Mapping[str, str] | None = None) -> Sequence[SnapshotMeta]:
        """Every snapshot of one session, newest first."""
        metas = check.history(self._log, session_id, self._store.session_keys(session_id))
        if not metas:
            raise SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)
        return with_labels(metas[::-1], checked_labels({} if labels is None else labels))

    # Removing --------------------------------------------------------------------------------------------

    def delete(self, session_id: str, *, purge: bool = False) -> Trashed:
        """Move the session to the trash, or remove it for ever."""
        self._must_exist(session_id)
        self._store.guard(session_id)
        with self._log.exclusively(session_id):
            self._must_exist(session_id)  # of several concurrent deletes, one succeeds
            trashed = trash.discard(self._log, session_id, token=new_id(), now=self._store.clock())
        self._writers.forget(session_id)
        if purge:
            trash.purge(self._log, older_than=timedelta(0), now=self._store.clock(), only=trashed.token)
        return trashed

    def _must_exist(self, session_id: str) -> None:
        if not self._log.segments(session_id):
            raise SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)

    def trash(self) -> Sequence[Trashed]:
        """What can be brought back."""
        return trash.trashed(self._log)

    def undelete(self, token: str, *, session_id: str | None = None) -> str:
        """Bring a session back, under its own id or another."""
        check_kind("token", token, str)
        trashed = next((each for each in trash.trashed(self._log) if each.token == token), None)
        if trashed is None:
            raise SnapshotNotFound(
                f"nothing in the trash has the token {token}", hint="list the trash to see what can be restored"
            )
        if session_id is None or session_id == trashed.session_id:
            with self._log.exclusively(trashed.session_id):
                return trash.undelete(self._log, token)
        copies = transfer.copies_in_trash(self._log, trashed, self._store.session_keys(trashed.session_id))
        self.put_in(session_id, copies)
        trash.purge(self._log, older_than=timedelta(0), now=self._store.clock(), only=token)
        return session_id

    def purge(self, *, older_than: timedelta = GRACE, now: datetime | None = None) -> Sequence[Trashed]:
        """Permanently remove sessions deleted longer ago than that."""
        check_kind("older_than", older_than, timedelta)
        check_kind("now", now, datetime, optional=True)
        return trash.purge(self._log, older_than=older_than, now=as_utc(now) if now else self._store.clock())

    def forget(
        self,
        session_id: str,
        policy: RetentionPolicy | None = None,
        *,
        seqs: Collection[int] = (),
        dry_run: bool = False,
    ) -> ForgetResult:
        """Drop the snapshots that the policy does not keep, or the given ones."""
        check_kind("policy", policy, RetentionPolicy, optional=True)
        named = frozenset(checked_numbers(seqs))
        self._must_exist(session_id)
        # Decided under the lock: a moment later another session of that name may have the same numbers.
        with contextlib.nullcontext() if dry_run else self._log.exclusively(session_id):
            history = self.history(session_id)
            decisions = plan(history, policy, self._store.clock()) if policy else _named(history, named)
            result = ForgetResult(session_id=session_id, decisions=decisions, dry_run=dry_run)
            if result.forgotten and not dry_run:
                keys = self._store.session_keys(session_id)
                rewrite.forget(self._log, session_id, keys, set(result.forgotten))
        return result

    def drop(self, session_id: str, seqs: Collection[int]) -> Trashed:
        """Drop these snapshots, with a copy of the session in the trash."""
        gone = frozenset(checked_numbers(seqs))
        self._must_exist(session_id)
        with self._log.exclusively(session_id):
            keys, now = self._store.session_keys(session_id), self._store.clock()
            return copies.drop(self._log, session_id, keys, gone, token=new_id(), now=now)

    def undrop(self, session_id: str, token: str) -> Sequence[int]:
        """Bring dropped snapshots back."""
        self._must_exist(session_id)
        with self._log.exclusively(session_id):
            keys = self._store.session_keys(session_id)
            return copies.undrop(self._log, session_id, keys, trash.trashed_segments(self._log, token))

    # Caring ----------------------------------------------------------------------------------------------

    def check(self, session_id: str | None = None) -> CheckReport:
        """Verify one session, or all."""
        entries = self._log.sessions(None if session_id is None else check_session_id(session_id))
        if session_id is not None and not entries:
            raise SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)
        inspect = partial(check.inspect, self._log, keys_of=self._store.session_keys)
        if not self._store.capabilities.several_machines:
            return check.combine(map(inspect, entries))
        with ThreadPoolExecutor(_AT_ONCE, "asnap-check") as threads:  # each call waits for the network
            return check.combine(threads.map(inspect, entries))

    def quarantined(self, session_id: str | None = None) -> Sequence[Finding]:
        """What repairs set aside."""
        return check.quarantined(self._log, None if session_id is None else check_session_id(session_id))

    def salvage(self, session_id: str) -> SnapshotRef | None:
        """Rebuild a damaged session as a new snapshot."""
        return self.repairs.salvage(session_id)

    def trashed_labels(self, entry: Trashed) -> Mapping[str, str]:
        """The labels of the newest snapshot of a session in the trash."""
        keys = self._store.session_keys(entry.session_id)
        labels: Mapping[str, str] = (
            transfer.copies_in_trash(self._log, entry, keys)[-1].header.other.get("labels") or {}
        )
        return labels

    def compact(self, session_id: str, *, newest_too: bool = True) -> None:
        """Compress a session again, and seal it with the primary key."""
        rewrite.recompress(self._log, session_id, self._store.session_keys(session_id), newest_too=newest_too)

    # Moving ----------------------------------------------------------------------------------------------

    def take_out(self, session_id: str) -> Sequence[Copied]:
        """A whole session, in the clear."""
        return transfer.take_out(self._log, session_id, self._store.session_keys(session_id))

    def put_in(self, session_id: str, copies: Sequence[Copied], *, instead_of: Sequence[Copied] = ()) -> None:
        """A whole session from elsewhere."""
        keys = self._store.session_keys(session_id)
        transfer.put_in(self._log, session_id, keys, copies, instead_of=instead_of)
        self._writers.forget(session_id)


def _named(history: Sequence[SnapshotMeta], seqs: frozenset[int]) -> tuple[Decision, ...]:
    numbers = [meta.seq for meta in history]
    if not seqs or not seqs <= set(numbers[1:]):
        raise InvalidInput(
            f"snapshots {sorted(seqs)} cannot be forgotten: the session has {numbers[::-1]}, and the newest stays",
            session_id=history[0].session_id, hint="read its history again",
        )  # fmt: skip
    return tuple(Decision(seq=seq, keep=seq not in seqs) for seq in numbers)
