"""From measurements to one Markdown table: a line for each question, a column for each length of session."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from integration.bench.contenders import KINDS
from integration.bench.measure import Run, all_saves, fresh_process, paired, quantile, steady_ratio, tenth_ratio

__all__ = ["Line", "disk_lines", "flat_lines", "list_lines", "load_lines", "machine", "save_lines", "table"]

_OURS = KINDS[:4]
_PEER, _SQLITE, _FLOOR = KINDS[4:]
_SAVE_GOALS = {"plain": 0.9, "plain [fast]": 0.7, "encrypted": 1.0, "encrypted [fast]": 0.8}


@dataclass
class Line:
    """One question: which form of ours is measured, against what, and how large the ratio may be."""

    measure: str
    form: str
    against: str
    goal: float | None = None
    cells: dict[int, str] = field(default_factory=dict)

    def put(self, length: int, ratio: float, value: str) -> None:
        """Note the ratio, and the absolute value behind it, for sessions of *length* turns."""
        missed = self.goal is not None and ratio > self.goal
        self.cells[length] = f"{f'**{ratio:.2f}**' if missed else f'{ratio:.2f}'} ({value})"

    def markdown(self, lengths: Sequence[int]) -> str:
        """The line as a row of the table."""
        goal = "" if self.goal is None else f"≤ {self.goal:g}"
        cells = (self.cells.get(length, "") for length in lengths)
        return f"| {' | '.join((self.measure, self.form, self.against, goal, *cells))} |"


def table(lines: Sequence[Line], lengths: Sequence[int]) -> str:
    """The whole table. A ratio in bold misses its goal."""
    head = ("measure", "form", "against", "goal", *(f"{length} turns" for length in lengths))
    rule = ("---", "---", "---", "--:", *("--:" for _ in lengths))
    return "\n".join(
        [f"| {' | '.join(head)} |", f"|{'|'.join(rule)}|", *(line.markdown(lengths) for line in lines)]
    )


def save_lines(runs: Sequence[Run]) -> Iterator[Line]:
    """Each save against the same save of another contender; the median of these ratios."""
    lines = [Line("save", kind, _PEER, _SAVE_GOALS[kind]) for kind in _OURS]
    lines += [Line("save", kind, _SQLITE) for kind in _OURS]
    lines += [
        Line("save", _FLOOR, _PEER),
        Line("save", "encrypted", "plain"),
        Line("save", "encrypted [fast]", "plain [fast]"),
    ]
    for line in lines:
        for run in runs:
            ratio = statistics.median(paired(run, line.form, line.against))
            line.put(run.length, ratio, _ms(statistics.median(all_saves(run, line.form))))
        yield line


def flat_lines(runs: Sequence[Run]) -> Iterator[Line]:
    """Whether a save of a long session costs what a save of a short one does."""
    for name, share in (("median", 0.5), ("p99", 0.99)):
        for kind in (*_OURS, _PEER):
            line = Line(f"save, {name}, last tenth", kind, "first tenth", 1.3 if kind in _OURS else None)
            for run in runs:
                line.put(run.length, tenth_ratio(run, kind, share), _ms(quantile(all_saves(run, kind), share)))
            yield line
    for kind in _OURS:
        line = Line("save, median, last tenth", kind, f"first tenth, both in terms of {_FLOOR}", 1.3)
        for run in runs:
            line.put(run.length, steady_ratio(run, kind, _FLOOR), _ms(quantile(all_saves(run, kind), 0.5)))
        yield line


def disk_lines(runs: Sequence[Run]) -> Iterator[Line]:
    """Bytes after closing: ours with every snapshot, the peers with the last one only."""
    for kind in KINDS:
        line = Line("bytes on disk", kind, "gzip -6 of the transcript", 1.25 if kind in _OURS else None)
        for run in runs:
            size = run.bytes_on_disk[kind]
            line.put(run.length, size / run.gzipped, f"{size / 1e6:.2f} MB")
        yield line


def load_lines(runs: Sequence[Run], *, repeat: int) -> Iterator[Line]:
    """Loads in fresh processes: of the newest snapshot, and of one as early as the shortest session is long."""
    lines = [Line("cold load", kind, _PEER, 1.0) for kind in _OURS]
    lines.append(Line("cold load", "encrypted", "plain"))
    early = Line(f"load of snapshot {runs[0].length}", "plain", f"a session of {runs[0].length} turns", 1.3)
    for run in runs:
        rounds = [{kind: fresh_process(kind, run.stores[kind], "load") for kind in KINDS} for _ in range(repeat)]
        for line in lines:
            ratio = statistics.median(times[line.form] / times[line.against] for times in rounds)
            line.put(run.length, ratio, _ms(statistics.median(times[line.form] for times in rounds)))
        _put_early(early, run, runs[0], repeat=repeat)
    yield from (*lines, early)


def _put_early(line: Line, run: Run, short: Run, *, repeat: int) -> None:
    pairs = [
        (
            fresh_process("plain", run.stores["plain"], "load", at=short.length),
            fresh_process("plain", short.stores["plain"], "load", at=short.length),
        )
        for _ in range(repeat)
    ]
    own = statistics.median(one for one, _ in pairs)
    line.put(run.length, statistics.median(one / other for one, other in pairs), _ms(own))


def list_lines(stores: dict[str, Path], length: int, *, repeat: int) -> Iterator[Line]:
    """Listing many sessions in fresh processes, against the goal of 0.3 s."""
    for kind, path in stores.items():
        line = Line("list of 1000 sessions", kind, "0.3 s", 1.0)
        seconds = statistics.median(fresh_process(kind, path, "list") for _ in range(repeat))
        line.put(length, seconds / 0.3, _ms(seconds))
        yield line


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"


def machine(place: Path) -> str:
    """What the figures were measured on; the absolute ones mean little elsewhere."""
    shown = subprocess.run(["df", "-T", str(place)], check=False, capture_output=True, text=True).stdout.split("\n")
    filesystem = shown[1].split()[1] if len(shown) > 1 else "unknown file system"
    return (
        f"{platform.platform()}, {os.cpu_count()} cores, {filesystem}; Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}, openai-agents {version('openai-agents')}, isal {version('isal')}. "
        "Absolute values differ from machine to machine and from run to run: compare ratios. Bold misses its goal."
    )
