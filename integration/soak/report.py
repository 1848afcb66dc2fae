"""From outcomes to Markdown: what was promised, what was counted, and what is found without a protection."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Sequence

from integration.soak.program import Outcome

__all__ = ["line_of", "report"]


def report(outcomes: Sequence[Outcome], command: str) -> str:
    """The whole report."""
    parts = [_head(outcomes, command), _promises(outcomes), _counts(outcomes), _mutations(outcomes)]
    return "\n\n".join(part for part in (*parts, _skipped(outcomes), _failures(outcomes)) if part) + "\n"


def line_of(outcome: Outcome) -> str:
    """One outcome, for who watches."""
    without = f" without {outcome.case.without}" if outcome.case.without else ""
    name = f"{outcome.program.name}: {outcome.case.name}{without}"
    if outcome.skipped is not None:
        return f"skipped  {name}: {outcome.skipped}"
    tally, verdict = outcome.tally, "FAILED" if outcome.failed else "ok"
    found = f"{tally.rounds} rounds, {tally.acknowledged} acknowledged, {tally.lost} lost, {tally.wrong} wrong"
    return f"{verdict:8} {name}: {found}, {outcome.seconds:.1f} s"


def _head(outcomes: Sequence[Outcome], command: str) -> str:
    done = [outcome for outcome in outcomes if outcome.skipped is None]
    tried = [outcome for outcome in done if not outcome.case.without]
    total = sum(outcome.tally.rounds for outcome in tried)
    lost = sum(outcome.tally.lost for outcome in tried)
    failed = sum(outcome.failed for outcome in outcomes)
    minutes = sum(outcome.seconds for outcome in outcomes) / 60
    machine = f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return (
        f"`{command}` on {machine}, {minutes:.1f} minutes.\n\n"
        f"**{total:,} rounds, {lost} acknowledged things lost, {failed} of {len(done)} cases failed.**"
    )


def _promises(outcomes: Sequence[Outcome]) -> str:
    programs = {outcome.program.name: outcome.program.promise for outcome in outcomes}
    return _table(("program", "what is promised"), programs.items())


def _counts(outcomes: Sequence[Outcome]) -> str:
    rows = [
        (
            outcome.program.name,
            outcome.case.name,
            f"{outcome.tally.rounds:,}",
            f"{outcome.tally.acknowledged:,}",
            _bold(outcome.tally.lost),
            _bold(outcome.tally.wrong),
            ", ".join(f"{name}: {count:,}" for name, count in outcome.tally.other.items() if count),
        )
        for outcome in outcomes
        if outcome.skipped is None and not outcome.case.without
    ]
    return _table(("program", "case", "rounds", "acknowledged", "lost", "wrong", "also counted"), rows)


def _bold(count: int) -> str:
    return f"**{count:,}**" if count else "0"


def _mutations(outcomes: Sequence[Outcome]) -> str:
    """With a protection taken out the same case must find a loss."""
    rows = [
        (
            outcome.program.name,
            outcome.case.name,
            outcome.case.without or "",
            "**no**" if outcome.failed else f"yes, in round {outcome.tally.rounds:,}",
            _cell(outcome.tally.details[0]) if outcome.tally.details else "",
        )
        for outcome in outcomes
        if outcome.skipped is None and outcome.case.without
    ]
    return _table(("program", "case", "without", "loss found", "the first one"), rows)


def _cell(text: str) -> str:
    here = re.sub(r"\S*asnap-soak-[^/\s]+/(root/)?", "", text)
    short = " ".join(here.split()).replace("|", "\\|").replace("<", "&lt;")
    return short if len(short) <= 120 else short[:117] + "…"


def _skipped(outcomes: Sequence[Outcome]) -> str:
    rows = [
        (outcome.program.name, outcome.case.name, outcome.skipped)
        for outcome in outcomes
        if outcome.skipped is not None and not outcome.case.without
    ]
    return _table(("skipped", "case", "why"), rows)


def _failures(outcomes: Sequence[Outcome]) -> str:
    lines = [
        f"* {outcome.program.name}: {outcome.case.name}"
        f"{f' without {outcome.case.without}' if outcome.case.without else ''}: {_why(outcome)}"
        for outcome in outcomes
        if outcome.failed
    ]
    return "\n".join(["Failed:", "", *lines]) if lines else ""


def _why(outcome: Outcome) -> str:
    if outcome.error is not None:
        return outcome.error
    if outcome.case.without:
        return "the missing protection went unnoticed"
    return "; ".join(outcome.tally.details) or "nothing was tried"


def _table(head: Sequence[str], rows: object) -> str:
    lines = list(_lines(head, rows))
    return "\n".join(lines) if len(lines) > 2 else ""


def _lines(head: Sequence[str], rows: object) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:  # type: ignore[attr-defined]
        yield f"| {' | '.join(str(cell) for cell in row)} |"
