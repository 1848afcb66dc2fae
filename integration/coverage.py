"""How many lines of the package the tests run: ``python -m integration.coverage [--record] [pytest arguments]``.

Runs the tests under coverage.py, every process they start included, in an environment of its own in the user's
cache. Prints the modules with the most lines that were not run, and the whole; exits with 1 unless over 90 % were.
It takes several times as long as the tests alone, so CI does not: ``--record`` writes down what was counted, and
`tests/meta/test_coverage.py` holds the package against that in every run.

One event loop is enough here: the other one runs the same lines. Tests of how much processor time something takes
may fail under a tracer; what fails is printed, and does not change the count.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = ["GOAL", "Counted", "statements_in"]

GOAL: Final = 0.9
ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "snapshot_plugin"
RECORD = ROOT / "tests" / "meta" / "coverage.json"
_TOOL = "coverage>=7.10"  # the first one that follows processes by itself
_SETTINGS = """\
[run]
source = snapshot_plugin
parallel = true
patch = subprocess, _exit
data_file = {data}
disable_warnings = no-data-collected, module-not-measured
"""
_SHOWN = 20


class Counted(NamedTuple):
    """What one run has shown. `statements` is the size of the package then, by `statements_in`."""

    lines: int
    covered: int
    statements: int

    def at_least(self, statements: int) -> float:
        """The part that is covered in a package of that size, should no test run what was written since."""
        return self.covered / self.lines * min(1.0, self.statements / statements)


def statements_in(package: Path) -> int:
    """How many statements there are, docstrings aside: a size that needs no tool."""
    return sum(_statements(file.read_text("utf-8")) for file in sorted(package.rglob("*.py")))


def _statements(source: str) -> int:
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    return sum(not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) for node in nodes)


def main() -> int:
    arguments = sys.argv[1:]
    record = "--record" in arguments
    with tempfile.TemporaryDirectory(prefix="asnap-coverage-") as place:
        report = _measured(_environment(), Path(place), [each for each in arguments if each != "--record"])
    totals = report["totals"]
    counted = Counted(totals["num_statements"], totals["covered_lines"], statements_in(PACKAGE))
    print("\n".join(_table(report["files"])))
    share = counted.covered / counted.lines
    print(f"\n{counted.covered} of {counted.lines} lines are run: {share:.2%}; the goal is over {GOAL:.0%}")
    if record:
        RECORD.write_text(json.dumps(counted._asdict(), indent=2) + "\n", "utf-8")
    return 0 if share > GOAL else 1


def _environment() -> Path:
    """A Python with the package, what its tests need, and the tool."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "asnap-coverage"
    python = cache / "bin" / "python"
    if not python.exists():
        venv.create(cache, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "-e", f"{ROOT}[test]", _TOOL], check=True)
    return python


def _measured(python: Path, place: Path, arguments: list[str]) -> dict[str, Any]:
    settings, result = place / "settings", place / "result.json"
    settings.write_text(_SETTINGS.format(data=place / "data"))
    tool = [str(python), "-m", "coverage"]
    tests = ["-m", "pytest", "-p", "no:cacheprovider", "--timeout", "600", "-k", "not trio", *arguments]
    subprocess.run([*tool, "run", f"--rcfile={settings}", *tests], cwd=ROOT, check=False)
    for step in (["combine", "--quiet"], ["json", "--quiet", "-o", str(result)]):
        subprocess.run([*tool, step[0], f"--rcfile={settings}", *step[1:]], cwd=ROOT, check=True)
    report: dict[str, Any] = json.loads(result.read_text("utf-8"))
    return report


def _table(files: dict[str, Any]) -> list[str]:
    left = sorted(((each["summary"]["missing_lines"], name) for name, each in files.items()), reverse=True)
    rows = [f"| {name} | {missing} | {_ranges(files[name]['missing_lines'])} |" for missing, name in left[:_SHOWN]]
    return ["| module | lines not run | which |", "|---|---|---|", *rows]


def _ranges(lines: list[int]) -> str:
    shown = ", ".join(map(str, lines[:12]))
    return f"{shown}, …" if len(lines) > 12 else shown


if __name__ == "__main__":
    sys.exit(main())
