"""The difference between two snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from snapshot_plugin.model.align import Alignment, align
from snapshot_plugin.model.content import ToolCallBlock
from snapshot_plugin.model.snapshot import Message, Metrics, PlanEntry, SessionSnapshot
from snapshot_plugin.model.three_way import ABSENT, is_same
from snapshot_plugin.model.value import Json, Value

__all__ = ["Change", "MessageChange", "MetricsDelta", "PlanChange", "SnapshotDiff", "ToolRun", "diff"]

_GROUPS = ("plugins", "memory", "metadata")
_UNREMARKABLE = ("updated_at", "version")


class MessageChange(Value):
    """An edited message: its position in each snapshot."""

    before: int
    after: int


class ToolRun(Value):
    """A tool call that ran or ended between the two snapshots."""

    tool_call_id: str
    title: str = ""
    status: str | None = None


class PlanChange(Value):
    """A plan step that was added (no `before`), removed (no `after`), or changed its status."""

    content: str
    before: PlanEntry | None = None
    after: PlanEntry | None = None


class Change(Value):
    """A changed setting: its path, old value and new value. Absent values are null."""

    path: str
    before: Json = None
    after: Json = None


class MetricsDelta(Value):
    """The change in turns, tokens and cost; `cost` is null if it is unknown or in another currency."""

    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cost: float | None = 0.0
    duration_seconds: float = 0.0


class SnapshotDiff(Value):
    """The difference of two snapshots. It is empty if only version and `updated_at` differ."""

    common_prefix: int
    messages_removed: tuple[int, ...] = ()
    messages_added: tuple[int, ...] = ()
    messages_changed: tuple[MessageChange, ...] = ()
    tools_run: tuple[ToolRun, ...] = ()
    files: tuple[str, ...] = ()
    plan: tuple[PlanChange, ...] = ()
    config: tuple[Change, ...] = ()
    metrics: MetricsDelta = MetricsDelta()
    other: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the snapshots are equal."""
        return set(self.raw()) == {"common_prefix"}

    def stat(self) -> str:
        """The difference in one line."""
        others = dict.fromkeys(name.partition(".")[0] for name in self.other)  # all metadata is one word
        counts = [
            _counted(self.messages_added, "message", "added"),
            _counted(self.messages_changed, "message", "changed"),
            _counted(self.messages_removed, "message", "removed"),
            _counted(self.tools_run, "tool", "run"),
            _counted(self.files, "file", "touched"),
            _counted(self.plan, "plan step", "changed"),
            _counted(self.config, "setting", "changed"),
            f"{self.metrics.total_tokens:+} tokens" if self.metrics.total_tokens else "",
            f"{self.metrics.cost:+g} cost" if self.metrics.cost else "",
            f"also changed: {', '.join(others)}" if others else "",
        ]
        return ", ".join(filter(None, counts)) or ("no changes" if self.is_empty else "metrics changed")


def _counted(items: Sequence[object], noun: str, verb: str) -> str:
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'} {verb}" if items else ""


def diff(a: SessionSnapshot, b: SessionSnapshot) -> SnapshotDiff:
    """The changes from *a* to *b*.

    Two messages are the same message if they have the same id or, without ids, the same role and position between
    their neighbours (see `align`). `files` lists the paths in the diffs and locations of `tools_run`.
    """
    messages = align(a.messages, b.messages)
    ran = _tools_run(a.messages, b.messages, messages)
    plan = tuple(_plan_changes(a.plan, b.plan))
    config = tuple(_changes("config", a.config.raw(), b.config.raw()))
    metrics = _spent(a.metrics, b.metrics)
    explained = {"plan": plan, "config": config, "metrics": metrics != MetricsDelta()}
    return SnapshotDiff(
        common_prefix=messages.common_prefix,
        messages_removed=messages.removed,
        messages_added=messages.added,
        messages_changed=tuple(MessageChange(before=i, after=j) for i, j in messages.edited),
        tools_run=tuple(ToolRun(tool_call_id=c.tool_call_id, title=c.title, status=c.status) for c in ran),
        files=tuple(sorted({path for call in ran for path in _paths(call)})),
        plan=plan,
        config=config,
        metrics=metrics,
        other=tuple(_other(a, b, {name for name, detail in explained.items() if detail})),
    )


def _tools_run(old: Sequence[Message], new: Sequence[Message], messages: Alignment) -> list[ToolCallBlock]:
    before = _calls(old[i] for i in sorted([*messages.removed, *(i for i, _ in messages.edited)]))
    after = _calls(new[j] for j in sorted([*messages.added, *(j for _, j in messages.edited)]))
    known = {call.tool_call_id: call for call in before}
    return [call for call in after if _has_run(call, known.get(call.tool_call_id))]


def _calls(messages: Iterable[Message]) -> list[ToolCallBlock]:
    return [block for message in messages for block in message.content if isinstance(block, ToolCallBlock)]


def _has_run(call: ToolCallBlock, earlier: ToolCallBlock | None) -> bool:
    return earlier is None or (earlier.is_open and not call.is_open)


def _paths(call: ToolCallBlock) -> Iterator[str]:
    for items in (call.content, call.locations):
        for item in items if isinstance(items, list) else ():
            path = item.get("path") if isinstance(item, dict) else None
            if isinstance(path, str):
                yield path


def _plan_changes(old: Sequence[PlanEntry], new: Sequence[PlanEntry]) -> Iterator[PlanChange]:
    before = {entry.content: entry for entry in old}
    after = {entry.content: entry for entry in new}
    for content in before | after:
        if before.get(content) != after.get(content):
            yield PlanChange(content=content, before=before.get(content), after=after.get(content))


def _changes(path: str, before: Any, after: Any) -> Iterator[Change]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before | after):
            yield from _changes(f"{path}.{name}", before.get(name, ABSENT), after.get(name, ABSENT))
    elif not is_same(before, after):
        yield Change(path=path, before=_shown(before), after=_shown(after))


def _shown(value: Any) -> Any:
    return None if value is ABSENT else value


def _spent(before: Metrics, after: Metrics) -> MetricsDelta:
    return MetricsDelta(
        turns=after.turns - before.turns,
        input_tokens=after.input_tokens - before.input_tokens,
        output_tokens=after.output_tokens - before.output_tokens,
        total_tokens=after.total_tokens - before.total_tokens,
        cost=_cost(before, after),
        duration_seconds=_rounded(after.duration_seconds, before.duration_seconds),
    )


def _cost(before: Metrics, after: Metrics) -> float | None:
    if (before.cost, before.currency) == (after.cost, after.currency):
        return 0.0
    if after.cost is None or before.currency not in (None, after.currency):
        return None
    return _rounded(after.cost, before.cost or 0.0)


def _rounded(after: float, before: float) -> float:
    return round(after - before, 9)  # money: 0.3 - 0.2 must be 0.1


def _other(a: SessionSnapshot, b: SessionSnapshot, explained: set[str]) -> Iterator[str]:
    """The names of other sections that differ, so that every difference is reported."""
    left, right = _sections(a), _sections(b)
    for name in left | right:
        if name not in explained and not is_same(left.get(name, ABSENT), right.get(name, ABSENT)):
            yield name


def _sections(snapshot: SessionSnapshot) -> dict[str, Any]:
    everything = snapshot.evolve(messages=()).raw()
    for name in _UNREMARKABLE:
        everything.pop(name, None)
    for group in _GROUPS:
        everything |= {f"{group}.{name}": value for name, value in everything.pop(group, {}).items()}
    return everything
