"""Show what real agents keep when they are killed, bare and behind ``asnap run``.

``python -m integration.agents.fidelity [--agents a,b] [--quick|--long] [--json FILE]``; exits with 1 if anything
was lost behind the proxy.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from integration.agents.catalog import AGENTS, Agent
from integration.agents.evidence import KILLED, SCENARIOS, Evidence, Killed, Scenario
from integration.agents.judge import judge
from integration.agents.report import Row, document, rows, summary, table, worst
from integration.agents.run import run

__all__ = ["main"]

_CHUNKS = (12, 1, 40)
"""How much of the stream is seen before the kill, round by round."""
_QUICK: tuple[Scenario, ...] = ("as the answer is read", "mid-stream", "slash command")


def main() -> int:
    options = _options()
    wanted = options.agents.split(",") if options.agents else list(AGENTS)
    agents = [AGENTS[name] for name in wanted if AGENTS[name].is_installed]
    missing = [name for name in wanted if not AGENTS[name].is_installed]
    if missing:
        names = ", ".join(missing)
        print(f"not installed (python -m integration.agents.install), left out: {names}", file=sys.stderr)
    judged = [row for agent in agents for row in _of(agent, options)]
    if options.json:
        Path(options.json).write_text(json.dumps(document(judged, missing), indent=1, ensure_ascii=False) + "\n")
    print("\n".join([*(rows(judged) if options.rows else table(judged)), "", *summary(judged)]))
    if missing:
        print(f"\nNot installed, not tried: {', '.join(missing)}.")
    lost = any(cell.good is False for row in judged if row.killed != "bare" for cell in row.cells.values())
    return 1 if lost or not judged else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", help="names, separated by commas; all by default")
    parser.add_argument("--scenarios", help="scenarios, separated by commas; all but the long one by default")
    parser.add_argument("--killed", help="bare, agent, proxy, both, separated by commas; all by default")
    parser.add_argument("--quick", action="store_true", help=f"only: {', '.join(_QUICK)}")
    parser.add_argument("--long", action="store_true", help="also a session of 300 turns")
    parser.add_argument("--rounds", type=int, default=1, help="how often each run is repeated; the worst counts")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--json", help="write all cells and what was seen to this file")
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


def _of(agent: Agent, options: argparse.Namespace) -> Iterator[Row]:
    """All runs of one agent, judged. The bare run of a scenario says what the others may expect of the agent."""
    victims: tuple[Killed, ...] = tuple(options.killed.split(",")) if options.killed else KILLED
    plan = [(scenario, victim) for scenario in _scenarios(agent, options) for victim in victims]
    seen: dict[tuple[Scenario, Killed], list[Evidence]] = {}

    def play(one: tuple[Scenario, Killed]) -> list[Evidence]:
        return [run(agent, *one, _CHUNKS[n % len(_CHUNKS)], keep=options.keep) for n in range(options.rounds)]

    with ThreadPoolExecutor(options.jobs) as pool:
        for one, evidences in zip(plan, pool.map(play, plan), strict=True):
            seen[one] = evidences
            bare = seen.get((one[0], "bare"), [None])[0]
            row = Row.of(evidences, worst([judge(evidence, bare) for evidence in evidences]))
            print(row.line(), file=sys.stderr, flush=True)
            for note in (note for evidence in evidences for note in evidence.notes if options.keep):
                print(f"    {note}", file=sys.stderr)
            yield row


if __name__ == "__main__":
    sys.exit(main())
