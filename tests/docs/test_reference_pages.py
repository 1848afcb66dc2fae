"""The reference pages that are made from the code are those of this code."""

from __future__ import annotations

import pytest

from integration.reference import PLACE, pages

PAGES = pages()
STALE = "if the public API changed, say so in CHANGELOG.md; then run: python -m integration.reference"


@pytest.mark.parametrize("name", sorted(PAGES))
def test_the_page_is_made_from_the_present_code(name: str) -> None:
    assert (PLACE / name).read_text("utf-8") == PAGES[name], STALE


@pytest.mark.parametrize(
    "name", ["SnapshotManager", "open_store", "SessionSnapshot", "ToolCallBlock", "SnapshotCreated"]
)
def test_the_python_page_has_what_people_look_for(name: str) -> None:
    assert f"### {name}\n" in PAGES["python.md"]
