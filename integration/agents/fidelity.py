"""Print what real agents keep when they are killed, bare and behind ``asnap run``, as one Markdown table.

``python -m integration.agents.fidelity [--agents a,b] [--quick] [--rounds n] [--jobs n] [--keep]``; exits with 1
if anything was lost behind the proxy.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from integration.agents.catalog import AGENTS, Agent
from integration.agents.judge import COLUMNS, Cell, judge
from integration.agents.run import KILLED, MOMENTS, Evidence, Killed, Moment, run

__all__ = ["main"]

_NAMES = {
    "bare": "bare: agent",
    "agent": "asnap: agent alone",
    "proxy": "asnap: proxy alone",
    "both": "asnap: both",
}
_CHUNKS = (12, 1, 40)
"""How much of the stream is seen before the kill, round by round."""
Judged = tuple[Evidence, dict[str, Cell]]


def main() -> int:
    options = _options()
    agents = [AGENTS[name] for name in options.agents.split(",")] if options.agents else list(AGENTS.values())
    for agent in agents:
        if not agent.is_installed:
            print(
                f"{agent.name} is not installed (python -m integration.agents.install): left out", file=sys.stderr
            )
    runs = [
        (agent, moment, killed, _CHUNKS[number % len(_CHUNKS)])
        for agent in agents
        if agent.is_installed
        for moment in (options.moments.split(",") if options.moments else _moments(agent, quick=options.quick))
        for killed in (options.killed.split(",") if options.killed else KILLED)
        for number in range(options.rounds)
    ]
    judged = list(_judged(runs, jobs=options.jobs, keep=options.keep))
    print("\n".join(_table(judged)))
    print()
    print("\n".join(_summary(judged)))
    lost = any(
        cell.good is False for evidence, cells in judged if evidence.killed != "bare" for cell in cells.values()
    )
    return 1 if lost or not judged else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", help="names, separated by commas; all by default")
    parser.add_argument("--moments", help="moments of the kill, separated by commas; all by default")
    parser.add_argument("--killed", help="bare, agent, proxy, both, separated by commas; all by default")
    parser.add_argument(
        "--quick", action="store_true", help="only two moments: mid-stream, and as the answer is read"
    )
    parser.add_argument("--rounds", type=int, default=1, help="how often each run is repeated")
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time")
    parser.add_argument("--keep", action="store_true", help="keep the homes of the runs, and say where they are")
    return parser.parse_args()


def _moments(agent: Agent, *, quick: bool) -> Iterator[Moment]:
    for moment in MOMENTS:
        if moment in ("tool runs", "permission open") and not agent.shell:
            continue
        if not quick or moment in ("as the answer is read", "mid-stream"):
            yield moment


def _judged(runs: list[tuple[Agent, Moment, Killed, int]], *, jobs: int, keep: bool) -> Iterator[Judged]:
    with ThreadPoolExecutor(jobs) as pool:
        for evidence in pool.map(lambda one: run(*one, keep=keep), runs):
            cells = judge(evidence)
            marks = "  ".join(str(cell) for cell in cells.values())
            print(f"{evidence.agent.name} | {evidence.moment} | {evidence.killed}: {marks}", file=sys.stderr)
            for note in evidence.notes if keep else ():
                print(f"    {note}", file=sys.stderr)
            yield evidence, cells


def _table(judged: list[Judged]) -> Iterator[str]:
    """A row for each agent, moment and victim; of several rounds the worst."""
    yield f"| agent | killed when | killed | {' | '.join(COLUMNS)} | came back as |"
    yield "|---" * (4 + len(COLUMNS)) + "|"
    rows: dict[tuple[str, ...], list[Judged]] = {}
    for evidence, cells in judged:
        agent = f"{evidence.agent.name} {evidence.agent.version}"
        rows.setdefault((agent, evidence.moment, _NAMES[evidence.killed]), []).append((evidence, cells))
    for names, rounds in rows.items():
        worst = (_worst(cells[column] for _, cells in rounds) for column in COLUMNS)
        grades = ", ".join(sorted({evidence.grade or "n.a." for evidence, _ in rounds}))
        yield f"| {' | '.join([*names, *map(str, worst), grades])} |"


def _worst(cells: Iterable[Cell]) -> Cell:
    order = {False: 0, True: 1, None: 2}
    found = sorted(cells, key=lambda cell: order[cell.good])
    lost = sum(cell.good is False for cell in found)
    first = found[0]
    return first if lost in (0, len(found)) else Cell(False, f"{first.why} ({lost} of {len(found)} rounds)")


def _summary(judged: list[Judged]) -> Iterator[str]:
    yield f"| losses | {' | '.join(COLUMNS)} | all |"
    yield "|---" * (2 + len(COLUMNS)) + "|"
    for name, wanted in (("bare", ("bare",)), ("behind asnap", ("agent", "proxy", "both"))):
        chosen = [cells for evidence, cells in judged if evidence.killed in wanted]
        columns = [[cells[column] for cells in chosen] for column in COLUMNS]
        counts = [_count(column) for column in columns]
        yield f"| {name} | {' | '.join(counts)} | {_count(cell for column in columns for cell in column)} |"


def _count(cells: Iterable[Cell]) -> str:
    asked = [cell for cell in cells if cell.good is not None]
    return f"{sum(cell.good is False for cell in asked)} of {len(asked)}" if asked else "n.a."


if __name__ == "__main__":
    sys.exit(main())
