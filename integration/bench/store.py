"""How fast our store saves, loads and lists, and how small it is, next to its peers (README.md).

Run from the repository: ``python -m integration.bench.store``, or with ``--quick`` for a first look.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from integration.bench.environment import CACHE, enter

if TYPE_CHECKING:
    from integration.bench.report import Line

_SECTIONS = ("save", "flat", "disk", "load", "list")
_LISTED_TURNS = 2


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m integration.bench.store", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--turns", help="lengths of the sessions, for instance 10,100,1000,5000")
    parser.add_argument("--quick", action="store_true", help="short sessions, few repetitions: under a minute")
    parser.add_argument("--only", default=",".join(_SECTIONS), help="some of: %(default)s")
    parser.add_argument("--place", type=Path, default=CACHE, help="a directory on the disk to measure")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args(arguments)
    default = "10,100,300" if options.quick else "10,100,1000,5000"
    options.lengths = sorted({int(part) for part in (options.turns or default).split(",")})
    options.sections = options.only.split(",")
    if unknown := set(options.sections) - set(_SECTIONS):
        parser.error(f"no such section: {', '.join(sorted(unknown))}")
    return options


def main() -> None:
    options = _options(sys.argv[1:])
    enter("integration.bench.store", sys.argv[1:])
    from integration.bench.report import machine, table  # noqa: PLC0415 — needs the benchmark's environment

    options.place.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="run-", dir=options.place))
    try:
        lines = list(_lines(options, place))
        print(f"{machine(place)}\n\n{table(lines, options.lengths)}")
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _lines(options: argparse.Namespace, place: Path) -> Iterator[Line]:
    from integration.bench import report  # noqa: PLC0415 — needs the benchmark's environment
    from integration.bench.measure import Run, make_listed, run_saves  # noqa: PLC0415 — as above
    from integration.bench.sessions import turns  # noqa: PLC0415 — as above

    repeat = 2 if options.quick else 7
    runs: list[Run] = []
    if set(options.sections) - {"list"}:
        material = turns(options.lengths[-1], seed=options.seed)
        for length in options.lengths:
            _say(f"saving {length} turns …")
            sessions = max(1, (100 if options.quick else 1000) // length)
            runs.append(asyncio.run(run_saves(material[:length], place, sessions=sessions, seed=options.seed)))
    if "save" in options.sections:
        yield from report.save_lines(runs)
    if "flat" in options.sections:
        yield from report.flat_lines(runs)
    if "disk" in options.sections:
        yield from report.disk_lines(runs)
    if "load" in options.sections:
        _say("loading …")
        yield from report.load_lines(runs, repeat=repeat)
    if "list" in options.sections:
        _say("making two stores with 1000 sessions …")
        stores = asyncio.run(make_listed(place, sessions=1000, length=_LISTED_TURNS))
        yield from report.list_lines(stores, options.lengths[-1], repeat=repeat)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
