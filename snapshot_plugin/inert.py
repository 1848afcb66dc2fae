"""Text that people read: untrusted text made safe for terminals, pages and files; counts with their nouns."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

__all__ = ["for_terminal", "in_a_cell", "plain", "readable_json", "say", "several", "shell_line"]

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|.)?", re.DOTALL
)
_INVISIBLE = "\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f"
"""Characters that change the writing direction, separate lines, or are invisible."""
_UNSAFE = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{_INVISIBLE}]")
_UNSAFE_OR_LINES = re.compile(rf"[\x00-\x1f\x7f-\x9f\ud800-\udfff{_INVISIBLE}]")
_OWN_STYLE = re.compile(r"\x1b\[(?:0|[12]|3[0-7]|9[0-7])m")
"""What `click.style` writes for us: reset, bold, dim and foreground colours."""


def plain(text: str, *, lines: bool = False) -> str:
    """Return *text* without what a terminal would interpret: escapes, control and bidirectional characters.

    Call it on any text from agents or other users before showing it. With *lines*, line ends and tabs stay;
    otherwise they become single spaces.
    """
    if text.isascii() and text.isprintable():
        return text if lines else " ".join(text.split())
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    if not lines:
        return _UNSAFE_OR_LINES.sub("", " ".join(text.split()))
    return _UNSAFE.sub("", text)


def say(text: str, *, who: str = "asnap") -> None:
    """Show the user one line on stderr, whatever is in *text*. A stderr that cannot be written is ignored."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"{who}: {plain(text)}\n")
        sys.stderr.flush()


def for_terminal(text: str) -> str:
    """Return *text* safe for a terminal: only our own colours, tabs and line ends are kept.

    All output of a command passes through it, in case a caller forgot `plain`.
    """
    if text.isascii() and text.isprintable():
        return text
    styles = _OWN_STYLE.findall(text)
    parts = [_UNSAFE.sub("", _ESCAPES.sub("", part)) for part in _OWN_STYLE.split(text)]
    return "".join(part + style for part, style in zip(parts, [*styles, ""], strict=True))


def in_a_cell(text: str) -> str:
    """Return *text* for a table cell: on one line, with its spaces kept."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE_OR_LINES.sub("", re.sub(r"[\t\r\n]+", " ", _ESCAPES.sub("", text)))


def readable_json(value: Any, *, indent: int | None = 2) -> str:
    """Return *value* as readable JSON: only unsafe characters are escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if text.isascii():  # json.dumps has escaped the controls among these, except DEL
        return text.replace("\x7f", "\\u007f")
    return _UNSAFE.sub(lambda found: json.dumps(found[0])[1:-1], text)


def shell_line(words: Sequence[str]) -> str:
    """Return *words* as a line to paste into a shell; unsafe characters become escapes with the same meaning."""
    return " ".join(map(_shell_word, words))


def _shell_word(word: str) -> str:
    if not _UNSAFE_OR_LINES.search(word):
        return shlex.quote(word)
    data = word.encode("utf-8", "surrogateescape" if _is_bytes(word) else "surrogatepass")
    return "$'" + "".join(chr(byte) if byte in _SHELL_SAFE else f"\\x{byte:02x}" for byte in data) + "'"


def _is_bytes(word: str) -> bool:
    """Whether all surrogates in *word* stand for undecodable bytes of a file name."""
    return all("\udc80" <= char <= "\udcff" for char in word if "\ud800" <= char <= "\udfff")


_SHELL_SAFE = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 /._-+=:,@%")


def several(number: int, thing: str) -> str:
    """Return a count with its noun: ``1 turn``, ``2 turns``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
