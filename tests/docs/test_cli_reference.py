"""The reference page of the command line says what the commands say."""

from __future__ import annotations

from pathlib import Path

from snapshot_plugin.cli import every_command
from snapshot_plugin.cli.reference import page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_cli_page_matches_the_commands() -> None:
    assert PAGE.read_text("utf-8") == page(), "run: python -m snapshot_plugin.cli.reference > docs/reference/cli.md"


def test_every_command_is_documented() -> None:
    text = PAGE.read_text("utf-8")

    assert [name for name in every_command() if f"### asnap {name}\n" not in text] == []
