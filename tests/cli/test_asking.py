"""Questions to a person: every one can be answered with no, and with Ctrl-C."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import saved
from tests.cli.examples import session
from tests.cli.stored import session_ids
from tests.cli.terminal import Terminal

CTRL_C = "\x03"


def test_ctrl_c_at_a_question_exits_immediately(place: Path) -> None:
    saved(place, session("01aaaa"))

    with Terminal("forget", "01") as terminal:
        terminal.wait_for("[y/N]")
        terminal.send(CTRL_C)
        assert terminal.end() == 130
        assert "interrupted" in terminal.text
    assert session_ids(place) == ["01aaaa"]


@pytest.mark.parametrize("typed", [[], ["correct horse\r"]])
def test_ctrl_c_at_a_passphrase_prompt_exits_immediately(place: Path, typed: list[str]) -> None:
    with Terminal("keys", "init") as terminal:
        terminal.wait_for("New passphrase")
        for words in typed:
            terminal.send(words)
            terminal.wait_for("Repeat")
        terminal.send(CTRL_C)
        assert terminal.end() == 130
    assert not place.exists()


def test_answering_no_reports_that_nothing_was_done(place: Path) -> None:
    saved(place, session("01aaaa"))

    with Terminal("forget", "01") as terminal:
        terminal.wait_for("[y/N]")
        terminal.send("n\r")
        assert terminal.end() == 130
        assert "nothing was done" in terminal.text
        assert "interrupted" not in terminal.text
