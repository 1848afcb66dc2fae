"""The store itself: save, load, list, forget and check over any `FrameLog`.

The public methods are asynchronous and hop to a worker thread once; below that everything is plain,
synchronous code that runs to its end. Cancellation therefore never finds a save half done.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio

from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.frame import Header, encode_frame
from snapshot_plugin.errors import (
    InvalidSnapshot,
    SnapshotNotFound,
    StoreUnavailable,
)
from snapshot_plugin.model.ids import check_session_id, new_id
from snapshot_plugin.model.meta import SnapshotMeta, SnapshotRef
from snapshot_plugin.model.policy import RetentionPolicy, plan
from snapshot_plugin.model.snapshot import CURRENT_VERSION, SessionSnapshot
from snapshot_plugin.model.times import as_utc, rfc3339
from snapshot_plugin.store import check, copies, rewrite, transfer
from snapshot_plugin.store.base import CheckReport, ForgetResult, StoredSnapshot, Trashed
from snapshot_plugin.store.head import Head, Step
from snapshot_plugin.store.heads import Heads, overtaken
from snapshot_plugin.store.listing import listed, meta_of
from snapshot_plugin.store.log import FrameLog
from snapshot_plugin.store.transfer import Copied

__all__ = ["GRACE", "Limits", "LogStore"]

log = logging.getLogger("snapshot_plugin.store")
T = TypeVar("T")

GRACE = timedelta(days=30)
"""How long a deleted session can be brought back."""


class Limits:
    """Sizes worth a notice. Nothing is ever cut: the save goes through and says so."""

    def __init__(self, *, message_bytes: int = 1 << 20, session_bytes: int = 100 << 20, heads: int = 256) -> None:
        self.message_bytes = message_bytes
        self.session_bytes = session_bytes
        self.heads = heads

    def notices(self, step: Step) -> tuple[str, ...]:
        """What a save should mention."""
        large = [size for size in step.sizes if size > self.message_bytes]
        out = (
            [f"{len(large)} message(s) over {self.message_bytes} bytes, the largest {max(large)}"] if large else []
        )
        if step.live > self.session_bytes:
            out.append(f"the session holds {step.live} bytes, over {self.session_bytes}")
        return tuple(out)


class LogStore:
    """A `SnapshotStore` over a `FrameLog`. `snapshot_plugin.store.base` states what it promises."""

    def __init__(
        self,
        frames: FrameLog,
        *,
        limits: Limits | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._log = frames
        self._limits = limits or Limits()
        self._clock = clock
        self._writer = new_id()
        self._heads = Heads(frames, self.session_keys, limit=self._limits.heads)
        self._turns: dict[str, anyio.Lock] = {}
        self._closed = False

    # Opening ---------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Make the place ready; called in a worker thread before anything else."""

    def session_keys(self, session_id: str) -> SessionKeys | None:
        """The keys of one session; None in a plain store."""
        _ = session_id
        return None

    async def _run(self, work: Callable[..., T], *args: Any) -> T:
        if self._closed:
            raise StoreUnavailable("the store was closed", hint="open it again")
        return await self._in_thread(self._prepared, work, args)

    async def _in_thread(self, work: Callable[..., T], *args: Any) -> T:
        from snapshot_plugin.store.hop import in_thread  # noqa: PLC0415 — brings asyncio, which lists do without

        return await in_thread(work, *args)

    def _prepared(self, work: Callable[..., T], args: tuple[Any, ...]) -> T:
        self._prepare()
        return work(*args)

    def _turn(self, session_id: str) -> anyio.Lock:
        """Saves of one session happen in the order in which they were called."""
        with contextlib.suppress(KeyError, TypeError):  # an id that cannot be one may not even be hashable
            return self._turns[session_id]
        return self._turns.setdefault(check_session_id(session_id), anyio.Lock(fast_acquire=True))

    # Saving ----------------------------------------------------------------------------------------------

    async def save(
        self,
        snapshot: SessionSnapshot,
        *,
        trigger: str = "manual",
        tags: Sequence[str] = (),
        base: int | None = None,
    ) -> SnapshotRef:
        """See `SnapshotStore.save`."""
        if snapshot.version != CURRENT_VERSION:
            raise InvalidSnapshot(
                f"session {snapshot.session_id} is given with version {snapshot.version}, not {CURRENT_VERSION}",
                session_id=snapshot.session_id, hint="bring it up to date with snapshot_plugin.migrate first",
            )  # fmt: skip
        async with self._turn(snapshot.session_id):
            return await self._run(self._save, snapshot, trigger, tuple(tags), base)

    def _save(
        self, snapshot: SessionSnapshot, trigger: str, tags: tuple[str, ...], base: int | None
    ) -> SnapshotRef:
        session_id = snapshot.session_id
        head = self._heads.base(session_id, base)
        step = head.step_to(snapshot)
        if not step.changed and not tags and not self._confirm(head, session_id):
            return _ref(head, session_id, written=False)
        header = self._header(head, step, session_id, trigger, tags)
        frame = encode_frame(header, step.payload, self.session_keys(session_id))
        with self._log.exclusively(session_id):
            self._confirm(head, session_id)
            fresh = head.after_damage or bool(head.refused)
            head.refused.add(header.id)
            finished = self._log.append(session_id, frame, header, fresh=fresh)
        head.accept(step, seq=header.hi, frame_id=header.id, size_bytes=len(frame))
        self._heads.accepted(session_id, head)
        if finished:
            self._segment_finished(session_id)
        return _ref(head, session_id, notices=(*self._limits.notices(step), *snapshot.notices))

    def _header(self, head: Head, step: Step, session_id: str, trigger: str, tags: tuple[str, ...]) -> Header:
        seq = head.tip.seq + 1 if head.tip else 1
        return Header(
            v=CURRENT_VERSION, id=new_id(), sid=session_id, lo=head.seq + 1, hi=seq, root=step.root, prev=head.root,
            at=step.splice.at, delete=step.splice.delete, insert=step.splice.insert, full=step.full,
            t=rfc3339(self._clock()), w=self._writer, trigger=trigger, tags=tags,
        )  # fmt: skip

    def _confirm(self, head: Head, session_id: str) -> bool:
        """The head we build on must still be the end of the log. True: just a refused save of ours is behind it."""
        tip = self._log.tip(session_id)
        is_ours = tip is not None and tip.id in head.refused
        if tip != head.tip and not is_ours:
            raise overtaken(session_id, tip)
        return is_ours

    def _segment_finished(self, session_id: str) -> None:
        """A segment will not grow any more; a store may compress it better now."""

    # Loading ---------------------------------------------------------------------------------------------

    async def load(self, session_id: str, *, at: int | None = None, strict: bool = False) -> SessionSnapshot:
        """See `SnapshotStore.load`."""
        return (await self.read(session_id, at=at, strict=strict)).snapshot

    async def read(self, session_id: str, *, at: int | None = None, strict: bool = False) -> StoredSnapshot:
        """See `SnapshotStore.read`."""
        async with self._turn(session_id):
            return await self._run(self._read, session_id, at, strict)

    def _read(self, session_id: str, at: int | None, strict: bool) -> StoredSnapshot:
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

    async def list(self) -> Sequence[SnapshotMeta]:
        """See `SnapshotStore.list`."""
        return await self._run(self.listed)

    def listed(self) -> Sequence[SnapshotMeta]:
        """The same in this thread, for programs without an event loop."""
        self._prepare()
        return listed(self._log, self.session_keys)

    async def history(self, session_id: str) -> Sequence[SnapshotMeta]:
        """See `SnapshotStore.history`."""
        async with self._turn(session_id):
            return await self._run(self._history, session_id)

    def _history(self, session_id: str) -> Sequence[SnapshotMeta]:
        metas = check.history(self._log, session_id, self.session_keys(session_id))
        if not metas:
            raise SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)
        return metas[::-1]

    # Removing --------------------------------------------------------------------------------------------

    async def delete(self, session_id: str) -> Trashed:
        """See `SnapshotStore.delete`."""
        async with self._turn(session_id):
            return await self._run(self._delete, session_id)

    def _delete(self, session_id: str) -> Trashed:
        self._must_exist(session_id)
        with self._log.exclusively(session_id):
            self._must_exist(session_id)  # of several who delete it at once, one does
            trashed = self._log.discard(session_id, token=new_id(), now=self._clock())
        self._heads.forget(session_id)
        return trashed

    def _must_exist(self, session_id: str) -> None:
        if not self._log.segments(session_id):
            raise SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)

    async def trash(self) -> Sequence[Trashed]:
        """See `SnapshotStore.trash`."""
        return await self._run(self._log.trash)

    async def undelete(self, token: str) -> str:
        """See `SnapshotStore.undelete`."""
        return await self._run(self._undelete, token)

    def _undelete(self, token: str) -> str:
        for trashed in self._log.trash():
            if trashed.token == token:
                with self._log.exclusively(trashed.session_id):
                    return self._log.undelete(token)
        raise SnapshotNotFound(
            f"nothing in the trash has the token {token}", hint="list what is there with trash()"
        )

    async def purge(self, *, older_than: timedelta = GRACE, now: datetime | None = None) -> Sequence[Trashed]:
        """See `SnapshotStore.purge`."""
        moment = as_utc(now) if now else self._clock()
        return await self._run(lambda: self._log.purge(older_than=older_than, now=moment))

    async def forget(self, session_id: str, policy: RetentionPolicy, *, dry_run: bool = False) -> ForgetResult:
        """See `SnapshotStore.forget`."""
        async with self._turn(session_id):
            return await self._run(self._forget, session_id, policy, dry_run)

    def _forget(self, session_id: str, policy: RetentionPolicy, dry_run: bool) -> ForgetResult:
        self._must_exist(session_id)
        # Decided where nobody can change it: a moment later another session of that name may have the same numbers.
        with contextlib.nullcontext() if dry_run else self._log.exclusively(session_id):
            decisions = plan(self._history(session_id), policy, self._clock())
            result = ForgetResult(session_id=session_id, decisions=decisions, dry_run=dry_run)
            if result.forgotten and not dry_run:
                rewrite.forget(self._log, session_id, self.session_keys(session_id), set(result.forgotten))
        return result

    async def drop(self, session_id: str, seqs: Collection[int]) -> Trashed:
        """Forget just these snapshots, with a copy of the session as it was in the trash; see `copies.drop`."""
        async with self._turn(session_id):
            return await self._run(self._drop, session_id, frozenset(seqs))

    def _drop(self, session_id: str, gone: frozenset[int]) -> Trashed:
        self._must_exist(session_id)
        with self._log.exclusively(session_id):
            keys, now = self.session_keys(session_id), self._clock()
            return copies.drop(self._log, session_id, keys, gone, token=new_id(), now=now)

    async def undrop(self, session_id: str, token: str) -> Sequence[int]:
        """Bring back the snapshots that `drop` took; what was saved since stays. Returns their numbers."""
        async with self._turn(session_id):
            return await self._run(self._undrop, session_id, token)

    def _undrop(self, session_id: str, token: str) -> Sequence[int]:
        self._must_exist(session_id)
        with self._log.exclusively(session_id):
            return copies.undrop(self._log, session_id, self.session_keys(session_id), self._log.kept(token))

    # Caring ----------------------------------------------------------------------------------------------

    async def check(self, session_id: str | None = None, *, repair: bool = False) -> CheckReport:
        """See `SnapshotStore.check`."""
        return await self._run(self._check, session_id, repair)

    def _check(self, session_id: str | None, repair: bool) -> CheckReport:
        entries = self._log.sessions(session_id)
        if session_id is not None and not entries:
            raise SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)
        reports = [check.inspect(self._log, entry, self.session_keys, repair=repair) for entry in entries]
        for entry, report in zip(entries, reports, strict=True):
            if report.repaired:  # what we saw before may be gone
                self._heads.forget(entry.session_id)
        return check.combine(reports)

    async def compact(self, session_id: str) -> None:
        """Compress a session's frames as well as possible, and seal them with the primary key.

        Content, numbers and roots stay. This is also how a store is re-encrypted after its key was rotated.
        """
        async with self._turn(session_id):
            await self._run(self._compact, session_id)

    def _compact(self, session_id: str, *, newest_too: bool = True) -> None:
        rewrite.recompress(self._log, session_id, self.session_keys(session_id), newest_too=newest_too)

    # Moving ----------------------------------------------------------------------------------------------

    async def take_out(self, session_id: str) -> Sequence[Copied]:
        """A whole session, to be carried elsewhere; see `transfer.take_out`. It stays here as well."""
        async with self._turn(session_id):
            return await self._run(lambda: transfer.take_out(self._log, session_id, self.session_keys(session_id)))

    async def put_in(self, session_id: str, copies: Sequence[Copied], *, instead_of: Sequence[Copied] = ()) -> None:
        """A session from elsewhere, whole or not at all; see `transfer.put_in`."""
        async with self._turn(session_id):
            await self._run(self._put_in, session_id, copies, instead_of)

    def _put_in(self, session_id: str, copies: Sequence[Copied], instead_of: Sequence[Copied]) -> None:
        transfer.put_in(self._log, session_id, self.session_keys(session_id), copies, instead_of=instead_of)
        self._heads.forget(session_id)

    async def aclose(self) -> None:
        """See `SnapshotStore.aclose`."""
        if not self._closed:
            self._closed = True
            with anyio.CancelScope(shield=True):
                await self._in_thread(self._log.close)

    async def __aenter__(self) -> Self:
        await self._run(lambda: None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _ref(head: Head, session_id: str, *, written: bool = True, notices: tuple[str, ...] = ()) -> SnapshotRef:
    return SnapshotRef(
        session_id=session_id,
        seq=head.seq,
        root=head.root,
        size_bytes=head.size_bytes,
        written=written,
        notices=notices,
    )
