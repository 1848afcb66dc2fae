"""What every torture program is made of: a promise, cases that try to break it, and counts of what came of it.

A case that is run **without** a protection shows that the case can see a loss: there, finding none is the failure.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

__all__ = ["Case", "Outcome", "Program", "Tally", "run_case"]

_SHOWN = 5


@dataclass
class Tally:
    """The counts of one case. `lost` is what was acknowledged and is gone; `wrong` is any other broken promise."""

    rounds: int = 0
    acknowledged: int = 0
    lost: int = 0
    wrong: int = 0
    other: Counter[str] = field(default_factory=Counter)
    """What else is worth counting, by name."""
    details: list[str] = field(default_factory=list)
    """The first few things that were lost or wrong, in words."""

    def lose(self, count: int, what: str) -> None:
        """Something acknowledged is gone."""
        self.lost += count
        self._tell(what)

    def fault(self, what: str) -> None:
        """Something else is not as promised."""
        self.wrong += 1
        self._tell(what)

    def _tell(self, what: str) -> None:
        if len(self.details) < _SHOWN:
            self.details.append(what)

    @property
    def broken(self) -> int:
        """How often the promise was broken."""
        return self.lost + self.wrong


@dataclass(frozen=True)
class Case:
    """One way to try it. *run* plays so many rounds; without a protection it may stop at the first loss."""

    name: str
    run: Callable[[int], Tally]
    rounds: int
    quick: int
    without: str | None = None
    """The protection that is taken out."""
    needs: Callable[[], str | None] = lambda: None
    """Why it cannot run here; None if it can."""


@dataclass(frozen=True)
class Program:
    """One kind of disaster."""

    name: str
    promise: str
    cases: Sequence[Case]


@dataclass(frozen=True)
class Outcome:
    """What became of a case."""

    program: Program
    case: Case
    tally: Tally
    seconds: float
    skipped: str | None = None
    error: str | None = None
    """What ended the case itself."""

    @property
    def failed(self) -> bool:
        """Whether the suite has failed: a promise was broken, or a missing protection went unnoticed.

        Where nothing was acknowledged, nothing was tried; that is a failure as well.
        """
        if self.skipped is not None or self.error is not None:
            return self.error is not None
        if self.case.without:
            return self.tally.broken == 0
        return self.tally.broken > 0 or self.tally.acknowledged == 0


def run_case(program: Program, case: Case, rounds: int) -> Outcome:
    """Run one case, unless this machine lacks what it needs. One that raises has failed; the others still run."""
    started, tally, error = time.monotonic(), Tally(), None
    reason = case.needs()
    if reason is None:
        try:
            tally = case.run(rounds)
        except Exception as raised:  # noqa: BLE001 — the other cases are still to be run
            error = f"{type(raised).__name__}: {raised}"
    return Outcome(program, case, tally, time.monotonic() - started, reason, error)
