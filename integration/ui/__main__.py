"""The browser, tested as people use it: Debian's Chromium, driven by Playwright, against ``asnap ui`` as a process.

``python -m integration.ui [--quick] [--shots DIR]`` runs the scenarios one after the other and prints a line for
each; it exits with 1 if one fails. ``--quick`` has fewer sessions and a shorter long one; ``--shots`` keeps
pictures of the main pages, light and dark. Needs ``apt install chromium`` and
``pip install playwright axe-playwright-python``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from pathlib import Path

import anyio

from integration.ui.extremes import EXTREMES
from integration.ui.running import Served, missing
from integration.ui.scenarios import SCENARIOS, Stage
from integration.ui.sessions import fill


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m integration.ui")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--shots", type=Path)
    parser.add_argument("--only", help="the name of one scenario")
    chosen = parser.parse_args()
    if told := missing():
        print(f"cannot run: {told}")
        return 1
    failed = 0
    with tempfile.TemporaryDirectory(prefix="asnap-ui-") as directory:
        place, long = Path(directory) / "store", 1000 if chosen.quick else 5000
        anyio.run(lambda: fill(place, sessions=12 if chosen.quick else 300, long_messages=long))
        with Served(place) as served, Stage(served, shots=chosen.shots, long=long) as stage:
            for name, scenario in {**SCENARIOS, **EXTREMES}.items():
                if chosen.only and chosen.only != name:
                    continue
                try:
                    scenario(stage)
                    print(f"ok      {name}")
                except Exception:  # noqa: BLE001 — the others are still worth running
                    failed += 1
                    print(f"FAILED  {name}\n{traceback.format_exc()}")
            print(f"requests to elsewhere: {len(stage.foreign)}; errors in the page: {len(stage.errors)}")
            failed += bool(stage.foreign) + bool(stage.errors)
            for each in (*stage.foreign, *stage.errors):
                print(f"  {each}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
