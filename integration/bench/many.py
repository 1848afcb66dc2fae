"""Many sessions saving at once: ours, openai-agents' `SQLiteSession` (one file; a file each), and a bare append.

::

    python -m integration.bench.many [--sessions 1 8 64] [--saves 30] [--rounds 3] [--place DIR]

Every session saves turn after turn, each save durable before the next; the contenders take turns within one run,
so that ratios mean something. CPU is that of the whole process, all threads. Like `integration.bench.store`, it
runs in the benchmark's own environment, which is made on first use.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from integration.bench.environment import CACHE, enter


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m integration.bench.many", description=__doc__)
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--saves", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--place", type=Path, default=CACHE, help="a directory on the disk to measure")
    options = parser.parse_args()
    enter("integration.bench.many", sys.argv[1:])
    from integration.bench.many_runs import measure  # noqa: PLC0415 — needs the benchmark's environment

    options.place.mkdir(parents=True, exist_ok=True)
    rows = asyncio.run(measure(options.sessions, options.saves, options.rounds, options.place))
    ours = {count: found for count, name, found in rows if name == "ours"}
    print("| sessions | contender | saves/s | p99 ms | CPU µs/save | ours / it: rate, CPU |")
    print("|---|---|---|---|---|---|")
    for count, name, found in rows:
        rate, cpu = ours[count].rate / found.rate, ours[count].cpu / found.cpu
        print(
            f"| {count} | {name} | {found.rate:.0f} | {found.p99 * 1e3:.1f} | {found.cpu * 1e6:.0f} "
            f"| {rate:.2f}, {cpu:.2f} |"
        )


if __name__ == "__main__":
    main()
