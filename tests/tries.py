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

from hypothesis import HealthCheck, settings

Case = TypeVar("Case")

__all__ = ["EVERYTHING", "some_of", "tries"]

EVERYTHING = bool(os.environ.get("ASNAP_EVERY_EXAMPLE"))  # `.ci/run` sets it
_SHARE = 1 if EVERYTHING else 4


def tries(count: int, **options: Any) -> settings:
    """Settings for a property that takes *count* examples, however long a busy machine takes for each."""
    options.setdefault("suppress_health_check", [HealthCheck.too_slow])
    return settings(max_examples=max(count // _SHARE, 10), deadline=None, **options)


def some_of(cases: Iterable[Case]) -> Iterator[Case]:
    """The cases of a sweep that are tried."""
    return islice(cases, random.randrange(_SHARE), None, _SHARE)
