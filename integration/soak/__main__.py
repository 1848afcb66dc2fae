"""``python -m integration.soak``: try to lose something. Prints a Markdown report; exits with 1 if it succeeds.

Every case that is run without a protection must find a loss: otherwise the suite itself has failed.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from integration.soak.program import Case, Outcome, Program, run_case
from integration.soak.report import line_of, report

_PROGRAMS = (
    "power_loss",
    "syscalls",
    "garbler",
    "kills",
    "full_disk",
    "proxy_faults",
    "writers",
    "corruption",
    "fuzz",
    "state_machine",
    "long_run",
)
_REPOSITORY = Path(__file__).resolve().parents[2]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m integration.soak", description="Try to lose something.")
    parser.add_argument("--quick", action="store_true", help="the short form, of about two minutes")
    parser.add_argument("--rounds", type=int, help="so many rounds of each case, in place of its own number")
    parser.add_argument("--minutes", type=float, help="how long the long run takes; default: 60, or a moment")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help=f"some of {', '.join(_PROGRAMS)}"
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report there, too")
    return parser.parse_args()


def _programs(options: argparse.Namespace) -> Iterator[Program]:
    for name in options.only or _PROGRAMS:
        module = importlib.import_module(f"integration.soak.{name}")
        if name != "long_run":
            yield module.PROGRAM
            continue
        default = 0.0 if options.quick else 60.0
        minutes = default if options.minutes is None else options.minutes
        yield Program(module.PROGRAM.name, module.PROGRAM.promise, tuple(module.cases(minutes)))


def _rounds(case: Case, options: argparse.Namespace) -> int:
    if options.rounds is not None and not case.without:
        return int(options.rounds)
    return case.quick if options.quick else case.rounds


def main() -> int:
    options = _options()
    os.environ["PYTHONPATH"] = str(_REPOSITORY)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that disks are unmounted and processes ended
    logging.getLogger("snapshot_plugin").setLevel(logging.CRITICAL)  # thousands of warnings that are expected
    outcomes: list[Outcome] = []
    for program in _programs(options):
        for case in program.cases:
            if rounds := _rounds(case, options):
                outcomes.append(run_case(program, case, rounds))
                print(line_of(outcomes[-1]), file=sys.stderr, flush=True)
    text = report(outcomes, shlex.join(["python", "-m", "integration.soak", *sys.argv[1:]]))
    print(text)
    if options.report:
        options.report.write_text(text)
    return 1 if any(outcome.failed for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
