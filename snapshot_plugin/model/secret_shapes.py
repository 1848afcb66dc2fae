r"""Find secrets in text by their shape, in time linear in the length of the text.

Two tables hold the known shapes: `secret_tokens` (values with a recognisable prefix, such as ``ghp_…``) and
`secret_names`
(values that are secret because of the name before them, as ``password=…``). Each entry is a `Rule`; other rule sets
are added as further rules: ``redact(value, rules=(*RULES, my_rule))``.

A rule runs only if one of its starts occurs in the text, so clean text costs a few substring searches. The regex
engine does the scanning, never a Python loop over positions. No pattern may begin twice within a stretch it can
consume: stretches are bounded, or possessive (``++``) behind a guard on the character before them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from string import ascii_uppercase
from typing import Final

from snapshot_plugin.model.secret_names import NAME_RULES, assigned_kind
from snapshot_plugin.model.secret_rule import Rule
from snapshot_plugin.model.secret_tokens import TOKEN_RULES

__all__ = ["RULES", "Rule", "assigned_kind", "redact_text"]

RULES: Final[tuple[Rule, ...]] = (*TOKEN_RULES, *NAME_RULES)
"""The precise shapes first: a value that was replaced as a token is not looked at again as a password."""


def redact_text(text: str, rules: Sequence[Rule] = RULES) -> tuple[str, Counter[str]]:
    """Return *text* with ``[redacted:kind]`` in the place of each secret, and how many of each kind there were."""
    counts: Counter[str] = Counter()
    if rules is RULES and len(text) <= _SHORT and not _SIGN.search(text):
        return text, counts
    folded = _folded(text)
    no_run = _no_run(text)
    starts = _STARTS if rules is RULES else _starts_of(rules)
    there = _there(folded, no_run, starts)
    if not there and rules is RULES:  # as is most text, and each of our rules has a start
        return text, counts
    for rule in rules:
        if rule.run not in no_run and (not rule.starts or not there.isdisjoint(rule.starts)):
            found = list(rule.find(text, folded))
            if found:
                text = _replaced(text, found, counts)
                folded = _folded(text)
                marks = "".join(_mark(kind) for kind in {kind for _, _, kind in found})
                there |= _there(marks, no_run, starts)  # at most these came; a start that went costs a search
    return text, counts


def _there(folded: str, no_run: tuple[str, ...], starts: Sequence[tuple[str, str, str]]) -> set[str]:
    """Which of the starts occur in the text, of rules that can match at all."""
    return {start for run, rare, start in starts if run not in no_run and rare in folded and start in folded}


def _starts_of(rules: Sequence[Rule]) -> list[tuple[str, str, str]]:
    """The starts of *rules*: the run that has to follow, a character that is fast to look for, and the start."""
    starts = {(rule.run, start) for rule in rules for start in rule.starts}
    return [(run, min(start, key=_COMMON.find, default=""), start) for run, start in sorted(starts)]


def _no_run(text: str) -> tuple[str, ...]:
    """Of the characters that end a prefix, those that no long word follows: their prefixes need not be searched."""
    return tuple(char for char, run in _RUNS.items() if not run.search(text))


def _replaced(text: str, found: Sequence[tuple[int, int, str]], counts: Counter[str]) -> str:
    kinds = [kind for _, _, kind in found]
    counts.update(kinds)
    ends = [0, *(end for _, end, _ in found)]
    between = [text[end:start] for end, (start, _, _) in zip(ends, found)]  # noqa: B905 — one end is left
    rest = text[ends[-1] :]
    if kinds.count(kinds[0]) == len(kinds):  # as of each of our own rules
        return _mark(kinds[0]).join([*between, rest])
    return "".join(part + _mark(kind) for part, kind in zip(between, kinds, strict=True)) + rest


def _mark(kind: str) -> str:
    return f"[redacted:{kind}]"


def _folded(text: str) -> str:
    """*text* in lower case, with every character in its old place."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.translate(_LOWER)  # "İ".lower() is two characters


_COMMON: Final = "zqxjkvbpygfwmucldrhsnioate"
"""Letters, the rarest first; other characters are rarer still."""
_LOWER: Final = {ord(letter): letter.lower() for letter in ascii_uppercase}
_RUNS: Final = {char: re.compile(rf"{re.escape(char)}[A-Za-z0-9][A-Za-z0-9+/=_-]{{15}}") for char in "_-."}
_STARTS: Final = _starts_of(RULES)
_SHORT: Final = 128
_SIGN: Final = re.compile(r"[:=]|(?i:login|sshpass)|[A-Za-z0-9+/_.~-]{16}")
"""Occurs in every text that one of our rules can match. In short text, one search for it is the fastest way."""
