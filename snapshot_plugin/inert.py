"""Text that somebody else wrote, made harmless where it is shown or written: terminals, pages, files."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

__all__ = ["json_text", "plain", "printable", "readable_json"]

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|.)?", re.DOTALL
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")
_ACROSS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def plain(text: str, *, lines: bool = False) -> str:
    """*text* without anything a terminal would obey: escapes, controls, marks that turn the writing direction.

    What agents and strangers wrote goes through here before it is shown. With *lines*, line ends and tabs stay;
    otherwise they become single spaces.
    """
    if text.isascii() and text.isprintable():
        return text if lines else " ".join(text.split())
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    if not lines:
        text = " ".join(text.split())
    if text.isascii():
        return _CONTROLS.sub("", text)
    keep = "\n\t" if lines else ""
    return "".join(char for char in text if char in keep or not _is_unsafe(char))


def printable(text: str) -> str:
    """*text* with a replacement character for each lone surrogate, which no stream takes."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """*value* as JSON for programs: letters as they are, and lone surrogates, which UTF-8 cannot carry, escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return text if text.isascii() else _SURROGATES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def readable_json(value: Any, *, indent: int | None = 2) -> str:
    """*value* as JSON for people: letters as they are, and what is unsafe to show as an escape: nothing is lost."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if text.isascii():  # json.dumps has escaped the controls among these, except DEL
        return text.replace("\x7f", "\\u007f")
    return "".join(f"\\u{ord(char):04x}" if char != "\n" and _is_unsafe(char) else char for char in text)


def _is_unsafe(char: str) -> bool:
    return char in _ACROSS or unicodedata.category(char) in ("Cc", "Cs")
