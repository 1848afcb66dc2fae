"""A rule for secrets: where it may apply, and a function that finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

__all__ = ["Find", "Found", "Rule"]

Found = tuple[int, int, str]
"""Where a secret starts and ends, and its kind: lower-case letters and hyphens, shown in its place."""

Find = Callable[[str, str], Iterable[Found]]
"""Called with the text and the same text in lower case, of the same length. Yields in order, without overlaps."""


class Rule(NamedTuple):
    """How to find one kind of secret, and which text need not be searched for it."""

    starts: tuple[str, ...]
    """One of these, in lower case, occurs in every text that *find* can match; none means that it always runs."""
    find: Find
    sign: str = ""
    """A regular expression without lookaround that matches in every text in which *find* finds anything."""
