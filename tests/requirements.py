"""Every promise that was made: by the five seeds, by the format page, and by our own API.

Each has a stable id. Tests name the ids they prove with ``@pytest.mark.requirement("ID", …)``, and
`tests/meta/test_requirements.py` fails when a promise that is claimed done has no such test. What is still open
is printed at the end of a test run (`report`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from itertools import groupby

from tests.requirement_lists.format import FORMAT
from tests.requirement_lists.gasoline import GASOLINE
from tests.requirement_lists.gasoline_product import GASOLINE_PRODUCT
from tests.requirement_lists.manager import MANAGER
from tests.requirement_lists.onering import ONERING
from tests.requirement_lists.orbit import ORBIT
from tests.requirement_lists.requirement import Requirement
from tests.requirement_lists.store import STORE
from tests.requirement_lists.terminal import TERMINAL

__all__ = ["PREFIXES", "REQUIREMENTS", "Requirement", "report"]

PREFIXES = ("FORMAT", "STORE", "MANAGER", "ORBIT", "ONERING", "TERMINAL", "GASOLINE", "GASOLINE-P")
"""One per source; a longer one wins over a shorter one."""

REQUIREMENTS: tuple[Requirement, ...] = (
    *FORMAT,
    *STORE,
    *MANAGER,
    *ORBIT,
    *ONERING,
    *TERMINAL,
    *GASOLINE,
    *GASOLINE_PRODUCT,
)


def report(requirements: Iterable[Requirement], *, width: int = 116) -> list[str]:
    """How many are done, and which are still open: ``STORE: SAVE-(REF DELTA)`` stands for two ids."""
    listed = list(requirements)
    waiting = [requirement.id for requirement in listed if requirement.status == "open"]
    lines = [f"requirements: {len(listed) - len(waiting)} done, {len(waiting)} open"]
    for prefix in PREFIXES:
        names = [name for name in waiting if prefix_of(name) == prefix]
        if names:
            text = f"{prefix}: {' '.join(_grouped(names, prefix))}"
            lines += textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)
    return lines


def prefix_of(requirement_id: str) -> str | None:
    """The source an id belongs to; None if it names none."""
    fitting = [prefix for prefix in PREFIXES if requirement_id.startswith(f"{prefix}-")]
    return max(fitting, key=len, default=None)


def _grouped(ids: list[str], prefix: str) -> Iterator[str]:
    tails = [requirement_id.removeprefix(f"{prefix}-").partition("-") for requirement_id in ids]
    for (group, dash), members in groupby(tails, key=lambda tail: tail[:2]):
        yield f"{group}-({' '.join(name for *_, name in members)})" if dash else group
