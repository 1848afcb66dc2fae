"""Verify sessions down to every root, repair them, and tell their history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.frame import Header, open_meta, summary_in
from snapshot_plugin.errors import InvalidSnapshotVersion, SnapshotError, StoreUnavailable
from snapshot_plugin.inert import several
from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.store import rewrite
from snapshot_plugin.store.base import CheckReport, Finding
from snapshot_plugin.store.listing import damaged, meta_of
from snapshot_plugin.store.log import FrameLog, SessionEntry
from snapshot_plugin.store.replay import Item, Replayed, open_item, replay, session_items

__all__ = ["combine", "history", "inspect", "quarantined", "repair", "repairable", "replayed"]

KeysOf = Callable[[str], SessionKeys | None]
_NOT_REPAIRABLE = frozenset({"misplaced", "unreadable", InvalidSnapshotVersion.code})


def history(log: FrameLog, session_id: str, keys: SessionKeys | None) -> list[SnapshotMeta]:
    """Every snapshot, oldest first; those that cannot be read are listed as damaged."""
    out = []
    for item in session_items(log, session_id):
        if item.kind != "frame" or item.header is None:
            continue
        size = len(item.data) // max(1, item.header.pack)
        try:
            out += [meta_of(header, summary, size) for header, summary in _summaries(item, session_id, keys)]
        except SnapshotError as error:
            out += [
                damaged(session_id, size, error.message, code=error.code, seq=seq, saved_at=item.header.t)
                for seq in _numbers(item.header)
            ]
    return out


def _summaries(item: Item, session_id: str, keys: SessionKeys | None) -> Iterable[tuple[Header, dict[str, Any]]]:
    if item.header and item.header.pack:
        return [(header, summary_in(lines[0])) for header, lines in open_item(item, session_id, keys)]
    return [open_meta(item.data, session_id=session_id, keys=keys)]


def _numbers(header: Header) -> Iterable[int]:
    """The numbers of a frame's snapshots, as far as they are known without opening it."""
    return range(header.lo, header.hi + 1) if header.pack == header.hi - header.lo + 1 else [header.hi]


def replayed(log: FrameLog, session_id: str, keys: SessionKeys | None) -> list[Replayed]:
    """Every frame of a session, opened and verified."""
    return list(replay(session_items(log, session_id), session_id, keys))


def inspect(log: FrameLog, entry: SessionEntry, keys_of: KeysOf) -> CheckReport:
    """Verify one session down to every root."""
    session_id = entry.session_id
    if entry.problem:
        return CheckReport(findings=(Finding(session_id=session_id, kind="misplaced", detail=entry.problem),))
    try:
        frames = replayed(log, session_id, keys_of(session_id))
    except StoreUnavailable as error:
        unreadable = Finding(session_id=session_id, kind="unreadable", detail=error.message)
        return CheckReport(sessions=1, findings=(unreadable,))
    findings = [finding for each in frames if (finding := each.finding(session_id))]
    return CheckReport(
        sessions=1,
        snapshots=sum(_count(each) for each in frames),
        bytes_read=sum(len(each.item.data) for each in frames),
        findings=(*findings, *_leftovers(log, session_id)),
    )


def _count(each: Replayed) -> int:
    header = each.item.header
    return max(1, header.pack) if each.item.kind == "frame" and header else 0


def repairable(report: CheckReport) -> list[str]:
    """The sessions with damage that can be repaired: no foreign files, and no frames of a newer release."""
    kinds: dict[str, set[str]] = {}
    for finding in report.findings:
        kinds.setdefault(finding.session_id, set()).add(finding.kind)
    damaged = {finding.session_id for finding in report.findings if finding.is_damage}
    return [each for each, found in kinds.items() if each in damaged and not found & _NOT_REPAIRABLE]


def combine(reports: Iterable[CheckReport]) -> CheckReport:
    """One report for many sessions."""
    listed = list(reports)
    return CheckReport(
        sessions=sum(report.sessions for report in listed),
        snapshots=sum(report.snapshots for report in listed),
        bytes_read=sum(report.bytes_read for report in listed),
        findings=tuple(finding for report in listed for finding in report.findings),
        repaired=tuple(line for report in listed for line in report.repaired),
    )


def _leftovers(log: FrameLog, session_id: str) -> list[Finding]:
    detail = "left behind by a crash; it means nothing"
    return [
        Finding(session_id=session_id, kind="leftover", detail=detail, file=name)
        for name in log.leftovers(session_id)
    ]


def quarantined(log: FrameLog, session_id: str | None) -> list[Finding]:
    """What repairs set aside, also of sessions that no list shows any more."""
    detail = "a copy of damaged bytes that a repair set aside"
    return [
        Finding(session_id=owner, kind="quarantine", detail=detail, file=segment.name)
        for owner, segment in log.aside(session_id)
    ]


def repair(log: FrameLog, session_id: str, keys: SessionKeys | None, frames: Sequence[Replayed]) -> str:
    """Copy damaged segments to quarantine, then rewrite the session with its intact snapshots.

    Called inside `FrameLog.exclusively` with all its *frames*. Returns what was done.
    """
    segments = log.segments(session_id)
    damaged_in = {each.item.segment.name for each in frames if not each.loads and each.finding(session_id)}
    places = [log.quarantine(session_id, segment) for segment in segments if segment.name in damaged_in]
    good = rewrite.joined([each.item.data for each in frames if each.loads], session_id, keys)
    tip = log.tip(session_id)
    log.replace(session_id, segments, good, tip.seq if tip else segments[-1].last)
    aside = f", what was damaged is in {', '.join(places)}" if places else ""
    count = sum(len(each.snapshots) for each in frames if each.loads)
    return f"{session_id}: {several(count, 'whole snapshot')} kept{aside}"
