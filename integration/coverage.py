"""How many lines of the package the tests run: ``python -m integration.coverage [pytest arguments]``.

Runs the tests under coverage.py, every process they start included, in an environment of its own in the user's
cache. Prints the modules with the most lines that were not run, and the whole; exits with 1 unless over 90 % were.
It takes several times as long as the tests alone, so CI does not run it.

One event loop is enough here: the other one runs the same lines. Tests of how much processor time something takes
may fail under a tracer; what fails is printed, and does not change the count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any, Final

GOAL: Final = 0.9
ROOT = Path(__file__).parents[1]
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


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="asnap-coverage-") as place:
        report = _measured(_environment(), Path(place), sys.argv[1:])
    lines, covered = report["totals"]["num_statements"], report["totals"]["covered_lines"]
    print("\n".join(_table(report["files"])))
    print(f"\n{covered} of {lines} lines are run: {covered / lines:.2%}; the goal is over {GOAL:.0%}")
    return 0 if covered > GOAL * lines else 1


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
