"""What ``asnap ui`` and ``asnap chat`` cost: start, answers of the API, what a person waits for, a streamed chunk.

``python -m integration.bench.ui [--quick]`` prints one Markdown table; a value in bold misses its goal. There are
300 sessions and one of 5,000 messages in 100 snapshots; with ``--quick`` 12 and 1,000. Times are of the clock, best
of three: the start ends with the first answer, and what is seen in the browser is timed by the page itself, from
the moment its address was opened. The rows about chat are processor time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
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
from snapshot_plugin.cli.chat.connection import Connection
from snapshot_plugin.cli.chat.display import Display
from snapshot_plugin.store.filesystem import FilesystemStore

_TRIES = 3
_MESSAGES = 10_000
_WATCH = """
const look = (now) => {
  if (document.querySelector(%s)) window.seenAt = now; else requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""
_NOTE_TITLE = """
(title) => {
  const look = () => {
    if (document.querySelector("header.session h1")?.textContent.includes(title)) window.titleAt = Date.now();
    else requestAnimationFrame(look);
  };
  look();
}
"""


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


def _started(place: Path) -> float:
    """Milliseconds from the command to the first answer."""
    start = time.perf_counter()
    with Served(place) as served:
        _asked(served, "about")
        return (time.perf_counter() - start) * 1000


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

        def opened(path: str, wanted: str) -> Any:
            page = browser.new_context(viewport={"width": 1360, "height": 860}).new_page()
            page.add_init_script(_WATCH % json.dumps(wanted))
            page.goto(f"{served.base}{path}#{token}", wait_until="commit")
            expect(page.locator(wanted).first).to_be_visible()
            return page

        def seen(path: str, wanted: str, what: str = "window.seenAt") -> float:
            pages = [opened(path, wanted) for _ in range(_TRIES)]
            return min(float(page.evaluate(what)) for page in pages)

        paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        yield Row("list visible", seen("/", ".rows li"), 600)
        yield Row("first contentful paint", seen("/", ".rows li", paint), 300)
        yield Row("long session, first message", seen(f"/s/{LONG}", "article"), 500)
        link, middle = f"/s/{LONG}?m={long // 2}", f'article[data-number="{long // 2}"]'
        yield Row("deep link in view", seen(link, middle), 700)
        page = opened(link, middle)
        most = 0
        for _ in range(30):
            page.mouse.move(800, 600)
            page.mouse.wheel(0, 2000)
            most = max(most, page.evaluate("document.querySelectorAll('*').length"))
        yield Row("most nodes while scrolling", most, 5000, "nodes")
        tries = [_saved_elsewhere(opened("/s/session-0000", "article"), place, n) for n in range(_TRIES)]
        yield Row("saved elsewhere, on screen", min(tries), 1000)
        browser.close()


def _saved_elsewhere(page: Any, place: Path, number: int) -> float:
    """Milliseconds from the beginning of a save to the frame of the page that shows its title."""
    from playwright.sync_api import expect  # noqa: PLC0415 — may not be installed

    title = f"saved elsewhere {number}"
    page.wait_for_timeout(1000)  # until the page listens
    page.evaluate(_NOTE_TITLE, title)
    store = FilesystemStore(place, background=False)
    snapshot = store.sync.load("session-0000")
    start = time.time()
    store.sync.save(snapshot.evolve(title=title))
    expect(page.locator("header.session h1")).to_contain_text(title)
    return float(page.evaluate("window.titleAt")) - start * 1000


def _chatted() -> Iterator[Row]:
    """What a chunk costs from the pipe to the screen, at first and after 10,000 messages, a tool call in each."""

    async def asked(_method: str, _params: Any) -> Any:
        raise NotImplementedError

    spent: list[float] = []
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        display = Display(colour=True)
        chat = Connection(
            ["-"], environ={}, notified=lambda _, params: display.updated(params), asked=asked, said=display.aside
        )
        for number in range(_MESSAGES):
            lines = [_update(update) for update in _turn(number)]
            start = time.process_time()
            for line in lines:
                chat._heard(line)  # noqa: SLF001 — as its listener does with each line
            display.end_turn()
            spent.append((time.process_time() - start) * 1000 / len(lines))
    tenth = _MESSAGES // 10
    first, last = sum(spent[:tenth]) / tenth, sum(spent[-tenth:]) / tenth
    yield Row("chat: a chunk, from the pipe to the screen", last, 5)
    yield Row("chat: the last tenth of 10,000 messages against the first", last / first, 1.5, "x")


def _turn(number: int) -> Iterator[dict[str, Any]]:
    words = ("Looking at **module** `parser.py` of ", f"step {number}.\n", "- one\n- two\n", "```py\nx = 1\n```\n")
    for text in words:
        yield {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    call = {"sessionUpdate": "tool_call", "toolCallId": f"call-{number}", "title": "Edit parser.py"}
    yield {**call, "status": "in_progress"}
    change = {"type": "diff", "path": "parser.py", "oldText": "a\nb\n", "newText": "a\nc\n"}
    yield {**call, "sessionUpdate": "tool_call_update", "status": "completed", "content": [change]}


def _update(update: dict[str, Any]) -> bytes:
    params = {"sessionId": "s", "update": update}
    return json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}).encode() + b"\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m integration.bench.ui")
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory(prefix="asnap-ui-") as directory:
        place, long = Path(directory) / "store", 1000 if quick else 5000
        anyio.run(lambda: fill(place, sessions=12 if quick else 300, long_messages=long))
        rows = [*_chatted(), Row("start, first answer", min(_started(place) for _ in range(_TRIES)), 700)]
        with Served(place) as served:
            rows += _answers(served, long)
            if told := missing():
                print(f"without a browser: {told}", file=sys.stderr)
            else:
                rows += _seen(served, place, long)
    print("| | measured | goal |\n|---|---|---|")
    for row in rows:
        value = f"{row.value:.3g} {row.unit}" if row.value < 10 else f"{row.value:.0f} {row.unit}"
        print(f"| {row.what} | {value if row.value <= row.goal else f'**{value}**'} | {row.goal:g} {row.unit} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
