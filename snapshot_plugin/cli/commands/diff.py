"""``asnap diff``: what differs between two sessions or snapshots."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.document import Document, Part
from snapshot_plugin.cli.output import Output
from snapshot_plugin.cli.text import cut, money, plain
from snapshot_plugin.cli.transcript import Said, Styler, lines_of, said_of
from snapshot_plugin.errors import SnapshotNotFound

if TYPE_CHECKING:
    from snapshot_plugin.cli.refs import Target
    from snapshot_plugin.model.diff import PlanChange, SnapshotDiff
    from snapshot_plugin.model.snapshot import SessionSnapshot
    from snapshot_plugin.store.base import SnapshotStore, StoredSnapshot

__all__ = ["Compared", "command"]

_SHOWN = 60


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


class Setting(Part):
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
    settings: tuple[Setting, ...]
    spent: Spent
    other: tuple[str, ...]
    """Names of whatever else differs."""

    def show(self, out: Output) -> None:
        """See `Document`."""
        out.pages(self._lines(out.style))

    def _lines(self, style: Styler) -> Iterator[str]:
        yield style(f"--- {_named(self.before)}", bold=True)
        yield style(f"+++ {_named(self.after)}", bold=True)
        yield plain(self.summary)
        yield from self._messages(style)
        yield from _section(style, "plan", [_step_line(step, style) for step in self.plan])
        yield from _section(style, "settings", [_setting_line(each) for each in self.settings])
        yield from _section(
            style, "tools", [f"{plain(t.title or t.tool_call_id)}  {t.status or ''}" for t in self.tools]
        )
        yield from _section(style, "files", [plain(path) for path in self.files])
        yield from _section(style, "also", [plain(name) for name in self.other])

    def _messages(self, style: Styler) -> Iterator[str]:
        same = 0
        for went, came in self._changes():
            if went is None and came is None:
                same += 1
                continue
            yield from _unchanged(same, style)
            same = 0
            yield from _prefixed("-", went, style, fg="red")
            yield from _prefixed("+", came, style, fg="green")
        yield from _unchanged(same, style)

    def _changes(self) -> Iterator[tuple[Said | None, Said | None]]:
        """What went and what came, in the order of the conversation; of a message that stayed, neither."""
        gone, come = ({said.number: said for said in side} for side in (self.removed, self.added))
        edited = {each.before.number: (each.before, each.after) for each in self.edited}
        old = new = 1
        while old <= self.before.messages or new <= self.after.messages:
            if old in gone:
                yield gone[old], None
                old += 1
            elif new in come:
                yield None, come[new]
                new += 1
            else:
                yield edited.get(old, (None, None))
                old, new = old + 1, new + 1


class Stat(Compared):
    """The same in numbers."""

    def show(self, out: Output) -> None:
        """See `Document`."""
        spent = self.spent
        numbers = {
            "messages": f"+{len(self.added)} -{len(self.removed)} ~{len(self.edited)}",
            "tools": str(len(self.tools)),
            "files": ", ".join(plain(path) for path in self.files),
            "plan": str(len(self.plan)),
            "settings": ", ".join(plain(each.path) for each in self.settings),
            "turns": f"{spent.turns:+}",
            "tokens": f"{spent.total_tokens:+}",
            "cost": money(spent.cost),
            "other": ", ".join(plain(name) for name in self.other),
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


def _setting_line(setting: Setting) -> str:
    return f"{plain(setting.path)}: {_brief(setting.before)} → {_brief(setting.after)}"


def _brief(value: Any) -> str:
    return cut(plain(json.dumps(value, ensure_ascii=False)), _SHOWN)


def _unchanged(count: int, style: Styler) -> Iterator[str]:
    if count:
        yield style(f"  {count} message(s) the same", dim=True)


def _prefixed(mark: str, said: Said | None, style: Styler, **colour: Any) -> Iterator[str]:
    for line in lines_of(said, lambda text, **_: text) if said else ():
        if line:
            yield style(f"{mark} {line}", **colour)


@declare(
    "diff",
    section="Find",
    answer=Compared,
    examples=(
        ("asnap diff latest", "what the newest snapshot changed"),
        ("asnap diff 01jd@3 01jd@7", "what happened from snapshot 3 to 7"),
        ("asnap diff 01jd 01jf --stat", "two branches, in numbers"),
        ("asnap diff 01jd 01jf --json | jq .files", "the files that only the second one touched"),
    ),
    exits=(4, 5, 7, 10),
)
@click.argument("first", metavar="A")
@click.argument("second", metavar="[B]", required=False)
@click.option("--stat", is_flag=True, help="Only numbers.")
async def command(call: Call, *, first: str, second: str | None, stat: bool) -> Compared:
    """Show what differs from A to B: messages, tools, plan, settings, files touched, tokens.

    A and B may be sessions, or snapshots of one (01jd@3), and need not be related. A alone is compared with the
    snapshot before it.
    """
    from snapshot_plugin.cli.refs import resolve

    async with call.store() as store:
        metas = await store.list()
        one = resolve(first, metas)
        if second is None:
            before, after = await _step(store, one)
        else:
            other = resolve(second, metas)
            before = await store.read(one.session_id, at=one.seq)
            after = await store.read(other.session_id, at=other.seq)
    return _compared(before, after, Stat if stat else Compared)


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


def _compared(before: StoredSnapshot, after: StoredSnapshot, kind: type[Compared]) -> Compared:
    from snapshot_plugin.model.diff import diff

    found = diff(before.snapshot, after.snapshot)
    return kind(
        before=_side(before),
        after=_side(after),
        equal=found.is_empty,
        summary=found.stat(),
        common_prefix=found.common_prefix,
        removed=_said(before.snapshot, found.messages_removed),
        added=_said(after.snapshot, found.messages_added),
        edited=_edited(before.snapshot, after.snapshot, found),
        tools=tuple(Tool(tool_call_id=t.tool_call_id, title=t.title, status=t.status) for t in found.tools_run),
        files=found.files,
        plan=tuple(_plan_step(change) for change in found.plan),
        settings=tuple(Setting(path=each.path, before=each.before, after=each.after) for each in found.config),
        spent=Spent(**found.metrics.model_dump()),
        other=tuple(name for name in found.other if name != "session_id"),  # both are named already
    )


def _side(stored: StoredSnapshot) -> Side:
    snapshot = stored.snapshot
    return Side(
        session_id=snapshot.session_id, seq=stored.ref.seq, title=snapshot.title, messages=len(snapshot.messages)
    )


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
