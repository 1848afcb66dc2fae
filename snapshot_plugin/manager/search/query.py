"""What a user typed, as an FTS5 expression that is always valid. Pure."""

from __future__ import annotations

import re
import unicodedata
from typing import NoReturn

from snapshot_plugin.errors import InvalidInput

__all__ = ["expression", "indexable"]

_PARTS = re.compile(r'"(?P<phrase>[^"]*)"?|(?P<word>[^\s"]+)')
_APART = "\u200b"
_CJK = re.compile(
    "([\u0e00-\u0e7f\u3005-\u30ff\u31f0-\u31ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff])"
)
_UNSTORABLE = re.compile("[\x00\ue000\ue001\u200b\ud800-\udfff]")


def indexable(text: str) -> str:
    """*text* as it is put into the index.

    Scripts that are written without spaces would be one long word each; a mark that nobody sees parts their
    characters. Characters the index uses itself, and those no database can hold, become spaces.
    """
    if text.isascii():
        return text.replace("\0", " ") if "\0" in text else text
    return _CJK.sub(rf"\1{_APART}", _UNSTORABLE.sub(" ", text))


def expression(query: str, *, tool: str | None = None, role: str | None = None) -> str:
    """The FTS5 expression for *query*: words, all of which must be there; ``"a phrase"``; ``begin*``.

    Whatever else FTS5 would take for an operator is a word like any other. What stands around words (``foo()``,
    ``--flag``) is passed over; a word of several parts (``a.b``, ``snake_case``) is a phrase.

    Raises:
        InvalidInput: there is no word in it.
    """
    parts = [_phrase(part["phrase"] or part["word"] or "") for part in _PARTS.finditer(query)]
    wanted = " AND ".join(filter(None, parts)) or _refuse(query)
    narrowed = [f"tools : {_phrase(tool) or _refuse(tool)}"] if tool is not None else []
    narrowed += [f"role : {_phrase(role) or _refuse(role)}"] if role is not None else []
    return " AND ".join([f"body : ({wanted})", *narrowed])


def _refuse(text: str) -> NoReturn:
    what = f"{text!r} has no word in it" if text.strip() else "there is nothing to search for"
    raise InvalidInput(what, hint='search for words, "a phrase" or begin*')


def _phrase(text: str) -> str:
    """*text* as an FTS5 string; nothing where it holds no word."""
    if not any(_is_token(char) for char in text):
        return ""
    star = "*" if text.endswith("*") and _is_token(text[-2:-1]) else ""
    quoted = indexable(text).replace('"', " ")
    return f'"{quoted}"{star}'


def _is_token(char: str) -> bool:
    """Whether FTS5's tokenizer sees a letter or digit there."""
    return bool(char) and unicodedata.category(char)[0] in "LN" and not _UNSTORABLE.match(char)
