"""What differs between two sessions or snapshots: messages, tools, plan, settings, files touched, tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from snapshot_plugin.errors import SnapshotNotFound
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.references import Target, find
from snapshot_plugin.operations.transcript import Said, said_of

if TYPE_CHECKING:
    from snapshot_plugin.model.diff import PlanChange, SnapshotDiff
    from snapshot_plugin.model.snapshot import SessionSnapshot
    from snapshot_plugin.store.base import SnapshotStore, StoredSnapshot

__all__ = [
    "ChangedSetting",
    "Compared",
    "Edited",
    "Side",
    "Spent",
    "Step",
    "Tool",
    "compare",
    "compare_snapshots",
    "compared",
    "shortened",
]


class Side(Part):
    """One of the two: which snapshot of which session."""

    session_id: str
    seq: int
    title: str | None
    messages: int


class Edited(Part):
    """A message that both have, and that differs."""

    before: Said
    after: Said


class Tool(Part):
    """A tool that ran, or came to its end, in between."""

    tool_call_id: str
    title: str
    status: str | None


class Step(Part):
    """A step of the plan: its status before and after; null where it was not there."""

    content: str
    before: str | None
    after: str | None


class ChangedSetting(Part):
    """A setting: what it was, what it is; null where it was not there."""

    path: str
    before: Any = None
    after: Any = None


class Spent(Part):
    """What was spent in between; the cost is null when it cannot be told."""

    turns: int
    input_tokens: int
    output_tokens: int
    total_tokens: int
    cost: float | None
    duration_seconds: float


class Compared(Document):
    """What happened from `before` to `after`."""

    kind: ClassVar[str] = "diff"
    before: Side
    after: Side
    equal: bool
    summary: str
    common_prefix: int
    """How many messages both begin with."""
    removed: tuple[Said, ...]
    added: tuple[Said, ...]
    edited: tuple[Edited, ...]
    tools: tuple[Tool, ...]
    files: tuple[str, ...]
    plan: tuple[Step, ...]
    settings: tuple[ChangedSetting, ...]
    spent: Spent
    other: tuple[str, ...]
    """Names of whatever else differs."""


async def compare(store: SnapshotStore, first: str, second: str | None) -> Compared:
    """What differs from *first* to *second*; from the snapshot before *first* to it, where there is no second."""
    one = await find(store, first)
    if second is None:
        return compared(*await _step(store, one))
    other = await find(store, second)
    if one.session_id == other.session_id and one.meta.state == "ok":
        return await _of_one_session(store, one, other)
    before = await store.read(one.session_id, at=one.seq)
    return compared(before, await store.read(other.session_id, at=other.seq))


async def _of_one_session(store: SnapshotStore, one: Target, other: Target) -> Compared:
    before, after = (each.meta.seq if each.seq is None else each.seq for each in (one, other))
    return await compare_snapshots(store, one.session_id, before, after)


async def compare_snapshots(store: SnapshotStore, session_id: str, before: int, after: int) -> Compared:
    """What differs between two snapshots of one session: what they have in common is read once."""
    first, second = await store.walk(session_id, [before, after])
    return _compared(first, before, second, after)


async def _step(store: SnapshotStore, target: Target) -> tuple[StoredSnapshot, StoredSnapshot]:
    after = await store.read(target.session_id, at=target.seq)
    earlier = [meta.seq for meta in await store.history(target.session_id) if meta.seq < after.ref.seq]
    if not earlier:
        raise SnapshotNotFound(
            f"session {target.session_id} has no snapshot before {after.ref.seq}",
            session_id=target.session_id,
            hint="name two to compare: asnap diff A B",
        )
    return await store.read(target.session_id, at=max(earlier)), after


def compared(before: StoredSnapshot, after: StoredSnapshot) -> Compared:
    """What happened from one snapshot to the other."""
    return _compared(before.snapshot, before.ref.seq, after.snapshot, after.ref.seq)


def _compared(before: SessionSnapshot, old: int, after: SessionSnapshot, new: int) -> Compared:
    from snapshot_plugin.model.diff import diff

    found = diff(before, after)
    return Compared(
        before=_side(before, old),
        after=_side(after, new),
        equal=found.is_empty,
        summary=found.stat(),
        common_prefix=found.common_prefix,
        removed=_said(before, found.messages_removed),
        added=_said(after, found.messages_added),
        edited=_edited(before, after, found),
        tools=tuple(Tool(tool_call_id=t.tool_call_id, title=t.title, status=t.status) for t in found.tools_run),
        files=found.files,
        plan=tuple(_plan_step(change) for change in found.plan),
        settings=tuple(
            ChangedSetting(path=each.path, before=each.before, after=each.after) for each in found.config
        ),
        spent=Spent(**found.metrics.model_dump()),
        other=tuple(name for name in found.other if name != "session_id"),  # both are named already
    )


def shortened(found: Compared, longest: int) -> Compared:
    """The same with each text of more than *longest* characters cut, for a page that shows all of them."""

    def short(said: Said) -> Said:
        pieces = (
            replace(piece, text=f"{piece.text[:longest]}…") if len(piece.text) > longest else piece
            for piece in said.pieces
        )
        return replace(said, pieces=tuple(pieces))

    return replace(
        found,
        removed=tuple(map(short, found.removed)),
        added=tuple(map(short, found.added)),
        edited=tuple(Edited(before=short(each.before), after=short(each.after)) for each in found.edited),
    )


def _side(snapshot: SessionSnapshot, seq: int) -> Side:
    return Side(session_id=snapshot.session_id, seq=seq, title=snapshot.title, messages=len(snapshot.messages))


def _said(snapshot: SessionSnapshot, places: Sequence[int]) -> tuple[Said, ...]:
    return tuple(said for n in places for said in said_of(snapshot, tools=False, first=n + 1, last=n + 1))


def _edited(before: SessionSnapshot, after: SessionSnapshot, found: SnapshotDiff) -> tuple[Edited, ...]:
    old = _said(before, [change.before for change in found.messages_changed])
    new = _said(after, [change.after for change in found.messages_changed])
    return tuple(Edited(before=one, after=other) for one, other in zip(old, new, strict=True))


def _plan_step(change: PlanChange) -> Step:
    before, after = change.before, change.after
    return Step(
        content=change.content, before=before.status if before else None, after=after.status if after else None
    )
