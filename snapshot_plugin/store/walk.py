"""The walk through a session's frames, and the one rule by which a frame follows another.

`Replay` applies changes in order; loading, paging, checking, repairing, forgetting, exporting and archiving are all
loops over it. `find` rebuilds one snapshot from as few frames as possible. `replay` visits every frame and reports
damage; `whole` raises at the first damage.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from snapshot_plugin.codec.document import CHAIN_START, Digest, StoredDocument, chain_from, plain_digest, root_of
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.frame import Header
from snapshot_plugin.codec.pack import Change, open_changes, payload_size
from snapshot_plugin.errors import (
    Damaged,
    InvalidSnapshotVersion,
    SnapshotCorrupted,
    SnapshotError,
    SnapshotNotFound,
    SnapshotTampered,
)
from snapshot_plugin.model.snapshot import CURRENT_VERSION
from snapshot_plugin.store.base import Finding
from snapshot_plugin.store.log import Frame, FrameReader, Segment, Tip, TipSeeker, frames_of, undisturbed

__all__ = [
    "FoundSnapshot",
    "Gap",
    "Replay",
    "Replayed",
    "changes_in",
    "check_version",
    "error_of",
    "find",
    "replay",
    "warn_of",
    "whole",
]

log = logging.getLogger("snapshot_plugin.store")

_MUCH = 256 << 10
"""Packs of more bytes than this are decompressed by several threads."""
_THREADS = min(4, os.cpu_count() or 1)
_ERRORS: dict[str, type[Damaged]] = {error.code: error for error in (SnapshotCorrupted, SnapshotTampered)}


def changes_in(frame: Frame, session_id: str, keys: SessionKeys | None) -> list[Change]:
    """The changes that a frame holds, every byte of it checked.

    Raises:
        SnapshotCorrupted, SnapshotTampered: the frame is damaged.
        WrongKey: it is sealed with a key this store object does not have (yet).
        InvalidSnapshotVersion: a newer release wrote it.
    """
    if frame.kind == "damage":
        raise SnapshotCorrupted(
            f"{len(frame.data)} bytes that are not a frame of this segment", session_id=session_id
        )
    changes = open_changes(frame.data, session_id=session_id, keys=keys)
    for header, _ in changes:
        check_version(header)
    return changes


def check_version(header: Header) -> None:
    """Raise `InvalidSnapshotVersion` for a snapshot of a newer release."""
    if header.v > CURRENT_VERSION:
        raise InvalidSnapshotVersion(
            f"snapshot {header.hi} of session {header.sid} has version {header.v}; "
            f"this release reads up to {CURRENT_VERSION}",
            session_id=header.sid,
        )


class Gap(SnapshotCorrupted):
    """A change does not follow the one before it. It may be intact itself."""


class Replay:
    """A session rebuilt from its changes, each applied to the result of the one before.

    Args:
        session_id: the session.
        digest: verify the root of each snapshot with it, which costs what changed; None: do not.
        anywhere: the first change may have any number. Otherwise it must be the first of the session.
        ahead: parse messages as they arrive; see `StoredDocument`.
    """

    def __init__(
        self, session_id: str, digest: Digest | None = None, *, anywhere: bool = False, ahead: bool = False
    ) -> None:
        self.document = StoredDocument(ahead=ahead)
        """The snapshot after the last change."""
        self.last: Header | None = None
        self.root = ""
        """The root of the document under *digest*."""
        self._session_id, self._digest, self._anywhere = session_id, digest, anywhere
        self._has_base = False
        """Whether the document is what the next change builds on: not before a full one, nor after damage."""
        self._is_explained = False
        """Whether damage was reported where numbers are missing."""
        self._digests: list[bytes] = []
        self._chain: list[bytes] = []
        self._sections: dict[bytes, tuple[bytes, bytes]] = {}

    def take(self, header: Header, lines: Sequence[bytes], *, verify: bool = True) -> Gap | None:
        """Apply one change that follows the last one, and verify its root if there is a digest.

        The one rule: numbers go on where the last change ended, and a change names the root that it builds on. A
        full change builds on nothing, so it can be applied after missing numbers too. Returns that gap, unless
        damage explains it.

        Raises:
            Gap: it does not follow the last one.
            SnapshotCorrupted: it cannot be applied, or the result does not have the root that it says.
        """
        number, root = (self.last.hi, self.last.root) if self.last else (0, "")
        is_next = header.lo == number + 1 or (self._anywhere and self.last is None)
        if not header.full and not self._has_base:
            raise Gap("a frame it builds on is damaged or missing", session_id=self._session_id)
        if header.hi <= number or not (header.full or (is_next and header.prev == root)):
            raise self._gap(number)
        if self._digest is None:
            self.document.take(header, lines)
        elif self.apply(header, lines) != header.root and verify:
            raise SnapshotCorrupted(
                "the content does not have the digest it was saved with", session_id=self._session_id
            )
        explained, self._is_explained = self._is_explained, False
        self.last, self._has_base = header, True
        return None if is_next or explained else self._gap(number)

    def _gap(self, number: int) -> Gap:
        return Gap(f"it does not follow snapshot {number}", session_id=self._session_id)

    def skip(self) -> None:
        """Go on after a frame that cannot be used: a full change must come next."""
        self._has_base, self._is_explained = False, True

    def apply(self, header: Header, lines: Sequence[bytes]) -> str:
        """Apply one change without comparing it with the last one; returns the root of the result."""
        digest = self._digest or plain_digest
        self.document.take(header, lines)
        if header.full:
            self._digests, self._chain = [], []
        inserted = self.document.messages[header.at : header.at + header.insert]
        self._digests[header.at : header.at + header.delete] = map(digest, inserted)
        start = self._chain[header.at - 1] if header.at else CHAIN_START
        self._chain[header.at :] = chain_from(start, self._digests[header.at :], digest)
        known = self._sections
        self._sections = {
            key: known[key] if key in known and known[key][0] is line else (line, digest(line))
            for key, line in self.document.sections.items()
        }
        sections = [each for _, each in self._sections.values()]
        self.root = root_of(self._chain[-1] if self._chain else CHAIN_START, sections, digest)
        return self.root


# All frames --------------------------------------------------------------------------------------------------


class Replayed(NamedTuple):
    """One frame after it was opened and applied."""

    frame: Frame
    changes: list[Change]
    """What it holds; empty if it cannot be opened."""
    error: SnapshotError | None
    """What is wrong: it cannot be opened, or does not follow what is before it."""
    loads: bool
    """Whether its snapshots can be rebuilt exactly."""

    def finding(self, session_id: str) -> Finding | None:
        """The finding that `check` reports."""
        if self.frame.kind == "unfinished":
            return self.frame.finding(session_id, "unfinished", "a save that was never acknowledged")
        if self.error is None:
            return None
        kind = "chain" if isinstance(self.error, Gap) else self.error.code
        return self.frame.finding(session_id, kind, self.error.message)


def replay(frames: Iterable[Frame], session_id: str, keys: SessionKeys | None) -> Iterator[Replayed]:
    """Each frame with its changes and its damage. Roots are verified; damage does not end the walk."""
    walk = Replay(session_id, keys.digest if keys else plain_digest)
    for frame in frames:
        if frame.kind == "unfinished":
            yield Replayed(frame, [], None, loads=False)
            continue
        changes: list[Change] = []
        gap: Gap | None = None
        try:
            changes = changes_in(frame, session_id, keys)
            for header, lines in changes:
                gap = walk.take(header, lines) or gap
        except SnapshotError as error:
            walk.skip()
            yield Replayed(frame, changes, error, loads=False)
        else:
            yield Replayed(frame, changes, gap, loads=True)


def whole(frames: Iterable[Frame], session_id: str, keys: SessionKeys | None) -> Iterator[Replayed]:
    """As `replay`, for callers that rewrite or carry away a session: the first damage is raised."""
    for each in replay(frames, session_id, keys):
        if each.frame.kind == "unfinished":
            continue
        if isinstance(each.error, SnapshotCorrupted):
            raise SnapshotCorrupted(
                f"session {session_id} is damaged: {each.error.message}",
                session_id=session_id,
                hint="run asnap check --repair, which keeps everything intact, then try again",
            )
        if each.error is not None:
            raise each.error
        yield each


# One snapshot ------------------------------------------------------------------------------------------------


class FoundSnapshot(NamedTuple):
    """A rebuilt snapshot, and the unusable frames after it."""

    document: StoredDocument
    header: Header
    size_bytes: int
    written: int
    skipped: tuple[Finding, ...]
    tip: Tip


def find(
    log: FrameReader, session_id: str, keys: SessionKeys | None, *, at: int | None = None, ahead: bool = True
) -> FoundSnapshot:
    """The newest intact snapshot, or the one numbered *at*. Segments are read newest first, as needed.

    With *ahead*, messages are validated while other threads decompress more.

    Raises:
        SnapshotNotFound: there is no such session, or no such number.
        SnapshotCorrupted, SnapshotTampered: the requested snapshot cannot be read.
        WrongKey: a frame is sealed with a key this writer does not have (yet): not damage, so no fallback.
        InvalidSnapshotVersion: it was written by a newer release.
    """
    return undisturbed(
        session_id, lambda: _Search(log.segments(session_id), session_id, keys, at, ahead=ahead).run()
    )


class _Search:
    def __init__(
        self, segments: list[Segment], session_id: str, keys: SessionKeys | None, at: int | None, *, ahead: bool
    ) -> None:
        self._ahead = ahead
        self._segments, self._session_id, self._keys, self._at = segments, session_id, keys, at
        self._frames: list[Frame] = []
        self._findings: list[Finding] = []
        self._tip = TipSeeker()

    def run(self) -> FoundSnapshot:
        following = None
        for segment in reversed(self._segments):
            if self._at is not None and segment.first > self._at:
                following = segment
                continue
            seen = frames_of(segment, segment.read(), following, until=self._at)
            self._tip.see(segment, seen)
            frames = [frame for frame in seen if frame.kind != "unfinished"]
            self._frames = frames + self._frames
            for index in reversed(range(len(frames))):
                if index and self._is_put_back(frames[index], frames[index - 1]):
                    continue
                if self._begins_here(frames[index]) and (found := self._follow(index)):
                    return found
                if self._at is not None and self._is_past(frames[index]):
                    self._fail()
            following = segment
        return self._fail()

    def _begins_here(self, frame: Frame) -> bool:
        if not (frame.header and frame.header.full):
            return False
        return self._at is None or (frame.header.lo if frame.header.pack else frame.header.hi) <= self._at

    def _is_put_back(self, frame: Frame, before: Frame) -> bool:
        """Whether an old full frame was copied after a newer one, where it would be read as the newest."""
        if not (frame.header and frame.header.full and before.header and before.header.hi >= frame.header.hi):
            return False
        if not self._noted(before, self._open(before)):
            return False
        self._note(
            frame, SnapshotCorrupted(f"snapshot {frame.header.hi} stands behind snapshot {before.header.hi}")
        )
        return True

    def _is_past(self, frame: Frame) -> bool:
        return bool(frame.header and frame.header.full and self._at is not None and frame.header.lo <= self._at)

    def _follow(self, start: int) -> FoundSnapshot | None:
        """Build on from the full frame at *start* until the end, the wanted number, or damage."""
        walk, size, written = Replay(self._session_id, anywhere=True, ahead=self._ahead), 0, 0
        for frame, changes in self._opened(self._frames[start:]):
            size += len(frame.data)
            if not changes:
                break
            try:
                for header, lines in changes:
                    if gap := walk.take(header, lines):
                        raise gap
                    written += payload_size(lines)
                    if header.hi == self._at:
                        break
            except SnapshotCorrupted as error:
                self._note(frame, error)
                break
            if walk.last and walk.last.hi == self._at:
                break
        last = walk.last
        if last is None or (self._at is not None and last.hi != self._at):
            return None
        tip = self._tip.tip or Tip(last.hi, last.id)
        return FoundSnapshot(walk.document, last, size, written, tuple(self._findings), tip)

    def _opened(self, frames: Sequence[Frame]) -> Iterator[tuple[Frame, list[Change]]]:
        """Each frame with its changes; none where it is damaged. Many packs are decompressed by several threads.

        A frame that is not a pack is hardly compressed: handing it to a thread costs more than opening it.
        """
        packs = {number: frame for number, frame in enumerate(frames) if frame.header and frame.header.pack}
        if sum(len(frame.data) for frame in packs.values()) < _MUCH:
            yield from ((frame, self._noted(frame, self._open(frame))) for frame in frames)
            return
        threads = ThreadPoolExecutor(_THREADS, "asnap-read")
        try:
            underway = {number: threads.submit(self._open, frame) for number, frame in packs.items()}
            for number, frame in enumerate(frames):
                pack = underway.pop(number, None)
                yield frame, self._noted(frame, pack.result() if pack else self._open(frame))
        finally:
            threads.shutdown(cancel_futures=True)

    def _noted(self, frame: Frame, opened: list[Change] | Damaged) -> list[Change]:
        if isinstance(opened, list):
            return opened
        self._note(frame, opened)
        return []

    def _open(self, frame: Frame) -> list[Change] | Damaged:
        """The changes, or the error.

        It is returned, because an error raised from a future keeps the frame in memory.
        """
        try:
            return changes_in(frame, self._session_id, self._keys)
        except Damaged as error:
            return error.with_traceback(None)

    def _note(self, frame: Frame, error: Damaged) -> None:
        finding = frame.finding(self._session_id, error.code, error.message)
        if (finding.file, finding.offset) not in {(known.file, known.offset) for known in self._findings}:
            self._findings.append(finding)

    def _fail(self) -> FoundSnapshot:
        where = f"session {self._session_id}" + (f", snapshot {self._at}" if self._at is not None else "")
        if not self._frames and (self._at is None or self._at > 0):
            raise SnapshotNotFound(f"there is no session {self._session_id}", session_id=self._session_id)
        is_whole = all(frame.kind == "frame" for frame in self._frames)
        if self._at is not None and is_whole and not self._may_hold(self._at):
            raise SnapshotNotFound(f"{where} does not exist or was forgotten", session_id=self._session_id)
        if self._findings:
            raise error_of(self._findings[0], where)
        raise SnapshotCorrupted(f"{where} cannot be read: frames it needs are damaged", session_id=self._session_id)

    def _may_hold(self, seq: int) -> bool:
        """Whether a frame has that number, or a pack that cannot be opened may have it inside."""
        headers = [frame.header for frame in self._frames if frame.header]
        return any(
            each.hi == seq or (each.pack and each.lo <= seq <= each.hi and bool(self._findings)) for each in headers
        )


def warn_of(found: FoundSnapshot, session_id: str) -> None:
    """Log the damage that was skipped to find this snapshot."""
    for finding in found.skipped:
        log.warning("session %s: skipped damage in %s: %s", session_id, finding.file, finding.detail)


def error_of(finding: Finding, what: str) -> Damaged:
    """The error that says why *what* cannot be read."""
    return _ERRORS[finding.kind](f"{what} cannot be read: {finding.detail}", session_id=finding.session_id)
