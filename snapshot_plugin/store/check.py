"""Verify sessions down to every root, list their history, and repair them without losing an acknowledged save."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.frame import Header, open_meta, summary_in
from snapshot_plugin.errors import (
    Conflict,
    InvalidSnapshotVersion,
    SessionLocked,
    SnapshotError,
    SnapshotNotFound,
    StoreUnavailable,
    WrongKey,
)
from snapshot_plugin.inert import several
from snapshot_plugin.model.meta import LoadedFrom, SnapshotMeta, SnapshotRef
from snapshot_plugin.model.snapshot import SessionSnapshot, with_origin
from snapshot_plugin.store import rewrite, trash
from snapshot_plugin.store.base import CheckReport, Finding
from snapshot_plugin.store.listing import damaged, meta_of
from snapshot_plugin.store.log import Frame, FrameLog, SessionEntry, frames_in, session_frames
from snapshot_plugin.store.salvage import Salvaged, salvage
from snapshot_plugin.store.walk import Replayed, changes_in, replay
from snapshot_plugin.store.writer import Writers

if TYPE_CHECKING:
    from snapshot_plugin.store.engine import LogStore

__all__ = ["Repairs", "combine", "history", "inspect", "quarantined", "repairable"]

KeysOf = Callable[[str], SessionKeys | None]
_ATTEMPTS = 20
_NOT_REPAIRABLE = frozenset({"misplaced", "unreadable", InvalidSnapshotVersion.code})


def history(log: FrameLog, session_id: str, keys: SessionKeys | None) -> list[SnapshotMeta]:
    """Every snapshot, oldest first; those that cannot be read are listed as damaged."""
    out = []
    for frame in session_frames(log, session_id):
        if frame.kind != "frame" or frame.header is None:
            continue
        size = len(frame.data) // max(1, frame.header.pack)
        try:
            out += [meta_of(header, summary, size) for header, summary in _summaries(frame, session_id, keys)]
        except SnapshotError as error:
            out += [
                damaged(session_id, size, error.message, code=error.code, seq=seq, saved_at=frame.header.t)
                for seq in _numbers(frame.header)
            ]
    return out


def _summaries(frame: Frame, session_id: str, keys: SessionKeys | None) -> Iterable[tuple[Header, dict[str, Any]]]:
    if frame.header and frame.header.pack:
        return [(header, summary_in(lines[0])) for header, lines in changes_in(frame, session_id, keys)]
    return [open_meta(frame.data, session_id=session_id, keys=keys)]


def _numbers(header: Header) -> Iterable[int]:
    """The numbers of a frame's snapshots, as far as they are known without opening it."""
    return range(header.lo, header.hi + 1) if header.pack == header.hi - header.lo + 1 else [header.hi]


def _all_replayed(log: FrameLog, session_id: str, keys: SessionKeys | None) -> list[Replayed]:
    """Every frame of a session, opened and verified."""
    return list(replay(session_frames(log, session_id), session_id, keys))


def inspect(log: FrameLog, entry: SessionEntry, keys_of: KeysOf) -> CheckReport:
    """Verify one session down to every root."""
    session_id = entry.session_id
    if entry.problem:
        return CheckReport(findings=(Finding(session_id=session_id, kind="misplaced", detail=entry.problem),))
    try:
        frames = _all_replayed(log, session_id, keys_of(session_id))
    except StoreUnavailable as error:
        unreadable = Finding(session_id=session_id, kind="unreadable", detail=error.message)
        return CheckReport(sessions=1, findings=(unreadable,))
    findings = [finding for each in frames if (finding := each.finding(session_id))]
    return CheckReport(
        sessions=1,
        snapshots=sum(_count(each) for each in frames),
        bytes_read=sum(len(each.frame.data) for each in frames),
        findings=(*findings, *_leftovers(log, session_id)),
    )


def _count(each: Replayed) -> int:
    header = each.frame.header
    return max(1, header.pack) if each.frame.kind == "frame" and header else 0


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
        for owner, segment in trash.quarantined(log, session_id)
    ]


