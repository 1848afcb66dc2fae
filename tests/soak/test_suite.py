"""When the torture suite itself has failed, and what its report says."""

from __future__ import annotations

import pytest

from integration.soak.long_run import Sample, judge
from integration.soak.processes import Child, Silent, apart
from integration.soak.program import Case, Outcome, Program, Tally, run_case
from integration.soak.report import report


def outcome(tally: Tally | Exception, *, without: str | None = None, needs: str | None = None) -> Outcome:
    def run(_rounds: int) -> Tally:
        if isinstance(tally, Exception):
            raise tally
        return tally

    case = Case("a case", run, 10, 1, without=without, needs=lambda: needs)
    return run_case(Program("a program", "Nothing is lost.", [case]), case, 10)


WELL = Tally(rounds=10, acknowledged=20)
LOST = Tally(rounds=10, acknowledged=20, lost=1, details=["number 7 | is gone"])
WRONG = Tally(rounds=10, acknowledged=20, wrong=1)


@pytest.mark.parametrize(
    ("found", "failed"),
    [
        (outcome(WELL), False),
        (outcome(LOST), True),
        (outcome(WRONG), True),
        (outcome(Tally(rounds=10)), True),  # nothing was acknowledged, so nothing was tried
        (outcome(OSError("no more processes")), True),
        (outcome(LOST, needs="there is no strace"), False),
        (outcome(WELL, without="the lock"), True),
        (outcome(LOST, without="the lock"), False),
        (outcome(OSError("no more processes"), without="the lock"), True),
    ],
)
def test_soak_fails_on_a_loss_and_on_an_undetected_missing_protection(found: Outcome, *, failed: bool) -> None:
    assert found.failed is failed


def test_report_shows_counts_mutations_skips_and_failures() -> None:
    text = report(
        [outcome(LOST), outcome(LOST, without="the lock"), outcome(WELL, needs="there is no strace")], "command"
    )
    assert "**10 rounds, 1 acknowledged things lost, 1 of 2 cases failed.**" in text
    assert "| a program | a case | 10 | 20 | **1** | 0 |  |" in text
    assert "| a program | a case | the lock | yes, in round 10 | number 7 \\| is gone |" in text
    assert "| a program | a case | there is no strace |" in text
    assert "* a program: a case: number 7 | is gone" in text


def test_unbounded_growth_is_detected() -> None:
    even = [Sample(turn, 50, 10, 1000, 100, 0, 100) for turn in range(1, 20)]
    tally = Tally()
    judge(even, tally)
    assert tally.broken == 0
    for changed in ({"memory": 200.0}, {"handles": 500}, {"spool": 10**6}, {"extra": 50}, {"store": 10**7}):
        tally = Tally()
        judge([*even, Sample(**{**vars(even[-1]), **changed})], tally)
        assert tally.wrong == 1


def test_forked_work_is_isolated_and_its_end_is_detected() -> None:
    def work() -> Tally:
        global WELL  # noqa: PLW0603 — to see that it stays in the fork
        WELL = Tally()
        return Tally(rounds=3, details=["x"])

    assert apart(work) == Tally(rounds=3, details=["x"])
    assert WELL.rounds == 10
    with Child(lambda say: say("one")) as child:
        assert list(child.lines()) == ["one"]
        assert child.wait() == 0
    with Child(lambda _say: None) as child:
        assert child.line() is None


def test_silent_process_counts_as_a_hang() -> None:
    with Child(lambda _say: __import__("time").sleep(60)) as child, pytest.raises(Silent):
        child.line(patience=0.05)
    assert child.status == -9
