"""The how-to pages of the manager say everything there is to say. That their code runs, test_pages_run.py shows."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from snapshot_plugin import SnapshotConfig
from snapshot_plugin.live.outcome import Status
from snapshot_plugin.manager.context import AgentContext

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
PAGES = ("orchestrator", "snapshot-before-deploy", "recover-after-crash", "persistent-session")


def _page(name: str) -> str:
    return (HOW_TO / f"{name}.md").read_text("utf-8")


def _first_cells(page: str) -> set[str]:
    rows = re.findall(r"^\| (`.+?`) \|", page, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


@pytest.mark.parametrize("name", PAGES)
def test_each_page_has_code_that_checks_itself(name: str) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", _page(name), re.MULTILINE | re.DOTALL)
    assert any("anyio.run" in block for block in blocks)
    assert any("assert " in block for block in blocks)


def test_orchestrator_page_lists_exactly_the_settings() -> None:
    assert _first_cells(_page("orchestrator")) == {setting.name for setting in fields(SnapshotConfig)}


def test_deploy_page_lists_every_status() -> None:
    assert _first_cells(_page("snapshot-before-deploy")) == set(get_args(Status)) - {"not_asked", "not_live"}


def test_persistent_session_page_names_every_part_that_is_kept() -> None:
    page = _page("persistent-session")
    assert [part for part in AgentContext.model_fields if f"`{part}`" not in page] == []
