"""All output of the command line: data on stdout, everything else on stderr.

Knows whether a person or a program reads, whether colour is wanted, and how wide the terminal is. A reader that
goes away (``asnap list | head -1``) ends the command quietly.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Literal, NamedTuple

import click

from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.inert import for_terminal, in_a_cell, readable_json
from snapshot_plugin.operations.document import Document
from snapshot_plugin.operations.text import cut, pad, plain, width, with_store

__all__ = ["WIDE", "Column", "Form", "Output", "markdown_table", "wants_colour"]

Form = Literal["text", "json", "jsonl"]
Style = Mapping[str, Any] | Callable[[str], Mapping[str, Any]]
_NO_STYLE: Mapping[str, Any] = {}
WIDE = 10_000
"""The line width if output does not go to a terminal."""


class Column(NamedTuple):
    """A column of a table. *flexible* columns shrink if the terminal is narrow; ids never do.

    *style* is one style for all cells, or a function of a cell's text. If shrinking is not enough, columns
    with a *rank* are left out, the lowest first.
    """

    title: str
    right: bool = False
    flexible: bool = False
    style: Style = _NO_STYLE
    rank: int = 0


def wants_colour(choice: str, stream: IO[str], environ: Mapping[str, str]) -> bool:
    """Decide by ``--color``, then NO_COLOR, FORCE_COLOR, TERM=dumb, then whether it is a terminal."""
    if choice != "auto":
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return environ.get("TERM") != "dumb" and stream.isatty()


def _unwritten(error: OSError) -> Exception:
    """Return the error for a full disk; a reader that went away is not an error."""
    if isinstance(error, BrokenPipeError):
        return error
    return SnapshotError(f"the answer cannot be written: {error.strerror}", hint="check where standard output goes")


class Output:
    """Where a command writes."""

    def __init__(
        self,
        form: Form = "text",
        *,
        colour: str = "auto",
        quiet: bool = False,
        verbose: bool = False,
        place: str | None = None,
    ) -> None:
        self.form, self.quiet, self.verbose, self._place = form, quiet, verbose, place
        self._colour = {fd: wants_colour(colour, stream, os.environ) for fd, stream in _streams().items()}

    @property
    def is_text(self) -> bool:
        """Whether text output was requested, rather than JSON."""
        return self.form == "text"

    @property
    def has_colour(self) -> bool:
        """Whether data is coloured."""
        return self._colour[1]

    @property
    def notes_have_colour(self) -> bool:
        """Whether stderr is coloured."""
        return self._colour[2]

    @property
    def is_terminal(self) -> bool:
        """Whether data goes to a terminal."""
        return sys.stdout.isatty()

    @property
    def can_draw(self) -> bool:
        """Whether notes go to a terminal whose cursor can be moved."""
        return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    @property
    def columns(self) -> int:
        """The maximum line width; unlimited without a terminal."""
        if not self.is_terminal and "COLUMNS" not in os.environ:
            return WIDE
        return max(20, shutil.get_terminal_size((80, 24)).columns)

    def run(self, command: str) -> str:
        """Return *command* as a person types it for this store."""
        return with_store(command, self._place)

    def answer(self, document: Document, show: Callable[[Any, Output], None]) -> None:
        """Print a command's answer in the requested form; *show* prints it for a person."""
        if self.is_text:
            show(document, self)
            return
        indent = 2 if self.is_terminal and self.form == "json" else None
        for each in [document.document()] if self.form == "json" else document.lines():
            self.raw(readable_json(each, indent=indent).encode() + b"\n")  # JSON is UTF-8 in every locale

    def line(self, text: str = "", **style: Any) -> None:
        """Print a line of data."""
        try:
            click.echo(self._styled(for_terminal(text), 1, style), color=self._colour[1])
        except OSError as error:
            raise _unwritten(error) from error.__cause__

    def pages(self, lines: Iterable[str]) -> None:
        """Print lines of data as they arrive; on a terminal, more than a screenful goes through the pager."""
        coming = iter(lines)
        screenful = shutil.get_terminal_size((80, 24)).lines - 1 if self.is_terminal else 0
        first = list(itertools.islice(coming, screenful))
        if screenful and len(first) == screenful:
            text = (f"{for_terminal(line)}\n" for line in itertools.chain(first, coming))
            with _keys_hidden():
                click.echo_via_pager(text, color=None if self._colour[1] else False)
            return
        for line in itertools.chain(first, coming):
            self.line(line)

    def raw(self, data: bytes) -> None:
        """Write bytes unchanged."""
        try:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except OSError as error:
            raise _unwritten(error) from error.__cause__

    def note(self, text: str = "", **style: Any) -> None:
        """Print a line for the person at the terminal, not part of the data; ``-q`` hides it."""
        if not self.quiet:
            self.warn(text, **style)

    def detail(self, text: str) -> None:
        """Print a note, only with ``-v``."""
        if self.verbose:
            self.warn(text)

    def warn(self, text: str, **style: Any) -> None:
        """Print a line on stderr, also with ``-q``. A failure to write it is ignored."""
        with contextlib.suppress(OSError):
            click.echo(self._styled(for_terminal(text), 2, style), err=True, color=self._colour[2])

    def unreadable(self, sessions: Sequence[str]) -> None:
        """Name the sessions that could not be read, on stderr."""
        if sessions:
            names = ", ".join(cut(plain(name), 40) for name in sessions[:3])
            more = " …" if len(sessions) > 3 else ""  # noqa: PLR2004 — as many as are named
            self.warn(f"{len(sessions)} cannot be read: {names}{more}; see asnap check", fg="yellow")

    def style(self, text: str, **style: Any) -> str:
        """Return *text* in colour, if data is coloured."""
        return self._styled(text, 1, style)

    def _styled(self, text: str, fd: int, style: Mapping[str, Any]) -> str:
        return click.style(text, **style) if style and self._colour[fd] else text

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
        """Print rows under titles on a terminal; otherwise whole fields separated by tabs, without titles.

        Prints nothing if there are no rows.
        """
        cells = [list(map(in_a_cell, row)) for row in rows]
        if not cells:
            return
        if not self.is_terminal and "COLUMNS" not in os.environ:
            for row in cells:
                self.line("\t".join(row))
            return
        shown = _shown(columns, cells, self.columns)
        widths = _fitted([columns[n] for n in shown], [[row[n] for n in shown] for row in cells], self.columns)
        self.line(self._row([columns[n].title for n in shown], [columns[n] for n in shown], widths, bold=True))
        for row in cells:
            self.line(self._row([row[n] for n in shown], [columns[n] for n in shown], widths))

    def _row(self, cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int], **head: Any) -> str:
        parts = []
        for cell, column, wide in zip(cells, columns, widths, strict=True):
            text = pad(cut(cell, wide), wide, right=column.right)
            own = column.style(cell) if callable(column.style) else column.style
            parts.append(self.style(text, **(head or own)))
        return "  ".join(parts).rstrip()


