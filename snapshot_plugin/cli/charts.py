"""Charts: lines of blocks for a terminal, and an SVG file in which all text is escaped. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

__all__ = ["Chart", "bar", "plot", "sparkline", "svg"]

_BLOCKS = "▁▂▃▄▅▆▇█"
_EIGHTHS = "▏▎▍▌▋▊▉█"


def sparkline(values: Sequence[float]) -> str:
    """One block for each value, scaled to the largest; a space for zero."""
    top = max(values, default=0)
    return "".join(_block(value / top) if value > 0 and top > 0 else " " for value in values)


def _block(share: float) -> str:
    return _BLOCKS[min(len(_BLOCKS) - 1, int(share * len(_BLOCKS)))]


def plot(values: Sequence[float], names: tuple[str, str], top: str, height: int = 4) -> Iterator[str]:
    """Return the lines of a chart with both axes: *top* labels the largest value, *names* the two ends."""
    most = max(values, default=0)
    for row in reversed(range(height)):
        cells = "".join(_cell(value / most * height, row) if most > 0 else " " for value in values)
        yield f"{top if row == height - 1 else '':>{len(top)}} │{cells}"
    yield f"{'0':>{len(top)}} └{'─' * len(values)}"
    first, last = names
    room = len(values) - len(first)
    yield f"{'':>{len(top)}}  {first}" + (f"{last:>{room}}" if room > len(last) else f" to {last}")


def _cell(height: float, row: int) -> str:
    if height <= row:
        return " "
    return "█" if height >= row + 1 else _block(height - row)


def bar(value: float, top: float, columns: int) -> str:
    """A bar of at most that many columns; any value above zero is visible."""
    if value <= 0 or top <= 0 or columns <= 0:
        return ""
    eighths = max(1, round(min(1.0, value / top) * columns * 8))
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest - 1] if rest else "")


class Chart(NamedTuple):
    """Bars under a title: their names and values, and how a value is written."""

    title: str
    names: Sequence[str]
    values: Sequence[float]
    shown: Sequence[str]


_WIDTH, _HEIGHT, _MARGIN, _GAP = 720, 140, 16, 56
_AXIS = 56
"""How wide the y axis is, with what stands beside it."""
_STYLE = """
svg { color-scheme: light dark }
text { font: 12px system-ui, sans-serif; fill: #555 }
.y { text-anchor: end }
.title { font-weight: 600; font-size: 14px }
rect { fill: #4a86c5 }
line { stroke: #999; stroke-width: 1 }
@media (prefers-color-scheme: dark) { text { fill: #bbb } rect { fill: #6ea8e5 } line { stroke: #777 } }
"""


def svg(heading: str, charts: Sequence[Chart]) -> str:
    """Render a self-contained picture: no script, font or link, and no background."""
    height = _MARGIN * 2 + 20 + len(charts) * (_HEIGHT + _GAP)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">'
    parts = [head, f"<title>{_text(heading)}</title>", f"<style>{_STYLE}</style>"]
    parts.append(f'<text class="title" x="{_MARGIN}" y="{_MARGIN + 12}">{_text(heading)}</text>')
    for number, chart in enumerate(charts):
        parts += _bars(chart, _MARGIN + 20 + number * (_HEIGHT + _GAP))
    return "\n".join([*parts, "</svg>", ""])


def _bars(chart: Chart, top: int) -> Iterator[str]:
    base, room = top + 24 + _HEIGHT - 20, _HEIGHT - 24
    most = max(chart.values, default=0) or 1
    step = (_WIDTH - 2 * _MARGIN - _AXIS) / max(1, len(chart.values))
    yield f'<text x="{_MARGIN}" y="{top + 16}">{_text(chart.title)}</text>'
    for n, (name, value, shown) in enumerate(zip(chart.names, chart.values, chart.shown, strict=True)):
        tall = max(0.0, value) / most * room
        x, wide = _MARGIN + _AXIS + n * step, max(0.5, min(step * 0.8, 40.0))
        about = f"<title>{_text(name)}: {_text(shown)}</title>"
        yield f'<rect x="{x:.1f}" y="{base - tall:.1f}" width="{wide:.1f}" height="{tall:.1f}">{about}</rect>'
    yield from _axes(chart, base, room)
    yield from _names(chart, base + 16, step)


def _axes(chart: Chart, base: int, room: int) -> Iterator[str]:
    left = _MARGIN + _AXIS - 4
    yield f'<line x1="{left}" y1="{base}" x2="{_WIDTH - _MARGIN}" y2="{base}"/>'
    yield f'<line x1="{left}" y1="{base - room}" x2="{left}" y2="{base}"/>'
    largest = max(zip(chart.values, chart.shown, strict=True), default=(0, ""))[1]
    for y, shown in ((base, "0"), (base - room, largest)):
        yield f'<text class="y" x="{left - 6}" y="{y + 4}">{_text(shown)}</text>'


def _names(chart: Chart, y: int, step: float) -> Iterator[str]:
    """Return as many names as fit, the first among them."""
    every = max(1, -(-70 // max(1, int(step))))
    for n in range(0, len(chart.names), every):
        name = chart.names[n] if len(chart.names[n]) <= 24 else "…" + chart.names[n][-23:]  # noqa: PLR2004 — fits
        yield f'<text x="{_MARGIN + _AXIS + n * step:.1f}" y="{y}">{_text(name)}</text>'


def _text(text: str) -> str:
    """Return *text* escaped for XML, without characters that XML forbids."""
    allowed = (char for char in text if char.isprintable())
    return escape("".join(allowed), quote=True)
