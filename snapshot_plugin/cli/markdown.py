"""Tables for change tickets and chats, as Markdown that shows what is written and does nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from snapshot_plugin.operations.text import plain

__all__ = ["markdown_table"]

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#!~&@:])")


def markdown_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table; no cell can end it, link or mention anything."""
    yield "| " + " | ".join(titles) + " |"
    yield "|" + " --- |" * len(titles)
    for row in rows:
        yield "| " + " | ".join(_SPECIAL.sub(r"\\\1", plain(cell)) for cell in row) + " |"
