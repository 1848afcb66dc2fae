"""Export sessions as Markdown, HTML or JSON, with or without secrets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from snapshot_plugin.exchange.html import to_html
from snapshot_plugin.exchange.markdown import to_markdown
from snapshot_plugin.inert import readable_json
from snapshot_plugin.model.redact import RedactionReport, redact
from snapshot_plugin.model.snapshot import SessionSnapshot

__all__ = ["SHARED", "TEXTS", "Rendered", "TextForm", "document_of", "render"]

TextForm = Literal["markdown", "html", "json"]
TEXTS: tuple[TextForm, ...] = ("markdown", "html", "json")
SHARED = frozenset({"markdown", "html"})
"""Formats for sharing: secrets are removed by default."""


class Rendered(NamedTuple):
    """A text, and the report of its redactions."""

    text: str
    redacted: RedactionReport


def render(
    snapshots: Sequence[SessionSnapshot], form: TextForm, *, tools: bool = True, redacted: bool | None = None
) -> Rendered:
    """The sessions as one text. Unless *redacted* is given, the formats in `SHARED` are redacted."""
    report = RedactionReport()
    if form in SHARED if redacted is None else redacted:
        found, report = redact(tuple(snapshots))
        snapshots = found
    if form == "html":
        return Rendered(to_html(snapshots, tools=tools), report)
    if form == "markdown":
        return Rendered("\n".join(to_markdown(snapshot, tools=tools) for snapshot in snapshots), report)
    documents = [document_of(snapshot) for snapshot in snapshots]
    return Rendered(readable_json(documents[0] if len(documents) == 1 else documents) + "\n", report)


def document_of(snapshot: SessionSnapshot) -> dict[str, Any]:
    """The session as a document that `load_document` reads back, in this and every later release."""
    return {"version": snapshot.version, "session_id": snapshot.session_id, **snapshot.raw()}
