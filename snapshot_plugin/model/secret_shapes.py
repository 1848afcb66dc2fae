r"""Find secrets in text by their shape, in time linear in the length of the text.

Two tables hold the known shapes: `secret_tokens` (values with a recognisable prefix, such as ``ghp_…``) and
`secret_names`
(values that are secret because of the name before them, as ``password=…``). Each entry is a `Rule`; other rule sets
are added as further rules: ``redact(value, rules=(*RULES, my_rule))``.

One search finds out whether any rule can match at all, so clean text costs next to nothing; then a rule runs only
if one of its starts occurs. The regex engines do the scanning, never a Python loop over positions. No pattern may
begin twice within a stretch it can consume: stretches are bounded, or possessive (``++``) behind a guard on the
character before them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from string import ascii_uppercase
from typing import Final

from pydantic_core import SchemaValidator, core_schema

from snapshot_plugin.model.secret_names import NAME_RULES, assigned_kind
from snapshot_plugin.model.secret_rule import Found, Rule
from snapshot_plugin.model.secret_tokens import TOKEN_RULES

__all__ = ["RULES", "Rule", "assigned_kind", "may_hold_secrets", "redact_text"]

RULES: Final[tuple[Rule, ...]] = (*TOKEN_RULES, *NAME_RULES)
"""The precise shapes first: a value that was replaced as a token is not looked at again as a password."""


def redact_text(text: str, rules: Sequence[Rule] = RULES) -> tuple[str, Counter[str]]:
    """Return *text* with ``[redacted:kind]`` in the place of each secret, and how many of each kind there were."""
    counts: Counter[str] = Counter()
    if rules is RULES and not may_hold_secrets(text):  # as most text
        return text, counts
    folded = _folded(text)
    for rule in rules:
        if not rule.starts or any(_rarest(start) in folded and start in folded for start in rule.starts):
            replaced = _replaced(text, rule.find(text, folded), counts)
            if replaced is not text:
                text = replaced
                folded = _folded(text)
    return text, counts


def may_hold_secrets(text: str) -> bool:
    """Return False only if none of `RULES` finds anything in *text*."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()  # a lone surrogate is no text to the validator
    return _signs().isinstance_python(text)


@cache
def _signs() -> SchemaValidator:
    """All signs at once. The validator searches with a finite automaton, far faster than `re` does."""
    return SchemaValidator(core_schema.str_schema(pattern="|".join(rule.sign for rule in RULES)))


def _replaced(text: str, found: Iterable[Found], counts: Counter[str]) -> str:
    """*text* itself if nothing was found. Only strings are kept of what was: there may be half a million."""
    parts: list[str] = []
    kinds: list[str] = []
    at = 0
    for start, end, kind in found:
        parts.append(text[at:start])
        kinds.append(kind)
        at = end
    if not kinds:
        return text
    counts.update(kinds)
    parts.append(text[at:])
    if kinds.count(kinds[0]) == len(kinds):  # as of each of our own rules
        return _mark(kinds[0]).join(parts)
    return "".join(part + _mark(kind) for part, kind in zip(parts, kinds, strict=False)) + parts[-1]


def _mark(kind: str) -> str:
    return f"[redacted:{kind}]"


def _folded(text: str) -> str:
    """*text* in lower case, with every character in its old place."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.translate(_LOWER)  # "İ".lower() is two characters


@cache
def _rarest(start: str) -> str:
    """The character of *start* that is rarest: one character is searched several times faster than a word."""
    return min(start, key=_COMMON.find)


_COMMON: Final = "zqxjkvbpygfwmucldrhsnioate"
"""Letters, the rarest first; other characters are rarer still."""
_LOWER: Final = {ord(letter): letter.lower() for letter in ascii_uppercase}
