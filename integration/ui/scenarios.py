"""What people do in the browser, scenario by scenario. Each begins with a fresh page that has the token."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from playwright.sync_api import Browser, Page, expect, sync_playwright

from integration.ui.running import CHROMIUM, Served
from integration.ui.sessions import LONG, fill_encrypted
from tests.acp_client import AGENT, Client

__all__ = ["SCENARIOS", "Stage"]

_NODES = 5000
_PATIENCE = 15_000
expect.set_options(timeout=_PATIENCE)


class Stage:
    """A browser, and what it did that it should not have done."""

    def __init__(self, served: Served, *, shots: Path | None, long: int) -> None:
        self.served, self.shots, self.long = served, shots, long
        self.foreign: list[str] = []
        self.errors: list[str] = []
        self._open: list[Page] = []

    def __enter__(self) -> Self:
        self._playwright = sync_playwright().start()
        flags = ["--no-sandbox", "--disable-dev-shm-usage"]
        self.browser: Browser = self._playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.browser.close()
        self._playwright.stop()

    def page(self, path: str = "/", *, served: Served | None = None, **settings: Any) -> Page:
        """A new page of a new user, at *path*; what it logs and asks for is watched."""
        server = served or self.served
        for old in self._open:
            old.context.close()
        context = self.browser.new_context(viewport={"width": 1360, "height": 860}, **settings)
        page = context.new_page()
        self._open = [page]
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda said: self._heard(said.type, said.text))
        page.on("request", lambda asked: self._asked(asked.url, server.base))
        page.goto(f"{server.base}{path}#{server.address.partition('#')[2]}")
        return page

    def forget_pages(self) -> None:
        """Leave pages alone whose server ends before the next scenario."""
        self._open.clear()

    def _heard(self, kind: str, text: str) -> None:
        if kind == "error" and "Failed to load resource" not in text:
            self.errors.append(text)

    def _asked(self, url: str, base: str) -> None:
        if not url.startswith((f"{base}/", "data:", "blob:")):
            self.foreign.append(url)

    def shot(self, page: Page, name: str) -> None:
        """A picture, where they are wanted."""
        if self.shots:
            self.shots.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=self.shots / f"{name}.png")


def _opened(page: Page, title: str) -> None:
    expect(page.locator("header.session h1")).to_contain_text(title)


def the_token_leaves_the_address(stage: Stage) -> None:
    page = stage.page()
    expect(page.locator(".rows li").first).to_be_visible()
    assert "token" not in page.url
    page.reload()
    expect(page.locator(".rows li").first).to_be_visible()
    stranger = stage.browser.new_context().new_page()
    stranger.goto(f"{stage.served.base}/s/{LONG}#token=wrong")
    expect(stranger.locator(".problem")).to_contain_text("no valid token")
    stranger.context.close()
    for header, status in (({"Host": "evil.example"}, 421), ({"Origin": "http://evil.example"}, 403)):
        assert _status(f"{stage.served.base}/api/v1/sessions", header) == status


def _status(url: str, headers: dict[str, str]) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code


def a_hit_leads_to_the_message(stage: Stage) -> None:
    page = stage.page()
    expect(page.locator(".rows li").first).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type(f'"turn {stage.long // 4} is covered"')
    hit = page.locator("a.hit").first
    expect(hit).to_be_visible()
    hit.click()
    number = re.search(r"m=(\d+)", page.url)
    assert number
    expect(page.locator(f'article[data-number="{number[1]}"]')).to_be_in_viewport()
    expect(page.locator("article.marked")).to_have_attribute("data-number", number[1])


def snapshots_are_scrubbed_reloaded_and_left_with_back(stage: Stage) -> None:
    page = stage.page(f"/s/{LONG}")
    _opened(page, "the long one")
    page.locator("input[type=range]").focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    expect(page.locator(".banner.past")).to_contain_text("snapshot 97")
    expect(page.locator("input[type=range]")).to_be_focused()
    tokens = 97 * stage.long // 100 // 2 * 1150
    expect(page.locator("header.session .facts").first).to_contain_text(f"{tokens:,} tokens")
    stage.shot(page, "snapshot")
    page.reload()
    expect(page.locator(".banner.past")).to_contain_text("snapshot 97")
    page.go_back()
    expect(page.locator(".banner.past")).to_have_count(0)
    page.go_forward()
    page.get_by_role("button", name="Back to now").click()
    expect(page.locator(".banner.past")).to_have_count(0)


def any_two_are_compared(stage: Stage) -> None:
    page = stage.page(f"/compare?a={LONG}@3&b={LONG}@5")
    expect(page.locator(".summary")).to_contain_text("messages added")
    page.get_by_role("button", name="Swap").click()
    expect(page.locator(".summary")).to_contain_text("messages removed")
    page.goto(f"{stage.served.base}/s/the-fork")
    page.get_by_role("link", name="compare", exact=True).click()
    expect(page.locator(".card.plus").first).to_be_visible()
    expect(page.locator(".compare")).to_contain_text("4 messages the same")
    stage.shot(page, "compare")


def changes_are_made_and_taken_back(stage: Stage) -> None:
    page, served = stage.page("/s/session-0001"), stage.served
    _opened(page, "")
    title = served.asnap("show", "session-0001", "--summary")["session"]["title"]
    page.get_by_role("button", name="Rename").click()
    page.locator("dialog input").fill("a name of mine")
    page.keyboard.press("Enter")
    _opened(page, "a name of mine")
    assert served.asnap("show", "session-0001", "--summary")["session"]["title"] == "a name of mine"
    page.locator(".toast").get_by_role("button", name="Undo").click()
    _opened(page, title)
    page.get_by_role("button", name="+ tag").click()
    page.locator("dialog input").fill("urgent")
    page.keyboard.press("Enter")
    expect(page.locator("header.session .chip.tag", has_text="urgent")).to_be_visible()
    page.locator("header.session").get_by_role("button", name="Pin", exact=True).click()
    expect(page.get_by_role("button", name="Unpin")).to_be_visible()
    row = served.asnap("show", "session-0001", "--summary")["session"]
    assert row["pinned"]
    assert "urgent" in row["tags"]
    before = served.asnap("list", "--all")["total"]
    page.locator("header.session").get_by_role("button", name="Fork", exact=True).click()
    expect(page.locator("header.session")).to_contain_text("forked from")
    assert served.asnap("list", "--all")["total"] == before + 1
    page.get_by_role("button", name="Forget").click()
    page.locator("dialog").get_by_role("button", name="Forget").click()
    expect(page.locator(".toast").last).to_contain_text("in the trash")
    assert served.asnap("list", "--all")["total"] == before
    served.asnap("undo")
    assert served.asnap("list", "--all")["total"] == before + 1
    page.goto(f"{served.base}/trash")
    expect(page.locator(".plainlist").first).to_be_visible()
    stage.shot(page, "trash")


def a_live_session_streams_and_its_agent_is_killed(stage: Stage) -> None:
    served = stage.served
    command = [sys.executable, "-m", "snapshot_plugin", "run", "--store", str(served.place), "--", *AGENT]
    with Client(command, env=served.environ) as client:
        client.initialize()
        session = client.new_session()
        client.prompt(session, "say the agent says hello")
        _saved(Path(served.place), session)
        page = stage.page(f"/compare?a={session}&b=the-fork")
        expect(page.locator(".side a").first).to_have_text("say the agent says hello")  # it has no title
        page = stage.page()
        row = page.locator(".rows li", has=page.locator(".chip.live")).first
        expect(row).to_be_visible()
        row.locator("a").click()
        expect(page.locator("article").last).to_contain_text("says hello")
        client.begin_prompt(session, "say words that only the spool has\nslow-tool 60")
        expect(page.locator(".messages")).to_contain_text("words that only the spool has")
        stage.shot(page, "live")
        page.get_by_role("button", name="Rename").click()
        page.locator("dialog input").fill("renamed while live")
        page.keyboard.press("Enter")
        _opened(page, "renamed while live")
        client.process.kill()
        expect(page.locator(".banner.warn")).to_contain_text("asnap recover")
        expect(page.locator(".messages")).to_contain_text("words that only the spool has")


def _saved(place: Path, session_id: str) -> None:
    """Wait for the first snapshot, which the proxy takes a moment after the turn: snapshots are compared."""
    until = time.monotonic() + _PATIENCE / 1000
    while not [*place.glob(f"sessions/{session_id}/*.snap.gz")]:
        assert time.monotonic() < until, f"nobody saved {session_id}"
        time.sleep(0.02)


def damage_says_what_to_do(stage: Stage) -> None:
    page = stage.page("/s/damaged")
    expect(page.locator(".banner.bad")).to_contain_text("Damaged")
    expect(page.locator(".banner.bad code")).to_contain_text(f"--store {stage.served.place}")
    expect(page.locator(".scroller")).to_contain_text("asnap check")
    page.goto(f"{stage.served.base}/s/newer")
    expect(page.locator(".banner.warn")).to_contain_text("Too new")
    expect(page.locator(".banner.warn")).to_contain_text("pip install --upgrade")
    stage.shot(page, "too-new")
    page.goto(f"{stage.served.base}/s/damaged")
    expect(page.locator(".banner.bad")).to_be_visible()
    stage.shot(page, "damaged")


def an_encrypted_store_is_opened_in_the_terminal_alone(stage: Stage) -> None:
    passphrase = "correct horse battery staple"
    with tempfile.TemporaryDirectory(prefix="asnap-ui-sealed-") as directory:
        place = Path(directory) / "store"
        fill_encrypted(place, passphrase)
        with Served(place, passphrase=passphrase) as served:
            page = stage.page("/s/ours", served=served)
            _opened(page, "ours")
            expect(page.locator("article").first).to_contain_text("Why is the login lost")
            assert page.locator("input[type=password]").count() == 0
            page.goto(f"{served.base}/s/locked")
            expect(page.locator(".banner.warn")).to_contain_text("Locked")
            expect(page.locator(".banner.warn")).to_contain_text("asnap keys status")
            stage.shot(page, "locked")
            page.context.close()
            stage.forget_pages()


def a_long_session_stays_light_and_in_place(stage: Stage) -> None:
    number = stage.long // 2
    page = stage.page(f"/s/{LONG}?m={number}")
    expect(page.locator(f'article[data-number="{number}"]')).to_be_in_viewport()
    stage.shot(page, "long")
    most = 0
    for _ in range(40):
        page.mouse.move(800, 600)
        page.mouse.wheel(0, 3000)
        most = max(most, page.evaluate("document.querySelectorAll('*').length"))
    assert most < _NODES, f"{most} nodes"
    page.wait_for_timeout(500)
    before = page.evaluate("document.querySelector('.scroller').scrollTop")
    page.wait_for_timeout(500)
    assert abs(page.evaluate("document.querySelector('.scroller').scrollTop") - before) < 2
    page.locator("body").press("G")
    expect(page.locator(f'article[data-number="{stage.long}"]')).to_be_in_viewport()


def a_hostile_session_runs_nothing(stage: Stage) -> None:
    page = stage.page("/s/hostile")
    expect(page.locator("article").first).to_contain_text("<script>")
    assert page.evaluate("window.hacked") is None
    expect(page.locator("article .hidden-char").first).to_have_text("U+202E")
    assert page.locator("article img").count() == 0
    assert page.locator('a[href^="javascript"]').count() == 0
    page.goto(f"{stage.served.base}/s/pictures?m=7")
    expect(page.locator("article")).not_to_have_count(0)
    expect(page.locator("article .other", has_text="broken")).to_be_visible()


def everybody_can_use_it(stage: Stage) -> None:
    from axe_playwright_python.sync_playwright import Axe  # noqa: PLC0415 — needs the browser to be there

    for scheme in ("light", "dark"):
        paths = ("/", f"/s/{LONG}", "/s/pictures", "/compare?a=pictures&b=the-fork", "/stats", "/trash")
        for path in paths:
            page = stage.page(path, color_scheme=scheme, bypass_csp=True)
            expect(page.locator(".rows li").first).to_be_visible()
            page.wait_for_timeout(700)
            stage.shot(page, f"{path.strip('/').partition('?')[0].replace('/', '-') or 'list'}-{scheme}")
            found = Axe().run(page).response["violations"]
            told = [f"{path} {scheme}: {each['id']}: {each['nodes'][0]['html'][:120]}" for each in found]
            assert not told, "\n".join(told)


def the_keyboard_is_enough(stage: Stage) -> None:
    page = stage.page()
    expect(page.locator(".rows li").first).to_be_visible()
    page.locator("body").press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page.locator("header.session h1")).to_be_visible()
    page.goto(f"{stage.served.base}/s/{LONG}")
    _opened(page, "the long one")
    page.locator("body").press("[")
    expect(page.locator(".banner.past")).to_be_visible()
    page.locator("body").press("]")
    expect(page.locator(".banner.past")).to_have_count(0)
    page.keyboard.press("G")
    expect(page.locator(f'article[data-number="{stage.long}"]')).to_be_in_viewport()
    page.keyboard.press("g")
    expect(page.locator('article[data-number="1"]')).to_be_in_viewport()
    page.keyboard.press("/")
    page.keyboard.type("redirect")
    expect(page.locator("a.hit").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("a.hit")).to_have_count(0)


def read_only_changes_nothing(stage: Stage) -> None:
    with Served(stage.served.place, "--read-only") as served:
        page = stage.page(f"/s/{LONG}", served=served)
        _opened(page, "the long one")
        for name in ("Rename", "Fork", "Forget", "Pin", "+ tag"):
            assert page.get_by_role("button", name=name, exact=True).count() == 0, name
        refused = page.evaluate(
            "fetch('/api/v1/sessions/pictures', {method: 'DELETE', body: '{}', headers: {'content-type':"
            " 'application/json', authorization: 'Bearer ' + localStorage.getItem('asnap-token')}})"
            ".then((answer) => answer.status)"
        )
        assert refused == 403, json.dumps(refused)
        page.context.close()
        stage.forget_pages()


SCENARIOS: dict[str, Callable[[Stage], None]] = {
    each.__name__: each
    for each in (
        the_token_leaves_the_address,
        a_hit_leads_to_the_message,
        snapshots_are_scrubbed_reloaded_and_left_with_back,
        any_two_are_compared,
        changes_are_made_and_taken_back,
        a_live_session_streams_and_its_agent_is_killed,
        damage_says_what_to_do,
        an_encrypted_store_is_opened_in_the_terminal_alone,
        a_long_session_stays_light_and_in_place,
        a_hostile_session_runs_nothing,
        everybody_can_use_it,
        the_keyboard_is_enough,
        read_only_changes_nothing,
    )
}
