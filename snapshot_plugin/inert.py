"""Make text that somebody else wrote harmless to look at: in terminals, pages and files."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from typing import Any

__all__ = ["for_terminal", "in_a_cell", "plain", "readable_json", "shell_line"]

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|.)?", re.DOTALL
)
_INVISIBLE = "\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f"
"""Marks that turn the writing direction, separate lines, or cannot be seen."""
_UNSAFE = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{_INVISIBLE}]")
_UNSAFE_OR_LINES = re.compile(rf"[\x00-\x1f\x7f-\x9f\ud800-\udfff{_INVISIBLE}]")
_OWN_STYLE = re.compile(r"\x1b\[(?:0|[12]|3[0-7]|9[0-7])m")
"""What `click.style` writes for us: reset, bold, dim and colours of letters."""


def plain(text: str, *, lines: bool = False) -> str:
    """*text* without anything a terminal would obey: escapes, controls, marks that turn the writing direction.

    What agents and strangers wrote goes through here before it is shown. With *lines*, line ends and tabs stay;
    otherwise they become single spaces.
    """
    if text.isascii() and text.isprintable():
        return text if lines else " ".join(text.split())
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    if not lines:
        return _UNSAFE_OR_LINES.sub("", " ".join(text.split()))
    return _UNSAFE.sub("", text)


def for_terminal(text: str) -> str:
    """*text* as it may be written to a terminal: our own colours and line ends stay, nothing else is obeyed.

    Everything a command says passes here, so that a caller who forgot `plain` does no harm.
    """
    if text.isascii() and text.isprintable():
        return text
    styles = _OWN_STYLE.findall(text)
    parts = [_UNSAFE.sub("", _ESCAPES.sub("", part)) for part in _OWN_STYLE.split(text)]
    return "".join(part + style for part, style in zip(parts, [*styles, ""], strict=True))


def in_a_cell(text: str) -> str:
    """*text* as it may stand in a column: on one line, and with its spaces."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE_OR_LINES.sub("", re.sub(r"[\t\r\n]+", " ", _ESCAPES.sub("", text)))


def readable_json(value: Any, *, indent: int | None = 2) -> str:
    """*value* as JSON for people: letters as they are, and what is unsafe to show as an escape: nothing is lost."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if text.isascii():  # json.dumps has escaped the controls among these, except DEL
        return text.replace("\x7f", "\\u007f")
    return _UNSAFE.sub(lambda found: json.dumps(found[0])[1:-1], text)


def shell_line(words: Sequence[str]) -> str:
    """*words* as a line to paste into a shell: what is unsafe to show becomes an escape, and means the same."""
    return " ".join(map(_shell_word, words))


def _shell_word(word: str) -> str:
    if not _UNSAFE_OR_LINES.search(word):
        return shlex.quote(word)
    data = word.encode("utf-8", "surrogateescape" if _is_bytes(word) else "surrogatepass")
    return "$'" + "".join(chr(byte) if byte in _SHELL_SAFE else f"\\x{byte:02x}" for byte in data) + "'"


def _is_bytes(word: str) -> bool:
    """Whether what is no text in *word* are bytes of a file name."""
    return all("\udc80" <= char <= "\udcff" for char in word if "\ud800" <= char <= "\udfff")


_SHELL_SAFE = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 /._-+=:,@%")
