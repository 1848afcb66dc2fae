"""What the README claims agrees with the pages it links, and what it names exists."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PERFORMANCE = (ROOT / "docs/explanation/performance.md").read_text("utf-8")
FIDELITY = (ROOT / "docs/explanation/fidelity.md").read_text("utf-8")
EVERY_PAGE = [README, (ROOT / "CONTRIBUTING.md").read_text("utf-8")] + [
    page.read_text("utf-8") for page in sorted((ROOT / "docs").rglob("*.md"))
]
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
PEERS = {
    "openai-agents `SQLiteSession`": "openai-agents SQLiteSession",
    "LangGraph `SqliteSaver`": "langgraph-checkpoint-sqlite",
    "Google ADK `SqliteSessionService`": "google-adk SqliteSessionService",
    "**snapshot_plugin**": "ours",
}


def rows(text: str) -> dict[str, list[str]]:
    """The rows of all tables by their first cell, without emphasis."""
    cells = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in re.findall(r"^\|.*\|$", text, re.MULTILINE)
    )
    return {first: [cell.strip("*") for cell in rest] for first, *rest in cells}


def agents_killed() -> dict[str, str]:
    """What each agent of the table loses bare when it is killed in mid-stream."""
    table = FIDELITY[FIDELITY.index("## The table") :]
    return dict(re.findall(r"^\| (\S+) \S+ \| mid-stream \| (.*?) \|", table, re.MULTILINE))


def test_readme_count_of_killed_agents_matches_the_table() -> None:
    count = len(agents_killed())
    assert f"{NUMBERS[count].capitalize()} published ACP agents were killed" in README
    assert f"no (0 of {count} agents)" in README
    assert f"{NUMBERS[count].capitalize()} published agents were killed" in FIDELITY


def test_no_agent_in_the_table_keeps_streamed_output() -> None:
    assert [name for name, lost in agents_killed().items() if "streamed text" not in lost] == []


@pytest.mark.parametrize("shown", PEERS)
def test_readme_comparison_numbers_match_the_benchmark(shown: str) -> None:
    of_200_turns = PERFORMANCE.split("### 200 turns")[1].split("###")[0]
    measured = rows(of_200_turns)[PEERS[shown]]
    assert rows(README)[shown][-2:] == [measured[5], measured[2]]


def test_first_two_shell_blocks_end_in_the_demo_and_the_tests() -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert blocks[0].rstrip().endswith("asnap demo")
    assert blocks[1].rstrip().endswith("pytest")


@pytest.mark.parametrize(
    "name", sorted({name for page in EVERY_PAGE for name in re.findall(r"-m ([a-z_.]+)", page)})
)
def test_every_program_a_page_names_exists(name: str) -> None:
    assert importlib.util.find_spec(name) is not None


def test_every_extra_a_page_names_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = {
        one
        for page in EVERY_PAGE
        for some in re.findall(r"snapshot-plugin\[([\w,-]+)\]", page)
        for one in some.split(",")
    }
    assert named - set(extras) == set()
