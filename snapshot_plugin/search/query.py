"""What a user typed, as an FTS5 expression that is always valid. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple, NoReturn

from snapshot_plugin.errors import InvalidInput

__all__ = ["expression", "indexable", "marked_words", "narrowing"]

_PARTS = re.compile(r'"(?P<phrase>[^"]*)"?|(?P<word>[^\s"]+)')
_APART = "\u200b"
_TOOL, _ROLE = "\ue002", "\ue003"
"""Letters that nobody can type begin the words that say which tools a message used, and whose it is."""
_UNSTORABLE = re.compile("[\x00\ue000-\ue003\u200b\ud800-\udfff]")
_OPERATORS = ("AND", "OR", "NOT")
_HELP = 'search for words, "a phrase" or begin*; cats OR dogs; cats NOT dogs'


def indexable(text: str) -> str:
    """*text* as it is put into the index.

    Scripts that are written without spaces would be one long word each; an invisible mark separates their
    characters. Characters the index uses itself, and those no database can hold, become spaces.
    """
    if text.isascii():
        return text.replace("\0", " ") if "\0" in text else text
    return _spaceless().sub(rf"\1{_APART}", _UNSTORABLE.sub(" ", text))


def _spaceless() -> re.Pattern[str]:
    return re.compile(  # compiled when such a text comes, once: it takes longer than a search
        "([\u0e00-\u0e7f\u3005-\u30ff\u31f0-\u31ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff])"
    )


def marked_words(tools: str, role: str) -> str:
    """What `narrowing` finds a message by: words for its tools and its role, which no other text has."""
    return f"{_marked(_TOOL, tools)} {_marked(_ROLE, role)}"


def _marked(mark: str, text: str) -> str:
    return re.sub(r"[^\W_]+", rf"{mark}\g<0>", indexable(text))


def narrowing(*, tool: str | None = None, role: str | None = None) -> str:
    """What an expression is followed by, so that only messages of this role, in which this tool was used, fit.

    Raises:
        InvalidInput: there is no word in it.
    """
    asked = ((mark, text) for mark, text in ((_TOOL, tool), (_ROLE, role)) if text is not None)
    return "".join(f" AND {_phrase(text, mark) or _refuse(text)}" for mark, text in asked)


def expression(query: str) -> str:
    """The FTS5 expression for *query*.

    Words, all of which must be there; ``"a phrase"``; ``begin*``. ``OR`` stands between alternatives, each a
    search of its own: ``cats walrus OR dogs`` finds what has cats and walrus, and what has dogs. A word behind
    ``NOT`` must not be there. ``AND`` says what holds anyway. All three only count in capitals, outside of quotes.

    Whatever else FTS5 would take for an operator is a word like any other; so is ``-rf``, which people search for.
    What stands around words (``foo()``, ``--flag``) is passed over; a word of several parts (``a.b``,
    ``snake_case``) is a phrase.

    Raises:
        InvalidInput: there is no word in it, or none beside an operator.
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
    """A part of a query that counts: an operator, or an FTS5 string."""

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
        raise InvalidInput("there is only what must not be found", hint="name a word that must: cats NOT dogs")
    found = " AND ".join(wanted)
    return f"(({found}) NOT ({' OR '.join(unwanted)}))" if unwanted else f"({found})"


def _refuse_operator(operator: str) -> NoReturn:
    raise InvalidInput(
        f"a word is missing beside {operator}",
        hint=f"to search for the word itself, write it small: {operator.lower()}",
    )


def _refuse_groups(query: str) -> None:
    """Whoever means a group must not get the answer to another question."""
    for part in _PARTS.finditer(query):
        word = part["word"] or ""
        if word.count("(") != word.count(")"):
            raise InvalidInput(
                f"{word!r}: parentheses do not group words",
                hint="write it out, as in: cats fish OR dogs fish; or put the parenthesis into quotes",
            )


def _phrase(text: str, mark: str = "") -> str:
    """*text* as an FTS5 string, each word of it with the *mark*; nothing where it holds no word."""
    if not any(_is_token(char) for char in text):
        return ""
    star = "*" if text.endswith("*") and _is_token(text[-2:-1]) else ""
    words = _marked(mark, text) if mark else indexable(text)
    return f'"{words.replace(chr(34), " ")}"{star}'


def _refuse(text: str) -> NoReturn:
    what = f"{text!r} has no word in it" if text.strip() else "there is nothing to search for"
    raise InvalidInput(what, hint=_HELP)


def _is_token(char: str) -> bool:
    """Whether FTS5's tokenizer sees a letter or digit there."""
    return bool(char) and unicodedata.category(char)[0] in "LN" and not _UNSTORABLE.match(char)
