"""What a store does, as plain synchronous functions over a `FrameLog`.

Two faces call it: `LogStore` (asyncio, trio) and `SyncStore` (threads). Both make sure that calls for one session
run one at a time; nothing here takes a turn or hops to a thread.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from snapshot_plugin.codec.frame import Header, encode_frame
from snapshot_plugin.errors import InvalidSnapshot, SnapshotNotFound
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.model.meta import SnapshotMeta, SnapshotRef
from snapshot_plugin.model.policy import RetentionPolicy, plan
from snapshot_plugin.model.snapshot import CURRENT_VERSION, SessionSnapshot
from snapshot_plugin.model.times import as_utc, rfc3339
from snapshot_plugin.store import check, copies, rewrite, transfer
from snapshot_plugin.store.base import CheckReport, ForgetResult, StoredSnapshot, Trashed
from snapshot_plugin.store.head import Head, Step
from snapshot_plugin.store.heads import Heads, overtaken
from snapshot_plugin.store.listing import listed, meta_of
from snapshot_plugin.store.transfer import Copied

if TYPE_CHECKING:
    from snapshot_plugin.store.engine import LogStore

__all__ = ["StoreCore"]

log = logging.getLogger("snapshot_plugin.store")


class StoreCore:
    """The work of a store. Method names and promises are those of `SnapshotStore`."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._log = store.frames
        self._writer = new_id()
        self._heads = Heads(store.frames, store.session_keys, limit=store.limits.heads)

    # Saving ----------------------------------------------------------------------------------------------

    def save(self, snapshot: SessionSnapshot, trigger: str, tags: tuple[str, ...], base: int | None) -> SnapshotRef:
        """Append the change to *snapshot*; durable on return."""
        session_id = snapshot.session_id
        if snapshot.version != CURRENT_VERSION:
            raise InvalidSnapshot(
                f"session {session_id} is given with version {snapshot.version}, not {CURRENT_VERSION}",
                session_id=session_id, hint="bring it up to date with snapshot_plugin.migrate first",
            )  # fmt: skip
        head = self._heads.base(session_id, base)
        step = head.step_to(snapshot)
        if not step.changed and not tags and not self._confirm(head, session_id):
            return _ref(head, session_id, written=False)
        header = self._header(head, step, session_id, trigger, tags)
        frame = encode_frame(header, step.payload, self._store.session_keys(session_id))
        with self._log.exclusively(session_id):
            self._confirm(head, session_id)
            fresh = head.after_damage or bool(head.refused)
            head.refused.add(header.id)
            finished = self._log.append(session_id, frame, header, fresh=fresh)
        head.accept(step, seq=header.hi, frame_id=header.id, size_bytes=len(frame))
        self._heads.accepted(session_id, head)
        if finished:
            self._store.segment_finished(session_id)
        return _ref(head, session_id, notices=self._store.limits.notices(step))

    def _header(self, head: Head, step: Step, session_id: str, trigger: str, tags: tuple[str, ...]) -> Header:
        seq = head.tip.seq + 1 if head.tip else 1
        return Header(
            v=CURRENT_VERSION, id=new_id(), sid=session_id, lo=head.seq + 1, hi=seq, root=step.root, prev=head.root,
            at=step.splice.at, delete=step.splice.delete, insert=step.splice.insert, full=step.full,
            t=rfc3339(self._store.clock()), w=self._writer, trigger=trigger, tags=tags,
        )  # fmt: skip

    def _confirm(self, head: Head, session_id: str) -> bool:
        """Check that nothing was appended since. Returns True if the only newer frame is our own failed save."""
        tip = self._log.tip(session_id)
        is_ours = tip is not None and tip.id in head.refused
        if tip != head.tip and not is_ours:
            raise overtaken(session_id, tip)
        return is_ours

    # Loading ---------------------------------------------------------------------------------------------

    def load(self, session_id: str, at: int | None, strict: bool) -> SessionSnapshot:
        """The snapshot alone."""
        return self.read(session_id, at, strict).snapshot

    def read(self, session_id: str, at: int | None, strict: bool) -> StoredSnapshot:
        """Put a snapshot together."""
        found, snapshot = self._heads.load(session_id, at, strict=strict)
        for finding in found.skipped:
            log.warning("session %s: skipped damage in %s: %s", session_id, finding.file, finding.detail)
        header, size = found.header, found.size_bytes
        return StoredSnapshot(
            snapshot=snapshot,
            ref=SnapshotRef(session_id=session_id, seq=header.hi, root=header.root, size_bytes=size, written=False),
            meta=meta_of(header, found.document.summary(), size),
            skipped=found.skipped,
        )

    def list(self) -> Sequence[SnapshotMeta]:
        """Every session's newest snapshot."""
        return listed(self._log, self._store.session_keys)

    def history(self, session_id: str) -> Sequence[SnapshotMeta]:
        """Every snapshot of one session, newest first."""
        metas = check.history(self._log, session_id, self._store.session_keys(session_id))
        if not metas:
            raise SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)
        return metas[::-1]

    # Removing --------------------------------------------------------------------------------------------

    def delete(self, session_id: str) -> Trashed:
        """Move the session to the trash."""
        self._must_exist(session_id)
        with self._log.exclusively(session_id):
            self._must_exist(session_id)  # of several who delete it at once, one does
            trashed = self._log.discard(session_id, token=new_id(), now=self._store.clock())
        self._heads.forget(session_id)
        return trashed

    def _must_exist(self, session_id: str) -> None:
        if not self._log.segments(session_id):
            raise SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)

    def trash(self) -> Sequence[Trashed]:
        """What can be brought back."""
        return self._log.trash()

    def undelete(self, token: str) -> str:
        """Bring a session back."""
        for trashed in self._log.trash():
            if trashed.token == token:
                with self._log.exclusively(trashed.session_id):
                    return self._log.undelete(token)
        raise SnapshotNotFound(
            f"nothing in the trash has the token {token}", hint="list what is there with trash()"
        )

    def purge(self, older_than: timedelta, now: datetime | None) -> Sequence[Trashed]:
        """Remove for ever what was deleted longer ago than that."""
        return self._log.purge(older_than=older_than, now=as_utc(now) if now else self._store.clock())

    def forget(self, session_id: str, policy: RetentionPolicy, dry_run: bool) -> ForgetResult:
        """Drop what the policy does not keep."""
        self._must_exist(session_id)
        # Decided under the lock: a moment later another session of that name may have the same numbers.
        with contextlib.nullcontext() if dry_run else self._log.exclusively(session_id):
            decisions = plan(self.history(session_id), policy, self._store.clock())
            result = ForgetResult(session_id=session_id, decisions=decisions, dry_run=dry_run)
            if result.forgotten and not dry_run:
                keys = self._store.session_keys(session_id)
                rewrite.forget(self._log, session_id, keys, set(result.forgotten))
        return result

    def drop(self, session_id: str, gone: frozenset[int]) -> Trashed:
        """Drop these snapshots, with a copy of the session in the trash."""
        self._must_exist(session_id)
        with self._log.exclusively(session_id):
            keys, now = self._store.session_keys(session_id), self._store.clock()
            return copies.drop(self._log, session_id, keys, gone, token=new_id(), now=now)

    def undrop(self, session_id: str, token: str) -> Sequence[int]:
        """Bring dropped snapshots back."""
        self._must_exist(session_id)
        with self._log.exclusively(session_id):
            keys = self._store.session_keys(session_id)
            return copies.undrop(self._log, session_id, keys, self._log.kept(token))

    # Caring ----------------------------------------------------------------------------------------------

    def check(self, session_id: str | None, repair: bool) -> CheckReport:
        """Verify one session, or all."""
        entries = self._log.sessions(session_id)
        if session_id is not None and not entries:
            raise SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)
        keys_of = self._store.session_keys
        reports = [check.inspect(self._log, entry, keys_of, repair=repair) for entry in entries]
        for entry, report in zip(entries, reports, strict=True):
            if report.repaired:  # what we saw before may be gone
                self._heads.forget(entry.session_id)
        return check.combine(reports)

    def compact(self, session_id: str, *, newest_too: bool = True) -> None:
        """Compress a session again, and seal it with the primary key."""
        rewrite.recompress(self._log, session_id, self._store.session_keys(session_id), newest_too=newest_too)

    # Moving ----------------------------------------------------------------------------------------------

    def take_out(self, session_id: str) -> Sequence[Copied]:
        """A whole session, in the clear."""
        return transfer.take_out(self._log, session_id, self._store.session_keys(session_id))

    def put_in(self, session_id: str, copies: Sequence[Copied], instead_of: Sequence[Copied]) -> None:
        """A whole session from elsewhere."""
        keys = self._store.session_keys(session_id)
        transfer.put_in(self._log, session_id, keys, copies, instead_of=instead_of)
        self._heads.forget(session_id)


def _ref(head: Head, session_id: str, *, written: bool = True, notices: tuple[str, ...] = ()) -> SnapshotRef:
    return SnapshotRef(
        session_id=session_id,
        seq=head.seq,
        root=head.root,
        size_bytes=head.size_bytes,
        written=written,
        notices=notices,
    )
