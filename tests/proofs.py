"""Which promises a test run has proven. A promise all of whose tests were skipped is not proven in that run."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterable

import pytest

from snapshot_plugin.testing import StoreContract
from tests.requirement_lists.contract import CONTRACT
from tests.requirement_lists.requirement import Requirement

__all__ = ["Proofs", "claims_of"]


def claims_of(item: pytest.Item) -> list[str]:
    """The promises *item* claims to prove: by its marks, or as a test of the public store contract."""
    marked = [str(name) for mark in item.iter_markers("requirement") for name in mark.args]
    return [*marked, *_claims_of_contract(item)]


def _claims_of_contract(item: pytest.Item) -> tuple[str, ...]:
    if not isinstance(item, pytest.Function) or not isinstance(item.cls, type):
        return ()
    return CONTRACT.get(item.originalname, ()) if issubclass(item.cls, StoreContract) else ()


class Proofs:
    """Collects the reports of one run, about the promises of *requirements* that are claimed done."""

    def __init__(self, requirements: Iterable[Requirement]) -> None:
        self._claimed = {each.id for each in requirements if each.status == "done"}
        self._proven: set[str] = set()
        self._skipped: dict[str, set[str]] = defaultdict(set)

    def add(self, report: pytest.TestReport) -> None:
        """Take one phase of one test into account."""
        claims = [name for key, names in report.user_properties if key == "requirements" for name in _names(names)]
        if report.when == "call" and report.passed:
            self._proven.update(claims)
        if report.skipped:
            for name in claims:
                self._skipped[name].add(_reason(report))

    @property
    def unproven(self) -> list[str]:
        """The promises of which every test that was run was skipped."""
        return sorted((self._skipped.keys() & self._claimed) - self._proven)

    def report(self, *, width: int = 116) -> list[str]:
        """What was not proven in this run, and why."""
        lines = [f"{name}: {'; '.join(sorted(self._skipped[name]))}" for name in self.unproven]
        if not lines:
            return []
        head = f"not proven in this run, because all their tests were skipped: {len(lines)}"
        return [head, *(part for line in lines for part in textwrap.wrap(line, width, subsequent_indent="  "))]


def _names(value: object) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list | tuple) else []


def _reason(report: pytest.TestReport) -> str:
    if not isinstance(report.longrepr, tuple):
        return "expected to fail"
    return str(report.longrepr[2]).removeprefix("Skipped: ")
