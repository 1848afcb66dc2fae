"""Read everything, believe nothing: history, verification, and repair of a session."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from snapshot_plugin.codec.document import Document, plain_digest
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.frame import Header, open_meta, summary_in
from snapshot_plugin.codec.pack import open_snapshots
from snapshot_plugin.errors import InvalidSnapshotVersion, SnapshotCorrupted, SnapshotError, StoreUnavailable
from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.model.snapshot import CURRENT_VERSION
from snapshot_plugin.store import rewrite
from snapshot_plugin.store.base import CheckReport, Finding
from snapshot_plugin.store.listing import damaged, meta_of
from snapshot_plugin.store.log import FrameLog, SessionEntry
from snapshot_plugin.store.reader import Item, session_items

__all__ = ["combine", "history", "inspect"]

KeysOf = Callable[[str], SessionKeys | None]


def history(log: FrameLog, session_id: str, keys: SessionKeys | None) -> list[SnapshotMeta]:
    """Every snapshot, oldest first; those that cannot be read are there, as damaged."""
    out = []
    for item in session_items(log, session_id):
        if item.kind != "frame" or item.header is None:
            continue
        size = len(item.data) // max(1, item.header.pack)
        try:
            out += [meta_of(header, summary, size) for header, summary in _summaries(item, session_id, keys)]
        except SnapshotError as error:
            out += [
                damaged(session_id, size, error.message, seq=seq, saved_at=item.header.t)
                for seq in _numbers(item.header)
            ]
    return out


def _summaries(item: Item, session_id: str, keys: SessionKeys | None) -> Iterable[tuple[Header, dict[str, Any]]]:
    if item.header and item.header.pack:
        inside = open_snapshots(item.data, session_id=session_id, keys=keys)
        return [(header, summary_in(lines[0])) for header, lines in inside]
    return [open_meta(item.data, session_id=session_id, keys=keys)]


def _numbers(header: Header) -> Iterable[int]:
    """The numbers of a frame's snapshots, as far as they are known without opening it."""
    return range(header.lo, header.hi + 1) if header.pack == header.hi - header.lo + 1 else [header.hi]


def inspect(log: FrameLog, entry: SessionEntry, keys_of: KeysOf, *, repair: bool) -> CheckReport:
    """Verify one session down to every root; with *repair*, set damaged segments aside, keeping what is whole."""
    session_id = entry.session_id
    if entry.problem:
        return CheckReport(findings=(Finding(session_id=session_id, kind="misplaced", detail=entry.problem),))
    keys = keys_of(session_id)
    try:
        items = session_items(log, session_id)
    except StoreUnavailable as error:
        unreadable = Finding(session_id=session_id, kind="unreadable", detail=error.message)
        return CheckReport(sessions=1, findings=(unreadable,))
    findings = [*_verify(items, session_id, keys), *_leftovers(log, session_id)]
    repaired: tuple[str, ...] = ()
    # What a newer release wrote is whole: setting it aside would take it away from whoever can read it.
    is_newer = any(finding.kind == InvalidSnapshotVersion.code for finding in findings)
    if repair and not is_newer and any(finding.is_damage for finding in findings):
        with log.exclusively(session_id):
            repaired = (_repair(log, session_id, keys),)
    return CheckReport(
        sessions=1,
        snapshots=sum(max(1, item.header.pack) for item in items if item.kind == "frame" and item.header),
        bytes_read=sum(len(item.data) for item in items),
        findings=tuple(findings),
        repaired=repaired,
    )


def combine(reports: Iterable[CheckReport]) -> CheckReport:
    """One report for many sessions."""
    total = CheckReport()
    for report in reports:
        total = CheckReport(
            sessions=total.sessions + report.sessions,
            snapshots=total.snapshots + report.snapshots,
            bytes_read=total.bytes_read + report.bytes_read,
            findings=total.findings + report.findings,
            repaired=total.repaired + report.repaired,
        )
    return total


def _leftovers(log: FrameLog, session_id: str) -> list[Finding]:
    detail = "left behind by a crash; it means nothing"
    return [
        Finding(session_id=session_id, kind="leftover", detail=detail, file=name)
        for name in log.leftovers(session_id)
    ]


class _Walk:
    """Follows the frames of a session in order, rebuilding each snapshot."""

    def __init__(self, session_id: str, keys: SessionKeys | None) -> None:
        self._session_id, self._keys = session_id, keys
        self._digest = keys.digest if keys else plain_digest
        self._document: Document | None = None
        self._last: Header | None = None
        self._gap_is_explained = False

    def take(self, item: Item) -> tuple[bool, Finding | None]:
        """Verify the next item: whether it is a snapshot that can be read, and what is wrong if anything is."""
        if item.kind == "unfinished":
            return False, item.finding(self._session_id, "unfinished", "a save that was never acknowledged")
        try:
            header, finding = self._open(item)
        except SnapshotError as error:
            header, finding = None, item.finding(self._session_id, error.code, error.message)
        if header is None:
            self._document = None
        self._gap_is_explained = header is None
        self._last = header or self._last
        return header is not None, finding

    def _open(self, item: Item) -> tuple[Header | None, Finding | None]:
        if item.kind == "damage":
            raise SnapshotCorrupted(f"{len(item.data)} bytes that are no frame of this segment")
        finding = None
        for header, lines in open_snapshots(item.data, session_id=self._session_id, keys=self._keys):
            taken, found = self._follow(item, header, lines)
            finding = finding or found
            if taken is None:
                return None, finding
            self._last = taken
        return self._last, finding

    def _follow(self, item: Item, header: Header, lines: list[bytes]) -> tuple[Header | None, Finding | None]:
        if header.v > CURRENT_VERSION:
            raise InvalidSnapshotVersion(f"version {header.v} is newer than this release")
        after, root = (self._last.hi, self._last.root) if self._last else (0, "")
        gap = item.finding(self._session_id, "chain", f"it does not follow snapshot {after}")
        if header.full:
            self._document = Document()
        elif self._document is None:
            return None, item.finding(self._session_id, "chain", "a frame it builds on is damaged or missing")
        elif (header.lo, header.prev) != (after + 1, root):
            return None, gap
        if header.hi <= after:
            return None, gap
        self._rebuild(header, lines, self._document)
        return header, None if header.lo == after + 1 or self._gap_is_explained else gap

    def _rebuild(self, header: Header, lines: list[bytes], document: Document) -> None:
        document.take(header, lines)
        if document.root(self._digest) != header.root:
            raise SnapshotCorrupted("the content does not have the digest it was saved with")


def _verify(items: Iterable[Item], session_id: str, keys: SessionKeys | None) -> list[Finding]:
    walk = _Walk(session_id, keys)
    return [finding for item in items if (finding := walk.take(item)[1])]


def _repair(log: FrameLog, session_id: str, keys: SessionKeys | None) -> str:
    """Copy damaged segments to quarantine, then write the session again with the snapshots that are whole."""
    segments = log.segments(session_id)
    walk, damaged, good = _Walk(session_id, keys), set(), []
    for item in session_items(log, session_id):
        whole, finding = walk.take(item)
        if whole:
            good.append(item.data)
        elif finding:
            damaged.add(item.segment.name)
    places = [log.quarantine(session_id, segment) for segment in segments if segment.name in damaged]
    frames = rewrite.joined(good, session_id, keys)
    tip = log.tip(session_id)
    log.replace(session_id, segments, frames, tip.seq if tip else segments[-1].last)
    aside = f", what was damaged is in {', '.join(places)}" if places else ""
    return f"{session_id}: {len(frames)} whole snapshot(s) kept{aside}"
