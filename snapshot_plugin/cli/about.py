"""The facts that ``show`` and ``resume`` print about a session, one per line."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from snapshot_plugin.operations.session_rows import SessionRow, marks
from snapshot_plugin.operations.showing import About
from snapshot_plugin.operations.text import clock_time, count, long_ago, money, pad, plain, several, size, span

__all__ = ["context_line", "fact_lines"]

_NAME = 10


def fact_lines(row: SessionRow, known: About, now: datetime) -> Iterator[str]:
    """Yield the known facts, one per line."""
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
            row.counts_turns and known.turns and several(known.turns, "turn"),
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
    yield "snapshot", f"{row.seq} ({plain(row.trigger)}), {size(row.size_bytes)} stored"
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
    if known.withheld:
        yield "not kept", plain(f"{', '.join(known.withheld)} (may be secrets)")
    yield from (("damaged", plain(damage)) for damage in known.skipped)


def context_line(known: About) -> str:
    """Say how much text the model has to read."""
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
