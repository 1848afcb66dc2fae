"""The pictures of the browser in README.md and docs: ``python -m integration.ui.pictures`` makes them again.

Needs what `integration.ui` needs, and Pillow, which makes the files small.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import anyio
from PIL import Image
from playwright.sync_api import Page, expect

from integration.ui.running import Served
from integration.ui.scenarios import Stage
from integration.ui.sessions import LONG, fill

_IMAGES = Path(__file__).parents[2] / "docs" / "images"


def _save(page: Page, name: str) -> None:
    page.set_viewport_size({"width": 1180, "height": 720})
    page.wait_for_timeout(1000)
    picture = Image.open(io.BytesIO(page.screenshot()))
    picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(_IMAGES / name, optimize=True)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="asnap-ui-") as directory:
        place = Path(directory) / "store"
        anyio.run(lambda: fill(place, sessions=30, long_messages=5000))
        for broken in ("damaged", "newer", "hostile"):  # of no use in a picture
            Served(place).asnap("forget", broken, "--yes")
        with Served(place) as served, Stage(served, shots=None, long=5000) as stage:
            page = stage.page(f"/s/{LONG}?at=70&m=2600")
            expect(page.locator("article.marked")).to_be_in_viewport()
            page.locator("article.marked details:not(.thought) > summary").first.click()
            _save(page, "ui-session.png")
            page = stage.page("/compare?a=pictures&b=the-fork", color_scheme="dark")
            expect(page.locator(".card.plus").first).to_be_visible()
            _save(page, "ui-compare.png")


if __name__ == "__main__":
    main()
