from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.meta.package import ROOT, facts

PACKAGE = sorted((ROOT / "snapshot_plugin").rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


class Link(NamedTuple):
    path: str
    anchor: str


def relative_links(page: str) -> Iterator[Link]:
    for target in LINK.findall(FENCE.sub("", page)):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield Link(path, anchor)


def anchors(page: str) -> set[str]:
    """The anchors GitHub gives the headings of a page."""
    headings = HEADING.findall(FENCE.sub("", page))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_nowhere(link: Link, page: Path) -> bool:
    target = (page.parent / link.path).resolve() if link.path else page
    if not target.is_relative_to(ROOT) or not target.exists():
        return True
    return bool(link.anchor) and link.anchor not in anchors(target.read_text("utf-8"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.requirement("STORE-PAGES-LINKS")
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_of_a_page_resolves(page: Path) -> None:
    links = relative_links(page.read_text("utf-8"))
    assert [link for link in links if leads_nowhere(link, page)] == []


def test_the_index_names_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    named = {(index.parent / link.path).resolve() for link in relative_links(index.read_text("utf-8"))}
    assert [name_of(page) for page in PAGES[1:] if page != index and page.resolve() not in named] == []


def test_links_inside_code_are_ignored() -> None:
    page = "[a](b.md#c) [web](https://x.y) [d](#e)\n```sh\n[no](no.md)\n```\n"
    assert list(relative_links(page)) == [Link("b.md", "c"), Link("", "e")]


def test_broken_link_is_detected() -> None:
    readme = ROOT / "README.md"
    assert leads_nowhere(Link("docs/no-such-page.md", ""), readme)
    assert leads_nowhere(Link("", "no-such-heading"), readme)
    assert leads_nowhere(Link("../outside.md", ""), readme)


def test_every_module_has_a_docstring() -> None:
    assert [name for name, module in facts().items() if not module.docstring] == []


def test_every_module_that_a_map_names_exists() -> None:
    """The docstring of a subpackage is a map: the first column of its table names modules."""
    missing = []
    for package in (module for module in PACKAGE if module.name == "__init__.py"):
        for line in facts()[name_of(package)].docstring.splitlines():
            column = re.match(r"(`[a-z_]+`(?:, )?)+(?=  )", line)
            for name in re.findall(r"[a-z_]+", column[0]) if column else ():
                place = package.parent / name
                if not (place.with_suffix(".py").exists() or (place / "__init__.py").exists()):
                    missing.append(f"{name_of(package)}: {name}")
    assert missing == []


def test_every_file_the_architecture_page_names_exists() -> None:
    page = (ROOT / "docs/explanation/architecture.md").read_text("utf-8")
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_\-]*(?:\.py|\.md)?)`", page)
    assert named
    places = (ROOT, ROOT / "snapshot_plugin")
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


@pytest.mark.requirement("ONERING-LAYER-ONE-WAY")
def test_imports_follow_the_layers() -> None:
    lint = "from importlinter.cli import lint_imports_command as lint; lint(['--no-cache'])"
    command = [sys.executable, "-c", lint]
    linted = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=110)
    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_a_class_name_exists_once_in_the_package() -> None:
    places: dict[str, list[str]] = {}
    for place, module in facts().items():
        for name in module.classes:
            places.setdefault(name, []).append(place)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
