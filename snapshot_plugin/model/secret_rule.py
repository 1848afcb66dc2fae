"""A rule for secrets: where it may apply, and a function that finds them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain
from typing import NamedTuple

__all__ = ["Find", "NameRule", "Rule", "SecretRule", "SecretSpan"]

SecretSpan = tuple[int, int, str]
"""Start, end and kind of a secret. The kind is lower-case letters and hyphens, and replaces the secret."""

Find = Callable[[str, str], Iterable[SecretSpan]]
"""Called with the text and the same text in lower case, of the same length. Yields in order, without overlaps."""


class Rule(NamedTuple):
    """How to find one kind of secret, and how to skip text that cannot contain it."""

    starts: tuple[str, ...]
    """Lower-case strings, one of which occurs in every text that *find* can match. If empty, *find* always runs."""
    find: Find
    sign: str = ""
    """A regular expression without lookaround that matches in every text in which *find* finds anything."""

    def replace(self, text: str, folded: str, counts: Counter[str]) -> str:
        """Return *text* with marks for secrets, and count them; *text* itself if it has none."""
        parts: list[str] = []  # only strings are kept: there may be half a million
        kinds: list[str] = []
        at = 0
        for start, end, kind in self.find(text, folded):
            parts.append(text[at:start])
            kinds.append(kind)
            at = end
        if not kinds:
            return text
        counts.update(kinds)
        marks = {kind: _mark(kind) for kind in set(kinds)}
        pairs = zip(parts, map(marks.__getitem__, kinds), strict=True)
        return "".join(chain.from_iterable(pairs)) + text[at:]


class NameRule(NamedTuple):
    """How to find values behind a name with one pattern, several times faster than a `Rule` that finds as many."""

    starts: tuple[str, ...]
    kind: str
    pattern: re.Pattern[str]
    """Matches ``before``, then ``value`` or ``other``: named groups that hold all that it matches."""
    check: Callable[[str], bool]
    """Whether a value is a secret."""
    sign: str

    def replace(self, text: str, _folded: str, counts: Counter[str]) -> str:
        """Return *text* with marks for secrets, and count them; *text* itself if it has none."""
        parts: list[str | None] = self.pattern.split(text)  # with what each group matched, all in C
        step, groups = self.pattern.groups + 1, self.pattern.groupindex
        found = parts[groups["value"] :: step]
        mark, check = _mark(self.kind), self.check
        marked = [mark if value and check(value) else value for value in found]
        number = marked.count(mark)
        if not number:
            return text
        counts[self.kind] += number
        parts[groups["value"] :: step] = marked
        for name, group in groups.items():
            if name in ("equal", "quote"):
                parts[group::step] = [""] * len(marked)  # are parts of ``before``
        return "".join(filter(None, parts))


SecretRule = Rule | NameRule


def _mark(kind: str) -> str:
    return f"[redacted:{kind}]"
