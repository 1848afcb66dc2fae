"""How much is tried of what takes long: all that a test says where CI asks for it, elsewhere a quarter.

Properties take fewer examples then. Sweeps (a bit flipped at each place, a kill at each step) take every fourth
case, beginning with one of the first four at random.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from hypothesis import settings

Case = TypeVar("Case")

__all__ = ["some_of", "tries"]

_SHARE = 1 if os.environ.get("ASNAP_EVERY_EXAMPLE") else 4  # `.ci/run` sets it


def tries(count: int, **options: Any) -> settings:
    """Settings for a property that takes *count* examples, without a deadline for each."""
    return settings(max_examples=max(count // _SHARE, 10), deadline=None, **options)


def some_of(cases: Iterable[Case]) -> Iterator[Case]:
    """The cases of a sweep that are tried."""
    return islice(cases, random.randrange(_SHARE), None, _SHARE)
