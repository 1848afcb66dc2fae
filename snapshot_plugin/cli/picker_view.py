"""Render a picker as styled text. Pure: sizes and the time come in."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from datetime import datetime

from snapshot_plugin.cli.choices import Choices, Glimpse
from snapshot_plugin.operations.session_rows import SessionRow, marks
from snapshot_plugin.operations.text import ago, count, cut, long_ago, pad, plain, several, width

__all__ = ["Fragment", "footer", "list_of", "past_of", "preview_of"]

Fragment = tuple[str, str]
"""A style and a text."""

_ROOM_FOR_AGENT = 56
_AGENT = 12
_AGE = 4


def list_of(choices: Choices, now: datetime, *, columns: int, lines: int) -> list[Fragment]:
    """Render the sessions around the cursor, one per line; lines are cut to fit, ids are not."""
    shown, position = choices.shown, choices.position
    if not shown:
        scope = "Tab shows all" if not choices.everywhere else "nothing fits"
        return [("class:dim", f"  no session here fits; {scope}" if choices.total else "  no sessions")]
    start = max(0, min(position - lines // 2, len(shown) - lines))
    visible = shown[start : start + max(1, lines)]
    widest = max(width(row.short_id) for row in visible)
    fragments: list[Fragment] = []
    for number, row in enumerate(visible, start):
        fragments += _line(row, now, columns, widest, is_at=number == position)
    return fragments


def _line(row: SessionRow, now: datetime, columns: int, widest: int, *, is_at: bool) -> Iterator[Fragment]:
    style = "class:at " if is_at else ""
    agent = pad(cut(plain(row.agent or ""), _AGENT), _AGENT) + " " if columns >= _ROOM_FOR_AGENT else ""
    mark = next((mark.split()[0] for mark in marks(row)), "")
    tail = f" {agent}{pad(ago(row.changed_at, now), _AGE, right=True)} {pad(mark, 9)}"
    room = columns - widest - width(tail) - 3
    yield style, "> " if is_at else "  "
    yield f"{style}class:id", pad(row.short_id, widest)
    yield style, " " + pad(cut(row.name, room), max(0, room))
    yield f"{style}class:dim", tail + "\n"


def past_of(choices: Choices, now: datetime, *, columns: int, lines: int) -> list[Fragment]:
    """Render the snapshots of the open session around the cursor, one per line."""
    past, position = choices.past, choices.past_position
    if not past:
        return [("class:dim", "  …")]
    start = max(0, min(position - lines // 2, len(past) - lines))
    fragments: list[Fragment] = []
    for number, each in enumerate(past[start : start + max(1, lines)], start):
        style = "class:at " if number == position else ""
        marks = ", ".join(
            (*each.tags, *([each.state] if each.state != "ok" else []), *(["newest"] if not number else []))
        )
        told = plain(f"{several(each.messages, 'message')}, {each.trigger}" + (f" · {marks}" if marks else ""))
        words = cut(f"{pad(ago(each.saved_at, now), _AGE, right=True)}  {told}", max(4, columns - 9))
        fragments += [
            (style, "> " if number == position else "  "),
            (f"{style}class:id", pad(f"@{each.seq}", 6)),
            (style, f" {words}\n"),
        ]
    return fragments


def preview_of(row: SessionRow | None, glimpse: Glimpse | None, now: datetime, *, columns: int) -> list[Fragment]:
    """Render the preview of the session under the cursor."""
    pieces = _about(row, now) + _words(glimpse) if row else []
    return [(style, "\n".join(textwrap.wrap(text, max(10, columns))) + "\n") for style, text in pieces]


def _about(row: SessionRow, now: datetime) -> list[Fragment]:
    facts = [
        plain(row.agent or ""),
        row.length,
        f"{count(row.tokens)} tokens" if row.tokens else "",
    ]
    return [
        ("bold", row.name),
        ("", " · ".join(fact for fact in (*facts, long_ago(row.changed_at, now)) if fact)),
        ("class:dim", plain(row.cwd or "")),
        ("class:bad" if row.state != "ok" else "", ", ".join(marks(row))),
    ]


def _words(glimpse: Glimpse | None) -> list[Fragment]:
    if glimpse is None:
        return [("class:dim", "…")]
    if glimpse.problem:
        return [("class:bad", glimpse.problem)]
    if glimpse.changed:
        return [("class:id", f"since the snapshot before: {glimpse.changed}"), ("", glimpse.last)]
    last = glimpse.last if glimpse.last != glimpse.first else ""
    return [("", glimpse.first), ("class:dim", "…" if last else ""), ("", last)]


def footer(choices: Choices, *, columns: int) -> list[Fragment]:
    """Render the counts and the keys."""
    if choices.opened:
        known = f"{len(choices.past)} snapshots"
        newest = choices.past_position == 0
        act = "Enter resume" if newest else "Enter branch here and resume"
        return [("class:dim", cut(f"{known} · ↑↓ move · {act} · ← sessions", columns))]
    scope, other = ("all", "here") if choices.everywhere else ("here", "all")
    known = f"{len(choices.shown)} of {choices.total} ({scope})"
    text = f"{known} · ↑↓ move · → snapshots · Tab {other} · Enter resume · Esc quit"
    if width(text) > columns:
        text = f"{len(choices.shown)}/{choices.total} Tab {other} Enter resume Esc quit"
    return [("class:dim", cut(text, columns))]
