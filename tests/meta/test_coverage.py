"""Over 90 % of the package's lines are run by its tests. It is counted by ``python -m integration.coverage``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from integration.coverage import GOAL, PACKAGE, RECORD, Counted, statements_in


@pytest.mark.requirement("TERMINAL-QUALITY-COVERAGE")
def test_over_90_percent_of_the_lines_are_run_even_if_nothing_that_is_new_were() -> None:
    counted = Counted(**json.loads(RECORD.read_text("utf-8")))
    assert counted.at_least(statements_in(PACKAGE)) > GOAL, "count again: python -m integration.coverage --record"


def test_what_was_written_since_counts_as_not_run() -> None:
    counted = Counted(lines=1000, covered=950, statements=2000)
    assert counted.at_least(1500) == counted.at_least(2000) == 0.95
    assert counted.at_least(2100) > GOAL > counted.at_least(2120)


def test_statements_are_counted_without_docstrings(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text('"""Says."""\ndef f():\n    """Does."""\n    if x:\n        return 1\n')
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "other.py").write_text("import a; import b\n")
    assert statements_in(tmp_path) == 5
