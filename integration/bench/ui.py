"""What ``asnap ui`` costs: start, answers of the API, and with Chromium what a person waits for.

``python -m integration.bench.ui [--quick]`` prints one Markdown table; a value in bold misses its goal. There are
300 sessions and one of 5,000 messages in 100 snapshots; with ``--quick`` 12 and 1,000. Times are of the clock, best
of three.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anyio

from integration.ui.running import CHROMIUM, Served, missing
from integration.ui.sessions import LONG, fill
from snapshot_plugin.store.filesystem import FilesystemStore

_TRIES = 3


class Row(NamedTuple):
    """What was measured, and what is wanted."""

    what: str
    value: float
    goal: float
    unit: str = "ms"


def _best(work: Callable[[], object]) -> float:
    """Milliseconds of the best try."""
    spent = []
    for _ in range(_TRIES):
        start = time.perf_counter()
        work()
        spent.append((time.perf_counter() - start) * 1000)
    return min(spent)


def _asked(served: Served, path: str) -> Any:
    token = served.address.partition("#token=")[2]
    headers = {"authorization": f"Bearer {token}"}
    with urllib.request.urlopen(urllib.request.Request(f"{served.base}/api/v1/{path}", headers=headers)) as answer:
        return json.load(answer)


def _started(place: Path) -> None:
    with Served(place) as served:
        _asked(served, "about")


def _answers(served: Served, long: int) -> Iterator[Row]:
    page, diff = f"sessions/{LONG}/messages?from={long // 2}", f"diff?a={LONG}@50&b={LONG}@51"
    yield Row("list of all sessions", _best(lambda: _asked(served, "sessions?limit=2000")), 200)
    yield Row(
        "100 messages of the long one",
        _best(lambda: _asked(served, page)),
        100,
    )
    yield Row("diff of neighbours in the long one", _best(lambda: _asked(served, diff)), 100)
    _asked(served, "search?q=redirect")
    yield Row("search, indexed", _best(lambda: _asked(served, "search?q=redirect")), 300)


def _seen(served: Served, place: Path, long: int) -> Iterator[Row]:
    from playwright.sync_api import expect, sync_playwright  # noqa: PLC0415 — may not be installed

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        token = served.address.partition("#")[2]

        def opened(path: str, locator: str) -> Any:
            page = browser.new_context(viewport={"width": 1360, "height": 860}).new_page()
            page.goto(f"{served.base}{path}#{token}", wait_until="commit")
            expect(page.locator(locator).first).to_be_visible()
            return page

        yield Row("list visible", _best(lambda: opened("/", ".rows li")), 600)
        page = opened("/", ".rows li")
        paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
        yield Row("first contentful paint", page.evaluate(paint), 300)
        yield Row("long session, first message", _best(lambda: opened(f"/s/{LONG}", "article")), 500)
        link, wanted = f"/s/{LONG}?m={long // 2}", f'article[data-number="{long // 2}"]'
        yield Row("deep link in view", _best(lambda: opened(link, wanted)), 700)
        page = opened(link, wanted)
        most = 0
        for _ in range(30):
            page.mouse.move(800, 600)
            page.mouse.wheel(0, 2000)
            most = max(most, page.evaluate("document.querySelectorAll('*').length"))
        yield Row("most nodes while scrolling", most, 5000, "nodes")
        page = opened("/s/session-0000", "article")
        store = FilesystemStore(place, background=False)
        snapshot = store.sync.load("session-0000")
        start = time.perf_counter()
        store.sync.save(snapshot.evolve(title="saved elsewhere"))
        expect(page.locator("header.session h1")).to_contain_text("saved elsewhere")
        yield Row("saved elsewhere, on screen", (time.perf_counter() - start) * 1000, 1000)
        browser.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m integration.bench.ui")
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory(prefix="asnap-ui-") as directory:
        place, long = Path(directory) / "store", 1000 if quick else 5000
        anyio.run(lambda: fill(place, sessions=12 if quick else 300, long_messages=long))
        rows = [Row("start, first answer", _best(lambda: _started(place)), 700)]
        with Served(place) as served:
            rows += _answers(served, long)
            if told := missing():
                print(f"without a browser: {told}", file=sys.stderr)
            else:
                rows += _seen(served, place, long)
    print("| | measured | goal |\n|---|---|---|")
    for row in rows:
        value = f"{row.value:.0f} {row.unit}"
        print(f"| {row.what} | {value if row.value <= row.goal else f'**{value}**'} | {row.goal:.0f} {row.unit} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
