"""The page about security names a test for each sentence. Each of these tests exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/security.md").read_text("utf-8")
NAMED = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)
ABBREVIATED = [
    (file, part)
    for file, names in re.findall(r"`([\w/]+\.py)`:\s((?:`[\w…]+`(?:,\s)?)+)", PAGE)
    for part in re.findall(r"`([\w…]+)`", names)
]


def source(file: str) -> str:
    return (ROOT / "tests" / file).read_text("utf-8")


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_test_named_for_a_sentence_exists(file: str, name: str) -> None:
    assert re.search(rf"\bdef {name}\(", source(file))


@pytest.mark.parametrize(("file", "name"), ABBREVIATED)
def test_test_with_an_abbreviated_name_exists(file: str, name: str) -> None:
    pattern = name.replace("…", r"\w*")
    assert re.search(rf"\b(?:def|class) (?:test_)?{pattern}\b", source(file))


def test_every_sentence_of_the_table_names_a_test() -> None:
    rows = PAGE.partition("| sentence | test |\n|---|---|\n")[2].partition("\n\n")[0].splitlines()
    sentences = [row for row in rows if not row.startswith("| **")]

    assert len(sentences) == len(NAMED) > 40
    assert all("::test_" in row for row in sentences)
    assert len(ABBREVIATED) > 10
