"""The picture in the README; ``python -m integration.demo_picture`` runs ``asnap demo`` on a terminal."""

from __future__ import annotations

import html
import os
import sys
import tempfile
from pathlib import Path

import pexpect
import pyte

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "demo.svg"
COLUMNS, ROWS = 96, 60
_WIDE, _HIGH, _MARGIN = 8.4, 18, 16
_COLOURS = {"default": "#d8dee9", "green": "#7fd18b", "red": "#ef8a80", "brown": "#e6c07b", "blue": "#8ab4f8"}


def screen_of_demo() -> pyte.Screen:
    """What the terminal shows when the demo is over."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.Stream(screen)
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HOME": home, "TERM": "xterm-256color"}
        demo = pexpect.spawn(
            sys.executable, ["-P", "-m", "snapshot_plugin", "demo"], env=environment, dimensions=(ROWS, COLUMNS),
            encoding="utf-8", timeout=120, cwd=home,
        )  # fmt: skip
        demo.expect(pexpect.EOF)
        stream.feed(demo.before or "")
    return screen


def drawn(screen: pyte.Screen) -> str:
    """The screen as SVG, without the empty lines at its end."""
    last = max(row for row, line in enumerate(screen.display) if line.strip())
    high = (last + 1) * _HIGH + 2 * _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {COLUMNS * _WIDE + 2 * _MARGIN:.0f} {high}"',
        ' font-family="ui-monospace,Menlo,Consolas,monospace" font-size="14">',
        '<rect width="100%" height="100%" rx="8" fill="#20242c"/>',
        *(_line(screen, row) for row in range(last + 1)),
        "</svg>",
    ]
    return "\n".join(line for line in lines if line) + "\n"


def _line(screen: pyte.Screen, row: int) -> str:
    spans, run, colour = [], "", ""
    cells = [screen.buffer[row][column] for column in range(len(screen.display[row].rstrip()))]
    for cell in cells:
        if cell.fg != colour and run:
            spans.append(_span(run, colour))
            run = ""
        run, colour = run + cell.data, cell.fg
    if run:
        spans.append(_span(run, colour))
    down = _MARGIN + (row + 1) * _HIGH - 4
    return f'<text x="{_MARGIN}" y="{down}" xml:space="preserve">{"".join(spans)}</text>' if spans else ""


def _span(text: str, colour: str) -> str:
    return f'<tspan fill="{_COLOURS.get(colour, _COLOURS["default"])}">{html.escape(text)}</tspan>'


def main() -> int:
    PICTURE.write_text(drawn(screen_of_demo()), "utf-8")
    print(f"{PICTURE}: {PICTURE.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
