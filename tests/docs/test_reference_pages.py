"""The reference pages that are made from the code are those of this code."""

from __future__ import annotations

import pytest

from integration.reference import NAMES, PLACE, pages

STALE = "if the public API changed, say so in CHANGELOG.md; then run: python -m integration.reference"


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return pages()


@pytest.mark.parametrize("name", NAMES)
def test_generated_page_matches_the_code(name: str, made: dict[str, str]) -> None:
    assert (PLACE / name).read_text("utf-8") == made[name], STALE


@pytest.mark.parametrize(
    "name", ["SnapshotManager", "open_store", "SessionSnapshot", "ToolCallBlock", "SnapshotCreated"]
)
def test_python_page_documents_the_main_names(name: str) -> None:
    assert f"### {name}\n" in (PLACE / "python.md").read_text("utf-8")
