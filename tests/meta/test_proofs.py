"""A skipped test proves nothing: what a run reports about the promises its tests claim."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proofs import Proofs
from tests.requirement_lists.requirement import done, section, to_do

ROOT = Path(__file__).parents[2]
CLAIMED = section("a page", done("A", "a"), done("B", "b"), to_do("C", "c", "later"))


def report_of(outcome: str, *ids: str, when: str = "call", xfailed: bool = False) -> pytest.TestReport:
    reason = ("test_example.py", 1, "no root") if outcome == "skipped" and not xfailed else None
    made = pytest.TestReport(
        "test_example.py::test_it",
        ("test_example.py", 1, "test_it"),
        {},
        outcome,  # type: ignore[arg-type]
        reason,
        when,  # type: ignore[arg-type]
        user_properties=[("requirements", list(ids))],
    )
    if xfailed:
        made.wasxfail = "a known bug"
    return made


def test_promise_with_only_skipped_tests_is_unproven() -> None:
    proofs = Proofs(CLAIMED)
    proofs.add(report_of("skipped", "A", when="setup"))
    assert proofs.unproven == ["A"]
    assert proofs.report() == [
        "not proven in this run, because all their tests were skipped: 1",
        "A: no root",
    ]


@pytest.mark.parametrize("order", [1, -1])
def test_one_passed_test_is_a_proof(order: int) -> None:
    proofs = Proofs(CLAIMED)
    for report in [report_of("skipped", "A", "B"), report_of("passed", "A")][::order]:
        proofs.add(report)
    assert proofs.unproven == ["B"]


def test_expected_failure_proves_nothing() -> None:
    proofs = Proofs(CLAIMED)
    proofs.add(report_of("skipped", "A", xfailed=True))
    assert proofs.unproven == ["A"]


def test_passed_setup_is_not_a_proof_and_an_open_promise_needs_none() -> None:
    proofs = Proofs(CLAIMED)
    proofs.add(report_of("passed", "A", when="setup"))
    proofs.add(report_of("skipped", "A", "C"))
    assert proofs.unproven == ["A"]


def test_fully_proven_run_reports_nothing() -> None:
    proofs = Proofs(CLAIMED)
    proofs.add(report_of("passed", "A"))
    assert (proofs.unproven, proofs.report()) == ([], [])


SKIPPED = """
import pytest

@pytest.mark.requirement("STORE-SAVE-REF")
def test_it():
    pytest.skip("no root")
"""


@pytest.mark.parametrize(("strict", "status", "workers"), [("", 0, 0), ("1", 1, 1)])
def test_run_that_must_prove_everything_fails_on_a_skipped_proof(
    tmp_path: Path, strict: str, status: int, workers: int
) -> None:
    (tmp_path / "test_skipped.py").write_text(SKIPPED)
    line = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", f"-n{workers}"]
    done = subprocess.run(
        [*line, "-c", str(ROOT / "pyproject.toml"), "--basetemp", str(tmp_path / "temp"), str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "ASNAP_PROVE_ALL": strict},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "STORE-SAVE-REF: no root" in done.stdout, done.stdout + done.stderr
    assert done.returncode == status
