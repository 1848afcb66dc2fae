r"""Find secrets in text by their shape, in time linear in the length of the text.

`secret_table` has one row for each name, token and form; each becomes a rule here. Other rules are added to them:
``redact(value, rules=(*RULES, my_rule))``.

A single search decides whether any rule can match, so text without secrets costs almost nothing. A rule then runs
only if one of its starts and its own sign occur, and its pattern is compiled then. Regex engines do the scanning;
there is no Python loop over positions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from string import ascii_uppercase
from typing import Final, NamedTuple

from pydantic_core import SchemaValidator, core_schema

from snapshot_plugin.model.secret_table import ENCODED, FORMS, KEY_BLOCKS, NAMES, TOKENS, Form, SecretName, Token
from snapshot_plugin.model.secret_values import (
    OWN,
    PLACEHOLDER,
    REFERENCE,
    Check,
    decoded,
    is_key,
    is_stand_in,
    stand_in,
)  # fmt: skip

__all__ = ["RULES", "Rule", "SecretRule", "assigned_kind", "known_name", "may_hold_secrets", "redact_text"]

SecretSpan = tuple[int, int, str]
"""Start, end and kind of a secret. The kind is lower-case letters and hyphens, and replaces the secret."""


class Rule(NamedTuple):
    """A rule of your own: how to find one kind of secret, and how to skip text that cannot contain it."""

    starts: tuple[str, ...]
    """Lower-case strings, one of which occurs in every text that *find* can match. If empty, *find* always runs."""
    find: Callable[[str, str], Iterable[SecretSpan]]
    """Called with the text and the same text in lower case, of the same length. Yields in order, no overlaps."""
    sign: str = ""
    """A regular expression without lookaround that matches in every text in which *find* finds anything."""

    def replace(self, text: str, folded: str, counts: Counter[str]) -> str:
        """Return *text* with marks for secrets, and count them; *text* itself if it has none."""
        parts: list[str] = []
        at = 0
        for start, end, kind in self.find(text, folded):
            parts += (text[at:start], _mark(kind))
            counts[kind] += 1
            at = end
        return "".join(parts) + text[at:] if parts else text


class Shape(NamedTuple):
    """A row of the table as a rule: one pattern, which finds half a million secrets in less than a second."""

    starts: tuple[str, ...]
    kind: str
    pattern: str
    """Its groups ``before``, ``value`` and ``other`` hold all that it matches; other groups are inside of them."""
    check: Check | None
    """Whether a value is a secret; None if each is."""
    sign: str

    def replace(self, text: str, _folded: str, counts: Counter[str]) -> str:
        """Return *text* with marks for secrets, and count them; *text* itself if it has none."""
        pattern = _compiled(self.pattern)
        parts: list[str | None] = pattern.split(text)  # with what each group matched, all in C
        step, groups = pattern.groups + 1, pattern.groupindex
        found = parts[groups["value"] :: step]
        mark, check = _mark(self.kind), self.check
        marked = [
            mark if value and (check is None or check(value)) and not _ends_in_mark(before) else value
            for value, before in zip(found, parts[::step], strict=False)
        ]
        number = marked.count(mark)
        if not number:
            return text
        counts[self.kind] += number
        parts[groups["value"] :: step] = marked
        for name, group in groups.items():
            if name in ("equal", "quote"):
                parts[group::step] = [""] * len(marked)  # are parts of ``before``
        return "".join(filter(None, parts))


SecretRule = Rule | Shape


def _mark(kind: str) -> str:
    return f"[redacted:{kind}]"


def _ends_in_mark(text: str | None) -> bool:
    """Whether *text* ends inside a mark: the ``token`` of ``[redacted:github-token]: x`` is no name of a value."""
    start = (text or "").rfind("[redacted:")
    return start >= 0 and "]" not in (text or "")[start:]


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


# From rows to rules -----------------------------------------------------------------------------------------------


def _token(row: Token) -> Shape:
    r"""The prefix comes first, then the check of what is before it, so that the engine searches for the prefix.

    An escape before it, such as ``\n`` or ``%3D``, does not count as part of the word.
    """
    prefix = row.prefix
    escaped = rf"(?<=[nrtA-Fa-f0-9]{prefix})(?:(?<=\\[nrt]{prefix})|(?<=%[0-9A-Fa-f]{{2}}{prefix}))"
    pattern = rf"(?P<value>{prefix}(?:(?<![{row.word}]{prefix})|{escaped}){row.rest})"
    starts = row.starts or prefix.replace("\\", "").lower()
    return Shape(tuple(starts.split()), row.kind, pattern, row.check, _beginning(prefix + row.rest))


def _beginning(pattern: str) -> str:
    """What a match of *pattern* begins with, as a pattern without lookaround and long repetitions."""
    looser = re.sub(r"([+*}])\+", r"\1", re.sub(r"\(\?<?[=!][^()]*\)", "", pattern))
    for count in re.finditer(r"\{(\d+)(?:,\d*)?\}", looser):
        before = looser[: count.start()]
        if int(count[1]) > _ENOUGH and before.count("(") == before.count(")"):
            return f"{before}{{{_ENOUGH}}}"
    return looser


_ENOUGH: Final = 16
"""So many characters of a token are looked for first. More would need more states."""


def _form(row: Form) -> Shape:
    return Shape(tuple(row.starts.split()), row.kind, row.pattern, row.check, row.sign)


# Each form of a named value always matches once it has begun, with a value or with something else: no search begins
# again inside of a value.

_Values = tuple[str, str]
"""The patterns of a value, and of what stands in its place if it is none."""


def _unquoted(char: str, after: str, no_value: str) -> _Values:
    """A value of *char* before one of *after*. Code looks much the same: ``password=self.password``."""
    no_value = rf"(?:{PLACEHOLDER}|{no_value})(?!{char})|(?:{OWN}){char}*+"
    return rf"(?!{no_value}){char}{{4,}}+(?=[{after}]|\Z)", rf"(?:{no_value}|{char}{{4,}}+)"


_QUOTED_CHAR: Final = r"(?:[^\s\\\"']++|(?!(?P=quote))\S)"
_QUOTED: Final[_Values] = (
    rf"(?!{stand_in(_QUOTED_CHAR, '(?=(?P=quote))')}){_QUOTED_CHAR}++(?=(?P=quote))",
    rf"{_QUOTED_CHAR}++",
)


def _value(names: tuple[str, str]) -> Iterable[str]:
    bare = _unquoted(r"[^\s\"'&;,()\[\]{}<>\\|`]", r" \t\r\n\"'&;,)\\|`", names[0])
    line = _unquoted(r"[^\s\"'`(){}\[\]<>$,;|\\]", r"\"'\r\n\\", names[1])
    for each in zip(bare, _QUOTED, line, strict=True):
        yield "(?(equal){}|(?(quote){}|{}))".format(*each)


_LITERAL_VALUE: Final = "(?:(?P<value>{})|(?P<other>{}))".format(
    *_value((rf"{REFERENCE}|[^\W\d]\w*+(?=[,)])", rf"{REFERENCE}|[^\W\d_]++"))
)
_KEY_VALUE: Final = "(?:(?P<value>{})|(?P<other>{}))".format(*_value(("(?!)", "(?!)")))  # `is_key` knows names
_ASSIGNED: Final = r"\\{0,4}[\"']?\]?[ \t]{0,4}(?::[ \t]?(?i:string|str)[ \t]?=|:=|=>|[:=])"
_KEY_SIGN: Final = r"[ \t]{0,4}[bru]?\\{0,4}[\"']?[^\s\"'()\[\]{},;|\\<>]{12}"


def _named(row: SecretName) -> Shape:
    random = row.check is is_key
    first = f"[{row.pattern[0]}{row.pattern[0].upper()}]" if row.pattern[0].isalpha() else row.pattern[0]
    name = f"{first}(?i:{row.pattern[1:]})"  # a search for ``(?i:…)`` alone is slow
    sign = f"(?i:{row.sign or row.pattern}){_ASSIGNED}"
    return Shape(
        starts=(row.start,),
        kind=row.kind,
        pattern=rf"(?P<before>{name}(?:(?P<equal>=(?!=))"
        rf"|{_ASSIGNED}[ \t]{{0,4}}(?:[bru](?=[\"']))?(?P<quote>\\{{0,4}}[\"'])?))"
        + (_KEY_VALUE if random else _LITERAL_VALUE),
        check=row.check,
        sign=sign + _KEY_SIGN if random else sign,
    )


def _holds_encoded_secret(value: str) -> bool:
    text = decoded(value)
    return text.startswith('{"auths"') or _looks()[0](text)


_ENCODED: Final = f"(?:{'|'.join(ENCODED)})[A-Za-z0-9+/]{{12,}}"
_FIRST: Final = (*map(_form, KEY_BLOCKS), *map(_token, TOKENS))
RULES: Final[tuple[SecretRule, ...]] = (
    *_FIRST,
    Shape(
        tuple(start.lower() for start in ENCODED),
        "base64",
        rf"(?P<value>(?<![A-Za-z0-9+/]){_ENCODED}+={{0,2}})",
        _holds_encoded_secret,
        _ENCODED,
    ),
    *map(_form, FORMS),
    *map(_named, NAMES),
)
"""Blocks and tokens come first: a value that was replaced as a token is not matched again as a password."""


# Names of fields and settings -------------------------------------------------------------------------------------

_LONGEST_NAME: Final = 64
_SPACE: Final = re.compile(r"\s")


@lru_cache(maxsize=4096)
def known_name(name: str) -> SecretName | None:
    """The row of the table that *name*, such as ``dbPassword``, ends with; None if there is none."""
    name = name[-_LONGEST_NAME:]
    return next((row for row in NAMES if re.search(rf"(?:{row.pattern})\Z", name, re.IGNORECASE)), None)


def assigned_kind(name: str, value: str) -> str | None:
    """The kind of secret that *name* makes of *value*; None if it is not a secret."""
    row = known_name(name)
    if row is None or not value or _SPACE.search(value) or is_stand_in(value):
        return None
    return row.kind if row.check(value) else None


# Search -----------------------------------------------------------------------------------------------------------


def redact_text(text: str, rules: Sequence[SecretRule] = RULES) -> tuple[str, Counter[str]]:
    """Replace each secret in *text* with ``[redacted:kind]``; also returns the count of each kind."""
    counts: Counter[str] = Counter()
    if rules is RULES and not may_hold_secrets(text):  # true of most text
        return text, counts
    folded = _folded(text)
    for rule in _signalled(text, folded) if rules is RULES else [rule for rule in rules if _starts(rule, folded)]:
        replaced = rule.replace(text, folded, counts)  # no rule matches in a mark: they are chosen once
        if replaced is not text:
            text = replaced
            folded = _folded(text)
    return text, counts


def may_hold_secrets(text: str) -> bool:
    """Return False only if none of `RULES` finds anything in *text*."""
    if len(text) < _SHORTEST:
        return False
    if not text.isascii():
        text = _encodable(text)
    first, second, third = _looks()
    return first(text) or second(text) or third(text)


def _signalled(text: str, folded: str) -> list[SecretRule]:
    """Those of `RULES` that may find something in *text*."""
    text = _encodable(text)
    rules = [rule for look, part in zip(_looks(), _PARTS, strict=True) if look(text) for rule in part]
    return [rule for rule in rules if _starts(rule, folded) and _automaton(rule.sign)(text)]


def _starts(rule: SecretRule, folded: str) -> bool:
    """Whether one of its starts occurs in *folded*. Looking for their characters is far faster than for a word."""
    return not rule.starts or any(all(map(folded.__contains__, each)) and each in folded for each in rule.starts)


@cache
def _automaton(sign: str) -> Callable[[str], bool]:
    """Whether *sign* matches anywhere in a text, by a finite automaton, which is far faster than `re`."""
    return SchemaValidator(core_schema.str_schema(pattern=sign)).isinstance_python


_SHORTEST: Final = 6
_MIDDLE: Final = (len(_FIRST) + len(RULES)) // 2 - len(NAMES) // 2
_PARTS: Final = (_FIRST, RULES[len(_FIRST) : _MIDDLE], RULES[_MIDDLE:])
"""All rules, in three: one automaton for all their signs would have more states than its cache."""


@cache
def _looks() -> tuple[Callable[[str], bool], Callable[[str], bool], Callable[[str], bool]]:
    first, second, third = (_automaton("|".join(rule.sign for rule in part)) for part in _PARTS)
    return first, second, third


def _encodable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()  # without lone surrogates


def _folded(text: str) -> str:
    """*text* in lower case, of the same length."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.translate(_LOWER)  # "İ".lower() is two characters


_LOWER: Final = {ord(letter): letter.lower() for letter in ascii_uppercase}
