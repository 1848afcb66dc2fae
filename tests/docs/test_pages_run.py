"""Every Python block of the README, the tutorial and the how-to pages runs, as a reader would paste them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = sorted([*(ROOT / "docs/tutorial").glob("*.md"), *(ROOT / "docs/how-to").glob("*.md")])
FRAMEWORK_PAGES = sorted((ROOT / "docs/how-to/frameworks").glob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_blocks(page: Path) -> dict[str, Any]:
    """Run the blocks in order in one namespace. A traceback names the line of the page."""
    namespace: dict[str, Any] = {"__name__": page.stem}
    text = page.read_text("utf-8")
    for block in BLOCK.finditer(text):
        lines_before = text.count("\n", 0, block.start(1))
        exec(compile("\n" * lines_before + block[1], str(page), "exec"), namespace)
    return namespace


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.chdir(tmp_path)


@pytest.mark.requirement("STORE-PAGES-RUN")
def test_readme_sixty_seconds_run(tmp_path: Path, anyio_backend: str) -> None:
    main = run_blocks(README)["main"]
    anyio.run(main, tmp_path / "store", backend=anyio_backend)
    assert list(tmp_path.glob("store/sessions/fix-auth/*.snap.gz"))


@pytest.mark.requirement(
    "STORE-PAGES-RUN", "MANAGER-PAGE-ORCHESTRATOR", "MANAGER-PAGE-DEPLOY", "MANAGER-PAGE-RECOVER"
)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_of_each_page_runs(page: Path) -> None:
    assert run_blocks(page)


@pytest.mark.requirement("MANAGER-PAGE-ORCHESTRATOR", "MANAGER-PAGE-DEPLOY", "MANAGER-PAGE-RECOVER")
@pytest.mark.parametrize("page", ["orchestrator", "snapshot-before-deploy", "recover-after-crash"])
def test_pages_listed_as_executable_have_code(page: str) -> None:
    assert BLOCK.search((ROOT / "docs/how-to" / f"{page}.md").read_text("utf-8"))


@pytest.mark.requirement("STORE-PAGES-RUN")
def test_every_framework_page_is_run_by_a_suite_of_ci() -> None:
    suites = "".join(path.read_text("utf-8") for path in (ROOT / "integration/frameworks").glob("test_*.py"))
    pages = [page.stem for page in (ROOT / "docs/how-to/frameworks").glob("*.md")]
    assert len(pages) > 4
    assert [page for page in pages if f'run_page("{page}"' not in suites] == []
    assert "integration.frameworks.suites" in (ROOT / ".ci/run").read_text("utf-8")


def asnap(line: str) -> str:
    """Run a command of a page in a shell; what it prints."""
    commands = f'asnap() {{ {shlex.quote(sys.executable)} -m snapshot_plugin "$@"; }}\n{line}'
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands], capture_output=True, text=True, check=True
    ).stdout


def test_stores_of_the_readme_and_the_orchestrator_page_can_be_read_as_they_say() -> None:
    readme, page = README.read_text("utf-8"), ROOT / "docs/how-to/orchestrator.md"
    [zcat] = re.findall(r"`(zcat .*?)`", readme)
    anyio.run(run_blocks(README)["main"], "sessions")

    assert "question 0" in asnap("asnap list --store sessions")
    assert "asnap list --store sessions" in readme
    assert "answer 2" in asnap(zcat if shutil.which("jq") else zcat.removesuffix(" | jq ."))
    run_blocks(page)
    for line in re.findall(r"`(asnap .*? --store sessions)`", page.read_text("utf-8")):
        assert "Split the parser?" in asnap(line)


@pytest.mark.parametrize("page", FRAMEWORK_PAGES, ids=lambda page: page.stem)
def test_commands_of_a_framework_page_name_its_store(page: Path) -> None:
    commands = re.findall(r"^asnap .*|`asnap .*?`", page.read_text("utf-8"), re.MULTILINE)
    assert [
        line for line in commands if re.search(r"asnap (list|show|stats)", line) and "--store" not in line
    ] == []
    assert any("asnap list --store sessions" in line for line in commands)


def test_wrong_code_on_a_page_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "wrong.md"
    page.write_text("```python\nanswer = 42\n```\nand\n```python\nassert answer == 41\n```\n")
    with pytest.raises(AssertionError) as caught:
        run_blocks(page)
    assert caught.traceback[-1].lineno == 5
