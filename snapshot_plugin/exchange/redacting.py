"""Remove secrets from every snapshot of a session."""

from __future__ import annotations

from collections.abc import Sequence

from snapshot_plugin.exchange.edits import Line, edited
from snapshot_plugin.model.redact import Redaction, RedactionReport, redact
from snapshot_plugin.store.transfer import Copied

__all__ = ["redacted"]


def redacted(copies: Sequence[Copied]) -> tuple[list[Copied], RedactionReport]:
    """The session with secrets removed from all its snapshots, and a report of what was removed."""
    found: list[Redaction] = []

    def edit(line: Line) -> Line:
        if "section" in line:
            *group, name = line["section"]
            holder, report = redact({name: line["value"]} if "value" in line else {name: None})
            ((new_name, value),) = holder.items()
            clean = {"section": [*group, new_name], **({"value": value} if "value" in line else {})}
        else:
            clean, report = redact(line)
        found.extend(report.redactions)
        return clean

    return edited(copies, edit), RedactionReport(redactions=tuple(found))
