"""Our framework adapters next to each framework's own durable store: paired turns, ratios.

``python -m integration.bench.frameworks`` makes the environments of ``integration.frameworks.suites`` and prints a
table; ``--quick`` takes short sessions, under two minutes. A ratio in bold misses its goal. Nothing fails: numbers
on a shared machine differ from minute to minute.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

from integration.frameworks.suites import CACHE, ROOT, SUITES, environment

GOALS = {
    ("turn, against SqliteSaver", 200): 0.45,
    ("turn, against SqliteSaver with DeltaChannel", 800): 1.5,
    ("list(limit=20), against SqliteSaver", 800): 1.0,
    ("disk, against SqliteSaver", 200): 0.3,
    ("save, against SQLiteSession", 800): 1.1,
    ("cold load, against SQLiteSession", 800): 2.0,
    ("disk, against SQLiteSession", 800): 0.3,
}


def measured(name: str, turns: int, *, cache: Path, place: Path | None) -> dict[str, float]:
    suite = next(suite for suite in SUITES if suite.name == name)
    command = [str(environment(suite, "newest", cache)), "-m", "integration.bench.framework_runs", name]
    command += ["--turns", str(turns), *(["--place", str(place)] if place else [])]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=3600)
    numbers: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return numbers


def row(framework: str, turns: int, what: str, number: float) -> str:
    goal = GOALS.get((what, turns))
    shown = f"{number:.2f}" if goal is None or number <= goal else f"**{number:.2f}**"
    return f"| {framework} | {turns} | {what} | {shown} | {'' if goal is None else f'≤ {goal}'} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="sessions of 40 turns: a first look")
    parser.add_argument("--place", type=Path, help="a directory on the disk to measure")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where the environments are")
    given = parser.parse_args()
    print("| framework | turns | | | goal |\n|---|---|---|---|---|")
    for framework in ("langgraph", "openai_agents"):
        for turns in (40,) if given.quick else (200, 800):
            numbers = measured(framework, turns, cache=given.cache, place=given.place)
            print("\n".join(row(framework, turns, what, number) for what, number in numbers.items()))


if __name__ == "__main__":
    main()
