"""``asnap stats``: tokens, cost, activity and topics over time."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.charts import Chart, bar, plot, sparkline, svg
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.output import Column, Output
from snapshot_plugin.operations.moments import moment
from snapshot_plugin.operations.statistics import GroupRow, Statistics, Storage, statistics
from snapshot_plugin.operations.text import count, money, plain, several, size

__all__ = ["command"]

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_SHOWN = 31
_DRAWN = 120
_BAR = 24
_BUSIEST = 3


def show_statistics(answer: Statistics, out: Output) -> None:
    """Print the statistics."""
    if not out.is_terminal:
        for group in answer.groups:
            cost = f"{group.cost:.6g}"
            numbers = map(str, (group.sessions, group.turns, group.messages, group.tokens))
            out.line("\t".join((plain(group.key), *numbers, cost)))
        for line in (*_about(answer), *_activity(answer)):
            out.note(line)
        return
    for line in (*_about(answer), *_activity(answer)):
        for part in textwrap.wrap(line, out.columns, subsequent_indent=" " * 8, drop_whitespace=False):
            out.line(part)
    days = answer.daily[-min(_DRAWN // 2, out.columns - 12) :]
    if len(days) > 1:
        tokens = [day.tokens for day in days]
        out.line("tokens by day")
        for line in plot(tokens, (days[0].day, days[-1].day), count(max(tokens))):
            out.line(line, fg="blue")
    shown = answer.groups[-_SHOWN:] if answer.by in ("day", "week") else answer.groups[:_SHOWN]
    out.table(_columns(answer.by), [_cells(group, max(g.tokens for g in shown)) for group in shown])
    if len(shown) < len(answer.groups):
        out.note(f"{len(answer.groups) - len(shown)} more with --json", dim=True)


def _about(answer: Statistics) -> Iterator[str]:
    total = answer.total
    spent = f"{count(total.tokens)} tokens" + (f", {money(total.cost)}" if total.cost else "")
    numbers = {"session": total.sessions, "turn": total.turns, "message": total.messages}
    counts = ", ".join(several(number, thing) for thing, number in numbers.items())
    yield f"total   {counts}, {spent}"


def _activity(answer: Statistics) -> Iterator[str]:
    if any(answer.hours):
        yield f"hours   {sparkline(answer.hours)}  0 to 23 h, most at {_busiest(answer.hours, _hour_names())}"
        yield f"days    {sparkline(answer.weekdays)}  most on {_busiest(answer.weekdays, _DAYS)}"
    if answer.topics:
        yield "topics  " + ", ".join(f"{plain(topic.term)} ({topic.sessions})" for topic in answer.topics)
    yield f"store   {_savings(answer.storage)}"


def _hour_names() -> list[str]:
    return [f"{hour} h" for hour in range(24)]


def _busiest(values: Sequence[int], names: Sequence[str]) -> str:
    order = sorted(range(len(values)), key=lambda place: -values[place])[:_BUSIEST]
    return ", ".join(names[place] for place in order if values[place])


def _savings(storage: Storage) -> str:
    parts = [size(storage.store_bytes)]
    for what, plain_size in (
        ("as plain JSON", storage.plain_bytes),
        ("as a copy per snapshot", storage.copies_bytes),
    ):
        if plain_size and storage.store_bytes:
            parts.append(f"{size(plain_size)} {what} ({plain_size / storage.store_bytes:.1f}x)")
    return "; ".join(parts)


def _columns(by: str) -> tuple[Column, ...]:
    return (
        Column(by.upper(), flexible=by == "project"),
        Column("SESSIONS", right=True, rank=3),
        Column("TURNS", right=True, rank=4),
        Column("MESSAGES", right=True, rank=2),
        Column("TOKENS", right=True),
        Column("COST", right=True, rank=5),
        Column("", flexible=True, style={"fg": "blue"}, rank=1),
    )


def _cells(group: GroupRow, top: int) -> tuple[str, ...]:
    numbers = (group.sessions, group.turns, group.messages, group.tokens)
    cost = money(group.cost) if group.cost else ""
    return (plain(group.key), *(count(number) for number in numbers), cost, bar(group.tokens, top, _BAR))


@declare(
    "stats",
    answer=Statistics,
    show=show_statistics,
    examples=(
        ("asnap stats", "tokens and cost day by day, active hours, topics, savings"),
        ("asnap stats --by project --since 30d", "which projects took the last month's tokens"),
        ("asnap stats --by agent --json | jq .groups", "for a script"),
        ("asnap stats --by week --svg tokens.svg", "and a picture"),
    ),
    exits=(7, 10),
)
@click.option(
    "--by", type=click.Choice(["day", "week", "agent", "project"]), default="day", help="What to add up by."
)
@click.option("--since", metavar="WHEN", help="Only what happened since: 30d, 12h, yesterday, 2026-11-01.")
@click.option(
    "--svg", "picture", metavar="FILE", help="Also draw it: an SVG file that needs nothing else; - for stdout."
)
@click.option("--quick", is_flag=True, help="From the list alone: no conversation is opened, no hours and topics.")
async def command(call: Call, *, by: Any, since: str | None, picture: str | None, quick: bool) -> Statistics | None:
    """Show tokens and cost over time, by agent, project, day or week; active hours, topics, sizes and savings.

    The increase since the previous snapshot counts at the time of the snapshot. Times and topics are kept in the
    search index, so only sessions that changed since are opened.
    """
    start = moment(since, call.now) if since else None
    async with call.store() as store:
        answer = await statistics(call.work, store, by=by, since=start, quick=quick)
    call.out.unreadable(answer.unreadable)
    if picture is None:
        return answer
    drawing = _drawn(answer).encode()
    if picture == "-":
        call.out.raw(drawing)
        return None
    await _written(picture, drawing)
    call.out.note(f"drawn: {plain(picture)}")
    return answer


def _drawn(answer: Statistics) -> str:
    groups = answer.groups[-_DRAWN:] if answer.by in ("day", "week") else answer.groups[:_DRAWN]
    keys, tokens = [group.key for group in groups], [group.tokens for group in groups]
    costs = [group.cost for group in groups]
    if answer.by == "day":  # a time axis also shows days without activity
        days = answer.daily[-_DRAWN:]
        keys, tokens, costs = [day.day for day in days], [day.tokens for day in days], [day.cost for day in days]
    charts = [Chart(f"tokens by {answer.by}", keys, tokens, [count(number) for number in tokens])]
    if any(costs):
        charts.append(Chart(f"cost by {answer.by}", keys, costs, [money(cost) for cost in costs]))
    if any(answer.hours):
        charts.append(Chart("messages by hour", _hour_names(), answer.hours, list(map(str, answer.hours))))
    heading = f"{answer.total.sessions} sessions, {count(answer.total.tokens)} tokens"
    return svg(heading, charts)


async def _written(place: str, drawing: bytes) -> None:
    import anyio

    from snapshot_plugin.system.files import disk_errors

    with disk_errors(f"writing {place}"):
        await anyio.Path(place).write_bytes(drawing)
