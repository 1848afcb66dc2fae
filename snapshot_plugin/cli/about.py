"""What is to know about a session beside its conversation: for ``show``, and for ``resume`` before it goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from snapshot_plugin.cli.document import Part
from snapshot_plugin.cli.sessions import SessionRow, marks
from snapshot_plugin.cli.text import clock_time, count, long_ago, money, pad, plain, several, size, span

if TYPE_CHECKING:
    from snapshot_plugin.store.base import StoredSnapshot

__all__ = ["About", "Restore", "about", "context_line", "fact_lines"]

_NAME = 10


class Restore(Part):
    """How the session was brought back the last time."""

    grade: str
    messages: int = 0
    tried: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


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
    """What a model has to read to know the session."""
    context_size: int | None = None
    """What its model can hold, if the agent said so."""
    context_is_estimate: bool
    turns: int = 0
    messages: int = 0
    """As many as the snapshot has that is shown; the session's own count is of its newest."""
    input_tokens: int = 0
    output_tokens: int = 0
    tokens: int = 0
    cost: float | None = None
    currency: str | None = None
    task: str | None = None
    plan_done: int = 0
    plan_total: int = 0
    note: str | None = None
    forked_at: int | None = None
    """How many messages of its parent it began with."""
    expected_grade: str | None = None
    """How it can come back at best, as far as its agent said: native-load, native-resume or context."""
    last_restore: Restore | None = None
    notices: tuple[str, ...] = ()
    """What is repaired when it comes back: tool calls without an outcome, an empty last message."""
    skipped: tuple[str, ...] = ()
    """Damage that was skipped to get here."""


def about(stored: StoredSnapshot) -> About:
    """What is to know about a stored session."""
    from snapshot_plugin.acp.report import (
        context_window,
        expected_grade,
        last_restore,
    )
    from snapshot_plugin.manager.labels import label_of
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
        note=label_of(snapshot)["note"],
        forked_at=snapshot.parent.message_index if snapshot.parent else None,
        expected_grade=expected_grade(snapshot),
        last_restore=_restore(last_restore(snapshot)),
        notices=tuple(notice.detail for notice in repair(snapshot)[1]),
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


# For people ----------------------------------------------------------------------------------------------


def fact_lines(row: SessionRow, known: About, now: datetime) -> Iterator[str]:
    """The facts, one a line, those that are there."""
    for name, value in _facts(row, known, now):
        if value:
            yield f"{pad(name, _NAME)}{value}"


def _facts(row: SessionRow, known: About, now: datetime) -> Iterator[tuple[str, str]]:
    yield "id", row.session_id
    yield (
        "agent",
        _joined(
            known.agent, known.agent_version, " ".join(known.agent_command) and f"({' '.join(known.agent_command)})"
        ),
    )
    yield "where", _joined(row.cwd, *known.directories)
    begun = f", begun {clock_time(row.created_at)}" if row.created_at else ""
    yield "changed", f"{clock_time(row.changed_at)} ({long_ago(row.changed_at, now)}){begun}"
    yield (
        "size",
        _dotted(
            known.turns and several(known.turns, "turn"),
            several(known.messages, "message"),
            known.tokens and f"{count(known.tokens)} tokens used",
            money(known.cost, known.currency),
        ),
    )
    yield "context", context_line(known)
    yield (
        "settings",
        _dotted(known.mode and f"mode {plain(known.mode)}", known.model and f"model {plain(known.model)}"),
    )
    yield "servers", _joined(*known.mcp_servers)
    yield "task", plain(known.task or "")
    yield "plan", f"{known.plan_done} of {known.plan_total} done" if known.plan_total else ""
    yield "tags", _dotted(", ".join(map(plain, (*row.tags, *row.snapshot_tags))), row.pinned and "pinned")
    yield "note", plain(known.note or "")
    yield "parent", f"{row.parent} at message {known.forked_at}" if row.parent else ""
    yield "state", _state(row, now)
    yield "snapshot", f"{row.seq} ({plain(row.trigger)}), {size(row.size_bytes)} on disk"
    yield from _restore_facts(known)


def _restore_facts(known: About) -> Iterator[tuple[str, str]]:
    if known.last_restore:
        yield (
            "restored",
            plain(
                _dotted(
                    known.last_restore.grade,
                    several(known.last_restore.messages, "message"),
                    *known.last_restore.tried,
                )
            ),
        )
        yield from (("", plain(text)) for text in (*known.last_restore.notices, *known.last_restore.differences))
    yield from (("repair", plain(notice)) for notice in known.notices)
    yield from (("damaged", plain(damage)) for damage in known.skipped)


def context_line(known: About) -> str:
    """How much the model has to read."""
    about_ = "about " if known.context_is_estimate else ""
    of = f" of {count(known.context_size)}" if known.context_size else ""
    return f"{about_}{count(known.context_tokens)}{of} tokens"


def _state(row: SessionRow, now: datetime) -> str:
    if row.live:
        who = f"process {row.live.pid} on {plain(row.live.host)} ({plain(' '.join(row.live.command))})"
        return f"live: {who} has had it for {span(row.live.since, now)}"
    words = [word for word in marks(row) if word != "pinned"]
    return plain(": ".join(part for part in (", ".join(words), row.problem) if part))


def _joined(*parts: str | None) -> str:
    return plain(" ".join(part for part in parts if part))


def _dotted(*parts: Any) -> str:
    return " · ".join(str(part) for part in parts if part)
