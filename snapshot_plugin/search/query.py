"""Turn what a user typed into a valid FTS5 expression. Pure functions."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple, NoReturn

from snapshot_plugin.errors import InvalidInput

__all__ = ["expression", "indexable", "narrowing"]

_PARTS = re.compile(r'"(?P<phrase>[^"]*)"?|(?P<word>[^\s"]+)')
_APART = "\u200b"
_UNSTORABLE = re.compile("[\x00\ue000-\ue001\u200b\ud800-\udfff]")
_OPERATORS = ("AND", "OR", "NOT")
_HELP = 'search for words, "a phrase" or begin*; cats OR dogs; cats NOT dogs'


def indexable(text: str) -> str:
    """*text* as it is indexed.

    In scripts without spaces an invisible character separates the characters, so that each is a word.
    Characters that the index reserves, or that SQLite cannot store, become spaces.
    """
    if text.isascii():
        return text.replace("\0", " ") if "\0" in text else text
    return _spaceless().sub(rf"\1{_APART}", _UNSTORABLE.sub(" ", text))


def _spaceless() -> re.Pattern[str]:
    return re.compile(  # compiled on first use: compiling takes longer than a search
        "([\u0e00-\u0e7f\u3005-\u30ff\u31f0-\u31ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff])"
    )


def narrowing(*, tool: str | None = None, role: str | None = None) -> str:
    """The suffix of an expression that limits it to messages of a role, or with calls of a tool.

    Raises:
        InvalidInput: *role* or *tool* contains no word.
    """
    asked = {"tools": tool, "role": role}
    return "".join(
        f" AND {column} : {_phrase(text) or _refuse(text)}" for column, text in asked.items() if text is not None
    )


def expression(query: str) -> str:
    """The FTS5 expression for *query*.

    All words must match. ``"a phrase"`` and ``begin*`` are supported. ``OR`` separates alternatives: ``cats
    walrus OR dogs`` matches messages with both cats and walrus, and messages with dogs. A word after ``NOT``
    must not occur. ``AND`` is the default and may be written. Operators count only in capitals and outside
    quotes.

    Every other FTS5 operator is searched as a word, and so is ``-rf``. Punctuation around words (``foo()``,
    ``--flag``) is ignored; a word with inner punctuation (``a.b``, ``snake_case``) is a phrase.

    Raises:
        InvalidInput: the query has no word, or an operator has no word beside it.
    """
    words = list(_words(query))
    if not words:
        _refuse(query)
    if any(word.operator for word in words):
        _refuse_groups(query)
    starts = [0, *(n + 1 for n, word in enumerate(words) if word.operator == "OR")]
    ends = [*(start - 1 for start in starts[1:]), len(words)]
    return " OR ".join(_alternative(words[start:end]) for start, end in zip(starts, ends, strict=True))


class _Word(NamedTuple):
    """A token of a query: an operator, or an FTS5 string."""

    operator: str
    phrase: str


def _words(query: str) -> Iterator[_Word]:
    for part in _PARTS.finditer(query):
        if part["word"] in _OPERATORS:
            yield _Word(part["word"], "")
        elif phrase := _phrase(part["phrase"] or part["word"] or ""):
            yield _Word("", phrase)


def _alternative(words: Sequence[_Word]) -> str:
    wanted: list[str] = []
    unwanted: list[str] = []
    before = "OR"
    for word in words:
        if word.operator == "AND" and before:
            _refuse_operator("AND")
        if word.phrase:
            (unwanted if before == "NOT" else wanted).append(word.phrase)
        elif before == "NOT":
            _refuse_operator("NOT")
        before = word.operator
    if before:
        _refuse_operator(before)
    if not wanted:
        raise InvalidInput("the query has only excluded words", hint="name a word that must: cats NOT dogs")
    found = " AND ".join(wanted)
    return f"(({found}) NOT ({' OR '.join(unwanted)}))" if unwanted else f"({found})"


def _refuse_operator(operator: str) -> NoReturn:
    raise InvalidInput(
        f"a word is missing beside {operator}",
        hint=f"to search for the word itself, write it in lower case: {operator.lower()}",
    )


def _refuse_groups(query: str) -> None:
    """Refuse parentheses that group words, because groups are not supported."""
    for part in _PARTS.finditer(query):
        word = part["word"] or ""
        if word.count("(") != word.count(")"):
            raise InvalidInput(
                f"{word!r}: parentheses do not group words",
                hint="write it out, as in: cats fish OR dogs fish; or put the parenthesis into quotes",
            )


def _phrase(text: str) -> str:
    """*text* as an FTS5 string; empty if it contains no word."""
    if not any(_is_token(char) for char in text):
        return ""
    star = "*" if text.endswith("*") and _is_token(text[-2:-1]) else ""
    return f'"{indexable(text).replace(chr(34), " ")}"{star}'


def _refuse(text: str) -> NoReturn:
    what = f"{text!r} has no word in it" if text.strip() else "there is nothing to search for"
    raise InvalidInput(what, hint=_HELP)


def _is_token(char: str) -> bool:
    """Whether FTS5's tokenizer takes the character as part of a word."""
    return bool(char) and unicodedata.category(char)[0] in "LN" and not _UNSTORABLE.match(char)
