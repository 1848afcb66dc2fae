"""Tables and pictures of the race."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from html import escape
from importlib.metadata import version
from pathlib import Path

from integration.bench.peer_contenders import OURS
from integration.bench.peer_runs import EARLY, Result
from integration.bench.report import machine as machine_line

__all__ = ["machine", "picture", "table"]

_PACKAGES = ("langgraph-checkpoint-sqlite", "google-adk", "agent-framework-core")
_REFERENCE = OURS[0]
_HEAD = (
    "contender", "all saves", "x", "median, last tenth", "p99, last tenth", "growth", "on disk", "x", "cold load",
    "x", f"load of turn {EARLY}", "syncs a save",
)  # fmt: skip


def machine(place: Path) -> str:
    """What it was measured on."""
    others = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    return (
        f"{machine_line(place)} Peers: {others}; {platform.machine()}. x is against `{_REFERENCE}` in the same run."
    )


def table(results: Sequence[Result], syncs: Mapping[str, float | None]) -> str:
    """One line for each contender; columns headed x are in terms of ours."""
    ours = next(result for result in results if result.name == _REFERENCE)
    rule = ["---", *("--:" for _ in _HEAD[1:])]
    lines = [_line(result, ours, syncs[result.name]) for result in results]
    return "\n".join([f"| {' | '.join(_HEAD)} |", f"|{'|'.join(rule)}|", *lines])


def _line(result: Result, ours: Result, syncs: float | None) -> str:
    total = [f"{result.total:.2f} s", f"{result.total / ours.total:.2f}"]
    if result.gave_up:
        total = [f"gave up at turn {len(result.seconds)} after {result.total:.0f} s", ""]
    saves = [*total, _ms(result.tenth(0.5)), _ms(result.tenth(0.99))]
    load = (result.load or 0.0) / (ours.load or 1.0)
    cells = [
        result.name, *saves, f"{result.growth:.2f}", f"{result.bytes_on_disk / 1e6:.1f} MB",
        "" if result.gave_up else f"{result.bytes_on_disk / ours.bytes_on_disk:.2f}",
        _ms(result.load), "" if result.gave_up else f"{load:.2f}", _ms(result.load_early),
        "?" if syncs is None else f"{syncs:.1f}" + ("" if syncs else ": **not durable**"),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _ms(seconds: float | None) -> str:
    if seconds is None:
        return "no history"
    return f"{seconds * 1000:.2f} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"


_WIDE, _BAR, _LABEL = 760, 22, 270


def picture(results: Sequence[Result], path: Path, length: int) -> None:
    """Bars on a logarithmic scale: what the last tenth of the saves cost, the median."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = [(result.name, result.tenth(0.5) * 1000) for result in results]
    low = min(value for _, value in values) / 2
    widest = max(value for _, value in values)
    rows = [_bar(n, name, value, low, widest) for n, (name, value) in enumerate(values)]
    height = 50 + _BAR * len(rows)
    title = f"A durable save near the end of a session of {length} turns: median, ms (logarithmic)"
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {height}" font-family="sans-serif" '
        'font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/><text x="10" y="20" font-size="14">{title}</text>'
        + "".join(rows)
        + "</svg>\n"
    )


def _bar(row: int, name: str, value: float, low: float, high: float) -> str:
    from math import log  # noqa: PLC0415 — for a picture only

    room = _WIDE - _LABEL - 90
    long = room * log(value / low) / log(high / low) if high > low else room
    top, colour = 36 + _BAR * row, "#2b7a4b" if name in OURS else "#9aa5b1"
    return (
        f'<text x="{_LABEL - 8}" y="{top + 13}" text-anchor="end">{escape(name)}</text>'
        f'<rect x="{_LABEL}" y="{top}" width="{long:.1f}" height="{_BAR - 6}" fill="{colour}"/>'
        f'<text x="{_LABEL + long + 6:.1f}" y="{top + 13}">{value:.2f}</text>'
    )