def _repair(log: FrameLog, session_id: str, keys: SessionKeys | None, frames: Sequence[Replayed]) -> str:
    """Copy damaged segments to quarantine, then rewrite the session with its intact snapshots.

    Called inside `FrameLog.exclusively` with all its *frames*. Returns what was done.
    """
    segments = log.segments(session_id)
    damaged_in = {each.frame.segment.name for each in frames if not each.loads and each.finding(session_id)}
    places = [trash.quarantine(log, session_id, segment) for segment in segments if segment.name in damaged_in]
    good = rewrite.joined([each.frame.data for each in frames if each.loads], session_id, keys)
    tip = log.tip(session_id)
    log.replace(session_id, segments, good, tip.seq if tip else segments[-1].last)
    aside = f", what was damaged is in {', '.join(places)}" if places else ""
    count = sum(len(each.changes) for each in frames if each.loads)
    return f"{session_id}: {several(count, 'whole snapshot')} kept{aside}"


class Repairs:
    """The repairs of one store object. *save* saves a salvaged snapshot; see `StoreCore` for turns and threads."""

    def __init__(self, store: LogStore, writers: Writers, save: Callable[[SessionSnapshot], SnapshotRef]) -> None:
        self._store, self._writers, self._save = store, writers, save

    def repair(self, session_id: str) -> str:
        """Rewrite a damaged session with its intact snapshots; returns what was done."""
        salvaged: SnapshotRef | None = None
        for _ in range(_ATTEMPTS):
            try:
                salvaged = self.salvage(session_id) or salvaged
            except Conflict:  # it was saved meanwhile
                continue
            except SnapshotNotFound:
                return f"{session_id}: deleted meanwhile"
            if done := self._repaired(session_id):
                self._writers.forget(session_id)  # what we saw before may be gone
                return (
                    f"{done}; snapshot {salvaged.seq} is salvaged from what follows the damage"
                    if salvaged
                    else done
                )
        raise SessionLocked(
            f"session {session_id} is saved all the time, so it cannot be repaired", session_id=session_id,
            hint="try again in a moment",
        )  # fmt: skip

    def _repaired(self, session_id: str) -> str:
        """Repair; "" if there is something to salvage first: writers that do not know of the damage build on it."""
        keys = self._store.session_keys(session_id)
        with self._store.frames.exclusively(session_id):
            frames = _all_replayed(self._store.frames, session_id, keys)
            if self._salvaged(frames, session_id):
                return ""
            return _repair(self._store.frames, session_id, keys, frames)

    def salvage(self, session_id: str) -> SnapshotRef | None:
        """Save the intact parts of a damaged session as a new snapshot."""
        keys = self._store.session_keys(session_id)
        tip = self._store.frames.tip(session_id)  # first, so that a concurrent save is noticed
        frames = _all_replayed(self._store.frames, session_id, keys)
        if not any(each.loads for each in frames):  # an earlier repair may have kept nothing
            aside = sorted(
                (segment for _, segment in trash.quarantined(self._store.frames, session_id)),
                key=lambda each: each.first,
            )
            kept = [each._replace(loads=False) for each in replay(frames_in(aside), session_id, keys)]
            frames = [*kept, *frames]
        if not frames:
            raise SnapshotNotFound(f"there is no session {session_id}", session_id=session_id)
        salvaged = self._salvaged(frames, session_id)
        if salvaged is None:
            return None
        snapshot, name = salvaged.snapshot, salvaged.snapshot.session_id
        self._writers.forget(name)  # what we wrote last may build on the damage
        if tip:
            with_origin(snapshot, LoadedFrom(name, tip.seq, tip.id, self._store.place_id()))
        return self._save(snapshot)

    def _salvaged(self, frames: Sequence[Replayed], session_id: str) -> Salvaged | None:
        if any(isinstance(each.error, WrongKey) for each in frames):  # not damage: the key may be available later
            return None
        return salvage(frames, session_id, self._store.session_keys(session_id))
