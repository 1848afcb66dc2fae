"""Show what real agents keep when they are killed, bare and behind ``asnap run``.

``python -m integration.agents.fidelity [--agents a,b] [--quick|--long] [--json FILE]``; exits with 1 if anything
was lost behind the proxy.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from integration.agents.catalog import AGENTS, Agent
from integration.agents.evidence import KILLED, SCENARIOS, Killed, Scenario
from integration.agents.judge import judge
from integration.agents.report import Row, document, rows, summary, table, worst
from integration.agents.run import run

__all__ = ["main"]

_CHUNKS = (12, 1, 40)
"""How much of the stream is seen before the kill, round by round."""
_LONG_VICTIMS: tuple[Killed, ...] = ("bare", "both")
_QUICK: tuple[Scenario, ...] = ("as the answer is read", "mid-stream", "slash command")


def main() -> int:
    options = _options()
    wanted = options.agents.split(",") if options.agents else list(AGENTS)
    agents = [AGENTS[name] for name in wanted if AGENTS[name].is_installed]
    missing = [name for name in wanted if not AGENTS[name].is_installed]
    if missing:
        names = ", ".join(missing)
        print(f"not installed (python -m integration.agents.install), left out: {names}", file=sys.stderr)
    judged = _Judged(Path(options.json) if options.json else None, missing, resume=options.resume)
    _play_all(agents, options, judged)
    found = sorted(judged.rows.values(), key=lambda row: [*AGENTS].index(row.agent.split()[0]))
    print("\n".join([*(rows(found) if options.rows else table(found)), "", *summary(found)]))
    if missing:
        print(f"\nNot installed, not tried: {', '.join(missing)}.")
    lost = any(cell.good is False for row in found if row.killed != "bare" for cell in row.cells.values())
    return 1 if lost or not found else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", help="names, separated by commas; all by default")
    parser.add_argument("--scenarios", help="scenarios, separated by commas; all but the long one by default")
    parser.add_argument("--killed", help="bare, agent, proxy, both, separated by commas; all by default")
    parser.add_argument("--quick", action="store_true", help=f"only: {', '.join(_QUICK)}")
    parser.add_argument("--long", action="store_true", help="also a session of 300 turns")
    parser.add_argument("--rounds", type=int, default=1, help="how often each run is repeated; the worst counts")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--json", help="write all rows to this file, each as soon as it is known")
    parser.add_argument("--resume", action="store_true", help="do not repeat the runs that the JSON file has")
    parser.add_argument("--rows", action="store_true", help="a row for each victim, a column for each question")
    parser.add_argument("--keep", action="store_true", help="keep the homes of the runs, and say where they are")
    return parser.parse_args()


def _scenarios(agent: Agent, options: argparse.Namespace) -> Iterator[Scenario]:
    """Those that were asked for and that *agent* can be put into."""
    named = options.scenarios.split(",") if options.scenarios else ()
    possible = {
        "tool runs": agent.shell,
        "permission open": agent.shell,
        "slash command": bool(agent.slash),
        "compaction": bool(agent.compact),
        "long": options.long or "long" in named,
    }
    for scenario in named or (_QUICK if options.quick else SCENARIOS):
        if possible.get(scenario, True):
            yield scenario


class _Judged:
    """The rows so far, by agent, scenario and victim; kept in a file, so that a long run can be resumed."""

    def __init__(self, file: Path | None, missing: list[str], *, resume: bool) -> None:
        self._file, self._missing = file, missing
        self._lock = threading.Lock()
        self.rows: dict[tuple[str, str, str], Row] = {}
        if file and resume and file.exists():
            for row in map(Row.from_json, json.loads(file.read_text())["rows"]):
                self.rows[row.agent, row.scenario, row.killed] = row

    def add(self, row: Row) -> None:
        with self._lock:
            self.rows[row.agent, row.scenario, row.killed] = row
            print(row.line(), file=sys.stderr, flush=True)
            if self._file:
                found = document(list(self.rows.values()), self._missing)
                self._file.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def _play_all(agents: list[Agent], options: argparse.Namespace, judged: _Judged) -> None:
    """Every scenario of every agent, the long ones first: they take the longest."""
    plan = [(agent, scenario) for agent in agents for scenario in _scenarios(agent, options)]
    plan.sort(key=lambda one: one[1] != "long")
    with ThreadPoolExecutor(options.jobs) as pool:
        for done in [pool.submit(_play, agent, scenario, options, judged) for agent, scenario in plan]:
            done.result()


def _play(agent: Agent, scenario: Scenario, options: argparse.Namespace, judged: _Judged) -> None:
    """One scenario with every victim, judged. The bare run says what the others may expect of the agent."""
    name = f"{agent.name} {agent.version}"
    for victim in _victims(scenario, options):
        if (name, scenario, victim) in judged.rows:
            continue
        played = [
            run(agent, scenario, victim, _CHUNKS[n % len(_CHUNKS)], keep=options.keep)
            for n in range(options.rounds)
        ]
        bare = judged.rows.get((name, scenario, "bare"))
        fine = bare.fine if bare else None
        judged.add(Row.of(played, worst([judge(evidence, fine) for evidence in played])))
        for note in (note for evidence in played for note in evidence.notes if options.keep):
            print(f"    {note}", file=sys.stderr)


def _victims(scenario: Scenario, options: argparse.Namespace) -> tuple[Killed, ...]:
    if options.killed:
        return tuple(options.killed.split(","))
    return _LONG_VICTIMS if scenario == "long" else KILLED


if __name__ == "__main__":
    sys.exit(main())
