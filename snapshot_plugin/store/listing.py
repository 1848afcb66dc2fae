"""Every session of a log, from its newest frame alone.

A command that only lists loads this and the files, and nothing that opens, changes or validates snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from snapshot_plugin.codec.frame import Header, open_meta
from snapshot_plugin.errors import SnapshotCorrupted, SnapshotError, SnapshotNotFound
from snapshot_plugin.model.meta import CURRENT_VERSION, SnapshotMeta, SnapshotState
from snapshot_plugin.model.times import moment_of

if TYPE_CHECKING:
    from snapshot_plugin.codec.encrypt import SessionKeys
    from snapshot_plugin.store.log import FrameReader, SessionEntry

__all__ = ["damaged", "listed", "meta_of", "with_labels"]

_STATES: dict[str, SnapshotState] = {
    "key_missing": "encrypted",
    "wrong_key": "encrypted",
    "key_problem": "encrypted",
    "version_unsupported": "too_new",
}
"""What kept a snapshot from being read, by the code of the error or the kind of the finding."""
_LONG_AGO = datetime.fromtimestamp(0, UTC)


def listed(
    log: FrameReader,
    keys_of: Callable[[str], SessionKeys | None] = lambda _: None,
    labels: Mapping[str, str] | None = None,
    *,
    only: str | None = None,
) -> list[SnapshotMeta]:
    """The newest snapshot of every session, or *only* of one, last changed first; damaged ones as damaged.

    With *labels*, a log that has an index of them leaves the others out; see `with_labels`.
    """
    metas = [meta for entry in log.sessions(only, labels) if (meta := _newest(log, entry, keys_of))]
    return sorted(metas, key=lambda meta: (meta.changed_at, meta.session_id), reverse=True)


def with_labels(metas: Sequence[SnapshotMeta], labels: Mapping[str, str]) -> Sequence[SnapshotMeta]:
    """Those that have all these labels."""
    if not labels:
        return metas
    return [meta for meta in metas if labels.items() <= meta.labels.items()]


def meta_of(header: Header, summary: Mapping[str, Any], size: int) -> SnapshotMeta:
    """The list entry of one frame."""
    try:
        summary = {**summary, "labels": labels} if (labels := header.other.get("labels")) else summary
        meta = SnapshotMeta.told(
            summary, session_id=header.sid, seq=header.hi, saved_at=moment_of(header.t), root=header.root,
            version=header.v, trigger=header.trigger, snapshot_tags=header.tags, size_bytes=size,
        )  # fmt: skip
    except ValueError as error:
        raise SnapshotCorrupted(
            f"the summary of snapshot {header.hi} is unreadable: {error}", session_id=header.sid
        ) from error
    if header.v > CURRENT_VERSION:
        problem = f"snapshot {header.hi} has version {header.v}; this release reads up to {CURRENT_VERSION}"
        return meta.evolve(state="too_new", problem=problem)
    return meta


def damaged(
    session_id: str, size: int, problem: str, *, code: str = "", seq: int = 0, saved_at: str = ""
) -> SnapshotMeta:
    """The list entry of a snapshot that cannot be read; *code* is the code of the error."""
    try:
        moment = moment_of(saved_at)
    except ValueError:
        moment = _LONG_AGO
    return SnapshotMeta(
        session_id=session_id,
        seq=seq,
        saved_at=moment,
        size_bytes=size,
        state=_STATES.get(code, "damaged"),
        problem=problem,
    )


def _newest(
    log: FrameReader, entry: SessionEntry, keys_of: Callable[[str], SessionKeys | None]
) -> SnapshotMeta | None:
    """Read the list entry from the newest frame; open the session only if that frame is damaged.

    None if the session was deleted meanwhile, or its first save never finished.
    """
    session_id, size, problem, tail = entry
    code = ""
    if problem is None:
        try:
            if frame := tail or log.tail(session_id):
                return meta_of(*open_meta(frame, session_id=session_id, keys=keys_of(session_id)), size)
        except SnapshotNotFound:
            return None
        except SnapshotError as error:
            problem, code = error.message, error.code
    return _opened(log, session_id, size, (problem, code), keys_of)


def _opened(
    log: FrameReader,
    session_id: str,
    size: int,
    wrong: tuple[str | None, str],
    keys_of: Callable[[str], SessionKeys | None],
) -> SnapshotMeta | None:
    from snapshot_plugin.store.walk import find  # noqa: PLC0415 — hardly a list needs it

    problem, code = wrong
    try:
        found = find(log, session_id, keys_of(session_id))
        meta = meta_of(found.header, found.document.summary(), size)
    except SnapshotError as error:
        if problem is None and isinstance(error, SnapshotNotFound):
            return None
        return damaged(session_id, size, problem or error.message, code=code or error.code)
    if problem is None and found.skipped:
        problem, code = found.skipped[0].detail, found.skipped[0].kind
    return meta.evolve(state=_STATES.get(code, "damaged"), problem=problem) if problem else meta
