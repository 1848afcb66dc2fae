"""Turn Markdown into terminal text while it arrives, and break its lines between words.

Each character is shown as soon as its meaning is known. At most a few characters are held back: marks like ``**``
whose second half may be in the next chunk, and the beginning of a line, which may be a heading or a fence.
Pure: no I/O.
"""

from __future__ import annotations

import re

from snapshot_plugin.inert import plain
from snapshot_plugin.operations.text import width

__all__ = ["MarkdownStream", "WordWrap"]

_BOLD, _CODE, _FENCE, _HEADING, _QUOTE, _OFF = "\x1b[1m", "\x1b[36m", "\x1b[2m", "\x1b[1m", "\x1b[2m", "\x1b[0m"
_FENCES = re.compile(r"\s{0,3}(```|~~~)")
_HEADINGS = re.compile(r"#{1,6} ")
_BULLETS = re.compile(r"(\s*)[-*+] (?=\S|\Z)")
_MAYBE_START = re.compile(r"\s*(?:#{1,6} ?|`{1,3}|~{1,3}|[-*+] ?|>)?\Z")
"""The beginning of a line that may still become a heading, a fence, a list item or a quote."""


class MarkdownStream:
    """The text of one message. Without *colour*, Markdown is left as it is; unsafe characters are removed."""

    def __init__(self, *, colour: bool) -> None:
        self._colour = colour
        self._begin()

    def _begin(self) -> None:
        self._held = ""
        self._at_start, self._in_fence = True, False
        self._bold = self._code = False
        self._line_style = ""

    def feed(self, text: str) -> str:
        """Add *text* and return what can be shown now."""
        text = plain(text, lines=True)
        if not self._colour:
            return text
        self._held += text
        return self._taken(final=False)

    def end(self) -> str:
        """Return the text that was held back, and reset the colours."""
        shown = self._taken(final=True) if self._colour else ""
        is_styled = self._bold or self._code or self._line_style or self._in_fence
        self._begin()
        return shown + (_OFF if is_styled else "")

    def _taken(self, *, final: bool) -> str:
        shown: list[str] = []
        while self._held:
            line, newline, rest = self._held.partition("\n")
            if self._at_start and not newline and not final and _MAYBE_START.match(line):
                break
            if self._at_start:
                line = self._begin_line(line, shown)
                self._at_start = False
            hold = 0 if newline or final else _open_mark(line)
            shown.append(self._inline(line[: len(line) - hold]))
            self._held = rest if newline else line[len(line) - hold :]
            if not newline:
                break
            self._end_line(shown)
        return "".join(shown)

    def _begin_line(self, line: str, shown: list[str]) -> str:
        if _FENCES.match(line):
            self._in_fence = not self._in_fence
            self._line_style = _FENCE
        elif self._in_fence:
            self._line_style = _CODE
        elif _HEADINGS.match(line):
            self._line_style, line = _HEADING, line.lstrip("#").lstrip()
        elif line.startswith(">"):
            self._line_style = _QUOTE
        elif bullet := _BULLETS.match(line):
            line = f"{bullet[1]}• {line[bullet.end() :]}"
        if self._line_style:
            shown.append(self._line_style)
        return line

    def _end_line(self, shown: list[str]) -> None:
        if self._line_style or self._code or self._bold:
            shown.append(_OFF)
        self._line_style, self._code, self._bold = "", False, False
        shown.append("\n")
        self._at_start = True

    def _inline(self, text: str) -> str:
        if self._line_style in (_FENCE, _CODE):
            return text
        parts = []
        for part in re.split(r"(\*\*|`)", text):
            if part == "`":
                self._code = not self._code
                parts.append(self._style())
            elif part == "**" and not self._code:
                self._bold = not self._bold
                parts.append(self._style())
            else:
                parts.append(part)
        return "".join(parts)

    def _style(self) -> str:
        on = self._line_style + (_BOLD if self._bold else "") + (_CODE if self._code else "")
        return _OFF + on


def _open_mark(line: str) -> int:
    """How many characters at the end of *line* may be half of a mark."""
    return 1 if line.endswith("*") and not line.endswith("**") else 0


_PARTS = re.compile(r"\x1b\[\d*m|[\n\t]| +|[^\x1b\n\t ]+")
_NARROW = 20


class WordWrap:
    """Breaks lines between words. A word that outgrows its line while it arrives is moved to the next one.

    The last column stays empty, so that backspaces reach the word. The terminal breaks code blocks, words longer
    than a line and wide characters, and everything if it has fewer than 20 columns. Lines that it begins itself are
    indented by *indent* columns.
    """

    def __init__(self, indent: int = 0) -> None:
        self._in_fence, self._style = False, ""
        self._indent, self._break = indent, "\n" + " " * indent
        self._begin_line()

    def feed(self, text: str, columns: int) -> str:
        """Add *text* and return what to write to a terminal of that many columns."""
        return "".join(self._placed(part, columns) for part in _PARTS.findall(text))

    def _begin_line(self) -> None:
        self._column = 0
        self._start = ""  # of the line, without styles and indentation: three characters tell a fence
        self._is_full = False
        self._begin_word()

    def _begin_word(self) -> None:
        self._word, self._length, self._word_style = "", 0, self._style

    def _placed(self, part: str, columns: int) -> str:
        if part == "\n":
            self._in_fence ^= self._start in ("```", "~~~")
            self._begin_line()
        elif part[0] == "\x1b":
            self._style = "" if part == _OFF else self._style + part
            if self._length:
                self._word += part
            else:
                self._word_style = self._style
        elif part[0] in " \t":
            return self._placed_space(part, columns)
        else:
            return self._placed_word(part, columns)
        return part

    def _placed_space(self, part: str, columns: int) -> str:
        self._begin_word()
        self._start = self._start and self._start.ljust(3)
        self._column += 8 - self._column % 8 if part == "\t" else len(part)
        self._is_full = self._column >= columns >= _NARROW and not self._in_fence
        return "" if self._is_full else part

    def _placed_word(self, part: str, columns: int) -> str:
        room, taken, shown = columns - 1, width(part), self._length
        break_ = self._break if self._is_full else ""
        if self._is_full:
            self._column, self._is_full = self._indent, False
        self._start = (self._start + part)[:3]
        self._length += taken
        begins_line = self._column - shown <= self._indent
        if not begins_line:  # otherwise it is never moved, and may be very long
            self._word += part
        fits = self._column + taken <= room
        if fits or begins_line or taken != len(part) or self._in_fence or columns < _NARROW:
            self._column = (self._column + taken) % columns
            return break_ + part
        self._column = (self._indent + self._length) % columns
        style = _OFF + self._word_style if "\x1b" in self._word else ""
        return "\b" * shown + " " * shown + self._break + style + self._word
