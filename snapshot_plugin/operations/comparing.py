"""What differs between two sessions or snapshots: messages, tools, plan, settings, files touched, tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from snapshot_plugin.errors import SnapshotNotFound
from snapshot_plugin.operations.conversation import Said, said_of
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.references import Target, find

if TYPE_CHECKING:
    from snapshot_plugin.model.diff import PlanChange, SnapshotDiff
    from snapshot_plugin.model.snapshot import SessionSnapshot
    from snapshot_plugin.store.base import SnapshotStore
    from snapshot_plugin.store.views import StoredLines

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
    "compare_targets",
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
    """A tool call that ran or finished in between."""

    tool_call_id: str
    title: str
    status: str | None


class Step(Part):
    """A step of the plan: its status before and after; null if the step did not exist."""

    content: str
    before: str | None
    after: str | None


class ChangedSetting(Part):
    """A setting before and after; null if it was not set."""

    path: str
    before: Any = None
    after: Any = None


class Spent(Part):
    """What was spent in between; the cost is null if it is unknown."""

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
    """The names of other fields that differ."""


async def compare(store: SnapshotStore, first: str, second: str | None) -> Compared:
    """Compare *first* with *second*; without a second, compare *first* with the snapshot before it."""
    one = await find(store, first)
    return await compare_targets(store, one, await find(store, second) if second is not None else None)


async def compare_targets(store: SnapshotStore, one: Target, other: Target | None) -> Compared:
    """As `compare`, for references that are already resolved."""
    from snapshot_plugin.store.views import stored_lines

    if other is None:
        after = await stored_lines(store, one.session_id, one.seq)
        return _compared(await stored_lines(store, one.session_id, await _before(store, after)), after)
    before, after = [await stored_lines(store, each.session_id, _number(each)) for each in (one, other)]
    return _compared(before, after)


def _number(target: Target) -> int | None:
    """The number of the snapshot; None for the newest intact one if the newest is damaged."""
    return target.meta.seq if target.seq is None and target.meta.state == "ok" else target.seq


async def compare_snapshots(store: SnapshotStore, session_id: str, before: int, after: int) -> Compared:
    """What differs between two snapshots of one session."""
    from snapshot_plugin.store.views import stored_lines

    first, second = [await stored_lines(store, session_id, seq) for seq in (before, after)]
    return _compared(first, second)


async def _before(store: SnapshotStore, lines: StoredLines) -> int:
    session_id = lines.session.session_id
    earlier = [meta.seq for meta in await store.history(session_id) if meta.seq < lines.seq]
    if not earlier:
        raise SnapshotNotFound(
            f"session {session_id} has no snapshot before {lines.seq}",
            session_id=session_id,
            hint="name two to compare: asnap diff A B",
        )
    return max(earlier)


def _compared(old: StoredLines, new: StoredLines) -> Compared:
    """Compare two snapshots. The messages that both begin with are not parsed."""
    from snapshot_plugin.model.diff import diff
    from snapshot_plugin.model.splice import splice_between

    same = splice_between(old.messages, new.messages).at
    before, after = _from(old, same), _from(new, same)
    found = diff(before, after)
    other = tuple(name for name in found.other if name != "session_id")  # both are named already
    return Compared(
        before=_side(old),
        after=_side(new),
        equal=found.is_empty,
        summary=found.evolve(other=other).stat(),
        common_prefix=same + found.common_prefix,
        removed=_said(before, found.messages_removed, same),
        added=_said(after, found.messages_added, same),
        edited=_edited(before, after, found, same),
        tools=tuple(map(Tool.from_fields, found.tools_run)),
        files=found.files,
        plan=tuple(_plan_step(change) for change in found.plan),
        settings=tuple(map(ChangedSetting.from_fields, found.config)),
        spent=Spent.from_fields(found.metrics),
        other=other,
    )


def _from(lines: StoredLines, start: int) -> SessionSnapshot:
    """The snapshot without its first *start* messages."""
    from snapshot_plugin.codec.document import message_of

    session_id = lines.session.session_id
    return lines.session.evolve(messages=tuple(message_of(line, session_id) for line in lines.messages[start:]))


def shortened(found: Compared, longest: int) -> Compared:
    """Return *found* with texts cut to *longest* characters, for a page that shows all of them."""

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


def _side(lines: StoredLines) -> Side:
    return Side.from_fields(lines.session, seq=lines.seq, messages=len(lines.messages))


def _said(snapshot: SessionSnapshot, places: Sequence[int], skipped: int) -> tuple[Said, ...]:
    """The messages at *places* of a snapshot whose first messages were *skipped*."""
    found = (said for n in places for said in said_of(snapshot, tools=False, first=n + 1, last=n + 1))
    return tuple(replace(said, number=said.number + skipped) for said in found)


def _edited(
    before: SessionSnapshot, after: SessionSnapshot, found: SnapshotDiff, skipped: int
) -> tuple[Edited, ...]:
    old = _said(before, [change.before for change in found.messages_changed], skipped)
    new = _said(after, [change.after for change in found.messages_changed], skipped)
    return tuple(Edited(before=one, after=other) for one, other in zip(old, new, strict=True))


def _plan_step(change: PlanChange) -> Step:
    before, after = change.before, change.after
    return Step(
        content=change.content, before=before.status if before else None, after=after.status if after else None
    )
