"""Rows of the fidelity runs as Markdown and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from integration.agents.evidence import Evidence
from integration.agents.judge import COLUMNS, Cell, memory_is_fine

__all__ = ["Row", "document", "rows", "summary", "table", "worst"]

_VICTIMS = {
    "bare": "bare: agent",
    "agent": "asnap: agent alone",
    "proxy": "asnap: proxy alone",
    "both": "asnap: both",
}
_NOT_BARE = ("agent", "proxy", "both")


class Row(NamedTuple):
    """One agent, scenario and victim, with a cell for each column."""

    agent: str
    scenario: str
    killed: str
    cells: dict[str, Cell]
    grades: tuple[str, ...]
    """How the session came back, in each round; and once more in a later process, where that was tried."""
    notes: tuple[str, ...]
    fine: bool | None = None
    """Of a bare run: whether the agent's own memory was fine."""
    seconds: float = 0
    """How long the run took; of several rounds, the longest."""

    @classmethod
    def of(cls, evidences: Sequence[Evidence], cells: dict[str, Cell]) -> Row:
        """The row of one or more rounds of the same run."""
        first = evidences[0]
        grades = [grade for each in evidences for grade in (each.grade, each.second_grade) if grade]
        notes = [note for each in evidences for note in _remarks(each)]
        name = f"{first.agent.name} {first.agent.version}"
        fine = memory_is_fine(first) if first.killed == "bare" else None
        seconds = round(max(each.seconds for each in evidences), 1)
        return cls(name, first.scenario, first.killed, cells, tuple(grades), tuple(notes), fine, seconds)

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Row:
        """A row that `to_json` wrote."""
        cells = {name: Cell(cell["good"], cell["why"]) for name, cell in row["cells"].items()}
        lists = tuple(row["grades"]), tuple(row["notes"])
        return cls(row["agent"], row["scenario"], row["killed"], cells, *lists, row["fine"], row["seconds"])

    def to_json(self) -> dict[str, Any]:
        """The row for programs."""
        cells = {name: {"good": cell.good, "why": cell.why} for name, cell in self.cells.items()}
        return {**self._asdict(), "cells": cells}

    def line(self) -> str:
        """For a terminal, while the runs go on."""
        lost = "; ".join(f"{column}: {cell.why}" for column, cell in self.lost())
        took = f"{', '.join(self.grades)} | {self.seconds:.0f} s"
        return f"{self.agent} | {self.scenario} | {self.killed}: {lost or 'all kept'} | {took}"

    def lost(self) -> list[tuple[str, Cell]]:
        """The columns that are not what they should be."""
        return [(column, cell) for column, cell in self.cells.items() if cell.good is False]


def _remarks(evidence: Evidence) -> Iterator[str]:
    yield from evidence.notes
    yield from evidence.tried
    if evidence.waited is not None:
        yield f"the interrupted prompt was answered after {evidence.waited:.1f} s"


def worst(rounds: Sequence[dict[str, Cell]]) -> dict[str, Cell]:
    """Of several rounds the worst, column by column."""
    return {column: _worst([cells[column] for cells in rounds]) for column in COLUMNS}


def _worst(cells: list[Cell]) -> Cell:
    order = {False: 0, True: 1, None: 2}
    found = sorted(cells, key=lambda cell: order[cell.good])
    lost = sum(cell.good is False for cell in found)
    first = found[0]
    return first if lost in (0, len(found)) else Cell(False, f"{first.why} ({lost} of {len(found)} rounds)")


def table(judged: list[Row]) -> Iterator[str]:
    """A row for each agent and scenario: what is lost bare, what behind the proxy, and how it came back."""
    yield "| agent | killed | bare, it loses | behind asnap, it loses | came back as |"
    yield "|---|---|---|---|---|"
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in judged:
        groups.setdefault((row.agent, row.scenario), []).append(row)
    for (agent, scenario), members in groups.items():
        bare = "; ".join(_words(row) for row in members if row.killed == "bare") or "n/a"
        ours = [row for row in members if row.killed != "bare"]
        lost = "; ".join(f"{row.killed}: {_words(row)}" for row in ours if row.lost())
        yield _line([agent, scenario, bare, lost or ("nothing" if ours else "n/a"), _grades(ours)])


def _grades(ours: list[Row]) -> str:
    """How the session came back: one word, or, where that differs, for each victim and load."""
    found = {grade for row in ours for grade in row.grades}
    if len(found) <= 1:
        return "".join(found) or "n/a"
    return "; ".join(f"{row.killed}: {', then '.join(row.grades) or 'n/a'}" for row in ours)


def _words(row: Row) -> str:
    """What a row has lost; that a bare agent ends its client's connection is true of all of them."""
    reasons = {cell.why for cell in row.cells.values() if cell.good is None}
    if len(reasons) == 1 and all(cell.good is None for cell in row.cells.values()):
        return f"n/a ({reasons.pop()})"
    lost = [(name, cell) for name, cell in row.lost() if not (row.killed == "bare" and name == "connection")]
    return ", ".join(f"{name} ({cell.why})" for name, cell in lost) or "nothing"


def rows(judged: list[Row]) -> Iterator[str]:
    """A row for each agent, scenario and victim, and a column for each question."""
    yield f"| agent | killed when | killed | {' | '.join(COLUMNS)} | came back as |"
    yield "|---" * (4 + len(COLUMNS)) + "|"
    for row in judged:
        cells = (str(row.cells[column]) for column in COLUMNS)
        grades = ", then ".join(row.grades) or "n/a"
        yield _line([row.agent, row.scenario, _VICTIMS[row.killed], *cells, grades])


def _line(cells: list[str]) -> str:
    """One line of a table."""
    inner = " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {inner} |"


def summary(judged: list[Row]) -> Iterator[str]:
    """How many cells were lost, by column."""
    yield f"| losses | {' | '.join(COLUMNS)} | all |"
    yield "|---" * (2 + len(COLUMNS)) + "|"
    for name, wanted in (("bare", ("bare",)), ("behind asnap", _NOT_BARE)):
        chosen = [row.cells for row in judged if row.killed in wanted]
        columns = [[cells[column] for cells in chosen] for column in COLUMNS]
        counts = [_count(column) for column in columns]
        yield f"| {name} | {' | '.join(counts)} | {_count(cell for column in columns for cell in column)} |"


def _count(cells: Iterable[Cell]) -> str:
    asked = [cell for cell in cells if cell.good is not None]
    return f"{sum(cell.good is False for cell in asked)} of {len(asked)}" if asked else "n/a"


def document(judged: list[Row], missing: list[str]) -> dict[str, Any]:
    """Everything, for programs."""
    return {"not_installed": missing, "rows": [row.to_json() for row in judged]}