def _streams() -> dict[int, IO[str]]:
    return {1: sys.stdout, 2: sys.stderr}


@contextlib.contextmanager
def _keys_hidden() -> Iterator[None]:
    """Hide the store's keys from programs started in this block."""
    from snapshot_plugin.system.processes import without_keys

    kept = without_keys(os.environ)
    hidden = {name: value for name, value in os.environ.items() if name not in kept}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)


_READABLE = 14


def _shown(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return the columns that fit. Empty columns are left out."""
    least = {}
    for n, column in enumerate(columns):
        widest = max((width(row[n]) for row in rows), default=0)
        if widest:
            needed = min(widest, _READABLE) if column.flexible else widest
            least[n] = max(needed, width(column.title))
    while sum(least.values()) + 2 * (len(least) - 1) > room and (ranked := [n for n in least if columns[n].rank]):
        del least[min(ranked, key=lambda n: columns[n].rank)]
    return list(least)


def _fitted(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return the width of each column so that a line fits in *room*: the widest flexible column shrinks first."""
    widths = [max(width(c.title), *(width(row[n]) for row in rows), 0) for n, c in enumerate(columns)]
    flexible = [n for n, column in enumerate(columns) if column.flexible]
    over = sum(widths) + 2 * (len(widths) - 1) - room
    while over > 0 and (wide := [n for n in flexible if widths[n] > 6]):  # noqa: PLR2004 — less is not readable
        widest = max(wide, key=lambda n: widths[n])
        widths[widest] -= 1
        over -= 1
    return widths


_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#!~&@:])")


def markdown_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table. No cell can end the table, link or mention anything."""
    yield "| " + " | ".join(titles) + " |"
    yield "|" + " --- |" * len(titles)
    for row in rows:
        yield "| " + " | ".join(_SPECIAL.sub(r"\\\1", plain(cell)) for cell in row) + " |"
