"""One session: its settings, how it can be restored, its history, its conversation."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.operations.conversation import Said, said_of
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.sessions import SessionRow, rows_of

if TYPE_CHECKING:
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.operations.references import Target
    from snapshot_plugin.operations.work import Work
    from snapshot_plugin.store.base import SnapshotStore, StoredSnapshot

__all__ = ["About", "Shown", "SnapshotRow", "about", "history", "show", "shown", "snapshot_row"]


class Restore(Part):
    """The last restore of a session."""

    grade: str
    messages: int = 0
    tried: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


class PlanStep(Part):
    """A step of the plan."""

    content: str
    status: str
    priority: str


class About(Part):
    """A session's settings, its size for a model, and what is special about it."""

    agent: str | None = None
    agent_version: str | None = None
    agent_command: tuple[str, ...] = ()
    mode: str | None = None
    model: str | None = None
    mcp_servers: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    context_tokens: int
    """How many tokens a model must read to know the session."""
    context_size: int | None = None
    """The model's context size, if the agent reported it."""
    context_is_estimate: bool
    turns: int = 0
    messages: int = 0
    """Of the snapshot that is shown; `session.messages` counts those of the newest one."""
    input_tokens: int = 0
    output_tokens: int = 0
    tokens: int = 0
    cost: float | None = None
    currency: str | None = None
    task: str | None = None
    plan_done: int = 0
    plan_total: int = 0
    plan: tuple[PlanStep, ...] = ()
    note: str | None = None
    forked_at: int | None = None
    """How many messages of its parent it began with."""
    expected_grade: str | None = None
    """The best grade that its agent offers: native-load, native-resume or context."""
    last_restore: Restore | None = None
    notices: tuple[str, ...] = ()
    """What is repaired on resume: tool calls without an outcome, an empty last message."""
    withheld: tuple[str, ...] = ()
    """Settings whose values are not stored, because they may be secrets."""
    skipped: tuple[str, ...] = ()
    """Damaged snapshots that were skipped."""


def about(stored: StoredSnapshot) -> About:
    """Summarise a stored session."""
    from snapshot_plugin.acp.state import context_window, expected_grade, last_restore
    from snapshot_plugin.live.label import label_of
    from snapshot_plugin.model.context_size import estimated_tokens
    from snapshot_plugin.model.repair import repair

    snapshot, window = stored.snapshot, context_window(stored.snapshot)
    agent, config, metrics = snapshot.agent, snapshot.config, snapshot.metrics
    return About(
        agent=agent.name if agent else None,
        agent_version=agent.version if agent else None,
        agent_command=agent.command if agent else (),
        mode=config.mode,
        model=config.model,
        mcp_servers=tuple(server.name for server in config.mcp_servers),
        directories=config.additional_directories,
        context_tokens=window.used if window else estimated_tokens(snapshot),
        context_size=window.size if window else None,
        context_is_estimate=window is None,
        turns=metrics.turns,
        messages=len(snapshot.messages),
        input_tokens=metrics.input_tokens,
        output_tokens=metrics.output_tokens,
        tokens=metrics.total_tokens,
        cost=metrics.cost,
        currency=metrics.currency,
        task=snapshot.current_task,
        plan_done=sum(entry.status == "completed" for entry in snapshot.plan),
        plan_total=len(snapshot.plan),
        plan=tuple(map(PlanStep.from_fields, snapshot.plan)),
        note=label_of(snapshot)["note"],
        forked_at=snapshot.parent.message_index if snapshot.parent else None,
        expected_grade=expected_grade(snapshot),
        last_restore=_restore(last_restore(snapshot)),
        notices=tuple(notice.detail for notice in repair(snapshot)[1]),
        withheld=snapshot.config.withheld,
        skipped=tuple(f"snapshot {f.seq}: {f.detail}" if f.seq else f.detail for f in stored.skipped),
    )


def _restore(report: Mapping[str, Any] | None) -> Restore | None:
    if not report or not isinstance(report.get("grade"), str):
        return None
    listed = {
        name: tuple(str(item) for item in value)
        for name in ("tried", "notices", "differences")
        if isinstance(value := report.get(name), list | tuple)
    }
    messages = report.get("messages")
    return Restore(grade=report["grade"], messages=messages if isinstance(messages, int) else 0, **listed)


class SnapshotRow(Part):
    """One snapshot of a session's history."""

    seq: int
    saved_at: datetime
    state: str
    problem: str | None = None
    trigger: str
    tags: tuple[str, ...] = ()
    messages: int
    turns: int
    tokens: int
    size_bytes: int


class Shown(Document):
    """A session: its summary, and the requested part of its history or conversation."""

    kind: ClassVar[str] = "show"
    session: SessionRow
    about: About | None = None
    """Null if only the history or certain messages were requested."""
    snapshot: int
    """The number of the snapshot that is shown."""
    history: tuple[SnapshotRow, ...] = ()
    messages: tuple[Said, ...] = ()
    as_of: datetime


async def history(work: Work, store: SnapshotStore, target: Target) -> Shown:
    """A session's snapshots, newest first."""
    (row,) = await rows_of(store, [target.meta])
    past = tuple(snapshot_row(meta) for meta in await store.history(target.session_id))
    return Shown(session=row, snapshot=past[0].seq, history=past, as_of=work.now)


async def show(work: Work, store: SnapshotStore, target: Target) -> tuple[StoredSnapshot, Shown]:
    """Read a session or one of its snapshots. Returns it as stored, and its summary without the conversation."""
    (row,) = await rows_of(store, [target.meta])
    stored = await store.read(target.session_id, at=target.seq)
    return stored, Shown(session=row, about=about(stored), snapshot=stored.ref.seq, as_of=work.now)


def shown(
    stored: StoredSnapshot, *, tools: bool, message: int | None = None, first: int | None = None
) -> tuple[Said, ...]:
    """The conversation: all of it, message *message*, or from message *first* on.

    Raises:
        InvalidInput: there is no such message.
    """
    number, total = message or first or 1, len(stored.snapshot.messages)
    if number > max(1, total):
        raise InvalidInput(
            f"session {stored.ref.session_id} has no message {number}: it has {total}",
            session_id=stored.ref.session_id,
        )
    return tuple(said_of(stored.snapshot, tools=tools, first=number, last=message))


def snapshot_row(meta: SnapshotMeta) -> SnapshotRow:
    """A snapshot as the history shows it."""
    return SnapshotRow.from_fields(meta, tags=meta.snapshot_tags)
