r"""Find secrets in text by their shape, in time linear in the length of the text.

Two tables hold the known shapes: `secret_tokens` (values with a recognisable prefix, such as ``ghp_…``) and
`secret_names`
(values that are secret because of the name before them, as ``password=…``). Each entry is a `Rule`; other rule sets
are added as further rules: ``redact(value, rules=(*RULES, my_rule))``.

A single search decides whether any rule can match, so text without secrets costs almost nothing. A rule then runs
only if one of its starts occurs. Regex engines do the scanning; there is no Python loop over positions. To keep the
time linear, no pattern may start again inside text that it can consume: repetitions are bounded, or possessive
(``++``) after a lookbehind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from string import ascii_uppercase
from typing import Final

from pydantic_core import SchemaValidator, core_schema

from snapshot_plugin.model.secret_names import NAME_RULES, assigned_kind
from snapshot_plugin.model.secret_rule import Rule, SecretRule
from snapshot_plugin.model.secret_tokens import TOKEN_RULES

__all__ = ["RULES", "Rule", "SecretRule", "assigned_kind", "may_hold_secrets", "redact_text"]

RULES: Final[tuple[SecretRule, ...]] = (*TOKEN_RULES, *NAME_RULES)
"""Tokens come first: a value that was replaced as a token is not matched again as a password."""


def redact_text(text: str, rules: Sequence[SecretRule] = RULES) -> tuple[str, Counter[str]]:
    """Replace each secret in *text* with ``[redacted:kind]``; also returns the count of each kind."""
    counts: Counter[str] = Counter()
    if rules is RULES and not may_hold_secrets(text):  # true of most text
        return text, counts
    folded = _folded(text)
    for rule in [rule for rule in rules if _may_match(rule, folded)]:  # marks begin no secret: looked at once
        replaced = rule.replace(text, folded, counts)
        if replaced is not text:
            text = replaced
            folded = _folded(text)
    return text, counts


def _may_match(rule: SecretRule, folded: str) -> bool:
    return not rule.starts or any(_has_all(start, folded) and start in folded for start in rule.starts)


def may_hold_secrets(text: str) -> bool:
    """Return False only if none of `RULES` finds anything in *text*."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()  # the validator rejects lone surrogates
    return _signs().isinstance_python(text)


@cache
def _signs() -> SchemaValidator:
    """A validator that matches any sign. It uses a finite automaton, which is far faster than `re`."""
    return SchemaValidator(core_schema.str_schema(pattern="|".join(rule.sign for rule in RULES)))


def _folded(text: str) -> str:
    """*text* in lower case, of the same length."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.translate(_LOWER)  # "İ".lower() is two characters


def _has_all(start: str, folded: str) -> bool:
    """Whether *folded* has each character of *start*. Looking for characters is far faster than for a word."""
    return all(map(folded.__contains__, start))


_LOWER: Final = {ord(letter): letter.lower() for letter in ascii_uppercase}
