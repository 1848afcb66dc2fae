"""What the browser has to bear: sessions and messages of any size, two tabs on one session, a store in a bucket."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.sync_api import Page, expect

from integration.ui.running import Served
from integration.ui.scenarios import Stage
from integration.ui.sessions import talk
from snapshot_plugin.model import Message
from snapshot_plugin.store.filesystem import FilesystemStore
from snapshot_plugin.store.s3 import ObjectStore, bucket_at
from tests.object_servers import seaweedfs

__all__ = ["EXTREMES"]

_NODES = 5000
_MANY = 20_000
_LARGE = 50 << 20
_READABLE = 10


def a_narrow_screen_shows_the_list_or_a_session(stage: Stage) -> None:
    page = stage.page("/")
    page.set_viewport_size({"width": 400, "height": 860})
    for path in ("/", "/s/pictures", "/compare?a=pictures&b=the-fork", "/stats"):
        page.goto(f"{stage.served.base}{path}")
        expect(page.locator("aside" if path == "/" else "main")).to_be_visible()
        expect(page.locator("main" if path == "/" else "aside")).to_be_hidden()
        assert page.evaluate("document.documentElement.scrollWidth") <= 400, path
        stage.shot(page, f"narrow-{path.strip('/').partition('?')[0].replace('/', '-') or 'list'}")
    label = page.locator(".chart text").first
    expect(label).to_be_visible()
    assert (label.bounding_box() or {"height": 0})["height"] >= _READABLE, "labels of charts keep their size"
    page.get_by_role("link", name="All sessions").click()
    page.locator(".rows a[data-id='pictures']").click()
    expect(page.locator("article").first).to_be_in_viewport()
    page.locator("body").press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()


def a_session_of_20000_messages_is_read_and_searched(stage: Stage) -> None:
    begin = datetime.now(UTC) - timedelta(days=30)
    many = tuple(Message(role="user", content=f"message {n} of many") for n in range(1, _MANY + 1))
    store = FilesystemStore(Path(stage.served.place), background=False).sync
    store.save(talk("enormous", 0, begin, title="an enormous one").evolve(messages=many), base=0)
    page = stage.page(f"/s/enormous?m={_MANY // 2}")
    expect(page.locator(f'article[data-number="{_MANY // 2}"]')).to_be_in_viewport()
    page.locator("body").press("G")
    expect(page.locator(f'article[data-number="{_MANY}"]')).to_be_in_viewport()
    page.set_viewport_size({"width": 1280, "height": 420})
    expect(page.locator(f'article[data-number="{_MANY}"]')).to_be_in_viewport()
    page.keyboard.press("g")
    expect(page.locator('article[data-number="1"]')).to_be_in_viewport()
    assert page.evaluate("document.querySelectorAll('*').length") < _NODES
    page.keyboard.press("/")
    page.keyboard.type(f'"message {_MANY - 7} of many"')
    page.locator("a.hit").first.click()
    expect(page.locator(f'article[data-number="{_MANY - 7}"]')).to_be_in_viewport()


def a_message_of_50_mb_leaves_the_page_usable(stage: Stage) -> None:
    large = "".join(f"line {n} of a large message\n" for n in range(_LARGE // 28))
    begin = datetime.now(UTC) - timedelta(days=31)
    made = talk("large", 1, begin, title="a large one")
    store = FilesystemStore(Path(stage.served.place), background=False).sync
    after = Message(role="user", content="what came after")
    store.save(made.evolve(messages=(Message(role="user", content=large), after)), base=0)
    page = stage.page("/s/large")
    expect(page.locator('article[data-number="1"]')).to_contain_text("line 1 of a large message")
    assert page.evaluate("document.body.textContent.length") < 1_000_000
    page.locator("body").press("G")
    expect(page.locator('article[data-number="2"]')).to_contain_text("what came after")
    page.keyboard.press("g")
    page.get_by_role("button", name="Show all").click()
    expect(page.locator("article .other", has_text="longer than a page can show")).to_be_visible(timeout=60_000)
    began = time.monotonic()
    page.keyboard.press("/")
    expect(page.locator("input[type=search]")).to_be_focused()
    assert time.monotonic() - began < 5, "the page did not answer"


def two_tabs_change_one_session(stage: Stage) -> None:
    first = stage.page("/s/session-0003")
    second = first.context.new_page()
    second.goto(f"{stage.served.base}/s/session-0003")  # the token is there: both are tabs of one user
    for page in (first, second):
        expect(page.get_by_role("button", name="Rename")).to_be_visible()
    _rename(first, "named in the first tab")
    expect(second.locator("header.session h1")).to_contain_text("named in the first tab")
    _rename(second, "named in the second tab")
    expect(first.locator("header.session h1")).to_contain_text("named in the second tab")
    first.get_by_role("button", name="Pin", exact=True).click()
    expect(second.get_by_role("button", name="Unpin")).to_be_visible()
    row = stage.served.asnap("show", "session-0003", "--summary")["session"]
    assert (row["title"], row["pinned"]) == ("named in the second tab", True)
    stage.served.asnap("undo")
    for page in (first, second):
        expect(page.get_by_role("button", name="Pin", exact=True)).to_be_visible()


def _rename(page: Page, name: str) -> None:
    page.get_by_role("button", name="Rename").click()
    page.locator("dialog input").fill(name)
    page.keyboard.press("Enter")
    expect(page.locator("header.session h1")).to_contain_text(name)


def a_store_in_a_bucket_is_shown_and_changed(stage: Stage) -> None:
    begin = datetime.now(UTC) - timedelta(days=1)
    with tempfile.TemporaryDirectory(prefix="asnap-ui-weed-") as home, seaweedfs(Path(home)) as server:
        os.environ.update(server.environment)
        place = f"{server.url}/ui"
        with ObjectStore(bucket_at(place), background=False).sync as store:
            store.save(talk("far-away", 3, begin, title="far away"), base=0)
        with Served(place, home=Path(home)) as served:
            page = stage.page("/s/far-away", served=served)
            expect(page.locator("header.session h1")).to_contain_text("far away")
            expect(page.locator("article").first).to_be_visible()
            _rename(page, "named in the browser")
            assert served.asnap("show", "far-away", "--summary")["session"]["title"] == "named in the browser"
            page.locator(".toast").get_by_role("button", name="Undo").click()
            expect(page.locator("header.session h1")).to_contain_text("far away")
            page.context.close()
            stage.forget_pages()


EXTREMES: dict[str, Callable[[Stage], None]] = {
    each.__name__: each
    for each in (
        two_tabs_change_one_session,
        a_narrow_screen_shows_the_list_or_a_session,
        a_store_in_a_bucket_is_shown_and_changed,
        a_session_of_20000_messages_is_read_and_searched,
        a_message_of_50_mb_leaves_the_page_usable,
    )
}
