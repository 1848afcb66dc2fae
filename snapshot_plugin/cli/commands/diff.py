"""``asnap diff``: what differs between two sessions or snapshots."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import Printed
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.output import Output
from snapshot_plugin.cli.transcript import Styler, lines_of
from snapshot_plugin.operations.comparing import ChangedSetting, Compared, Side, Step, compare
from snapshot_plugin.operations.text import cut, money, plain, several
from snapshot_plugin.operations.transcript import Said

__all__ = ["command"]

_SHOWN = 60


def show_compared(answer: Compared, out: Output) -> None:
    """Print the differences."""
    out.pages(_lines(answer, out.style))


def _lines(answer: Compared, style: Styler) -> Iterator[str]:
    yield style(f"--- {_named(answer.before)}", bold=True)
    yield style(f"+++ {_named(answer.after)}", bold=True)
    yield plain(answer.summary)
    yield from _messages(answer, style)
    yield from _section(style, "plan", [_step_line(step, style) for step in answer.plan])
    yield from _section(style, "settings", [_setting_line(each) for each in answer.settings])
    yield from _section(
        style, "tools", [f"{plain(t.title or t.tool_call_id)}  {t.status or ''}" for t in answer.tools]
    )
    yield from _section(style, "files", [plain(path) for path in answer.files])
    yield from _section(style, "also", [plain(name) for name in answer.other])


def _messages(answer: Compared, style: Styler) -> Iterator[str]:
    same = 0
    for went, came in _changes(answer):
        if went is None and came is None:
            same += 1
            continue
        yield from _unchanged(same, style)
        same = 0
        yield from _prefixed("-", went, style, fg="red")
        yield from _prefixed("+", came, style, fg="green")
    yield from _unchanged(same, style)


def _changes(answer: Compared) -> Iterator[tuple[Said | None, Said | None]]:
    """Yield removed and added messages in the order of the conversation; unchanged ones are left out."""
    gone, come = ({said.number: said for said in side} for side in (answer.removed, answer.added))
    edited = {each.before.number: (each.before, each.after) for each in answer.edited}
    old = new = 1
    while old <= answer.before.messages or new <= answer.after.messages:
        if old in gone:
            yield gone[old], None
            old += 1
        elif new in come:
            yield None, come[new]
            new += 1
        else:
            yield edited.get(old, (None, None))
            old, new = old + 1, new + 1


def show_compared_in_numbers(answer: Compared, out: Output) -> None:
    """Print the differences in numbers."""
    spent = answer.spent
    numbers = {
        "messages": f"+{len(answer.added)} -{len(answer.removed)} ~{len(answer.edited)}",
        "tools": str(len(answer.tools)),
        "files": ", ".join(plain(path) for path in answer.files),
        "plan": str(len(answer.plan)),
        "settings": ", ".join(plain(each.path) for each in answer.settings),
        "turns": f"{spent.turns:+}",
        "tokens": f"{spent.total_tokens:+}",
        "cost": money(spent.cost),
        "other": ", ".join(plain(name) for name in answer.other),
    }
    for name, value in numbers.items():
        out.line(f"{name}\t{value}" if not out.is_terminal else cut(f"{name:<10}{value}", out.columns))


def _named(side: Side) -> str:
    return plain(f"{side.session_id}@{side.seq}" + (f"  {side.title}" if side.title else ""))


def _section(style: Styler, title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield style(title, bold=True)
        yield from (f"  {line}" for line in lines)


def _step_line(step: Step, style: Styler) -> str:
    mark, colour = (
        ("+", "green") if step.before is None else ("-", "red") if step.after is None else ("~", "yellow")
    )
    moved = " → ".join(plain(status) for status in (step.before, step.after) if status is not None)
    return style(f"{mark} {plain(step.content)} ({moved})", fg=colour)


def _setting_line(setting: ChangedSetting) -> str:
    return f"{plain(setting.path)}: {_brief(setting.before)} → {_brief(setting.after)}"


def _brief(value: Any) -> str:
    return cut(plain(json.dumps(value, ensure_ascii=False)), _SHOWN)


def _unchanged(count: int, style: Styler) -> Iterator[str]:
    if count:
        yield style(f"  {several(count, 'message')} the same", dim=True)


def _prefixed(mark: str, said: Said | None, style: Styler, **colour: Any) -> Iterator[str]:
    for line in lines_of(said, lambda text, **_: text) if said else ():
        if line:
            yield style(f"{mark} {line}", **colour)


@declare(
    "diff",
    answer=Compared,
    show=show_compared,
    examples=(
        ("asnap diff latest", "what the newest snapshot changed"),
        ("asnap diff 01jd@3 01jd@7", "what changed from snapshot 3 to 7"),
        ("asnap diff 01jd 01jf --stat", "two branches, in numbers"),
        ("asnap diff 01jd 01jf --json | jq .files", "the files that only the second one touched"),
    ),
    exits=(4, 5, 7, 10),
)
@click.argument("first", metavar="A")
@click.argument("second", metavar="[B]", required=False)
@click.option("--stat", is_flag=True, help="Only numbers.")
async def command(call: Call, *, first: str, second: str | None, stat: bool) -> Printed:
    """Show what differs from A to B: messages, tools, plan, settings, files touched, tokens.

    A and B may be sessions, or snapshots of one (01jd@3), and need not be related. A alone is compared with the
    snapshot before it.
    """
    async with call.store() as store:
        return Printed(await compare(store, first, second), show_compared_in_numbers if stat else show_compared)
