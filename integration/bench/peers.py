"""Everyone who keeps agent sessions on disk, side by side: the same session, durable after every turn.

Run from the repository: ``python -m integration.bench.peers``, or with ``--quick`` for a first look. One table for
each length of session, and the same as pictures with ``--svg DIR``. One that writes the whole state each time
grows with the square of the session; it gives up after ``--budget`` seconds, and its line says at which turn.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from integration.bench.environment import CACHE, PEERS, enter


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m integration.bench.peers", description=__doc__)
    parser.add_argument("--turns", help="lengths of the sessions, for instance 50,200,1000,5000")
    parser.add_argument("--quick", action="store_true", help="50 and 200 turns only, fewer repetitions")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of saving after which one gives up")
    parser.add_argument("--place", type=Path, default=CACHE, help="a directory on the disk to measure")
    parser.add_argument("--svg", type=Path, help="write pictures of the tables to this directory")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args(arguments)
    default = "50,200" if options.quick else "50,200,1000,5000"
    options.lengths = sorted({int(part) for part in (options.turns or default).split(",")})
    return options


def main() -> None:
    options = _options(sys.argv[1:])
    enter("integration.bench.peers", sys.argv[1:], name="peers", packages=PEERS)
    from integration.bench import peer_report  # noqa: PLC0415 — needs the benchmark's environment
    from integration.bench.peer_runs import race, syncs_per_save  # noqa: PLC0415 — as above
    from integration.bench.sessions import turns  # noqa: PLC0415 — as above

    options.place.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="peers-", dir=options.place))
    try:
        print("counting syncs …", file=sys.stderr)
        syncs = syncs_per_save(place)
        print(peer_report.machine(place), end="\n\n")
        material = turns(options.lengths[-1], seed=options.seed)
        for length in options.lengths:
            print(f"saving {length} turns …", file=sys.stderr)
            results = asyncio.run(race(material[:length], place, budget=options.budget, seed=options.seed))
            for result in results:
                result.measure_loads(repeat=3 if options.quick else 5)
            print(f"### {length} turns\n\n{peer_report.table(results, syncs)}\n", flush=True)
            if options.svg:
                peer_report.picture(results, options.svg / f"peers-{length}.svg", length)
            shutil.rmtree(place / str(length), ignore_errors=True)
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
